"""The contract between worlds and everything above them: tasks, worlds, text environments, and the registry of worlds.

Owns the vocabulary. Knows nothing of models, tokens, Ray or training.
"""

from __future__ import annotations

import difflib
import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import gymnasium

Split = Literal["train", "heldout"]

SPLITS: tuple[Split, ...] = ("train", "heldout")
"""Every world offers these two; they are disjoint by task id."""


@dataclass(frozen=True)
class Task:
    """One thing an agent can be asked to do.

    ``id`` is unique within a world and stable across processes; ``instruction`` is the text that the agent reads;
    ``category`` is the axis along which task heterogeneity is built; ``payload`` is what the environment needs to set the task up.
    """

    id: str
    instruction: str
    category: str
    payload: Mapping[str, Any] = field(default_factory=dict)


class TextEnv(gymnasium.Env[str, str]):
    """A gymnasium environment whose observations and actions are text.

    ``reset(options={"task": Task})`` returns ``(observation, info)``; ``step(text)`` returns
    ``(observation, reward, terminated, truncated, info)``. ``info`` always has ``admissible`` (list of action texts),
    ``score`` in [0, 1] (the world's own measure, 0 until the episode ends) and ``success`` (bool).
    Nothing is shared between two environments, and nothing of an episode survives ``reset``.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012


class World(ABC):
    """A set of tasks and a way to make environments in which they can be attempted.

    Building a world may be expensive (it loads a catalogue or an index); ``make`` must be cheap, so that one world per
    process serves any number of environments.
    """

    name: ClassVar[str]
    variants: ClassVar[tuple[str, ...]] = ("default",)
    max_steps: int

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a stable order."""

    @abstractmethod
    def make(self, variant: str = "default") -> TextEnv:
        """A fresh environment. Raises ``ValueError`` for a variant that this world does not offer."""

    @abstractmethod
    def oracle(self, task: Task) -> list[str]:
        """A list of actions that solves the task in the unperturbed world."""

    def overlap(self) -> Mapping[str, int]:
        """Counts of what the held-out tasks share with the train tasks (for instance products), by kind."""
        return {}


@dataclass(frozen=True)
class WorldSpec:
    """How to build a world, small enough to send to another process."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> World:
        """The world. Raises ``ValueError`` for an unknown name, and whatever the world raises for its options."""
        return make_world(self.name, **self.options)


_FACTORIES: dict[str, str | Callable[..., World]] = {
    "webshop": "envs.webshop.world:WebShopWorld",
}


def register_world(name: str, factory: str | Callable[..., World]) -> None:
    """Add a world under ``name``. ``factory`` is a callable or ``"package.module:attribute"``, imported on first use."""
    _FACTORIES[name] = factory


def world_names() -> list[str]:
    """Names that ``make_world`` accepts."""
    return sorted(_FACTORIES)


def make_world(name: str, **options: Any) -> World:
    """Build a world by name. Raises ``ValueError`` with the nearest known name for an unknown one."""
    if name not in _FACTORIES:
        near = difflib.get_close_matches(name, _FACTORIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown world {name!r} (known: {', '.join(world_names())}){hint}")
    factory = _FACTORIES[name]
    if isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        factory = getattr(importlib.import_module(module), attribute)
    assert callable(factory)
    return factory(**options)
