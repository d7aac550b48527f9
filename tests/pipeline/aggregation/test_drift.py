"""How far clients drift apart: closed forms, streaming against all pairs, and what is measured by name."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from pipeline.aggregation import make_aggregator
from pipeline.aggregation.drift import BLOCK, SAMPLE, PolicyDrift, UpdateDrift
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState
from pipeline.errors import AggregationError


def drift(*updates: object) -> UpdateDrift:
    arrays = [np.asarray(update, np.float32) for update in updates]
    found = UpdateDrift({"w": arrays[0].shape})
    for array in arrays:
        found.add({"w": array})
    return found


def random_policy(rng: np.random.Generator, positions: int, vocabulary: int) -> FloatArray:
    logits = 2 * rng.standard_normal((positions, vocabulary))
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


def policies(start: FloatArray, *clients: FloatArray) -> PolicyDrift:
    found = PolicyDrift(start)
    for client in clients:
        found.add(client)
    return found


@pytest.mark.parametrize(
    ("updates", "cosine"),
    [
        ([[1, 2, 3]] * 4, 1.0),
        ([[1, 2, 3], [10, 20, 30]], 1.0),
        ([[1, 0, 0], [0, 5, 0], [0, 0, 0.1]], 0.0),
        ([[1, 2, 3], [-2, -4, -6]], -1.0),
        ([[1, 0], [0, 1], [-1, 0], [0, -1]], -1 / 3),
        ([[1, 0], [1, math.sqrt(3)]], 0.5),
        ([[1e-30, 0], [0, 1e30], [1e-30, 0]], 1 / 3),
        ([[1, 1], [0, 0], [1, 1]], 1.0),
    ],
    ids=["identical", "another length", "orthogonal", "opposite", "cancelling", "sixty degrees", "tiny and huge", "one did not move"],
)
def test_the_mean_cosine_of_simple_updates(updates: list[list[float]], cosine: float) -> None:
    assert drift(*updates).cosine() == pytest.approx(cosine, abs=1e-6)


def test_one_client_has_no_pair() -> None:
    assert drift([1.0, 2.0]).cosine() is None
    assert drift([1.0, 2.0], [0.0, 0.0]).cosine() is None
    assert UpdateDrift({"critic.w": (2,)}).cosine() is None


def test_streaming_equals_all_pairs() -> None:
    rng = np.random.default_rng(0)
    shapes = {"a": (7, 5), "b": (3,), "empty": (0,), "critic.head": (4,)}
    common = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    updates = [
        {name: (rng.uniform(0.01, 10) * (common[name] + rng.standard_normal(shape))).astype(np.float32) for name, shape in shapes.items()}
        for _ in range(9)
    ]
    streaming = UpdateDrift(shapes)
    for update in updates:
        streaming.add(update)
    flat = [np.concatenate([update["a"].ravel(), update["b"]]).astype(np.float64) for update in updates]
    pairs = [float(x @ y) / math.sqrt(float(x @ x) * float(y @ y)) for x, y in itertools.combinations(flat, 2)]
    assert streaming.cosine() == pytest.approx(np.mean(pairs), abs=1e-6)


def test_of_a_large_state_an_even_sample_is_compared() -> None:
    rng = np.random.default_rng(1)
    sizes = {"large": 5 * SAMPLE, "small": 5 * BLOCK}
    base = {name: rng.standard_normal(size, dtype=np.float32) for name, size in sizes.items()}
    streaming = UpdateDrift({name: (size,) for name, size in sizes.items()})
    for _ in range(3):
        # Each is common direction plus noise of equal size: any two have the cosine 1/2.
        streaming.add({name: base[name] + rng.standard_normal(size, dtype=np.float32) for name, size in sizes.items()})
    assert streaming.cosine() == pytest.approx(0.5, abs=0.005)
    assert SAMPLE <= streaming._sum.size < 1.01 * SAMPLE
    spans = [(begin, end) for name, begin, end in streaming._blocks if name == "large"]
    assert spans[0][0] < 6 * BLOCK
    assert spans[-1][1] > sizes["large"] - 6 * BLOCK
    assert all(end <= later for (_, end), (later, _) in itertools.pairwise(spans))


def test_policies_that_are_equal_do_not_diverge() -> None:
    start, moved = (random_policy(np.random.default_rng(seed), 5, 11) for seed in (0, 1))
    same = policies(start, start, start, start)
    assert same.divergence() == pytest.approx(0, abs=1e-6)
    assert same.shift() == pytest.approx(0, abs=1e-6)
    together = policies(start, moved, moved)
    assert together.divergence() == pytest.approx(0, abs=1e-6)
    assert together.shift() == pytest.approx(float((np.exp(moved) * (moved - start)).sum(1).mean()), rel=1e-5)
    assert policies(start, moved).divergence() is None
    assert policies(start).shift() is None


@pytest.mark.parametrize("clients", [2, 3, 7])
def test_policies_that_share_nothing_are_log_n_apart(clients: int) -> None:
    certain = [np.full((2, 10), -np.inf, np.float32) for _ in range(clients)]
    for token, policy in enumerate(certain):
        policy[:, token] = 0
    apart = policies(np.full((2, 10), -math.log(10), np.float32), *certain)
    assert apart.divergence() == pytest.approx(math.log(clients), abs=1e-6)
    assert apart.shift() == pytest.approx(math.log(10), abs=1e-6)


def test_streaming_equals_the_mean_divergence_from_the_mixture() -> None:
    rng = np.random.default_rng(2)
    start, *clients = (random_policy(rng, 6, 40) for _ in range(6))
    shares = np.exp(np.array(clients, np.float64))
    mixture = np.log(shares.mean(0))
    direct = [float((share * (np.log(share) - mixture)).sum(1).mean()) for share in shares]
    found = policies(start, *clients)
    assert found.divergence() == pytest.approx(np.mean(direct), abs=1e-6)
    shifts = [float((share * (np.log(share) - start)).sum(1).mean()) for share in shares]
    assert found.shift() == pytest.approx(np.mean(shifts), abs=1e-6)


def test_a_token_that_the_start_excludes_costs_much_and_stays_finite() -> None:
    start = np.array([[0.0, -np.inf]], np.float32)
    moved = np.log(np.array([[0.5, 0.5]], np.float32))
    assert policies(start, moved, moved).shift() == pytest.approx(0.5 * 100 - math.log(2), rel=1e-4)


def test_memory_does_not_depend_on_the_number_of_clients() -> None:
    size, positions, vocabulary = 400_000, 20, 5_000

    def peak(clients: int) -> int:
        start = np.full((positions, vocabulary), -math.log(vocabulary), np.float32)
        names = [f"c{i:03d}" for i in range(clients)]
        aggregator = make_aggregator("full")
        tracemalloc.start()
        aggregator.begin(GlobalState("start", 0, {"w": np.zeros(size, np.float32)}), names, start)
        for i, name in enumerate(names):
            aggregator.add(ClientUpdate(name, 1, "start", {"w": np.full(size, i + 1, np.float32)}, 1, 1, 1, policy=start.copy()))
        assert aggregator.finish().metrics["drift_cosine"] == pytest.approx(1.0)
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(80) < 1.05 * peak(16)


def test_the_round_has_the_drift_of_the_policy_and_not_of_a_critic() -> None:
    state = {"w": np.zeros(2, np.float32), "critic.v": np.zeros(2, np.float32)}
    aggregator = make_aggregator("full")
    aggregator.begin(GlobalState("start", 0, state), ["c0", "c1"])
    for client, w, v in (("c0", [3, 0], [1000, 0]), ("c1", [0, 4], [1000, 1])):
        aggregator.add(ClientUpdate(client, 1, "start", {"w": np.array(w, np.float32), "critic.v": np.array(v, np.float32)}, 1, 1, 1))
    done = aggregator.finish()
    assert done.metrics["drift_cosine"] == pytest.approx(0, abs=1e-6)
    assert done.metrics["drift_norm"] == pytest.approx(3.5)
    assert done.metrics["drift_ratio"] == pytest.approx(2.5 / 3.5)
    assert done.metrics["update_norm"] == pytest.approx(2.5)
    assert "policy_divergence" not in done.metrics
    np.testing.assert_allclose(done.state["critic.v"], [1000, 0.5])


def test_an_adapter_is_measured_in_its_factors_under_every_rule() -> None:
    names = ("base_model.model.m.lora_A.weight", "base_model.model.m.lora_B.weight")
    state = {names[0]: np.ones((1, 2), np.float32), names[1]: np.zeros((3, 1), np.float32)}
    moves = [np.array([[1], [0], [0]], np.float32), np.array([[1], [1], [0]], np.float32)]
    for rule in ("factors", "product", "frozen_a", "merge"):
        aggregator = make_aggregator(rule)
        aggregator.begin(GlobalState("start", 0, state), ["c0", "c1"])
        for client, b in zip(("c0", "c1"), moves, strict=True):
            aggregator.add(ClientUpdate(client, 1, "start", {names[0]: np.zeros((1, 2), np.float32), names[1]: b}, 1, 1, 1))
        metrics = aggregator.finish().metrics
        assert metrics["drift_cosine"] == pytest.approx(1 / math.sqrt(2)), rule
        assert metrics["drift_norm"] == pytest.approx((1 + math.sqrt(2)) / 2), rule


def test_policies_go_with_their_clients_and_in_any_order() -> None:
    rng = np.random.default_rng(3)
    start, *own = (random_policy(rng, 3, 7) for _ in range(4))
    clients = ["c0", "c1", "c2", "c3"]
    found = []
    for order in ((0, 1, 2), (2, 1, 0)):
        aggregator = make_aggregator("full")
        aggregator.begin(GlobalState("start", 0, {"w": np.zeros(2, np.float32)}), clients, start)
        aggregator.skip("c3")
        for i in order:
            aggregator.add(ClientUpdate(clients[i], 1, "start", {"w": np.full(2, i, np.float32)}, 1, 1, 1, policy=own[i]))
        metrics = aggregator.finish().metrics
        found.append((metrics["policy_divergence"], metrics["policy_shift"]))
    assert found[0] == found[1] == (policies(start, *own).divergence(), policies(start, *own).shift())


def test_a_client_that_sends_no_policy_is_refused_by_name() -> None:
    start = random_policy(np.random.default_rng(4), 3, 7)
    aggregator = make_aggregator("full")
    aggregator.begin(GlobalState("start", 0, {"w": np.zeros(2, np.float32)}), ["c0"], start)
    with pytest.raises(AggregationError, match=r"client c0, round 1: its policy on the shared prompts is NoneType.*\(3, 7\)"):
        aggregator.add(ClientUpdate("c0", 1, "start", {"w": np.zeros(2, np.float32)}, 1, 1, 1))
