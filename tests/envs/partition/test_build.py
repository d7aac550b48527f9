"""Sound partitions: bounds, exact means, independence of streams, determinism, and refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envs.base import Task
from envs.partition import Partition, PartitionError, PartitionSpec, build_partition, concentration, dispersion, uniform_slices
from envs.partition.beta import rounded, spread
from envs.partition.coverage import deal
from envs.partition.expected import attainable
from envs.partition.measures import measure
from envs.partition.preference import category_counts
from envs.partition.streams import stream
from tests.envs.partition.pools import blind, labels, pool

SMALL = {"a": 300, "b": 200, "c": 100}
TASKS = pool(SMALL)
EASY = blind(TASKS, 0.3)
ALL = PartitionSpec(40, preference=0.6, coverage=0.4, hardness=0.5)

knob = st.one_of(st.none(), st.floats(0.01, 0.99))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    counts=st.lists(st.integers(1, 80), min_size=2, max_size=5),
    clients=st.integers(1, 30),
    size=st.integers(1, 60),
    preference=knob,
    coverage=knob,
    hardness=knob,
    seed=st.integers(0, 2**31 - 1),
)
def test_whatever_is_asked_every_client_gets_distinct_tasks_within_bounds(
    counts: list[int], clients: int, size: int, preference: float | None, coverage: float | None, hardness: float | None, seed: int
) -> None:
    tasks = pool({f"k{i}": number for i, number in enumerate(counts)})
    flags = np.arange(len(tasks)) % 3 == 0
    if len(tasks) < max(size, 3) or (size == 1 and coverage is not None):
        return
    spec = PartitionSpec(size, preference=preference, coverage=coverage, hardness=hardness)
    found = build_partition(tasks, clients, spec, seed=seed, labels=labels(tasks, flags))
    low, mean, high = spec.bounds()
    assert len(found.owned) == clients
    for part in found.owned:
        assert len(set(part.tolist())) == len(part)
        assert low <= len(part) <= min(high, len(tasks))
        assert 0 <= part.min()
        assert part.max() < len(tasks)
    assert int(found.sizes.sum()) == clients * mean
    assert [task.id for task in found.by_client()[found.clients[0]]] == found.plain()[found.clients[0]]


def same(a: Partition, b: Partition) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.owned, b.owned, strict=True))


def test_the_same_arguments_give_the_same_partition_in_another_process() -> None:
    code = """
import json
from envs.partition import build_partition
from tests.envs.partition.test_build import ALL, EASY, TASKS
print(json.dumps(build_partition(TASKS, 12, ALL, seed=5, labels=EASY).plain()))
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": "77"})
    here = build_partition(TASKS, 12, ALL, seed=5, labels=EASY)
    assert json.loads(out.stdout) == here.plain()
    assert not same(here, build_partition(TASKS, 12, ALL, seed=6, labels=EASY))


def test_without_knobs_clients_get_slices_of_one_permutation() -> None:
    found = build_partition(TASKS, 5, PartitionSpec(40), seed=3)
    order = stream(3, "partition").permutation(len(TASKS))
    assert [part.tolist() for part in found.owned] == [order[s.start : s.start + 40].tolist() for s in uniform_slices(len(TASKS), 5, 40)]
    given_order = build_partition(TASKS, 5, PartitionSpec(40, given_order=True), seed=3)
    assert given_order.owned[1].tolist() == list(range(120, 160))


def test_a_layer_draws_the_same_whatever_the_others_do() -> None:
    both = build_partition(TASKS, 20, ALL, labels=EASY).drawn
    assert both is not None
    for spec in (replace(ALL, preference=None), replace(ALL, hardness=None), replace(ALL, preference=0.1)):
        other = build_partition(TASKS, 20, spec, labels=EASY).drawn
        assert other is not None
        assert np.array_equal(other.sizes, both.sizes)
    alone = build_partition(TASKS, 20, PartitionSpec(40, preference=0.6)).drawn
    assert alone is not None
    assert both.mixes is not None
    assert np.array_equal(alone.mixes, both.mixes)
    hard = build_partition(TASKS, 20, PartitionSpec(40, hardness=0.5), labels=EASY).drawn
    assert hard is not None
    assert np.array_equal(hard.easy, both.easy)


def test_more_clients_do_not_move_the_mixes_and_tasks_of_the_first_ones() -> None:
    few, many = (build_partition(TASKS, n, PartitionSpec(40, preference=0.6)) for n in (4, 9))
    assert same(replace(many, owned=many.owned[:4]), few)


def test_clients_with_equal_quotas_own_different_tasks() -> None:
    tasks = pool({"a": 2000, "b": 2000})
    found = build_partition(tasks, 40, PartitionSpec(50, hardness=0.9), labels=blind(tasks, 0.5))
    assert found.easy_shares is not None
    assert int((found.easy_shares == 1).sum()) >= 10
    assert measure(found).overlap.most[0] < 0.2


@pytest.mark.parametrize("clients", [20, 60])
@pytest.mark.parametrize("name", ["preference", "coverage", "hardness"])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**31 - 1))
def test_the_own_measure_grows_with_the_knob_and_the_others_stay(name: str, clients: int, seed: int) -> None:
    tasks = pool({"a": 1500, "b": 1000, "c": 500})
    easy = blind(tasks, 0.4)
    found = [measure(build_partition(tasks, clients, PartitionSpec(50, **{name: v}), seed=seed, labels=easy)) for v in (0.02, 0.3, 0.9)]
    own = [getattr(m, name) for m in found]
    assert own[0] < own[1] < own[2]
    if name != "coverage":
        assert {m.coverage for m in found} == {0.0}
        other = "hardness" if name == "preference" else "preference"
        # The level of chance: at most (1 - |p|^2) / 50 or 0.24 / 50 in the mean.
        assert max(getattr(m, other) for m in found) < 0.035
    if name != "hardness":
        # Six standard errors: a client's own share varies by 0.24 over its number of tasks.
        errors = [float(np.sqrt(0.24 * (1 / m.sizes).mean() / clients)) for m in found]
        assert all(abs(float(m.easy.mean()) - 0.4) < 6 * error for m, error in zip(found, errors, strict=True) if m.easy is not None)
    assert {float(m.sizes.mean()) for m in found} == {50.0}


@settings(max_examples=40, deadline=None)
@given(
    odds=st.lists(st.floats(-50, 50), min_size=2, max_size=40, unique=True),
    mean=st.floats(0.05, 0.95),
    share=st.floats(0.01, 1.2),
)
def test_spread_has_the_mean_and_as_far_as_possible_the_variance(odds: list[float], mean: float, share: float) -> None:
    spaced = np.array(sorted(odds)) + np.arange(len(odds))
    most = attainable(mean, len(odds))
    fractions = spread(spaced, mean, share * most)
    assert float(fractions.mean()) == pytest.approx(mean, abs=1e-6)
    assert float(fractions.var()) <= most + 1e-9
    if share <= 0.97:
        assert float(fractions.var()) == pytest.approx(share * most, rel=0.02, abs=1e-6)
    assert bool((np.diff(fractions) >= -1e-12).all())


def test_attainable_variance_by_hand() -> None:
    assert attainable(0.5, 2) == pytest.approx(0.25)
    assert attainable(0.25, 2) == pytest.approx((0.25) / 2 - 0.0625)  # one client at 0.5, one at 0
    assert attainable(1 / 3, 3) == pytest.approx(1 / 3 - 1 / 9)


def test_rounding_keeps_the_sum_and_the_bounds() -> None:
    low, high = np.array([0, 0, 0, 3]), np.array([5, 5, 1, 5])
    assert rounded(np.array([1.2, 2.7, 1.0, 3.1]), low, high).tolist() == [1, 3, 1, 3]
    assert rounded(np.array([4.9, 4.9, 0.9, 4.9]), low, high).tolist() == [5, 5, 1, 5]


def test_dealing_gives_every_task_equally_many_owners() -> None:
    hands = deal(10, np.array([7, 3, 6, 10]), np.random.default_rng(0))
    owners = np.bincount(np.concatenate(hands), minlength=10)
    assert [len(set(hand.tolist())) for hand in hands] == [7, 3, 6, 10]
    assert sorted(owners.tolist()) == [2] * 4 + [3] * 6


def test_counts_that_exceed_a_category_go_where_there_is_room() -> None:
    rng = np.random.default_rng(0)
    assert category_counts(9, np.array([1.0, 0.0, 0.0]), np.array([4, 3, 2]), rng).tolist() == [4, 3, 2]
    counts = category_counts(20, np.array([0.9, 0.1, 0.0]), np.array([5, 30, 30]), rng)
    assert counts.tolist() == [5, 15, 0]


def test_knobs_and_concentrations_are_two_ways_to_say_the_same() -> None:
    assert concentration(1 / 257) == 256
    assert concentration(0.5) == 1
    assert dispersion(256) == 1 / 257
    with pytest.raises(PartitionError, match="xi = 0"):
        dispersion(0)


@pytest.mark.parametrize("value", [0.001, 0.999, 0.999999])
def test_extreme_knobs_stay_finite(value: float) -> None:
    found = build_partition(TASKS, 30, PartitionSpec(40, preference=value, coverage=value, hardness=value), labels=EASY)
    assert float(found.sizes.mean()) == 40
    if value > 0.99:
        assert int(((found.sizes == 4) | (found.sizes == 80)).sum()) >= 24


def test_quotas_that_cannot_be_met_are_noted() -> None:
    tasks = pool({"a": 100, "b": 100})
    found = build_partition(tasks, 20, PartitionSpec(60, hardness=0.9), labels=labels(tasks, np.arange(200) < 20))
    assert len(found.notes) == 1
    assert "only 20 of 200 tasks are easy" in found.notes[0]
    assert found.easy_shares is not None
    assert float(found.easy_shares.max()) == pytest.approx(20 / 60)


@pytest.mark.parametrize(
    ("tasks", "clients", "spec", "message"),
    [
        ([], 2, PartitionSpec(1), "no train tasks"),
        (TASKS, 0, PartitionSpec(1), "clients: 0 names"),
        (TASKS, 8, PartitionSpec(601), "tasks_per_client = 601, but the world has only 600 train tasks, so none of the 8 clients"),
        (TASKS, 8, PartitionSpec(100, coverage=0.5, min_size=601, mean_size=700), "min_size = 601, but the world has only 600"),
        (TASKS, 8, PartitionSpec(100, coverage=0.5, mean_size=700), "mean_size = 700, but the world has only 600"),
        (TASKS, 8, PartitionSpec(100, coverage=0.5, min_size=200), "min_size = 200, mean_size = 100, max_size = 200; they must ascend"),
        (TASKS, 8, PartitionSpec(100, coverage=0.5, min_size=100, max_size=100), "every client has 100 tasks"),
        (TASKS, 8, PartitionSpec(100, coverage=0.5, reference=True), "published sizes go up to 1000 tasks"),
        (TASKS, 8, PartitionSpec(100, hardness=0.5), "hardness: needs labels"),
        (pool({"a": 9}), 2, PartitionSpec(4, preference=0.5), "all 9 train tasks are of category 'a'"),
        ([Task("x", "", "a"), Task("y", "", " ")], 1, PartitionSpec(1), "1 of 2 train tasks have an empty category, for instance 'y'"),
        ([Task("x", "", "a"), Task("x", "", "b")], 1, PartitionSpec(1), "unique: 'x'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(tasks: list[Task], clients: int, spec: PartitionSpec, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        build_partition(tasks, clients, spec)


def test_specs_that_cannot_be_are_refused() -> None:
    for kwargs, message in (
        ({"preference": 1.0}, "preference = 1; allowed: more than 0 and less than 1"),
        ({"coverage": 0.0}, "coverage = 0"),
        ({"easy_mean": 1.5}, "easy_mean = 1.5"),
        ({"min_size": 0}, "min_size = 0"),
        ({"preference": 0.5, "hardness": 0.5, "reference": True}, "one knob at a time, here are preference, hardness"),
    ):
        with pytest.raises(PartitionError, match=message):
            PartitionSpec(10, **kwargs)
    with pytest.raises(PartitionError, match="all 600 train tasks are labelled hard and none easy"):
        build_partition(TASKS, 3, PartitionSpec(10, hardness=0.5), labels=labels(TASKS, [False] * 600))
