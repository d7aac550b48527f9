"""Small adapters and updates for the aggregation tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.aggregation import Aggregator
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState

START = "global-0-start"
SHAPES = {"m0": (12, 20), "m1": (30, 7), "m2": (5, 5)}
"""[out, in] of the adapted matrices: wide, tall, square."""


def a_name(module: str) -> str:
    return f"base_model.model.{module}.lora_A.weight"


def b_name(module: str) -> str:
    return f"base_model.model.{module}.lora_B.weight"


def adapter(seed: int, rank: int = 3, scale_b: float = 0.1) -> dict[str, FloatArray]:
    rng = np.random.default_rng(seed)
    state: dict[str, FloatArray] = {}
    for module, (out, inside) in SHAPES.items():
        state[a_name(module)] = rng.standard_normal((rank, inside)).astype(np.float32)
        state[b_name(module)] = (scale_b * rng.standard_normal((out, rank))).astype(np.float32)
    return state


def deltas(state: dict[str, FloatArray], clients: int, seed: int = 1, size: float = 0.05) -> list[dict[str, FloatArray]]:
    rng = np.random.default_rng(seed)
    return [{name: (size * rng.standard_normal(v.shape)).astype(np.float32) for name, v in state.items()} for _ in range(clients)]


def names(n: int) -> list[str]:
    return [f"c{i:03d}" for i in range(n)]


def update(client: str, delta: dict[str, FloatArray], *, episodes: int = 4, tasks: int = 2, tokens: int = 100) -> ClientUpdate:
    return ClientUpdate(client, 1, START, delta, tasks, episodes, tokens, {"success": 0.5})


def run(
    aggregator: Aggregator,
    state: dict[str, FloatArray],
    sent: Sequence[dict[str, FloatArray]],
    *,
    order: Sequence[int] | None = None,
    episodes: Sequence[int] | None = None,
) -> GlobalState:
    """One round; ``order`` is the order of arrival."""
    clients = names(len(sent))
    aggregator.begin(GlobalState(START, 0, state), clients)
    for i in order if order is not None else range(len(sent)):
        aggregator.add(update(clients[i], sent[i], episodes=episodes[i] if episodes else 4))
    return aggregator.finish()


def product(state: dict[str, FloatArray], module: str, delta: dict[str, FloatArray] | None = None) -> npt.NDArray[np.float64]:
    """B A of a state, or of a client's."""
    a, b = state[a_name(module)].astype(np.float64), state[b_name(module)].astype(np.float64)
    if delta is not None:
        a, b = a + delta[a_name(module)], b + delta[b_name(module)]
    result: npt.NDArray[np.float64] = b @ a
    return result
