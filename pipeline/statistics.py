"""Intervals for the numbers a run reports: success rates, their differences, and means over seeds.

Owns the formulas and nothing else: knows no records, runs or plots. NumPy and the standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Z95 = 1.959963984540054
"""The 97.5 % point of the standard normal distribution."""


class Interval(NamedTuple):
    """``low`` and ``high`` bound the quantity at the stated confidence."""

    low: float
    high: float


def wilson(successes: int, n: int, z: float = Z95) -> Interval:
    """Score interval of a success rate, in [0, 1] (Wilson 1927). ``ValueError`` unless 0 <= successes <= n and n > 0."""
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"a rate needs 0 <= successes <= n and n > 0, got {successes} of {n}")
    rate = successes / n
    scale = 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    # The exact bounds at the ends, which rounding would miss by 1e-17.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


def newcombe(successes_a: int, n_a: int, successes_b: int, n_b: int, z: float = Z95) -> Interval:
    """Interval of ``rate_a - rate_b`` for two independent samples (Newcombe 1998, method 10), in [-1, 1].

    On the same tasks (paired outcomes) it is conservative when the outcomes agree more often than chance.
    """
    a, b = wilson(successes_a, n_a, z), wilson(successes_b, n_b, z)
    rate_a, rate_b = successes_a / n_a, successes_b / n_b
    difference = rate_a - rate_b
    below = math.hypot(rate_a - a.low, b.high - rate_b)
    above = math.hypot(a.high - rate_a, rate_b - b.low)
    return Interval(difference - below, difference + above)


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's interval of the mean over seeds. ``ValueError`` for fewer than two values: one run has no spread."""
    n = len(values)
    if n < 2:
        raise ValueError(f"an interval over seeds needs at least 2 values, got {n}")
    sample = np.asarray(values, dtype=np.float64)
    mean = float(sample.mean())
    half = t_quantile(0.5 + confidence / 2, n - 1) * float(sample.std(ddof=1)) / math.sqrt(n)
    return Interval(mean - half, mean + half)


def bootstrap_interval(values: Sequence[float], rng: np.random.Generator, confidence: float = 0.95, resamples: int = 10_000) -> Interval:
    """Percentile bootstrap interval of the mean (Efron 1979). ``ValueError`` for fewer than two values."""
    if len(values) < 2:
        raise ValueError(f"a bootstrap needs at least 2 values, got {len(values)}")
    sample = np.asarray(values, dtype=np.float64)
    means = np.empty(resamples)
    # In blocks, so that memory does not grow with resamples times values.
    block = max(1, 4_000_000 // len(sample))
    for start in range(0, resamples, block):
        stop = min(start + block, resamples)
        means[start:stop] = sample[rng.integers(0, len(sample), size=(stop - start, len(sample)))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(low), float(high))


def t_quantile(probability: float, df: int) -> float:
    """Quantile of Student's t with ``df`` degrees of freedom, by bisection of its distribution function to 1e-12."""
    if not 0 < probability < 1 or df < 1:
        raise ValueError(f"a quantile needs 0 < probability < 1 and df >= 1, got {probability} and {df}")
    if probability < 0.5:
        return -t_quantile(1 - probability, df)
    low, high = 0.0, 1.0
    while _t_cdf(high, df) < probability:
        high *= 2
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def _t_cdf(t: float, df: int) -> float:
    """P(T <= t) for t >= 0 and integer ``df``: the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(df))
    cosine, sine = math.cos(angle), math.sin(angle)
    if df % 2:
        term, total = cosine, cosine if df > 1 else 0.0
        for k in range(3, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        two_sided = (angle + sine * total) * 2 / math.pi
    else:
        term = total = 1.0
        for k in range(2, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        two_sided = sine * total
    return 0.5 + two_sided / 2
