"""The parameter server: order, weights, refusals that name client and parameter, scalars of the round."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import numpy as np
import pytest

from pipeline.aggregation import make_aggregator, version_name
from pipeline.aggregation.fedavg import Aggregator, Weighting
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState
from pipeline.errors import AggregationError

START = "global-4-0123456789ab"


def state() -> dict[str, FloatArray]:
    return {"w": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)}


def delta(value: float) -> dict[str, FloatArray]:
    return {name: np.full_like(array, value) for name, array in state().items()}


def update(client: str, value: float = 1.0, **changes: Any) -> ClientUpdate:
    made = ClientUpdate(client, 5, START, delta(value), n_tasks=1, n_episodes=2, n_tokens=3, metrics={})
    return dataclasses.replace(made, **changes)


def opened(*clients: str, weighting: Weighting = "uniform") -> Aggregator:
    aggregator = make_aggregator("full", weighting)
    aggregator.begin(GlobalState(START, 4, state()), clients)
    return aggregator


@pytest.mark.parametrize(
    ("weighting", "expected"),
    [
        ("uniform", (1 + 4) / 2),
        ("tasks", (1 * 3 + 4 * 1) / 4),
        ("episodes", (1 * 10 + 4 * 30) / 40),
        ("tokens", (1 * 700 + 4 * 300) / 1000),
    ],
)
def test_weighting(weighting: Weighting, expected: float) -> None:
    aggregator = opened("c000", "c001", weighting=weighting)
    aggregator.add(update("c000", 1.0, n_tasks=3, n_episodes=10, n_tokens=700))
    aggregator.add(update("c001", 4.0, n_tasks=1, n_episodes=30, n_tokens=300))
    done = aggregator.finish()
    np.testing.assert_allclose(done.state["w"], expected, rtol=1e-6)
    np.testing.assert_allclose(done.state["b"], expected, rtol=1e-6)


def test_the_new_state_is_named_by_round_and_content() -> None:
    aggregator = opened("c000")
    aggregator.add(update("c000", 2.0))
    done = aggregator.finish()
    assert done.round == 5
    assert done.version == version_name(5, done.state)
    assert done.version.startswith("global-5-")
    assert len(done.version.removeprefix("global-5-")) == 12
    assert version_name(5, {**done.state, "b": done.state["b"] + np.float32(1e-6)}) != done.version


def test_a_skipped_client_is_left_out() -> None:
    aggregator = opened("c000", "c001", "c002")
    aggregator.add(update("c002", 3.0))
    aggregator.skip("c001")
    aggregator.add(update("c000", 1.0))
    done = aggregator.finish()
    np.testing.assert_allclose(done.state["w"], 2.0)
    assert done.metrics["n_clients"] == 2


def test_early_arrivals_are_held_and_others_are_let_go() -> None:
    aggregator = opened(*(f"c{i:03d}" for i in range(12)))
    kept = [update(f"c{i:03d}", float(i)) for i in range(12)]
    references = [weakref.ref(made.delta["w"]) for made in kept]
    for made in kept[:9]:
        aggregator.add(made)
    aggregator.add(kept[11])
    del kept, made
    gc.collect()
    alive = [i for i, reference in enumerate(references) if reference() is not None]
    assert alive == [8, 11], "8 is the open group of the mean, 11 waits for 9 and 10"


def test_scalars_of_the_round_by_hand() -> None:
    aggregator = make_aggregator("full")
    aggregator.begin(GlobalState(START, 4, {"w": np.zeros(2, np.float32)}), ["c000", "c001"])
    aggregator.add(update("c000", delta={"w": np.array([3.0, 0.0], np.float32)}))
    aggregator.add(update("c001", delta={"w": np.array([0.0, 4.0], np.float32)}))
    metrics = aggregator.finish().metrics
    assert metrics["update_norm"] == pytest.approx(2.5)  # |(1.5, 2)|
    assert metrics["drift_norm"] == pytest.approx(3.5)
    assert metrics["drift_cosine"] == pytest.approx(0.0, abs=1e-6)
    # cosines with the mean are 0.6 and 0.8; weighted by the norms 3 and 4 their mean is (1.8 + 3.2) / 7
    assert metrics["drift_ratio"] == pytest.approx(5 / 7)
    assert metrics["weight_entropy"] == pytest.approx(1.0)


def test_weight_entropy_tells_how_even_the_weights_are() -> None:
    aggregator = opened("c000", "c001", weighting="tokens")
    aggregator.add(update("c000", n_tokens=1))
    aggregator.add(update("c001", n_tokens=3))
    entropy = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75)) / np.log(2)
    assert aggregator.finish().metrics["weight_entropy"] == pytest.approx(entropy)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown client": ({"client": "c009"}, r"client c009, round 5: not one of the round's clients"),
    "stale version": ({"base_version": "global-3-0123456789ab"}, r"client c000, round 5: trained on 'global-3-.*started at 'global-4-"),
    "wrong round": ({"round": 4}, r"client c000, round 4: the open round is 5"),
    "missing parameter": ({"delta": {"w": delta(1.0)["w"]}}, r"client c000, round 5: 1 of 2 parameters missing, the first is 'b'"),
    "unknown parameter": ({"delta": {**delta(1.0), "x": np.zeros(1, np.float32)}}, r"client c000, round 5: tensor 'x'"),
    "shape": ({"delta": {**delta(1.0), "w": np.zeros((3, 2), np.float32)}}, r"client c000, round 5: w has shape \(3, 2\).*\(2, 3\)"),
    "type": ({"delta": {**delta(1.0), "w": np.zeros((2, 3), np.float16)}}, r"client c000, round 5: tensor 'w' has type float16"),
    "nan": ({"delta": {**delta(1.0), "b": np.array([0, np.nan], np.float32)}}, r"client c000, round 5: b has 1 of 2 elements.*not finite"),
    "infinite": ({"delta": {**delta(1.0), "b": np.array([np.inf, 1], np.float32)}}, r"client c000, round 5: b has 1 of 2"),
    "metric": ({"metrics": {"prompt": 1.0}}, r"client c000, round 5: metric 'prompt'"),
    "no weight": ({"n_episodes": 0}, r"client c000, round 5: n_episodes is 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_update_that_does_not_fit_is_refused_by_name_and_leaves_no_trace(case: str) -> None:
    changes, message = WRONG[case]
    aggregator = opened("c000", "c001", weighting="episodes")
    with pytest.raises(AggregationError, match=message):
        aggregator.add(update(changes.get("client", "c000"), **{k: v for k, v in changes.items() if k != "client"}))
    aggregator.add(update("c000", 1.0))
    aggregator.add(update("c001", 3.0))
    np.testing.assert_allclose(aggregator.finish().state["w"], 2.0)


def test_a_client_reports_once() -> None:
    aggregator = opened("c000", "c001")
    aggregator.add(update("c000"))
    with pytest.raises(AggregationError, match="client c000, round 5: it has reported already"):
        aggregator.add(update("c000"))
    with pytest.raises(AggregationError, match="client c000, round 5: it has reported already"):
        aggregator.skip("c000")
    aggregator.skip("c001")
    with pytest.raises(AggregationError, match="client c001, round 5: it was skipped"):
        aggregator.add(update("c001"))


def test_a_client_held_back_reports_once_too() -> None:
    aggregator = opened("c000", "c001")
    aggregator.add(update("c001"))
    with pytest.raises(AggregationError, match="client c001, round 5: it has reported already"):
        aggregator.add(update("c001"))


def test_a_round_closes_only_when_everyone_is_accounted_for() -> None:
    aggregator = opened("c000", "c001")
    aggregator.add(update("c001"))
    with pytest.raises(AggregationError, match="round 5: c000, c001 neither reported nor"):
        aggregator.finish()
    aggregator.skip("c000")
    aggregator.finish()
    with pytest.raises(AggregationError, match="no round is open"):
        aggregator.finish()


def test_a_round_without_reports_is_an_error() -> None:
    aggregator = opened("c000")
    aggregator.skip("c000")
    with pytest.raises(AggregationError, match="none of the 1 clients reported"):
        aggregator.finish()


@pytest.mark.parametrize("clients", [[], ["c000", "c000"]])
def test_a_round_needs_clients_each_once(clients: list[str]) -> None:
    with pytest.raises(AggregationError, match="each once"):
        make_aggregator("full").begin(GlobalState(START, 4, state()), clients)


def test_begin_drops_an_open_round() -> None:
    aggregator = opened("c000", "c001")
    aggregator.add(update("c000", 100.0))
    aggregator.begin(GlobalState(START, 4, state()), ["c000"])
    aggregator.add(update("c000", 1.0))
    np.testing.assert_allclose(aggregator.finish().state["w"], 1.0)


def test_read_only_arrays_are_accepted_and_inputs_are_not_touched() -> None:
    start, sent = state(), delta(1.0)
    for value in (*start.values(), *sent.values()):
        value.flags.writeable = False
    aggregator = make_aggregator("full")
    aggregator.begin(GlobalState(START, 4, start), ["c000"])
    aggregator.add(update("c000", delta=sent))
    done = aggregator.finish()
    assert float(start["w"].sum()) == 0
    assert float(done.state["w"].sum()) == 6


def test_moments_are_averaged_with_the_same_weights() -> None:
    aggregator = opened("c000", "c001", weighting="episodes")
    aggregator.add(update("c001", n_episodes=1), {"exp_avg/w": np.full(3, 4.0, np.float32)})
    aggregator.add(update("c000", n_episodes=3), {"exp_avg/w": np.full(3, 8.0, np.float32)})
    aggregator.finish()
    mean = aggregator.mean_moments()
    assert mean is not None
    np.testing.assert_allclose(mean["exp_avg/w"], 7.0)


def test_moments_that_do_not_fit_are_refused() -> None:
    aggregator = opened("c000", "c001")
    aggregator.add(update("c000"), {"exp_avg/w": np.zeros(3, np.float32)})
    with pytest.raises(AggregationError, match="client c001, round 5: optimizer moments do not fit"):
        aggregator.add(update("c001"), {"exp_avg/w": np.zeros(4, np.float32)})
    with pytest.raises(AggregationError, match="client c001, round 5: optimizer moment exp_avg/w is not finite"):
        aggregator.add(update("c001"), {"exp_avg/w": np.full(3, np.nan, np.float32)})
