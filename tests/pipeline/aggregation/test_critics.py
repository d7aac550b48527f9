"""A critic in the shared state: averaged array by array whatever the rule, and no part of what is said about policies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from actors.aggregator import AggregatorActor
from pipeline.aggregation import make_aggregator
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState
from pipeline.errors import AggregationError
from pipeline.models import split_critic
from pipeline.moments import Moments
from pipeline.services import UpdateMeta

RULES = ["full", "factors", "product", "frozen_a", "merge"]
A, B = "base_model.model.m.lora_A.weight", "base_model.model.m.lora_B.weight"


def state(seed: int, scale: float = 1.0) -> dict[str, FloatArray]:
    """An adapter of one module, a critic with an adapter of its own, and a head."""
    rng = np.random.default_rng(seed)
    shapes = {A: (2, 5), B: (4, 2), f"critic.{A}": (2, 5), f"critic.{B}": (4, 2), "critic.head.weight": (1, 4), "critic.head.bias": (1,)}
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()}


def closed(rule: str, start: Mapping[str, FloatArray], deltas: list[dict[str, FloatArray]]) -> GlobalState:
    aggregator = make_aggregator(rule, "tasks", lora_alpha=2.0)
    clients = [f"c{i}" for i in range(len(deltas))]
    aggregator.begin(GlobalState("global-0-x", 0, start), clients)
    for number, (client, delta) in enumerate(zip(clients, deltas, strict=True), 1):
        aggregator.add(ClientUpdate(client, 1, "global-0-x", delta, number, 1, 1))
    return aggregator.finish()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_averages_critics_array_by_array_and_policies_as_without_them(rule: str) -> None:
    start, deltas = state(0), [state(1), state(2), state(3)]
    for delta in deltas:
        if rule == "frozen_a":
            delta[A][:] = 0
    done = closed(rule, start, deltas)
    alone = closed(rule, split_critic(start)[0], [split_critic(delta)[0] for delta in deltas])
    policy, critic = split_critic(done.state)
    assert policy.keys() == alone.state.keys()
    for name, value in policy.items():
        np.testing.assert_array_equal(value, alone.state[name])
    assert len(critic) == 4
    for name, value in critic.items():
        full = f"critic.{name}"
        wanted = start[full] + (deltas[0][full] + 2 * deltas[1][full] + 3 * deltas[2][full]) / 6
        np.testing.assert_allclose(value, wanted, atol=1e-6)
    for name in ("update_norm", "drift_norm", "drift_ratio", "drift_cosine"):
        assert done.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-6), name
    assert done.metrics["bytes_up"] > alone.metrics["bytes_up"]


def test_an_update_without_the_critic_or_with_another_ones_is_refused() -> None:
    start, delta = state(0), state(1)
    with pytest.raises(AggregationError, match=r"c0.*missing.*critic\."):
        closed("full", start, [split_critic(delta)[0]])
    with pytest.raises(AggregationError, match=r"critic\.head\.bias.*not a parameter of the global state"):
        closed("full", split_critic(start)[0], [{**split_critic(delta)[0], "critic.head.bias": delta["critic.head.bias"]}])
    with pytest.raises(AggregationError, match=r"critic\.head\.bias has 1 of 1 elements that are not finite"):
        closed("full", start, [{**delta, "critic.head.bias": np.array([np.nan], np.float32)}])


def test_what_a_client_keeps_does_not_come_to_the_server() -> None:
    server = AggregatorActor("full", "uniform", 1.0)
    server.begin("global-0-x", 0, ["c0"], {"w": np.zeros(2, np.float32)})
    meta = UpdateMeta("c0", 1, "global-0-x", 1, 1, 1, {})
    with pytest.raises(AggregationError, match=r"c0, round 1.*stay with the client"):
        server.add(meta, {"w": np.ones(2, np.float32)}, Moments(1, {}, {}, kept={"head.bias": np.ones(1, np.float32)}))
