"""Preference: the mix of categories that a client is drawn to (Dirichlet), and counts that fit what there is."""

from __future__ import annotations

import numpy as np

from envs.partition.spec import FloatArray, IntArray
from envs.partition.streams import stream


def client_mixes(clients: int, pool_mix: FloatArray, omega: float, seed: int) -> FloatArray:
    """Mixes q ~ Dirichlet(pool_mix (1 - omega) / omega), shape (clients, categories), each from a stream of its own.

    Their mean is the pool's mix and their total variance omega (1 - |pool_mix|^2).
    """
    alpha = pool_mix * (1.0 - omega) / omega
    return np.array([_dirichlet(stream(seed, "preference", client), alpha) for client in range(clients)])


def _dirichlet(rng: np.random.Generator, alpha: FloatArray) -> FloatArray:
    """In logarithms, because at strong dispersion every Gamma variable may underflow (Gamma(a) = Gamma(a + 1) U^(1 / a))."""
    logs = np.log(rng.standard_gamma(alpha + 1.0)) + np.log1p(-rng.random(len(alpha))) / alpha
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def category_counts(number: int, mix: FloatArray, capacity: IntArray, rng: np.random.Generator) -> IntArray:
    """``number`` tasks by category: multinomial in ``mix``; what exceeds a category's tasks goes to those with room, again by ``mix``.

    ``number`` must not exceed the sum of ``capacity``.
    """
    counts = np.asarray(rng.multinomial(number, mix / mix.sum()), dtype=np.int64)
    while True:
        over = int(np.maximum(counts - capacity, 0).sum())
        counts = np.minimum(counts, capacity)
        if not over:
            return counts
        room = np.where(counts < capacity, mix, 0.0)
        if room.sum() <= 0.0:
            room = (capacity - counts).astype(np.float64)
        counts = counts + rng.multinomial(over, room / room.sum())
