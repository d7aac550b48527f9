"""What may leave a client: planted text, observations and tensors are refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from pipeline.client import LEARNER_MEANS, ROLLOUT_MEANS
from pipeline.episodes import ClientUpdate
from pipeline.errors import AggregationError
from pipeline.privacy_boundary import ALLOWED_METRICS, check, check_metrics, check_policy

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


def test_all_that_an_update_can_hold_is_known() -> None:
    names = {field.name for field in dataclasses.fields(ClientUpdate)}
    assert names == {"client", "round", "base_version", "delta", "n_tasks", "n_episodes", "n_tokens", "metrics", "policy"}


UNIFORM = np.full((2, 4), np.log(0.25), np.float32)


def test_distributions_at_the_shared_prompts_pass() -> None:
    check_policy(UNIFORM, (2, 4))
    check_policy(np.array([[0.0, -np.inf]], np.float32), (1, 2))
    check_policy(None, None)


@pytest.mark.parametrize(
    "policy",
    [
        None,
        UNIFORM.astype(np.float64),
        UNIFORM[:1],
        np.concatenate([UNIFORM, UNIFORM]),
        UNIFORM.tolist(),
        SECRET,
        np.frombuffer(SECRET.encode()[:32], np.float32).reshape(2, 4),
        np.zeros((2, 4), np.float32),
        np.full((2, 4), np.nan, np.float32),
        np.full((2, 4), 1e4, np.float32),
        np.concatenate([UNIFORM[:1], UNIFORM[:1] + np.float32(0.01)]),
    ],
    ids=["none", "type", "fewer", "more", "list", "text", "text as numbers", "no distribution", "nan", "overflow", "one position"],
)
def test_what_is_no_distribution_at_the_shared_prompts_is_refused(policy: Any) -> None:
    with pytest.raises(AggregationError, match="client c000, round 1: its policy") as refused:
        check_policy(policy, (2, 4), "client c000, round 1")
    assert not any(word in str(refused.value) for word in ("machine", "washable", "dress"))


def test_a_policy_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(AggregationError, match="this round measures none"):
        check_policy(UNIFORM, None)


def test_all_that_clients_report_is_on_the_list() -> None:
    assert {*ROLLOUT_MEANS, *LEARNER_MEANS} <= ALLOWED_METRICS
