"""What may leave a client: planted text, observations and tensors are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pipeline.client import LEARNER_MEANS, ROLLOUT_MEANS
from pipeline.episodes import ClientUpdate
from pipeline.errors import AggregationError
from pipeline.privacy_boundary import ALLOWED_METRICS, check, check_metrics

SECRET = "find me a machine washable dress for my daughter"


def update(**changes: Any) -> ClientUpdate:
    plain = ClientUpdate("c000", 1, "global-0-x", {"w": np.zeros(3, np.float32)}, 2, 16, 900, {"success": 0.5})
    return dataclasses.replace(plain, **changes)


def test_a_plain_update_passes() -> None:
    check(update(), {"w"})


@pytest.mark.parametrize(
    "metrics",
    [
        {"success": SECRET},
        {SECRET: 1.0},
        {"observation": 0.5},
        {"success": np.array([0.5, 0.25])},
        {"success": [0.5]},
        {"success": None},
        {"success": True},
        {"loss": float("nan")},
        {"loss": float("inf")},
        {"task_0_success": 1.0},
    ],
)
def test_a_metric_that_is_not_an_allowed_finite_number_is_refused(metrics: dict[str, Any]) -> None:
    with pytest.raises(AggregationError, match="client c000, round 1"):
        check(update(metrics=metrics), {"w"})


def test_the_refusal_does_not_quote_the_planted_text() -> None:
    with pytest.raises(AggregationError) as refused:
        check(update(metrics={"success": SECRET}), {"w"})
    assert SECRET not in str(refused.value)
    for changes in ({"metrics": {SECRET: 1.0}}, {"delta": {SECRET: np.zeros(3, np.float32)}}, {"n_tasks": SECRET}):
        with pytest.raises(AggregationError) as refused:
            check(update(**changes), {"w"})
        assert not any(word in str(refused.value) for word in ("machine", "washable", "dress", "daughter"))


@pytest.mark.parametrize(
    "delta",
    [
        {"w": np.zeros(3, np.float32), "observations": np.zeros(3, np.float32)},
        {"w": np.frombuffer(SECRET.encode()[:48], np.uint8)},
        {"w": np.zeros(3, np.float64)},
        {"w": [0.0, 0.0]},
        {"w": np.array([SECRET])},
    ],
)
def test_a_tensor_that_is_not_a_float32_parameter_is_refused(delta: dict[str, Any]) -> None:
    with pytest.raises(AggregationError, match="client c000"):
        check(update(delta=delta), {"w"})


@pytest.mark.parametrize("count", [SECRET, 1.5, -1, True])
def test_a_count_that_is_not_a_count_is_refused(count: Any) -> None:
    with pytest.raises(AggregationError, match="n_tasks"):
        check(update(n_tasks=count), {"w"})


def test_numpy_numbers_become_plain_floats() -> None:
    assert check_metrics({"success": np.float32(0.5), "episodes": np.int64(3)}) == {"success": 0.5, "episodes": 3.0}
    assert all(type(value) is float for value in check_metrics({"success": np.float32(0.5)}).values())


def test_all_that_clients_report_is_on_the_list() -> None:
    assert {*ROLLOUT_MEANS, *LEARNER_MEANS} <= ALLOWED_METRICS
