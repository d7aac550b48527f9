"""What a partition is asked to be, what it became, and the error for what cannot be. Draws nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.base import Task

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

KNOBS = ("preference", "coverage", "hardness")
PUBLISHED_MEAN, PUBLISHED_MAX = 500, 1000
"""Mean and largest number of tasks of a client with ``coverage`` in the published runs; the smallest is ``size``."""


class PartitionError(ValueError):
    """Tasks cannot be dealt out as asked. The message names the setting or the file and record, and what to change."""


@dataclass(frozen=True)
class PartitionSpec:
    """How clients differ in their tasks.

    ``size`` is the number of tasks of a client (the mean one with ``coverage``, unless ``mean_size`` says otherwise). The three knobs are
    dispersions in (0, 1), independent of each other; None leaves that measure alone:

    - ``preference`` (omega): category mixes q ~ Dirichlet(p0 (1 - omega) / omega) around the pool's mix p0,
    - ``coverage`` and ``hardness``: sizes, and shares of easy tasks, from Beta distributions of the concentration 1 / knob - 1, so that the
      variance is the knob times the largest one that the mean and the bounds allow.

    Sizes lie between ``min_size`` (default: a tenth of the mean) and ``max_size`` (default: twice the mean). ``easy_mean`` is the mean
    share of easy tasks (default: the pool's, so that the federation's difficulty stays; the published runs used 0.5).
    ``given_order`` deals a uniform partition out in the order of the tasks instead of a drawn one.
    ``reference`` selects the published constructors, defects included.
    """

    size: int
    preference: float | None = None
    coverage: float | None = None
    hardness: float | None = None
    min_size: int | None = None
    mean_size: int | None = None
    max_size: int | None = None
    easy_mean: float | None = None
    given_order: bool = False
    reference: bool = False

    def __post_init__(self) -> None:
        for knob in KNOBS:
            value = getattr(self, knob)
            if value is not None and not 0.0 < value < 1.0:
                raise PartitionError(f"{knob} = {value:g}; allowed: more than 0 and less than 1 (leave it out for none)")
        if self.easy_mean is not None and not 0.0 < self.easy_mean < 1.0:
            raise PartitionError(f"easy_mean = {self.easy_mean:g}; allowed: more than 0 and less than 1")
        for name in ("size", "min_size", "mean_size", "max_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PartitionError(f"{name} = {value}; allowed: 1 or more")
        if self.reference and len(self.knobs) > 1:
            raise PartitionError(f"reference: the published constructors use one knob at a time, here are {', '.join(self.knobs)}")

    @property
    def knobs(self) -> tuple[str, ...]:
        """Knobs in use."""
        return tuple(knob for knob in KNOBS if getattr(self, knob) is not None)

    @property
    def kind(self) -> str:
        """``uniform`` or the knobs in use."""
        return " + ".join(self.knobs) or "uniform"

    def bounds(self) -> tuple[int, int, int]:
        """Smallest, mean and largest number of tasks of a client. Raises ``PartitionError`` where they are in the wrong order."""
        if self.coverage is None:
            return self.size, self.size, self.size
        if self.reference:
            low, mean, high = self.min_size or self.size, self.mean_size or PUBLISHED_MEAN, self.max_size or PUBLISHED_MAX
        else:
            mean = self.mean_size or self.size
            low, high = self.min_size or max(1, mean // 10), self.max_size or 2 * mean
        if not low <= mean <= high:
            raise PartitionError(f"coverage: min_size = {low}, mean_size = {mean}, max_size = {high}; they must ascend")
        if low == high:
            raise PartitionError(f"coverage = {self.coverage:g} cannot matter: every client has {low} tasks; widen min_size or max_size")
        return low, mean, high


def concentration(dispersion: float) -> float:
    """The Beta concentration (xi) of a dispersion knob: 1 / knob - 1, without the last digits' rounding (1/257 gives 256)."""
    return float(f"{1.0 / dispersion - 1.0:.12g}")


def dispersion(concentration: float) -> float:
    """The dispersion knob of a Beta concentration (xi): 1 / (1 + xi)."""
    if not concentration > 0:
        raise PartitionError(f"concentration xi = {concentration:g}; allowed: more than 0")
    return 1.0 / (1.0 + concentration)


@dataclass(frozen=True)
class Drawn:
    """What was drawn for every client before any task was picked: sizes, intended category mixes, intended shares of easy tasks.

    Shapes (clients,), (clients, categories) and (clients,); None for a layer whose knob is off.
    """

    sizes: IntArray
    mixes: FloatArray | None = None
    easy: FloatArray | None = None


@dataclass(frozen=True)
class Partition:
    """Which client owns which tasks. ``owned[i]`` are places in ``tasks``; ``easy`` flags tasks where labels are known.

    ``drawn`` is None where nothing was drawn (an explicit file, the published constructors). ``notes`` say where a knob met a limit.
    """

    spec: PartitionSpec
    seed: int
    clients: tuple[str, ...]
    tasks: Sequence[Task] = field(repr=False)
    owned: tuple[IntArray, ...] = field(repr=False)
    easy: BoolArray | None = field(default=None, repr=False)
    drawn: Drawn | None = field(default=None, repr=False)
    source: str = ""
    notes: tuple[str, ...] = ()

    def by_client(self) -> dict[str, tuple[Task, ...]]:
        """Tasks of every client."""
        return {name: tuple(self.tasks[i] for i in part) for name, part in zip(self.clients, self.owned, strict=True)}

    def plain(self) -> dict[str, list[str]]:
        """Task ids of every client: the content of an explicit file."""
        return {name: [self.tasks[i].id for i in part] for name, part in zip(self.clients, self.owned, strict=True)}

    @cached_property
    def sizes(self) -> IntArray:
        """Tasks per client."""
        return np.array([len(part) for part in self.owned], dtype=np.int64)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The tasks' categories in alphabetical order."""
        return tuple(sorted({task.category for task in self.tasks}))

    @cached_property
    def category_of(self) -> IntArray:
        """Place of every task's category in ``categories``."""
        place = {name: i for i, name in enumerate(self.categories)}
        return np.array([place[task.category] for task in self.tasks], dtype=np.int64)

    @cached_property
    def counts(self) -> IntArray:
        """Tasks by client and category."""
        rows = [np.bincount(self.category_of[part], minlength=len(self.categories)) for part in self.owned]
        return np.array(rows, dtype=np.int64).reshape(len(self.clients), len(self.categories))

    @cached_property
    def pool_mix(self) -> FloatArray:
        """Shares of the categories among all tasks."""
        return np.bincount(self.category_of, minlength=len(self.categories)) / len(self.tasks)

    @cached_property
    def easy_shares(self) -> FloatArray | None:
        """Share of easy tasks of every client; None without labels."""
        if self.easy is None:
            return None
        return np.array([float(self.easy[part].mean()) for part in self.owned])


def examples(ids: Sequence[str], shown: int = 3) -> str:
    """The first ids, and how many more there are."""
    more = f" and {len(ids) - shown} more" if len(ids) > shown else ""
    return ", ".join(repr(name) for name in ids[:shown]) + more


def settings(spec: PartitionSpec) -> Mapping[str, Any]:
    """The spec as JSON values, without what is not set."""
    return {key: value for key, value in vars(spec).items() if value not in (None, False)}
