"""The floors that are known in closed form are found by trying, and labels follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import pytest

from envs.base import Split, Task, TextEnv, World
from envs.variants import DEFAULT, Family, Variant
from pipeline.config.load import load_config
from pipeline.heterogeneity import set_up
from pipeline.reproduce.arms import DELTAS, PLAYS, machine, tale
from pipeline.reproduce.floors import Floor, find_floor
from pipeline.reproduce.shared_play import SharedPlay, shared_play
from pipeline.reproduce.trials import Trial
from pipeline.theory import memory_gap


class Doors(TextEnv):
    """Two doors, one of which has the prize. A look tells (``signed``), or a wrong door can be left again (``open``), or neither."""

    def __init__(self, right: str, how: str) -> None:
        self._right, self._how = right, how
        self._at, self._steps = "hall", 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._steps = "hall", 0
        return self._shown(), self._info(False)

    def _shown(self) -> str:
        if self._at == "hall":
            return f"hall, prize is {self._right}" if self._how == "signed" else "hall"
        return f"room {'with' if self._at == self._right else 'without'} prize" if self._how == "open" else "room"

    def _info(self, success: bool) -> dict[str, Any]:
        offered = ["left", "right"] if self._at == "hall" else ["take", "click[< prev]"] if self._how == "open" else ["take"]
        return {"admissible": offered, "score": float(success), "success": success}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        over = success = False
        if action in ("left", "right") and self._at == "hall":
            self._at = action
        elif action == "click[< prev]" and self._how == "open":
            self._at = "hall"
        elif action == "take":
            over, success = True, self._at == self._right
        return self._shown(), 10.0 * success, over, not over and self._steps >= DoorsWorld.max_steps, self._info(success)


class DoorsWorld(World):
    name: ClassVar[str] = "doors"
    max_steps = 5
    families: ClassVar[dict[str, Family]] = {
        how: Family(how, "dynamics", ("left", "right"), "the prize is elsewhere") for how in ("signed", "open", "closed")
    }

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{i}", "get the prize", "prize") for i in range(3)]

    def make(self, variant: str | Variant = DEFAULT) -> Doors:
        found = self.variant(variant)
        return Doors(found.member, found.family)

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        return [self.variant(variant).member, "take"]


@pytest.mark.parametrize(("how", "shared"), [("signed", 1.0), ("open", 1.0), ("closed", 0.75)])
def test_what_can_be_read_or_undone_costs_nothing(how: str, shared: float) -> None:
    world = DoorsWorld()
    found = shared_play(world, {f"{how}:left": 3, f"{how}:right": 1}, world.tasks("heldout"))
    assert found == SharedPlay(shared=shared, blind=0.75, own=1.0, tasks=3)


def test_too_late_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong door opened and left, it takes four steps."""
    world = DoorsWorld()
    monkeypatch.setattr(DoorsWorld, "max_steps", 3)
    found = shared_play(world, {"open:left": 1, "open:right": 1}, world.tasks("heldout"))
    assert (found.shared, found.own) == (0.5, 1.0)


def test_nothing_to_play() -> None:
    with pytest.raises(ValueError, match="at least one world and one task"):
        shared_play(DoorsWorld(), {}, DoorsWorld().tasks("heldout"))


@cache
def arm_floor(name: str) -> tuple[Floor, Floor]:
    """The floor of an arm by its own rule and by the scripted oracles."""
    config = Trial(next(arm for arm in tale() if arm.name == name), 0).config()
    return find_floor("one_of", config), find_floor("shared", config)


@pytest.mark.parametrize(("name", "share"), [("buy2", 1 / 2), ("buy4", 1 / 4), ("hid2buy4", 1 / 8)])
def test_one_world_of_k_pays(name: str, share: float) -> None:
    closed, scripted = arm_floor(name)
    assert closed.share == scripted.share == share
    assert closed.kind == scripted.kind == "floor"


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [("rank", "slack", 1.0), ("recoverable", "slack", 1.0), ("hid2buy4", "floor", 0.125), ("escape-hint", "slack", 1.0)],
)
def test_scripted_floors_of_the_shop(name: str, kind: str, share: float) -> None:
    scripted = arm_floor(name)[1]
    assert (scripted.kind, scripted.share) == (kind, share)
    assert "bound to one policy" in scripted.how


def test_one_world_has_no_floor() -> None:
    assert find_floor("shared", Trial(next(a for a in tale() if a.name == "same-rank-invert"), 0).config()).kind == "none"
    assert find_floor("none", load_config()) == Floor()


@pytest.mark.parametrize("delta", DELTAS)
def test_bandit_floors_are_the_theory(delta: float) -> None:
    floors = {kind: find_floor("bandit", Trial(machine(delta, kind, "grpo"), 0).config()) for kind in ("silent", "memory", "revealed")}
    best = (1 + delta) / 2
    assert floors["silent"].gap == pytest.approx(delta / 2)
    assert floors["silent"].value == pytest.approx(0.5)
    assert floors["revealed"].gap == 0.0
    assert floors["silent"].kind == ("floor" if delta else "none")
    if delta:
        plays = PLAYS["memory"]
        gap = memory_gap(delta, plays) / plays
        assert (floors["memory"].gap, floors["memory"].value) == (pytest.approx(gap), pytest.approx(best - gap))
        assert gap < delta / 2


def test_height_is_the_share_of_the_ceiling() -> None:
    assert Floor("floor", 0.25).height(0.8) == pytest.approx(0.2)
    assert Floor("floor", 0.25).height(None) is None
    assert Floor("floor", value=0.5).height(0.8) == 0.5
    assert Floor().height(0.8) is None


def test_worlds_are_weighted_by_their_clients() -> None:
    config = load_config(None, ["--world.variant.family=checkout", "--world.variant.members=3"])
    residents = sorted(set_up(config).assignment.names.values())
    share = max(residents.count(name) for name in set(residents)) / 8
    assert find_floor("one_of", config).share == find_floor("shared", config).share == share == 3 / 8
