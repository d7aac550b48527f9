"""Variant families from outside: a wrapper around a world's environments that changes what actions do or what observations say.

Owns how such a family joins the families that a world has of its own. A world written outside the package needs none of this: it lists its
families itself (``World.families``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from envs.base import WORLDS, Split, Task, TextEnv, World
from envs.registry import NAME, Registry, RegistryError, require_subclass
from envs.reveal import mark
from envs.variants import DEFAULT, Family, Probe, Variant


class PerturbedEnv(TextEnv):
    """An environment of the unperturbed world, seen through a variant. Subclasses say what differs: ``act``, ``see``, or both; whoever
    needs more overrides ``reset`` and ``step``.

    ``env`` is the environment inside, ``task`` the present task; ``variant`` has member, severity and options of ``family``. The member
    ``control`` and severity 0 are the unperturbed world, which no subclass is asked about.
    """

    family: ClassVar[Family]

    def __init__(self, env: TextEnv, variant: Variant, families: Mapping[str, Family]) -> None:
        self.env, self.variant = env, variant
        self.task: Task | None = None
        self._mark = mark(variant, families, self.hint())

    def act(self, action: str) -> str:
        """The action that the world inside is given."""
        return action

    def see(self, observation: str) -> str:
        """The observation that the agent is given."""
        return observation

    def hint(self) -> str:
        """What ``reveal = hint`` says of this world, in words."""
        return "Here everything is as usual" if _plain(self.variant) else f"Here: {self.variant.member or self.family.effect}"

    @classmethod
    def plan(cls, world: World, task: Task, variant: Variant, actions: list[str]) -> list[str]:
        """Actions that solve the task here, given the unperturbed world's own; [] where none are known. Checked by playing them."""
        return actions

    def option(self, name: str) -> Any:
        """The value of one of the family's options."""
        return self.variant.option(name, self.family)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``."""
        self.task = (options or {}).get("task")
        observation, info = self.env.reset(seed=seed, options=options)
        return self._shown(observation), info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Act."""
        observation, reward, terminated, truncated, info = self.env.step(self.act(action))
        return self._shown(observation), float(reward), terminated, truncated, info

    def _shown(self, observation: str) -> str:
        text = self.see(observation)
        return f"{text}\n{self._mark}" if self._mark else text


FAMILIES: Registry[type[PerturbedEnv]] = Registry("variant family", {}, re.compile(f"{NAME.pattern}/{NAME.pattern}"))
"""Families from outside by ``world/family``."""

P = TypeVar("P", bound=type[PerturbedEnv])


def register_family(world: str, family: Family) -> Callable[[P], P]:
    """Decorate a ``PerturbedEnv`` class as the way in which ``family`` perturbs the world of that name.

    Raises ``RegistryError`` for a name that the world has already, and for another class.
    """

    def decorate(made: P) -> P:
        require_subclass("variant family", family.name, made, PerturbedEnv)
        if not family.members and not family.per_client:
            raise RegistryError(f"variant family {family.name!r}: has no members; name some, or set per_client")
        own = WORLDS.get(world) if world in (*WORLDS.own, *WORLDS.origins) else None
        _require_free(family.name, world, getattr(own, "families", {}))
        made.family = family
        FAMILIES.add(f"{world}/{family.name}", made)
        return made

    return decorate


def outside_families(world: str) -> dict[str, type[PerturbedEnv]]:
    """What plug-ins add to a world, by the family's name."""
    return {name.partition("/")[2]: FAMILIES.get(name) for name in FAMILIES.names() if name.partition("/")[0] == world}


def with_outside_families(world: World) -> World:
    """The world with the families that plug-ins add to it; itself where there are none."""
    added = outside_families(world.name)
    for name in added:
        _require_free(name, world.name, world.families)
    return PerturbedWorld(world, added) if added else world


def _require_free(family: str, world: str, own: Mapping[str, Family]) -> None:
    if family in own or family == DEFAULT:
        raise RegistryError(f"variant family {family!r} is taken (by world {world!r} itself); choose another name")


class PerturbedWorld(World):
    """A world with families from outside beside its own. Everything else is the world's."""

    def __init__(self, world: World, added: Mapping[str, type[PerturbedEnv]]) -> None:
        self.inside, self._added = world, added
        self.name = world.name  # type: ignore[misc]
        self.families = {**world.families, **{name: made.family for name, made in added.items()}}  # type: ignore[misc]
        self.max_steps = world.max_steps

    def __getattr__(self, name: str) -> Any:
        if name in ("inside", "_added", "_defined"):
            raise AttributeError(name)
        return getattr(self.inside, name)

    def tasks(self, split: Split) -> Sequence[Task]:
        """The world's tasks."""
        return self.inside.tasks(split)

    def overlap(self) -> Mapping[str, int]:
        """The world's overlap."""
        return self.inside.overlap()

    def define(self, variants: Mapping[str, Variant]) -> None:
        """Give names to variants."""
        super().define(variants)
        self.inside.define({name: variant for name, variant in variants.items() if variant.family not in self._added})

    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        """A fresh environment."""
        found = self.variant(variant)
        if found.family not in self._added:
            return self.inside.make(found)
        if _plain(found):
            env = self.inside.make()
            return env if found.reveal == "none" else PerturbedEnv(env, found, self.families)
        return self._added[found.family](self.inside.make(), found, self.families)

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """The world's own solution, as the family changes it."""
        found = self.variant(variant)
        if found.family not in self._added:
            return self.inside.oracle(task, found)
        actions = self.inside.oracle(task)
        return actions if _plain(found) else self._added[found.family].plan(self, task, found, actions)

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """The world's own probe; for a family from outside, the replies along unperturbed solutions."""
        found = self.variant(variant)
        if found.family not in self._added:
            return self.inside.probe(found)
        return super().probe(found)


def _plain(variant: Variant) -> bool:
    return variant.unperturbed or variant.member == "control"
