"""Fractions in [0, 1] of a given mean and dispersion: the common part of ``coverage`` (sizes) and ``hardness`` (shares of easy tasks).

Every client draws the log-odds of a Beta variable from a stream of its own. One affine map of all log-odds then makes the mean exact and
brings the variance to the one asked for, so that a federation of ten clients is not at the mercy of ten draws; 0 and 1 stay reachable
at every mean, which scaling the fractions themselves would prevent. Knows nothing of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from envs.partition.spec import FloatArray, IntArray, concentration

HALVINGS = 60


def log_odds(streams: Iterable[np.random.Generator], mean: float, dispersion: float) -> FloatArray:
    """log(x / (1 - x)) of x ~ Beta(mean xi, (1 - mean) xi) with xi the concentration of ``dispersion``: one per stream.

    Drawn as a difference of logarithms of Gamma variables, because at strong dispersion the fractions themselves are 0 or 1 in floating
    point (Gamma(a) = Gamma(a + 1) U^(1 / a)).
    """
    xi = concentration(dispersion)
    return np.array([_log_gamma(rng, mean * xi) - _log_gamma(rng, (1 - mean) * xi) for rng in streams])


def _log_gamma(rng: np.random.Generator, shape: float) -> float:
    return float(np.log(rng.standard_gamma(shape + 1.0)) + np.log1p(-rng.random()) / shape)


def spread(odds: FloatArray, mean: float, variance: float) -> FloatArray:
    """Fractions in the order of ``odds`` with exactly this mean and, as far as so many clients allow, this population variance."""
    if len(odds) < 2 or variance <= 0:
        return np.full(len(odds), mean)
    centred = odds - float(np.median(odds))
    low, high = 1e-6, 1e6
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        if float(_shifted(middle * centred, mean).var()) < variance:
            low = middle
        else:
            high = middle
    return _shifted(high * centred, mean)


def _shifted(odds: FloatArray, mean: float) -> FloatArray:
    """The logistic of ``odds`` plus the constant that makes the mean right."""
    reach = 40.0
    low, high = -float(odds.max()) - reach, -float(odds.min()) + reach
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if float(_logistic(odds + middle).mean()) < mean:
            low = middle
        else:
            high = middle
    return _logistic(odds + (low + high) / 2)


def _logistic(odds: FloatArray) -> FloatArray:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700.0, 700.0))))


def rounded(values: FloatArray, low: IntArray, high: IntArray) -> IntArray:
    """Whole numbers next to ``values``, inside the bounds, whose sum is the rounded sum of ``values`` where the bounds allow it
    (largest remainders)."""
    floors = np.clip(np.floor(values + 1e-9).astype(np.int64), low, high)
    missing = int(np.rint(values.sum())) - int(floors.sum())
    order = np.argsort(-(values - floors), kind="stable")
    step = 1 if missing > 0 else -1
    bound = high if missing > 0 else low
    order = order if missing > 0 else order[::-1]
    while missing:
        before = missing
        for i in order:
            if missing and floors[i] != bound[i]:
                floors[i] += step
                missing -= step
        if missing == before:
            break
    return floors
