"""Measures by hand, forecasts against redraws, and a check that finds what is wrong and only that."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from envs.base import Task
from envs.partition import Partition, PartitionSpec, build_partition
from envs.partition.expected import chi2_tail, preference_form, simulated_mixes, union_of_draws
from envs.partition.invariants import check
from envs.partition.measures import measure, overlap
from envs.partition.report import partition_report
from envs.partition.streams import stream
from tests.envs.partition.pools import NEUTRAL, blind, labels, pool

POOL = pool(NEUTRAL)
EASY = blind(POOL, 0.278)


def hand_made(spec: PartitionSpec | None = None) -> Partition:
    """Two clients over four tasks: c000 owns a, a, b, and c001 owns b, b."""
    tasks = [Task("0", "", "a"), Task("1", "", "a"), Task("2", "", "b"), Task("3", "", "b")]
    owned = (np.array([0, 1, 2]), np.array([2, 3]))
    easy = np.array([True, False, False, True])
    return Partition(spec or PartitionSpec(2), 0, ("c000", "c001"), tasks, owned, easy)


def test_measures_by_hand() -> None:
    m = measure(hand_made())
    assert m.coverage == pytest.approx(0.25 / 6.25)
    # Mixes (2/3, 1/3) and (0, 1), mean (1/3, 2/3): both at squared distance 2/9.
    assert m.preference == pytest.approx(2 / 9)
    assert m.easy is not None
    assert m.easy.tolist() == pytest.approx([1 / 3, 1 / 2])
    assert m.hardness == pytest.approx((1 / 12) ** 2)
    assert m.chi2.tolist() == pytest.approx([(1 / 6) ** 2 / 0.5 * 2, 0.25 / 0.5 * 2])
    assert m.tv.tolist() == pytest.approx([1 / 6, 1 / 2])
    assert m.union == 1.0
    assert m.overlap.mean == pytest.approx(1 / 4)
    assert m.overlap.most == (pytest.approx(1 / 4), 0, 1)


def test_overlap_of_many_clients_is_taken_from_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.partition.measures.COMPARED", 5)
    found = overlap(build_partition(POOL, 11, PartitionSpec(600)))
    assert found.clients.tolist() == [0, 2, 5, 8, 10]
    assert found.jaccard.shape == (5, 5)
    assert len(found.pairs) == 10


SPECS = {
    "uniform": PartitionSpec(100),
    "preference low": PartitionSpec(100, preference=0.01),
    "preference": PartitionSpec(100, preference=0.5),
    "preference high": PartitionSpec(100, preference=0.99),
    "coverage": PartitionSpec(100, coverage=0.5),
    "coverage low": PartitionSpec(100, coverage=1 / 257),
    "hardness": PartitionSpec(100, hardness=0.5),
    "hardness low": PartitionSpec(100, hardness=1 / 257),
    "all": PartitionSpec(100, preference=0.5, coverage=0.3, hardness=0.4),
}


@pytest.mark.parametrize("clients", [2, 8, 100])
@pytest.mark.parametrize("name", SPECS)
def test_sound_partitions_pass(name: str, clients: int) -> None:
    for seed in range(4):
        report = partition_report(build_partition(POOL, clients, SPECS[name], seed=seed, labels=EASY))
        assert report.violations == []


def failing(partition: Partition) -> set[str]:
    return {f"{f.rule} {f.measure}" for f in check(partition, measure(partition)) if f.level == "violation"}


def test_the_published_hardness_fails_where_it_is_wrong() -> None:
    found = build_partition(POOL, 100, PartitionSpec(100, hardness=0.5, reference=True), labels=EASY)
    assert {"D3 mean easy share", "D4 tasks with an owner"} <= failing(found)


def test_the_published_fashion_cut_fails() -> None:
    tasks = pool({"fashion": 2564, "b": 1602, "c": 962, "d": 769, "e": 513})
    assert "D3 mean mix, squared distance" in failing(build_partition(tasks, 100, PartitionSpec(100, preference=0.01, reference=True)))


def test_a_partition_that_is_not_what_it_claims_fails() -> None:
    uniform = build_partition(POOL, 100, PartitionSpec(100), labels=EASY)
    assert "D1 preference" in failing(replace(uniform, spec=PartitionSpec(100, preference=0.5)))
    assert "D1 coverage" in failing(replace(uniform, spec=PartitionSpec(100, coverage=0.5)))
    assert "D1 hardness" in failing(replace(uniform, spec=PartitionSpec(100, hardness=0.5)))
    strong = build_partition(POOL, 100, PartitionSpec(100, preference=0.5), labels=EASY)
    assert "D2 preference" in failing(replace(strong, spec=PartitionSpec(100)))
    sized = build_partition(POOL, 100, PartitionSpec(100, coverage=0.5), labels=EASY)
    assert "D2 coverage" in failing(replace(sized, spec=PartitionSpec(100)))
    hard = build_partition(POOL, 100, PartitionSpec(100, hardness=0.5), labels=EASY)
    assert "D2 hardness" in failing(replace(hard, spec=PartitionSpec(100, preference=0.5)))


def test_layers_that_share_a_stream_are_found() -> None:
    found = build_partition(POOL, 100, SPECS["all"], labels=EASY)
    assert found.drawn is not None
    shared = replace(found, drawn=replace(found.drawn, easy=found.drawn.sizes / 200))
    assert failing(shared) == {"D4 correlation of coverage and hardness"}


def test_labels_that_follow_the_category_are_an_excuse_with_a_note() -> None:
    easy = labels(POOL, [task.category == "c4" for task in POOL])
    report = partition_report(build_partition(POOL, 50, PartitionSpec(100, hardness=0.7), labels=easy))
    moved = next(f for f in report.findings if f.measure == "preference")
    assert (moved.rule, moved.level) == ("D2", "limit")
    assert "labels depend on them" in moved.note
    prefers = partition_report(build_partition(POOL, 50, PartitionSpec(100, preference=0.7), labels=easy))
    assert "labels depend on the category" in next(f.note for f in prefers.findings if f.measure == "hardness")
    assert prefers.violations == []


def test_a_knob_that_the_tasks_do_not_allow_is_at_a_limit() -> None:
    """Clients that own most of a pool have most of its categories, whatever they prefer."""
    tasks = pool({"a": 300, "b": 250, "c": 200})
    report = partition_report(build_partition(tasks, 8, PartitionSpec(600, preference=0.95)))
    finding = next(f for f in report.findings if f.measure == "preference")
    assert (finding.rule, finding.level) == ("D1", "limit")
    assert "preference = 0.95 cannot be reached with 600 tasks per client, 0.0" in finding.note
    assert "categories that hold 200 to 300 of the 750 tasks; the full effect needs 200 tasks per client or fewer" in finding.note
    assert report.limits == [f"preference: {finding.note}"]
    fits = partition_report(build_partition(tasks, 8, PartitionSpec(200, preference=0.95)))
    assert fits.limits == []


def test_the_outcome_stands_beside_what_chance_allows() -> None:
    report = partition_report(build_partition(POOL, 100, PartitionSpec(100, preference=0.5)))
    line = next(line for line in report.asked if line.knob == "preference")
    assert line.got is not None
    assert line.chance is not None
    assert 0 < line.chance[0] < 0.5 < line.chance[1] < 1
    assert line.chance[0] < line.got < line.chance[1]


def test_a_file_asks_for_nothing() -> None:
    built = build_partition(POOL, 3, PartitionSpec(10))
    again = build_partition(POOL, 3, PartitionSpec(10), assignment=built.plain(), source="f.json")
    report = partition_report(again)
    assert report.findings == []
    assert report.plain()["kind"] == "f.json"


def test_the_closed_form_of_preference_agrees_with_redraws() -> None:
    found = build_partition(POOL, 60, PartitionSpec(100, preference=0.3))
    forecast, distance = simulated_mixes(found, stream(0, "test"))
    assert forecast.mean == pytest.approx(preference_form(0.3, found.pool_mix, found.sizes), rel=0.03)
    variance = (1 - float((found.pool_mix**2).sum())) * (0.3 + 0.7 / 100) / 60
    assert distance.mean == pytest.approx(variance, rel=0.25)


def test_the_union_of_draws_by_hand() -> None:
    # One category of 4 tasks, two clients that own 2: a task is missed with probability 1/4.
    tasks = [Task(str(i), "", "a") for i in range(4)]
    found = Partition(PartitionSpec(2), 0, ("x", "y"), tasks, (np.array([0, 1]), np.array([1, 2])))
    assert union_of_draws(found).mean == pytest.approx(3 / 4)


@pytest.mark.parametrize(("value", "degrees"), [(3.0, 2), (9.5, 4), (30.0, 5), (80.0, 40)])
def test_the_tail_of_chi_square(value: float, degrees: int) -> None:
    assert chi2_tail(value, degrees) == pytest.approx(stats.chi2.sf(value, degrees), rel=1e-9)
    assert chi2_tail(value, 0) == 1.0


def test_the_report_says_what_was_asked_and_got() -> None:
    plain = partition_report(build_partition(POOL, 100, SPECS["all"], seed=2, labels=EASY)).plain()
    json.dumps(plain, allow_nan=False)
    asked = {line["knob"]: line for line in plain["asked"]}
    assert (asked["coverage"]["asked"], asked["hardness"]["asked"]) == (0.3, 0.4)
    assert asked["coverage"]["got"] == pytest.approx(0.3, abs=0.01)
    assert asked["hardness"]["got"] == pytest.approx(0.4, abs=0.02)
    assert asked["preference"]["got"] == pytest.approx(0.5, abs=0.1)
    assert asked["coverage"]["concentration"] == pytest.approx(7 / 3)
    assert len(plain["clients"]) == 100
    assert sum(plain["clients"][0]["categories"].values()) == plain["clients"][0]["tasks"]
    assert sum(plain["sizes"]["histogram"]["counts"]) == 100
    off = {line["knob"]: line for line in partition_report(build_partition(POOL, 100, SPECS["uniform"])).plain()["asked"]}
    assert off["hardness"]["measure"] is None
    assert abs(off["preference"]["got"]) < 0.01


def test_one_client_alone_is_fine() -> None:
    report = partition_report(build_partition(POOL, 1, SPECS["all"], labels=EASY))
    assert report.violations == []
    json.dumps(report.plain(), allow_nan=False)


def test_a_handful_of_clients_that_are_alike_by_accident_get_advice() -> None:
    found = build_partition(POOL, 5, PartitionSpec(100, preference=0.99), seed=14)
    assert {task.category for tasks in found.by_client().values() for task in tasks} == {"c0"}
    finding = next(f for f in partition_report(found).violations if f.measure == "preference")
    assert "choose another seed" in finding.note
