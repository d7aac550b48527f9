"""Which client meets which world: balanced, seeded, refused where it cannot be, proven before the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from envs.base import Split, Task, TextEnv, World
from envs.variants import DEFAULT, Family, Probe, Variant, assign_members
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.heterogeneity import assign, prove, published_members
from pipeline.schedule import Schedule


class Lamp(TextEnv):
    """Done after one action."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "dark", {"admissible": ["press"]}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "light", 1.0, True, False, {"admissible": [], "score": 1.0, "success": True}


class Lamps(World):
    """Tasks ``0 .. 199``. Family ``switch``: member k cannot do tasks that are k modulo 4; ``street`` is drawn per client."""

    name: ClassVar[str] = "lamps"
    families: ClassVar[Mapping[str, Family]] = {
        "switch": Family(
            "switch", "dynamics", ("control", "left", "right", "twin"), "a switch", {"sticky": False, "reference": False}, default_members=3
        ),
        "street": Family("street", "content", (), "a street", per_client=True),
    }
    max_steps = 5

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(str(i), f"light lamp {i}", "ab"[i % 2]) for i in range(200)]

    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        return Lamp()

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        member = self.variant(variant).member
        lost = {"control": 9, "left": 1, "right": 2, "twin": 2}.get(member, 9)
        return [] if int(task.id) % 4 == lost else ["press"]

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        member = self.variant(variant).member
        return Probe((("x", "y") if member == "left" else ("y", "x"),), ("right" if member == "twin" else member,))


def made(clients: int = 6, seed: int = 0, mode: str = "federated", **variant: Any) -> Config:
    return Config.model_validate(
        {
            "run": {"seed": seed},
            "federation": {"clients": clients, "clients_per_round": 2, "tasks_per_client": 20, "mode": mode},
            "world": {"variant": variant},
        }
    )


def assigned(config: Config) -> tuple[World, Schedule, Any]:
    world = Lamps()
    schedule = Schedule(config, world.tasks("train"))
    return world, schedule, assign(config, world, schedule.partition)


def test_without_a_family_everybody_meets_the_default_world() -> None:
    world, schedule, assignment = assigned(made())
    assert set(assignment.names.values()) == {DEFAULT}
    assert not assignment.variants
    assert prove(made(), world, assignment, schedule.partition).reach == ()


def test_members_are_dealt_evenly_and_by_the_seed() -> None:
    _, _, first = assigned(made(clients=10, family="switch"))
    assert sorted(Counter(first.names.values()).values()) == [3, 3, 4]
    assert set(first.names.values()) == {"switch:control", "switch:left", "switch:right"}
    assert assigned(made(clients=10, family="switch"))[2].names == first.names
    assert assigned(made(clients=10, seed=1, family="switch"))[2].names != first.names
    assert assigned(made(clients=10, seed=1, family="switch"))[2].names == assigned(made(clients=10, family="switch", seed=1))[2].names


@pytest.mark.parametrize("clients", [1, 2, 7, 100])
@pytest.mark.parametrize("members", [1, 2, 4, 8])
def test_the_deal_is_balanced(clients: int, members: int) -> None:
    dealt = Counter(assign_members(clients, [str(i) for i in range(members)], 3))
    assert max(dealt.values()) - min(dealt[str(i)] for i in range(members)) <= 1


def test_the_published_deal_is_the_published_one() -> None:
    counts = Counter(published_members(100, [str(i) for i in range(4)]))
    assert [counts[str(i)] for i in range(4)] == [21, 19, 33, 27]
    assert published_members(1, ["a", "b"]) == (("a", "b")[int(np.random.RandomState(42).randint(2))],)


def test_a_family_drawn_per_client_protects_the_clients_own_tasks() -> None:
    world, schedule, assignment = assigned(made(clients=3, family="street"))
    assert assignment.names["c001"] == "street:c001"
    variant = world.variant(assignment.names["c001"])
    assert variant.protected == tuple(task.id for task in schedule.partition["c001"])
    assert len({v.stream for v in assignment.variants.values()}) == 3


def test_the_pooled_client_meets_each_task_in_the_world_of_its_owner() -> None:
    config = made(clients=4, mode="centralized", family="switch")
    _, schedule, assignment = assigned(config)
    schedule = replace(schedule, worlds=assignment.names)
    owner = {task.id: client for client, tasks in schedule.partition.items() for task in tasks}
    specs = [spec for plan in schedule.plan(1).clients for epoch in plan.epochs for spec in epoch]
    assert {spec.client for spec in specs} == {"pooled"}
    assert all(spec.variant == assignment.names[owner[spec.task.id]] for spec in specs)
    assert len({spec.variant for spec in specs}) > 1


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ({"family": "swich"}, r"world.variant.family = 'swich': unknown \(known: default, switch, street\); did you mean 'switch'"),
        ({"family": "switch", "members": ("lft",)}, "world.variant.members: 'lft' of family 'switch'.*did you mean 'left'"),
        ({"family": "switch", "members": 9}, "members = 9: switch has 4; allowed: 1 to 4"),
        ({"family": "switch", "options": {"stiky": True}}, "option 'stiky' of variant 'switch'.*did you mean 'sticky'"),
        ({"family": "switch", "options": {"sticky": 3}}, "option sticky = 3.*expected bool"),
        ({"family": "street", "members": 2}, "cannot matter with family 'street'"),
        ({"family": "street", "reference": True}, "no published form"),
    ],
)
def test_what_the_world_does_not_offer_is_refused_with_the_nearest_name(variant: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        assigned(made(**variant))


def test_the_oracle_tries_every_client_and_a_floor_is_kept() -> None:
    config = made(family="switch", members=3, reach_tasks=20)
    world, schedule, assignment = assigned(config)
    proof = prove(config, world, assignment, schedule.partition)
    assert [r.reach.tried for r in proof.reach] == [20] * 6
    shares = {r.world: r.reach.share for r in proof.reach}
    assert shares["switch:control"] == 1.0
    assert shares["switch:left"] < 1.0
    tight = made(family="switch", members=3, reach_tasks=20, min_reachable=0.99)
    with pytest.raises(ConfigError, match=r"min_reachable = 0.99: client c00\d can reach \d+ of 20 tasks in its world switch:"):
        prove(tight, *assigned(tight)[::2], assigned(tight)[1].partition)


def test_worlds_are_compared_and_equal_ones_refused() -> None:
    config = made(family="switch", members=3)
    world, schedule, assignment = assigned(config)
    found = {(d.first, d.second): d for d in prove(config, world, assignment, schedule.partition).differences}
    assert len(found) == 3
    left = next(d for pair, d in found.items() if set(pair) == {"switch:control", "switch:left"})
    assert (left.jaccard, left.top1, left.replies) == (1.0, 1.0, 1.0)
    twins = made(family="switch", members=("right", "twin"))
    world, schedule, assignment = assigned(twins)
    with pytest.raises(ConfigError, match=r"'switch:(right|twin)' and 'switch:(right|twin)' answer alike to every question"):
        prove(twins, world, assignment, schedule.partition)
