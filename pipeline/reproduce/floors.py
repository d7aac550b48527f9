"""What no shared policy can pass in an arm, before anything is trained: the label *floor* or *slack*, and the share of the ceiling.

The ceiling is what the same learner reaches where worlds are alike; a shared policy that does each world's work as well as that reaches
``share`` of it. Three ways to that share: in closed form where exactly one world pays for whatever is done (1/K over K equally populous
worlds); by the scripted oracles bound to one policy (``shared_play``); and for the bandit from its probabilities (theorem 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from envs.bandit import BanditWorld
from envs.variants import DEFAULT
from pipeline.config import Config
from pipeline.evaluation import chosen_tasks
from pipeline.heterogeneity import Federated, set_up
from pipeline.reproduce.shared_play import shared_play
from pipeline.theory import memory_gap, shared_optimum

Rule = Literal["none", "one_of", "shared", "bandit"]
Kind = Literal["floor", "slack", "none"]

LITTLE = 0.05
"""Shares of tasks by which the best shared policy must fall behind the worlds' own for a floor."""
TASKS = 40
"""Held-out tasks on which the scripted oracles are tried."""


@dataclass(frozen=True)
class Floor:
    """``share`` of the ceiling that the best shared policy reaches (None: not known); for the bandit ``value``, the mean reward itself, and
    ``gap``, the least that the worst client loses. ``how`` says in words where it comes from."""

    kind: Kind = "none"
    share: float | None = None
    value: float | None = None
    gap: float | None = None
    how: str = ""

    def height(self, ceiling: float | None) -> float | None:
        """The floor as a success rate, given the uniform arm's."""
        if self.value is not None:
            return self.value
        return None if self.share is None or ceiling is None else self.share * ceiling

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def find_floor(rule: Rule, config: Config) -> Floor:
    """The floor of an arm with this configuration. Raises ``FedAgentError`` as setting up its worlds does."""
    if rule == "none":
        return Floor()
    made = set_up(config)
    residents = Counter(made.assignment.names.values())
    if rule == "bandit":
        return _bandit(made, residents)
    if not made.assignment.perturbed or len(residents) < 2:
        return Floor(how="all clients live in one world")
    if rule == "one_of":
        share = max(residents.values()) / sum(residents.values())
        return Floor("floor", share, how=f"whatever is done, one of {len(residents)} worlds pays for it")
    return _scripted(made, residents, config)


def _scripted(made: Federated, residents: Mapping[str, int], config: Config) -> Floor:
    tasks = chosen_tasks(config, made.world.tasks("heldout"))[:TASKS]
    found = shared_play(made.world, residents, tasks)
    kind: Kind = "floor" if found.shared < found.own - LITTLE else "slack"
    how = (
        f"the scripted oracles of {len(residents)} worlds, bound to one policy that reads and remembers, solve {found.shared:.0%} of "
        f"{found.tasks} tasks ({found.blind:.0%} without reading, {found.own:.0%} each in its own world)"
    )
    return Floor(kind, found.shared, how=how)


def _bandit(made: Federated, residents: Mapping[str, int]) -> Floor:
    world = made.world
    assert isinstance(world, BanditWorld), "the rule is for bandits"
    if made.config.world.variant.reveal != "none":
        return Floor("none", gap=0.0, how="the world is revealed: nothing need be lost")
    names = [name for name in residents if name != DEFAULT] or [DEFAULT]
    weights = [residents[name] / sum(residents.values()) for name in names]
    best = shared_optimum([world.values(name) for name in names], weights)
    if best.disagreement == 0:
        return Floor("none", value=best.shared, gap=0.0, how="one arm is best everywhere")
    if world.silent or world.horizon == 1:
        return Floor("floor", value=best.shared, gap=best.worst_gap, how="the best mixture of arms, by linear programming (theorem 4)")
    delta = float(made.config.world.options.get("delta", 0.5))
    gap = memory_gap(delta, world.horizon) / world.horizon
    return Floor("floor", value=best.own - gap, gap=gap, how=f"the Bayes rule over {world.horizon} plays that say what paid (theorem 4)")
