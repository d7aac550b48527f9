"""The rules on small adapters with non-square matrices, against float64 arithmetic written out."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pipeline.aggregation import make_aggregator, split_merged
from pipeline.episodes import GlobalState
from pipeline.errors import AggregationError
from tests.pipeline.aggregation.lora_cases import SHAPES, a_name, adapter, b_name, deltas, names, product, run, update

RULES: tuple[str, ...] = ("full", "factors", "product", "frozen_a", "merge")
EPISODES = [10, 20, 5, 40, 1, 7, 9]


def sent_under(rule: str, state: dict[str, np.ndarray], clients: int) -> list[dict[str, np.ndarray]]:  # type: ignore[type-arg]
    sent = deltas(state, clients)
    if rule == "frozen_a":
        for delta in sent:
            for module in SHAPES:
                delta[a_name(module)][:] = 0
    return sent


def shares(clients: int) -> list[float]:
    return [n / sum(EPISODES[:clients]) for n in EPISODES[:clients]]


@pytest.mark.parametrize("rule", ["full", "factors"])
def test_arrays_equal_the_float64_mean(rule: str) -> None:
    state = adapter(0)
    sent = sent_under(rule, state, 7)
    done = run(make_aggregator(rule, "episodes"), state, sent, episodes=EPISODES)
    for name, start in state.items():
        expected = start.astype(np.float64) + sum(w * d[name].astype(np.float64) for w, d in zip(shares(7), sent, strict=True))
        np.testing.assert_allclose(done.state[name], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("module", SHAPES)
def test_frozen_a_gives_the_mean_product_exactly(module: str) -> None:
    state = adapter(0)
    sent = sent_under("frozen_a", state, 5)
    done = run(make_aggregator("frozen_a", "episodes"), state, sent, episodes=EPISODES[:5])
    expected = sum(w * product(state, module, d) for w, d in zip(shares(5), sent, strict=True))
    np.testing.assert_allclose(product(dict(done.state), module), expected, atol=2e-6, rtol=0)
    np.testing.assert_array_equal(done.state[a_name(module)], state[a_name(module)])


def test_frozen_a_refuses_a_client_whose_a_moved() -> None:
    state = adapter(0)
    sent = deltas(state, 1)[0]
    aggregator = make_aggregator("frozen_a")
    aggregator.begin(GlobalState("global-0-start", 0, state), ["c000"])
    with pytest.raises(AggregationError, match=r"client c000, round 1: .*m0.lora_A.weight moved"):
        aggregator.add(update("c000", sent))


@pytest.mark.parametrize("module", SHAPES)
def test_product_is_the_best_of_its_rank(module: str) -> None:
    state = adapter(0)
    sent = sent_under("product", state, 6)
    done = run(make_aggregator("product", "episodes"), state, sent, episodes=EPISODES[:6])
    mean = sum(w * product(state, module, d) for w, d in zip(shares(6), sent, strict=True))
    singular = np.linalg.svd(mean, compute_uv=False)
    best = float(np.linalg.norm(singular[3:]))
    achieved = float(np.linalg.norm(product(dict(done.state), module) - mean))
    assert achieved <= best + 1e-6 * float(np.linalg.norm(mean))


def test_product_reports_its_residual_over_matrices() -> None:
    state = adapter(0)
    sent = sent_under("product", state, 6)
    done = run(make_aggregator("product"), state, sent)
    residuals = []
    for module in SHAPES:
        singular = np.linalg.svd(np.mean([product(state, module, d) for d in sent], axis=0), compute_uv=False)
        residuals.append(float(np.linalg.norm(singular[3:]) / np.linalg.norm(singular)))
    assert done.metrics["residual_mean"] == pytest.approx(np.mean(residuals), rel=1e-5)
    assert done.metrics["residual_max"] == pytest.approx(max(residuals), rel=1e-5)


def test_product_beats_factors_and_factors_are_wrong() -> None:
    # One-dimensional: clients (b, a) = (1, 1) and (-1, -1) both act as 1 x 1 = 1; the mean of factors is 0 x 0.
    state = {a_name("m"): np.zeros((1, 1), np.float32), b_name("m"): np.zeros((1, 1), np.float32)}
    plus = {name: np.ones((1, 1), np.float32) for name in state}
    minus = {name: -np.ones((1, 1), np.float32) for name in state}
    assert product(dict(run(make_aggregator("factors"), state, [plus, minus]).state), "m")[0, 0] == 0
    assert product(dict(run(make_aggregator("product"), state, [plus, minus]).state), "m")[0, 0] == pytest.approx(1)


@pytest.mark.parametrize("module", SHAPES)
def test_merge_folds_the_exact_mean_into_the_base_and_starts_the_adapter_again(module: str) -> None:
    state = adapter(0)
    sent = sent_under("merge", state, 6)
    done = run(make_aggregator("merge", "episodes", lora_alpha=6.0), state, sent, episodes=EPISODES[:6])
    mean = sum(w * product(state, module, d) for w, d in zip(shares(6), sent, strict=True))
    np.testing.assert_allclose(done.state[f"merged.{module}.weight"], 6.0 / 3 * mean, atol=1e-6)
    assert done.state[f"merged.{module}.weight"].shape == SHAPES[module]
    assert not done.state[b_name(module)].any()
    assert done.state[a_name(module)].any()


def test_merge_accumulates_over_rounds_and_clients_send_the_adapter_alone() -> None:
    aggregator = make_aggregator("merge", lora_alpha=3.0)
    state = adapter(0)
    version = GlobalState("global-0-start", 0, state)
    expected = {module: np.zeros(shape) for module, shape in SHAPES.items()}
    for round in range(3):
        adapter_part, _ = split_merged(version.state)
        sent = deltas(adapter_part, 2, seed=round)
        aggregator.begin(version, names(2))
        for client, delta in zip(names(2), sent, strict=True):
            changed = update(client, delta)
            aggregator.add(changed.__class__(**{**changed.__dict__, "round": round + 1, "base_version": version.version}))
        for module in SHAPES:
            expected[module] += np.mean([product(adapter_part, module, d) for d in sent], axis=0)
        version = aggregator.finish()
    _, merged = split_merged(version.state)
    for module in SHAPES:
        np.testing.assert_allclose(merged[f"{module}.weight"], expected[module], atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_arrival_order_does_not_change_a_bit(rule: str) -> None:
    state = adapter(0)
    sent = sent_under(rule, state, 7)
    reference = run(make_aggregator(rule, "episodes"), state, sent, episodes=EPISODES)
    shuffler = random.Random(0)
    for _ in range(5):
        order = list(range(7))
        shuffler.shuffle(order)
        again = run(make_aggregator(rule, "episodes"), state, sent, order=order, episodes=EPISODES)
        assert again.version == reference.version
        assert again.metrics == reference.metrics
        for name, value in reference.state.items():
            np.testing.assert_array_equal(value, again.state[name])


@pytest.mark.parametrize("rule", RULES)
def test_one_client_is_its_own_mean(rule: str) -> None:
    state = adapter(0)
    sent = sent_under(rule, state, 1)
    done = run(make_aggregator(rule, "tokens", lora_alpha=3.0), state, sent)
    for module in SHAPES:
        scale_and_base = done.state[f"merged.{module}.weight"] if rule == "merge" else product(dict(done.state), module)
        np.testing.assert_allclose(scale_and_base, product(state, module, sent[0]), atol=1e-6)
    if rule != "merge":
        for name, start in state.items():
            np.testing.assert_allclose(done.state[name], start + sent[0][name], atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_clients_that_did_not_move_leave_the_agent_as_it_was(rule: str) -> None:
    state = adapter(0)
    still = [{name: np.zeros_like(value) for name, value in state.items()} for _ in range(3)]
    done = run(make_aggregator(rule, lora_alpha=3.0), state, still)
    assert done.metrics["update_norm"] == 0
    assert done.metrics["drift_ratio"] == 0
    for module in SHAPES:
        now = done.state[f"merged.{module}.weight"] if rule == "merge" else product(dict(done.state), module)
        np.testing.assert_allclose(now, product(state, module), atol=2e-6)


@pytest.mark.parametrize("rule", ["factors", "product", "frozen_a", "merge"])
def test_lora_rules_refuse_whole_weights(rule: str) -> None:
    with pytest.raises(AggregationError, match="use rule `full`"):
        make_aggregator(rule).begin(GlobalState("g", 0, {"layer.weight": np.zeros((2, 2), np.float32)}), ["c000"])


def test_a_factor_without_its_partner_is_refused() -> None:
    state = adapter(0)
    del state[b_name("m1")]
    with pytest.raises(AggregationError, match=r"lacks base_model.model.m1.lora_B.weight"):
        make_aggregator("product").begin(GlobalState("g", 0, state), ["c000"])


def test_only_merge_continues_a_merged_state() -> None:
    state = {**adapter(0), "merged.m0.weight": np.zeros(SHAPES["m0"], np.float32)}
    with pytest.raises(AggregationError, match="merge"):
        make_aggregator("product").begin(GlobalState("g", 0, state), ["c000"])


def test_what_is_no_factor_is_averaged_plainly() -> None:
    state = {**adapter(0), "value_head.weight": np.zeros((1, 4), np.float32)}
    sent = deltas(state, 3)
    done = run(make_aggregator("product"), state, sent)
    np.testing.assert_allclose(done.state["value_head.weight"], np.mean([d["value_head.weight"] for d in sent], axis=0), atol=1e-6)
