"""The numbers of an arm, from records whose answers can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.reproduce.extract import numbers
from pipeline.runlog import History, RunLog, read_history
from tests.pipeline.reproduce.logs import evaluation, trained, write_log

HOMES = {"c000": "checkout:a", "c001": "checkout:b", "c002": "checkout:b", "c003": "checkout:b"}


@pytest.fixture
def history(tmp_path: Path) -> History:
    path = tmp_path / "metrics.jsonl"
    with RunLog(path) as log:
        log.write({"kind": "start", "plan": {"worlds_per_client": HOMES}})
        for world, rate in (("default", 0.2), ("checkout:a", 0.1), ("checkout:b", 0.3)):
            log.write(evaluation(0, rate, world))
        log.write(trained(1, 0.3))
        for world, rate in (("default", 0.9), ("checkout:a", 0.8), ("checkout:b", 0.4)):
            log.write(evaluation(2, rate, world))
        log.write(evaluation(2, 0.99, mode="greedy"))
        for client, own, other in (("c000", 0.7, 0.1), ("c003", 0.9, 0.2)):
            worlds = ("checkout:a", "checkout:b") if client == "c000" else ("checkout:b", "checkout:a")
            log.write(evaluation(2, 0.5, client=client, n=100))
            log.write(evaluation(2, own, worlds[0], client, n=100))
            log.write(evaluation(2, other, worlds[1], client, n=100))
        log.write(trained(2, 0.6))
    return read_history(path)


def test_numbers_of_worlds_that_differ(history: History) -> None:
    found = numbers(history)
    assert found["mean_worlds"] == pytest.approx((0.8 + 3 * 0.4) / 4)
    assert (found["worst_world"], found["control"], found["n_eval"]) == (0.4, 0.9, 200)
    assert found["start"] == pytest.approx((0.1 + 3 * 0.3) / 4)
    assert found["after_local"] == pytest.approx(0.8)
    assert found["worlds"] == {"checkout:a": 0.8, "checkout:b": 0.4}
    assert (found["rounds"], found["episodes"]) == (2, 1024)


def test_curve_has_every_round(history: History) -> None:
    points = numbers(history)["curve"]
    assert [(p.round, p.episodes, p.control, p.train) for p in points] == [(0, 0, 0.2, None), (1, 512, None, 0.3), (2, 1024, 0.9, 0.6)]
    assert points[2].mean_worlds == pytest.approx(0.5)


def test_matrix_is_clients_by_worlds(history: History) -> None:
    matrix = numbers(history)["matrix"]
    assert (matrix.clients, matrix.homes) == (("c000", "c003"), ("checkout:a", "checkout:b"))
    assert matrix.worlds == ("default", "checkout:a", "checkout:b")
    assert matrix.rates == ((0.5, 0.7, 0.1), (0.5, 0.2, 0.9))


def test_cost_is_the_rounds_time_divided(history: History) -> None:
    cost = numbers(history)["cost"]
    # Two rounds of ten seconds, and three evaluations of half a second before them.
    assert cost.rollout_seconds + cost.train_seconds == pytest.approx(2 * (10 - 1.6))
    assert cost.train_seconds == pytest.approx(3 * cost.rollout_seconds)
    assert (cost.aggregate_seconds, cost.other_seconds) == (pytest.approx(0.2), pytest.approx(1.0))
    assert cost.evaluate_seconds == pytest.approx(2 * 1.0 + 1.5)
    assert (cost.tokens, cost.bytes) == (2000, 80)


def test_drift_is_taken_over(history: History) -> None:
    points = numbers(history)["drift"]
    assert [p.round for p in points] == [1, 2]
    assert (points[0].cosine, points[0].divergence, points[0].ratio) == (0.5, 0.05, 0.9)


def test_alike_clients(tmp_path: Path) -> None:
    write_log(tmp_path / "metrics.jsonl", {"c000": "default", "c001": "default"}, {0: {"default": 0.2}, 3: {"default": 0.7}}, 3)
    found = numbers(read_history(tmp_path / "metrics.jsonl"), metric="score")
    assert found["mean_worlds"] == found["worst_world"] == found["control"] == 0.35
    assert (found["matrix"], found["after_local"], found["worlds"]) == (None, None, {"default": 0.35})


def test_a_run_that_was_not_measured_at_its_end_has_no_numbers(tmp_path: Path) -> None:
    write_log(tmp_path / "metrics.jsonl", {}, {0: {"default": 0.2}}, 3)
    with pytest.raises(DataError, match="no evaluation after the last round"):
        numbers(read_history(tmp_path / "metrics.jsonl"))
