"""The published constructors, defects included, so that published runs can be compared with.

Behaviour (order of random calls and all) of FedAgent, sunblaze-ucb/FedAgent at a6fdf2c; checked bit for bit against index hashes that were
obtained by running it. What is wrong with each is said where it is done. Use ``envs.partition.build`` for what was meant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from envs.partition.spec import BoolArray, FloatArray, IntArray

SEED = 42
FASHION, FASHION_SHARE = "fashion", 0.2
SMOOTHING = 0.01


def published_preference(categories: Sequence[str], client: int, size: int, omega: float) -> IntArray:
    """Tasks of one client, in the order drawn.

    Defects: a category named ``fashion`` is cut to a fifth, by a draw of the client's own; mixes are smoothed towards equal shares.
    """
    pools: dict[str, list[int]] = {}
    for place, category in enumerate(categories):
        pools.setdefault(category, []).append(place)
    if FASHION in pools:
        cut = np.random.RandomState(SEED + client)
        pools[FASHION] = cut.choice(pools[FASHION], size=max(1, int(len(pools[FASHION]) * FASHION_SHARE)), replace=False).tolist()
    capacity = np.array([len(pool) for pool in pools.values()])
    share = capacity.astype(float) / capacity.sum()
    smoothed = (share + SMOOTHING) / (1.0 + len(pools) * SMOOTHING)
    omega = float(np.clip(omega, 1e-3, 1 - 1e-3))
    rng = np.random.RandomState(SEED + client)
    mix = rng.dirichlet(smoothed * ((1.0 - omega) / omega))
    mix = mix / mix.sum()
    counts = _repaired(rng.multinomial(size, mix), mix, capacity, size, rng)
    taken: list[int] = []
    for pool, count in zip(pools.values(), counts.tolist(), strict=True):
        if count > 0:
            taken += rng.choice(pool, size=count, replace=False).tolist()
    if len(taken) < size:
        left = np.setdiff1d(np.arange(len(categories)), taken)
        taken += rng.choice(left, size=min(size - len(taken), len(left)), replace=False).tolist()
    return np.array(taken, dtype=np.int64)


def _repaired(counts: IntArray, mix: FloatArray, capacity: IntArray, size: int, rng: np.random.RandomState) -> IntArray:
    """Counts inside the capacities: the overflow is drawn again among categories with room, and lost where those fill up in one go."""
    while True:
        over = int(np.maximum(counts - capacity, 0).sum())
        counts = np.minimum(counts, capacity)
        room = counts < capacity
        if over == 0 or not room.any():
            return counts
        extra = rng.multinomial(over, mix[room] / mix[room].sum())
        counts[room] = np.minimum(counts[room] + extra, capacity[room])
        if counts.sum() >= size:
            return counts


def published_sizes(clients: int, low: int, center: int, high: int, xi: float, total: int, rng: np.random.Generator) -> IntArray:
    """Beta sizes of concentration ``xi``, scaled to ``total``, clipped and rounded; what is left over goes to the first clients."""
    total = min(max(total, clients * low), clients * high)
    mean = min(max((center - low) / (high - low), 1e-6), 1 - 1e-6) if high > low else 0.5
    xi = max(xi, 2e-3)
    x = rng.beta(mean * xi, (1 - mean) * xi, size=clients) if high > low else np.full(clients, 0.5)
    wanted = low + x * (high - low)
    wanted = np.clip(wanted * (total / wanted.sum()), low, high)
    sizes = np.floor(wanted).astype(np.int64)
    order = np.argsort(-(wanted - sizes))
    missing = total - int(sizes.sum())
    if missing > 0:
        sizes[order[:missing]] += 1
    elif missing < 0:
        sizes[order[::-1][:-missing]] -= 1
    sizes = np.clip(sizes, low, high)
    missing = total - int(sizes.sum())
    step, bound = (1, high) if missing > 0 else (-1, low)
    sizes[np.flatnonzero(sizes != bound)[: abs(missing)]] += step if missing else 0
    missing = total - int(sizes.sum())
    for i in range(abs(missing)):
        able = np.flatnonzero(sizes != bound)
        if len(able) == 0:
            break
        sizes[able[i % len(able)]] += step
    return np.asarray(np.clip(sizes, low, high))


def replication(tasks: int, clients: int, low: int, center: int, high: int) -> float:
    """Mean number of owners of a task."""
    return float(np.clip(clients * center / tasks, clients * low / tasks, clients * high / tasks))


def published_coverage(tasks: int, clients: int, low: int, center: int, high: int, xi: float) -> list[IntArray]:
    """Tasks of every client, ascending. A client can end a task short, because a top-up may draw one that it has."""
    rng = np.random.default_rng(SEED)
    mean_owners = replication(tasks, clients, low, center, high)
    sizes = published_sizes(clients, low, center, high, xi, round(mean_owners * tasks), rng)
    total = int(sizes.sum())
    floor = math.floor(mean_owners)
    if not 0 <= total - floor * tasks <= tasks:
        floor = total // tasks
    copies = np.full(tasks, floor, dtype=np.int64)
    above = total - floor * tasks
    if above > 0:
        copies[rng.choice(tasks, size=above, replace=False)] += 1
    hands: list[set[int]] = [set() for _ in range(clients)]
    left = sizes.copy()
    for task in range(tasks):
        able = np.flatnonzero(left > 0)
        number = min(int(copies[task]), len(able))
        if number:
            chance = left[able].astype(float)
            for client in rng.choice(able, size=number, replace=False, p=chance / chance.sum()):
                hands[client].add(task)
                left[client] -= 1
    for _ in range(total - sum(len(hand) for hand in hands)):
        able = np.flatnonzero(left > 0)
        if len(able) == 0:
            break
        task = int(rng.integers(0, tasks))
        client = int(rng.choice(able))
        hands[client].add(task)
        left[client] -= 1
    return [np.array(sorted(hand), dtype=np.int64) for hand in hands]


def published_hardness(easy: BoolArray, clients: int, size: int, xi: float) -> list[IntArray]:
    """Tasks of every client, in the order drawn.

    Defects: a quota s of less than half the tasks is followed by s hard tasks and a fill from what is left, so that a client with a small
    quota ends at the pool's own rate; and all clients start the same stream anew, so that equal quotas give equal lists.
    """
    rng = np.random.default_rng(SEED)
    owners = replication(len(easy), clients, 0, size // 2, size)
    quotas = published_sizes(clients, 0, size // 2, size, xi, round(owners * len(easy)), rng)
    start = rng.bit_generator.state
    most = max(size, len(easy) // clients)
    hands: dict[int, IntArray] = {}
    for quota in sorted(set(quotas.tolist())):
        rng.bit_generator.state = start
        hands[quota] = _quota_hand(easy, quota, size, rng)[:most]
    return [hands[quota] for quota in quotas.tolist()]


def _quota_hand(easy: BoolArray, quota: int, size: int, rng: np.random.Generator) -> IntArray:
    simple, hard = np.flatnonzero(easy), np.flatnonzero(~easy)
    taken = np.zeros(0, dtype=np.int64)
    for _ in range(2):
        pool = simple if len(taken) == 0 else hard
        if quota and len(pool):
            taken = np.concatenate([taken, rng.choice(pool, size=min(quota, len(pool)), replace=False)])
    if len(taken) < size:
        left = np.concatenate([simple[~np.isin(simple, taken)], hard[~np.isin(hard, taken)]])
        taken = np.concatenate([taken, rng.choice(left, size=min(size - len(taken), len(left)), replace=False)])
    return taken
