"""Proof that variants do what they say: which tasks the scripted oracle still solves in one, and how far apart every two of them are.

Plain data for whoever prints or refuses. Knows the contract of worlds only, no world in particular.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from envs.base import Task, World
from envs.variants import Variant, distinctness


@dataclass(frozen=True)
class Reach:
    """``solved`` of ``tried`` tasks within the step limit, ``steps`` actions on average; ids of the others in ``missed``."""

    tried: int
    solved: int
    steps: float
    missed: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Solved share, in [0, 1]; 1 without tasks."""
        return self.solved / self.tried if self.tried else 1.0


@dataclass(frozen=True)
class PairDistance:
    """How far two variants are apart on the same questions (``envs.variants.Distinctness``)."""

    first: str
    second: str
    jaccard: float
    top1: float
    replies: float
    same: bool


def reachability(world: World, variant: str | Variant, tasks: Sequence[Task]) -> Reach:
    """Let the oracle plan every task and carry the plan out in a fresh environment of the variant: planned is not yet solved."""
    steps, missed = 0, []
    for task in tasks:
        plan = world.oracle(task, variant)
        if plan and _succeeds(world, variant, task, plan):
            steps += len(plan)
        else:
            missed.append(task.id)
    solved = len(tasks) - len(missed)
    return Reach(len(tasks), solved, steps / solved if solved else 0.0, tuple(missed))


def _succeeds(world: World, variant: str | Variant, task: Task, plan: Iterable[str]) -> bool:
    env = world.make(variant)
    _, info = env.reset(options={"task": task})
    for action in plan:
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    return bool(info["success"])


def distances(world: World, variants: Mapping[str, str | Variant]) -> list[PairDistance]:
    """Every two of the named variants compared on what they answer, apart from what they reveal of themselves."""
    probes = {name: world.probe(replace(world.variant(variant), reveal="none")) for name, variant in variants.items()}
    found = []
    for first, second in combinations(probes, 2):
        measured = distinctness(probes[first], probes[second])
        found.append(PairDistance(first, second, measured.jaccard, measured.top1, measured.replies, measured.same))
    return found


def require_distinct(found: Iterable[PairDistance]) -> None:
    """Raise ``ValueError`` naming the first two variants that answer alike to everything."""
    for pair in found:
        if pair.same:
            raise ValueError(
                f"variants {pair.first!r} and {pair.second!r} answer alike to every question: choose other members or raise the severity"
            )
