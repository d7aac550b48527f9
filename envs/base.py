"""The contract between worlds and everything above them: tasks, worlds, text environments, and the registry of worlds.

Owns the vocabulary. Knows nothing of models, tokens, Ray or training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, overload

import gymnasium

from envs import plugins
from envs.registry import Registry, RegistryError, require_subclass
from envs.variants import DEFAULT, Family, Probe, Variant, checked

Split = Literal["train", "heldout"]

SPLITS: tuple[Split, ...] = ("train", "heldout")
"""Every world offers these two; they are disjoint by task id."""

PROBED_TASKS = 12
"""Held-out tasks on which variants are compared."""


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

    A variant is named by its text form (``envs.variants``) or by a name given to it with ``define``.
    """

    name: ClassVar[str]
    families: ClassVar[Mapping[str, Family]] = {}
    """Ways in which this world can be perturbed, by name."""
    max_steps: int

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a stable order."""

    @abstractmethod
    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        """A fresh environment. Raises ``ValueError`` for a variant that this world does not offer."""

    @abstractmethod
    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """A list of actions that solves the task in that form of the world; empty where none is known within the step limit."""

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """What that form of the world answers to fixed questions: the ground on which variants are compared. Unless a world asks better
        ones, these are the observations along the unperturbed solutions of the first held-out tasks."""
        env, replies = self.make(variant), []
        for task in self.tasks("heldout")[:PROBED_TASKS]:
            replies.append(env.reset(seed=0, options={"task": task})[0])
            over = False
            for action in self.oracle(task):
                if over:
                    # Probes of two variants correspond entry by entry.
                    replies.append("")
                    continue
                observation, _, terminated, truncated, _ = env.step(action)
                replies.append(observation)
                over = terminated or truncated
        return Probe(replies=tuple(replies))

    @property
    def variants(self) -> tuple[str, ...]:
        """Text forms of all variants at full severity; per-client families appear without a member."""
        return (
            DEFAULT,
            *(
                str(Variant(family.name, member))
                for family in self.families.values()
                for member in (("",) if family.per_client else family.members)
            ),
        )

    def define(self, variants: Mapping[str, Variant]) -> None:
        """Give names to variants, for instance those of a federation's clients. Raises ``ValueError`` for one that is not offered."""
        self._defined = {**self._names(), **{name: checked(variant, self.families, self.name) for name, variant in variants.items()}}

    def variant(self, variant: str | Variant) -> Variant:
        """The variant behind a name, a text form or itself, with its member filled in. Raises ``ValueError`` for one not offered."""
        if isinstance(variant, str):
            variant = self._names().get(variant) or Variant.parse(variant)
        return checked(variant, self.families, self.name)

    def _names(self) -> dict[str, Variant]:
        names: dict[str, Variant] = getattr(self, "_defined", {})
        return names

    def describe(self, variant: str | Variant = DEFAULT) -> str:
        """What is different in that form of the world, in a few words: the family's effect and the member, unless a world says more."""
        found = self.variant(variant)
        if found.unperturbed:
            return "as ever"
        return f"{self.families[found.family].effect}{f' ({found.member})' if found.member else ''}"

    def overlap(self) -> Mapping[str, int]:
        """Counts of what the held-out tasks share with the train tasks (for instance products), by kind."""
        return {}


@dataclass(frozen=True)
class WorldSpec:
    """How to build a world, small enough to send to another process. ``variants`` are defined in it by name; ``plugins`` are loaded first:
    those of the process that made the spec, unless it says otherwise."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)
    plugins: tuple[str, ...] = field(default_factory=plugins.loaded)

    def build(self) -> World:
        """The world. Raises ``ValueError`` for an unknown name or a plug-in that is not there, and whatever the world raises for its
        options."""
        plugins.load(self.plugins)
        world = make_world(self.name, **self.options)
        world.define(self.variants)
        return world


Factory = Callable[..., World]

WORLDS: Registry[Factory] = Registry(
    "world",
    {
        "webshop": "envs.webshop.world:WebShopWorld",
        "alfworld": "envs.alfworld.world:AlfWorldWorld",
        "bandit": "envs.bandit:BanditWorld",
        "guess": "envs.guess:GuessWorld",
    },
)

W = TypeVar("W", bound=Factory)


@overload
def register_world(name: str, factory: str | Factory) -> None: ...
@overload
def register_world(name: str) -> Callable[[W], W]: ...
def register_world(name: str, factory: str | Factory | None = None) -> Callable[[W], W] | None:
    """Add a world under ``name``: a ``World`` class, another callable that makes one from options, or ``"package.module:attribute"``,
    imported on first use. Without ``factory`` a decorator.

    Raises ``RegistryError`` for a name that is taken, and for a class that is no world or lacks a part of one.
    """
    if factory is None:

        def decorate(made: W) -> W:
            register_world(name, made)
            return made

        return decorate
    if isinstance(factory, type):
        require_subclass("world", name, factory, World)
        if "name" not in vars(factory):
            factory.name = name  # type: ignore[attr-defined]
        if factory.name != name:  # type: ignore[attr-defined]
            raise RegistryError(f"world {name!r}: the class calls itself {factory.name!r}; use one name")  # type: ignore[attr-defined]
    elif not isinstance(factory, str) and not callable(factory):
        raise RegistryError(f"world {name!r}: {factory!r} is neither a World class nor a function that makes one")
    WORLDS.add(name, factory)
    return None


def world_names() -> list[str]:
    """Names that ``make_world`` accepts."""
    return list(WORLDS.names())


def make_world(name: str, **options: Any) -> World:
    """Build a world by name, with the families that plug-ins add to it. Raises ``ValueError`` with the nearest known name for an unknown
    one."""
    from envs.perturbed import with_outside_families

    world = WORLDS.get(name)(**options)
    if not isinstance(world, World):
        raise RegistryError(f"world {name!r}: its factory made a {type(world).__name__}, no World")
    return with_outside_families(world)
