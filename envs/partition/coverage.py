"""Coverage: how many tasks a client owns (Beta sizes), and dealing them out so that every task has equally many owners."""

from __future__ import annotations

import numpy as np

from envs.partition.beta import log_odds, rounded, spread
from envs.partition.spec import IntArray, PartitionSpec
from envs.partition.streams import stream


def client_sizes(clients: int, spec: PartitionSpec, tasks: int, seed: int) -> IntArray:
    """Tasks of every client, of the exact mean and inside the bounds of ``spec`` (and no more than ``tasks``)."""
    low, mean, high = spec.bounds()
    if spec.coverage is None:
        return np.full(clients, spec.size, dtype=np.int64)
    high = min(high, tasks)
    center = (mean - low) / (high - low)
    if not 0.0 < center < 1.0:
        return np.full(clients, mean, dtype=np.int64)
    odds = log_odds((stream(seed, "coverage", client) for client in range(clients)), center, spec.coverage)
    fractions = spread(odds, center, (1 - 1 / clients) * spec.coverage * center * (1 - center))
    bounds = np.full(clients, low, dtype=np.int64), np.full(clients, high, dtype=np.int64)
    return rounded(low + fractions * (high - low), *bounds)


def deal(tasks: int, sizes: IntArray, rng: np.random.Generator) -> list[IntArray]:
    """Distinct tasks for every client; the numbers of owners of any two tasks differ by one at most.

    Clients take turns in a drawn order, each taking the tasks with the fewest owners so far, ties drawn.
    """
    owners = np.zeros(tasks, dtype=np.int64)
    hands: list[IntArray] = [np.zeros(0, dtype=np.int64)] * len(sizes)
    for client in rng.permutation(len(sizes)).tolist():
        size = int(sizes[client])
        keys = owners + rng.random(tasks)
        taken = np.argpartition(keys, size - 1)[:size] if size < tasks else np.arange(tasks)
        owners[taken] += 1
        hands[client] = np.sort(taken).astype(np.int64)
    return hands
