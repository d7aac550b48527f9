"""The measures one by one, on numbers that can be worked out by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from envs.bandit import BanditWorld
from envs.base import Task
from envs.variants import Variant
from pipeline.diagnose import ClientSetup, Settings, Visit, diagnose
from pipeline.diagnose.divergence import cross_fitted, distances, estimate
from pipeline.diagnose.mixture import task_side
from pipeline.diagnose.rankings import best_scripts, said_otherwise, shared_gap, shared_losses
from pipeline.diagnose.reading import Reading, Readings, information
from pipeline.diagnose.scripts import Outcome, Sample, Script, Trace, play, take_sample
from pipeline.diagnose.setup import find_homes, matched_tasks, sample_homes
from pipeline.errors import ConfigError
from tests.pipeline.diagnose.cases import QUICK, clients_in, payoffs


def task(number: int, category: str = "x") -> Task:
    return Task(f"t{number}", "do it", category)


def trace(*observations: str, ret: float = 0.0, offered: tuple[str, ...] = ()) -> Trace:
    last = len(observations) - 1
    outcomes = tuple((text, place == last, ret if place == last else 0.0) for place, text in enumerate(observations))
    return Trace(outcomes, (frozenset(offered),) * len(observations))


# --- tasks ---------------------------------------------------------------------------------------------------------------------


def test_clients_of_one_category_each() -> None:
    side = task_side({f"c{i}": [task(10 * i + k, category=str(i)) for k in range(10)] for i in range(4)})
    assert side.by_category.mean == pytest.approx(3.0)
    assert side.by_category.factor == pytest.approx(2.0)
    assert side.by_task.worst == pytest.approx(3.0)
    assert side.differ
    assert (side.clients, side.tasks) == (4, 40)


def test_equal_mixtures_of_different_tasks_do_not_differ_by_category() -> None:
    side = task_side({f"c{i}": [task(10 * i + k, category=str(k % 2)) for k in range(10)] for i in range(3)})
    assert side.by_category.worst == pytest.approx(0.0, abs=1e-12)
    assert side.by_task.mean == pytest.approx(2.0)
    assert not side.differ
    assert side.categories == {"0": pytest.approx(0.5), "1": pytest.approx(0.5)}


def test_one_category_leaves_nothing_to_test() -> None:
    assert task_side({"a": [task(1)], "b": [task(2)]}).p_value is None


# --- distances -----------------------------------------------------------------------------------------------------------------


def test_what_follows_the_first_difference_is_not_compared() -> None:
    assert distances([trace("s", "a", "b", "c")], [trace("s", "a", "x", "c")]) == [(1, 1.0, 0.0), (2, 1.0, 1.0)]


def test_reward_and_end_belong_to_what_is_compared() -> None:
    assert distances([trace("s", "done", ret=10.0)], [trace("s", "done")]) == [(1, 1.0, 1.0)]
    assert distances([trace("s", "a")], [trace("s", "a", "b")]) == [(1, 1.0, 1.0)]


def test_the_first_observation_counts_where_it_differs() -> None:
    assert distances([trace("s", "a")], [trace("s", "a")]) == [(1, 1.0, 0.0)]
    assert distances([trace("s", "a")], [trace("r", "a")]) == [(0, 1.0, 1.0)]


@pytest.mark.parametrize(("first", "second"), [(0.5, 0.5), (0.75, 0.25), (0.9, 0.8)])
def test_cross_fitting_is_not_biased_upwards(first: float, second: float) -> None:
    rng = random.Random(0)

    def sample(chance: float) -> list[Outcome]:
        return [(("yes" if rng.random() < chance else "no"), True, 0.0) for _ in range(16)]

    values = [cross_fitted(sample(first), sample(second)) for _ in range(3000)]
    mean = sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values) ** 2)
    truth = abs(first - second)
    # A lower bound in expectation: where few seeds mistake the likelier outcome, some of the distance is missed, none is invented.
    assert mean < truth + 3 * error
    assert mean > (0.85 if truth > 0.2 else 0.4) * truth - 3 * error


def test_distances_where_worlds_draw_are_those_of_common_histories() -> None:
    left = [trace("s", side, "left", ret=0.0) for side in "ab" for _ in range(20)]
    right = [trace("s", side, "left" if side == "a" else "right") for side in "ab" for _ in range(20)]
    random.Random(1).shuffle(left)
    random.Random(2).shuffle(right)
    found = {turn: (weight, distance) for turn, weight, distance in distances(left, right)}
    assert found[1][1] == pytest.approx(0.0, abs=0.25)
    assert found[2] == (pytest.approx(1.0), pytest.approx(0.5))


def test_intervals_of_estimates() -> None:
    zero = estimate([0.0] * 30)
    assert (zero.value, zero.low) == (0.0, 0.0)
    assert 0.08 < zero.high < 0.15
    some = estimate([0.0, 1.0] * 20)
    assert some.low < 0.5 < some.high
    assert estimate([]).high == 1.0


# --- rankings ------------------------------------------------------------------------------------------------------------------


def test_gaps_of_scripts_equal_those_of_arms() -> None:
    world = BanditWorld(delta=1.0)
    homes = find_homes(world, clients_in(world, ["conflict:a", "conflict:b"]))
    sample = take_sample(world, homes, world.tasks("train")[:3], QUICK)
    assert [script.actions for script in sample.scripts[0] if script.kind == "oracle"] == [("a",), ("b",)]
    assert not any(sample.draws)
    assert shared_gap(sample, 0, {0: 0.5, 1: 0.5}) == 0.5
    assert shared_gap(sample, 0, {0: 0.9, 1: 0.1}) == pytest.approx(0.1)
    assert [best_scripts(sample, home, 0) for home in (0, 1)] == [{0}, {1}]


def test_the_gap_falls_on_the_turn_at_which_a_world_goes_another_way() -> None:
    returns = {("x", "a", "z"): (1.0, 0.25), ("x", "b", "z"): (0.0, 1.0), ("x", "a"): (0.75, 0.5)}
    scripts = [Script("oracle", "", actions) for actions in returns]
    traces = [[[[trace("", ret=values[home])] for values in returns.values()]] for home in (0, 1)]
    sample = Sample([], [task(0)], [scripts], traces, [False, False], 1.0)
    # The first script is best for all. In world 1 its second action loses half a success, and not to stop then another quarter.
    losses = shared_losses(sample, 0, {0: 0.8, 1: 0.2})
    assert losses == pytest.approx([0.0, 0.2 * 0.5, 0.2 * 0.25, 0.0])
    assert shared_gap(sample, 0, {0: 0.8, 1: 0.2}) == pytest.approx(0.2 * (1.0 - 0.25))


def test_the_gap_by_turn_adds_up_to_the_gap() -> None:
    world = BanditWorld(horizon=3, delta=1.0)
    found = diagnose(world, clients_in(world, ["conflict:a", "conflict:b"]), QUICK)
    assert sum(found.gap_by_turn.values()) == pytest.approx(found.gap.value)
    assert found.gap.value == pytest.approx(0.5)
    assert all(0 <= turn < 3 and loss > 0 for turn, loss in found.gap_by_turn.items())


def test_luck_is_not_taken_for_a_better_script() -> None:
    world = BanditWorld(values=(0.5, 0.5))
    homes = find_homes(world, clients_in(world, ["default", payoffs(0.6, 0.6)]))
    sample = take_sample(world, homes, world.tasks("train")[:20], QUICK)
    assert all(sample.draws)
    gaps = [shared_gap(sample, number, {0: 0.5, 1: 0.5}) for number in range(20)]
    assert sum(gaps) / len(gaps) == pytest.approx(0.0, abs=0.02)


def test_replies_of_look_alike_tasks_are_gathered_only_where_there_are_any() -> None:
    world = BanditWorld(delta=1.0)
    homes = find_homes(world, clients_in(world, ["conflict:a", "conflict:b"]))
    sample = take_sample(world, homes, world.tasks("train")[:3], QUICK)
    assert said_otherwise(world, sample) == [{}, {}]


# --- reading -------------------------------------------------------------------------------------------------------------------


def test_information_of_a_perfect_and_of_a_blind_guess() -> None:
    assert information([[1, 0], [0, 1]], 10**6) == pytest.approx(1.0, abs=1e-4)
    assert information([[0.5, 0.5], [0.5, 0.5]], 100) == 0.0
    assert information([[1, 0], [1, 0]], 100) == 0.0
    right = 0.9
    bits = 1 + right * math.log2(right) + (1 - right) * math.log2(1 - right)
    assert information([[right, 1 - right], [1 - right, right]], 10**6) == pytest.approx(bits, abs=1e-4)


def test_chance_agreement_is_taken_off() -> None:
    rng = random.Random(0)
    found = []
    for _ in range(300):
        counts = [[0, 0], [0, 0]]
        for home in (0, 1):
            for _ in range(30):
                counts[home][rng.randrange(2)] += 1
        found.append(information([[n / 30 for n in row] for row in counts], 60))
    assert sum(found) / len(found) < 0.01


def test_skill_and_the_turn_where_reading_saturates() -> None:
    def at(turn: int, accuracy: float) -> Reading:
        return Reading(turn, estimate([accuracy]), 0.0, 10, [[1, 0], [0, 1]])

    readings = Readings(2, [at(0, 0.5), at(1, 0.89), at(2, 0.9), at(3, 0.8)])
    assert readings.best is not None
    assert readings.best.turn == 1
    assert readings.skill(0) == 0.0
    assert readings.skill(3) == pytest.approx(0.8)
    assert Readings(3, []).skill(5) == 0.0


# --- set-up --------------------------------------------------------------------------------------------------------------------


def test_hundreds_of_clients_live_in_few_worlds() -> None:
    world = BanditWorld(train=400)
    tasks = world.tasks("train")
    clients = {f"c{i}": ClientSetup(tasks[i : i + 1], ("default", "conflict:b", "conflict:b@0")[i % 3]) for i in range(300)}
    homes = find_homes(world, clients)
    assert [(home.name, len(home.clients)) for home in homes] == [("default", 200), ("conflict:b", 100)]


def test_worlds_beyond_the_most_are_drawn() -> None:
    world = BanditWorld()
    clients = {f"c{i}": ClientSetup(world.tasks("train")[:5], Variant("conflict", "b", severity=(i + 1) / 40)) for i in range(30)}
    homes = find_homes(world, clients)
    kept = sample_homes(homes, 6, 0)
    assert (len(homes), len(kept), len({home.name for home in kept})) == (30, 6, 6)
    found = diagnose(world, clients, replace(QUICK, worlds=4, tasks=6))
    assert (found.worlds, len(found.homes), len(found.pairs)) == (30, 4, 6)
    assert any("4 of 30 worlds were compared" in note for note in found.notes)


def test_matched_tasks_come_from_all_worlds_by_turns() -> None:
    world = BanditWorld()
    clients = clients_in(world, ["default", "conflict:b"], n=4)
    homes = find_homes(world, clients)
    tasks = matched_tasks(homes, clients, 10, 0)
    owners = ["default" if any(t in clients[name].tasks for name in ("c000", "c002")) else "conflict:b" for t in tasks]
    assert sorted(owners) == ["conflict:b"] * 5 + ["default"] * 5
    assert len({t.id for t in tasks}) == 10
    assert len(matched_tasks(homes, {n: replace(c, tasks=c.tasks[:2]) for n, c in clients.items()}, 100, 0)) == 8


def test_scripts_are_the_same_in_every_world_and_each_once() -> None:
    world = BanditWorld(horizon=2)
    homes = find_homes(world, clients_in(world, ["default", "conflict:b"]))
    sample = take_sample(world, homes, world.tasks("train")[:4], Settings(seeds=8))
    for scripts in sample.scripts:
        assert len({script.actions for script in scripts}) == len(scripts)
        assert {script.kind for script in scripts} >= {"oracle", "deviation"}
    assert {len(seeds) for home in sample.traces for own in home for seeds in own} == {8}


def test_a_policy_is_looked_at_where_it_goes() -> None:
    world = BanditWorld(values=(0.8, 0.6))
    clients = clients_in(world, ["default", payoffs(0.8, 0.1)])
    risky = [Visit(own, ("b",)) for own in world.tasks("heldout")[:10]]
    safe = [Visit(own, ("a",)) for own in world.tasks("heldout")[:10]]
    for visits, truth in ((risky, 0.5), (safe, 0.0)):
        found = diagnose(world, clients, QUICK, visits)
        policy = found.pairs[0].policy
        assert policy is not None
        assert policy.value == pytest.approx(truth, abs=0.08)
        assert policy.n == 10
    assert diagnose(world, clients, QUICK).pairs[0].policy is None


def test_traces_end_with_the_episode() -> None:
    world = BanditWorld(horizon=2)
    found = play(world.make(), world.tasks("train")[0], ("a", "a", "a"), 0)
    assert len(found.outcomes) == 3
    assert found.ended
    assert not play(world.make(), world.tasks("train")[0], ("a",), 0).ended


@pytest.mark.parametrize(
    ("clients", "complaint"),
    [
        ({}, "no clients"),
        ({"c0": ClientSetup((), "default")}, "own no tasks"),
        ({"c0": ClientSetup((task(0),), "conflct")}, "client c0: .*did you mean 'conflict'"),
    ],
)
def test_refused_clients(clients: dict[str, ClientSetup], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        diagnose(BanditWorld(), clients)
