"""Federations whose truth is known: each must get the right verdict and numbers near the closed forms."""

from __future__ import annotations

import math

import pytest

from envs.bandit import BanditWorld
from envs.guess import GuessWorld
from envs.variants import Variant
from pipeline import theory
from pipeline.diagnose import diagnose
from tests.pipeline.diagnose.cases import QUICK, bandit, clients_in, payoffs


def test_one_world() -> None:
    world = BanditWorld()
    found = diagnose(world, clients_in(world, ["default", "conflict:b@0", "off_path@0"]), QUICK)
    assert (found.verdict.kind, found.worlds, found.pairs) == ("alike", 1, [])
    assert found.verdict.paragraph.startswith("All clients live in one world.")


@pytest.mark.parametrize("other", [Variant("conflict", "a"), payoffs(0.75, 0.25), Variant("off_path", "control", stream=7)])
def test_identical_worlds_under_other_names(other: Variant) -> None:
    world = BanditWorld()
    found = diagnose(world, clients_in(world, ["default", other]), QUICK)
    assert (found.verdict.kind, found.worlds) == ("alike", 2)
    assert found.pairs[0].everywhere.value == 0.0
    assert found.gap.value == 0.0
    assert found.verdict.floor is None


def test_a_difference_off_the_path() -> None:
    found = bandit((0.8, 0.6), (0.8, 0.1))
    assert found.verdict.kind == "off_path"
    assert found.pairs[0].largest == pytest.approx(0.5, abs=0.07)
    assert found.conditions.delta_eff == pytest.approx(0.0, abs=0.02)
    assert found.gap.value == pytest.approx(0.0, abs=0.01)
    assert found.verdict.floor is None


def test_its_negative_twin_is_no_escape() -> None:
    """Visits of the safe policy meet no difference, but it is not the best policy of the first world: Delta_pol = 0.05."""
    found = bandit((0.8, 0.9), (0.8, 0.1))
    truth = theory.shared_optimum([(0.8, 0.9), (0.8, 0.1)])
    assert found.verdict.kind == "conflict"
    assert found.gap.value == pytest.approx(truth.disagreement, abs=0.02)
    assert found.pairs[0].largest == pytest.approx(0.8, abs=0.07)
    # Far from delta / 2: the floor of the mirrored bandit must not be claimed.
    assert found.verdict.floor is None


def test_a_difference_with_the_same_ranking() -> None:
    found = bandit((0.9, 0.5), (0.6, 0.2))
    assert found.verdict.kind == "same_ranking"
    assert found.pairs[0].largest == pytest.approx(0.3, abs=0.07)
    assert found.conditions.delta_eff == pytest.approx(0.3, abs=0.07)
    assert found.rankings[0].agree.value == 1.0
    assert found.rankings[0].tau == pytest.approx(1.0)
    assert found.gap.value == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("delta", [0.2, 0.5, 1.0])
def test_the_bandit_conflict_and_its_floor(delta: float) -> None:
    world = BanditWorld(delta=delta)
    found = diagnose(world, clients_in(world, ["conflict:a", "conflict:b"]), QUICK)
    assert found.verdict.kind == "conflict"
    assert found.pairs[0].largest == pytest.approx(delta, abs=0.07)
    assert found.verdict.floor == pytest.approx(theory.floor(delta), abs=0.04)
    assert found.gap.value == pytest.approx(theory.floor(delta), abs=0.04)
    assert found.verdict.conflict > 0.95
    assert found.readings.best is not None
    assert found.readings.best.accuracy.value == 0.5
    assert f"B delta / 2 = {found.verdict.floor:.2f}" in found.verdict.paragraph
    assert any("reveal" in line for line in found.verdict.advice)


def test_four_worlds_with_a_good_arm_each() -> None:
    world = BanditWorld(arms=4, delta=0.8)
    found = diagnose(world, clients_in(world, [f"conflict:{arm}" for arm in "abcd"], n=8), QUICK)
    assert found.verdict.kind == "conflict"
    assert found.gap.value == pytest.approx(theory.many_clients_gap(4, 0.8), abs=0.06)


@pytest.mark.parametrize("reveal", ["name", "cue", "hint"])
def test_a_revealed_conflict(reveal: str) -> None:
    world = BanditWorld()
    found = diagnose(world, clients_in(world, [f"conflict:a+{reveal}", f"conflict:b+{reveal}"]), QUICK)
    assert found.verdict.kind == "revealed"
    assert found.readings.best is not None
    assert (found.readings.best.turn, found.readings.best.accuracy.value) == (0, 1.0)
    assert found.readings.best.bits == pytest.approx(1.0, abs=0.05)
    assert found.conditions.error == 0.0
    assert found.conditions.slack == 0.0
    # The mark itself is no difference of dynamics.
    mute = diagnose(world, clients_in(world, ["conflict:a", "conflict:b"]), QUICK)
    assert found.pairs == mute.pairs


def test_marks_that_say_the_same_everywhere_reveal_nothing() -> None:
    world = BanditWorld()
    variants = [Variant("conflict", member, reveal="name", label="1") for member in "ab"]
    assert diagnose(world, clients_in(world, variants), QUICK).verdict.kind == "conflict"


def test_a_banner_that_is_wrong_half_the_time_reveals_nothing() -> None:
    world = BanditWorld()
    variants = [Variant("conflict", member, reveal="hint", options=(("hint_error", 0.5),)) for member in "ab"]
    found = diagnose(world, clients_in(world, variants), QUICK)
    assert found.verdict.kind == "conflict"
    assert found.verdict.conflict > 0.7


def test_memory_makes_a_conflict_of_several_plays_bearable_and_silence_does_not() -> None:
    horizon, delta = 5, 0.5
    kinds = {}
    for silent in (False, True):
        world = BanditWorld(horizon=horizon, delta=delta, silent=silent)
        found = diagnose(world, clients_in(world, ["conflict:a", "conflict:b"]), QUICK)
        kinds[silent] = found.verdict.kind
        assert found.gap.value == pytest.approx(theory.floor(delta), abs=0.02)
        exact = theory.floor(delta) if silent else theory.memory_gap(delta, horizon) / horizon
        assert found.conditions.learned_gap == pytest.approx(exact, abs=0.05)
    assert kinds == {False: "felt", True: "conflict"}


def test_replies_that_mean_the_opposite_are_a_conflict_though_every_script_works_in_both() -> None:
    world = GuessWorld()
    found = diagnose(world, clients_in(world, ["default", "answers:inverted"]), QUICK)
    assert found.verdict.kind == "conflict"
    assert found.rankings[0].turned > 0.5
    assert found.gap.value == 0.0
    assert "the same reply means another thing" in found.verdict.paragraph


def test_replies_in_other_words_are_none() -> None:
    world = GuessWorld()
    found = diagnose(world, clients_in(world, ["default", "wording:directions"]), QUICK)
    assert found.verdict.kind == "same_ranking"
    assert found.rankings[0].turned == 0.0
    # The wording gives the world away after the first reply, and not before.
    assert found.readings.accuracy(0) == 0.5
    assert found.readings.accuracy(1) > 0.95
    assert found.conditions.turn == 1


def test_a_conflict_in_one_client_of_eight_is_partial_and_weighs_by_its_clients() -> None:
    world = BanditWorld(delta=1.0)
    variants = ["conflict:a"] * 7 + ["conflict:b"]
    found = diagnose(world, clients_in(world, variants, n=8), QUICK)
    assert found.gap.value == pytest.approx(1 / 8, abs=1e-9)
    assert [len(home.clients) for home in found.homes] == [7, 1]


def test_tasks_that_differ_are_told_apart_from_worlds_that_differ() -> None:
    world = BanditWorld(contextual=True)
    halls: dict[str, list[object]] = {}
    for task in world.tasks("train"):
        halls.setdefault(task.category, []).append(task)
    clients = clients_in(world, ["default"], n=4)
    clients = {
        name: type(setup)(tuple(halls[hall][:30]), "default")  # type: ignore[arg-type]
        for (name, setup), hall in zip(clients.items(), sorted(halls), strict=True)
    }
    found = diagnose(world, clients, QUICK)
    assert found.verdict.kind == "alike"
    assert found.tasks.differ
    assert found.tasks.by_category.worst == pytest.approx(3.0)
    assert found.tasks.by_category.factor == pytest.approx(2.0)
    assert "can be read" in found.verdict.paragraph


def test_a_diagnosis_repeats_itself() -> None:
    first, second = (bandit((0.8, 0.6), (0.8, 0.1)).plain() for _ in range(2))
    assert first == second
    assert not [value for value in walk(first) if isinstance(value, float) and not math.isfinite(value)]


def walk(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in walk(part)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in walk(part)]
    return [value]
