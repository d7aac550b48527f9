"""What is said of an arm over its seeds, and of two arms beside each other. The one place for both: report, tables and notebooks use it.

Three intervals answer three questions. Wilson's, of a run or pooled over seeds, covers the held-out tasks and the luck of sampling, not the
seeds. Student's t and the bootstrap, over seeds, cover everything that a seed decides: schedule, tasks, training. A difference is taken
seed by seed, so what both arms share under a seed cancels. The formulas are ``pipeline.statistics``'s.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.reproduce.results import Arm
from pipeline.statistics import Interval, bootstrap_interval, t_interval, wilson

RESAMPLES = 10_000


@dataclass(frozen=True)
class Summary:
    """A mean over ``n`` seeds with its 95 % t interval (``low``, ``high``) and percentile bootstrap; the bounds are None with one seed.

    With three seeds the bootstrap draws from 27 samples and is too narrow; the t interval is the one to quote.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    boot_low: float | None = None
    boot_high: float | None = None

    @property
    def interval(self) -> Interval | None:
        """Student's interval."""
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


def over_seeds(values: Sequence[float | None], *, boot: bool = True) -> Summary | None:
    """The mean over seeds; values that are None are left out, and no value at all gives None. The bootstrap is seeded by the values."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    if len(known) < 2:
        return Summary(mean, len(known))
    low, high = t_interval(known)
    if not boot:
        return Summary(mean, len(known), low, high)
    boot_low, boot_high = bootstrap_interval(known, _stream(known), resamples=RESAMPLES)
    return Summary(mean, len(known), low, high, boot_low, boot_high)


def paired(a: Mapping[int, float | None], b: Mapping[int, float | None]) -> Summary | None:
    """``a - b`` over the seeds that both have, each a value by seed. None where they share no seed."""
    differences = [left - right for seed in sorted(a.keys() & b.keys()) if (left := a[seed]) is not None and (right := b[seed]) is not None]
    return over_seeds(differences)


def pooled(rates: Sequence[float], n: Sequence[int]) -> Interval:
    """Wilson's interval of all tasks of all seeds together: ``rates[i]`` of ``n[i]`` tasks. Seeds differ by more than tasks, so it is too
    narrow for a claim about the method. ``ValueError`` without tasks or for lists of different lengths."""
    successes = sum(int(rate * tasks + 0.5) for rate, tasks in zip(rates, n, strict=True))
    return wilson(successes, sum(n))


def by_seed(arms: Sequence[Arm], name: str, metric: str = "mean_worlds") -> dict[int, float]:
    """``metric`` of the arm called ``name``, by seed."""
    return {arm.seed: float(value) for arm in arms if arm.name == name and (value := getattr(arm, metric)) is not None}


def difference(arms: Sequence[Arm], name: str, versus: str, metric: str = "mean_worlds") -> Summary | None:
    """How much arm ``name`` is above arm ``versus``, paired by seed."""
    return paired(dict(by_seed(arms, name, metric)), dict(by_seed(arms, versus, metric)))


def _stream(values: Sequence[float]) -> np.random.Generator:
    # By content: the same numbers have the same interval wherever they are shown.
    digest = hashlib.sha256(np.asarray(values, dtype=np.float64).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))
