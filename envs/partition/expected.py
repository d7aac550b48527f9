"""What the measures of a partition should be, with their spread: the finite-size forms of D1-D4 (FedAgent paper, appendix on partitions).

Closed forms where there are any; the spread of measures over redraws of the same layer is simulated, from a stream of its own. Knows the
spec and the sizes of a partition, never what the clients got, except where a measure is conditional on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from envs.partition.spec import BoolArray, FloatArray, IntArray, Partition

DRAWS = 12_000
"""Client mixes that a simulation draws in all; at least ``LEAST`` federations of them."""
LEAST = 24
MOST = 400


@dataclass(frozen=True)
class Forecast:
    """A mean, and the standard deviation over redraws: that of the square roots with ``root``, for measures that are sums of squares."""

    mean: float
    sd: float
    root: bool = False

    def band(self, sds: float, slack: float = 0.0) -> tuple[float, float]:
        """The interval of ``sds`` standard deviations and ``slack`` around the mean, not below 0."""
        if self.root:
            center, half = float(np.sqrt(self.mean)), sds * self.sd
            return max(0.0, max(0.0, center - half) ** 2 - slack), (center + half) ** 2 + slack
        return max(0.0, self.mean - sds * self.sd - slack), self.mean + sds * self.sd + slack


def redraws(clients: int) -> int:
    """Federations of so many clients that are simulated."""
    return int(np.clip(DRAWS // clients, LEAST, MOST))


def attainable(mean: float, clients: int) -> float:
    """The largest population variance of so many numbers in [0, 1] with this mean: zeros, ones, and one number between."""
    ones = int(np.floor(mean * clients + 1e-12))
    rest = mean * clients - ones
    return max(0.0, (ones + rest**2) / clients - mean**2)


def dispersion_form(knob: float, mean: float, clients: int) -> float:
    """D1 of ``coverage`` and ``hardness`` in units of a fraction: (1 - 1 / N) knob mean (1 - mean)."""
    return (1 - 1 / clients) * knob * mean * (1 - mean)


def preference_form(omega: float, pool_mix: FloatArray, sizes: IntArray) -> float:
    """D1 of ``preference``: (1 - 1 / N)(1 - |p0|^2)(omega + (1 - omega) mean(1 / n_i))."""
    return (1 - 1 / len(sizes)) * (1 - float((pool_mix**2).sum())) * (omega + (1 - omega) * float((1 / sizes).mean()))


def preference_knob(measure: float, pool_mix: FloatArray, sizes: IntArray) -> float | None:
    """The omega that a ``preference`` measure amounts to: ``preference_form`` solved for it. None where no knob can move it."""
    room, floor = preference_form(1.0, pool_mix, sizes), float((1 / sizes).mean())
    return (measure / room - floor) / (1 - floor) if room > 0 and floor < 1 else None


def simulated_mixes(partition: Partition, rng: np.random.Generator) -> tuple[Forecast, Forecast]:
    """``preference`` measure and squared distance of the mean mix from the pool's, over redraws of all clients' mixes and tasks.

    With the knob off, clients draw from the pool: with labels' cells by the pool's mix, else without replacement.
    """
    spec, sizes, pool, total = partition.spec, partition.sizes, partition.pool_mix, len(partition.tasks)
    capacity = np.rint(pool * total).astype(np.int64)
    dispersions, distances = [], []
    for _ in range(redraws(len(sizes))):
        if spec.preference is None and spec.hardness is None:
            drawn = rng.multinomial(sizes, pool) / sizes[:, None]
            mixes = pool + (drawn - pool) * np.sqrt((total - sizes) / max(total - 1, 1))[:, None]
        else:
            wanted = _dirichlet(pool, spec.preference, len(sizes), rng)
            mixes = _fitted(rng.multinomial(sizes, wanted), wanted, capacity, rng) / sizes[:, None]
        mean = mixes.mean(axis=0)
        dispersions.append(float(((mixes - mean) ** 2).sum(axis=1).mean()))
        distances.append(float(((mean - pool) ** 2).sum()))
    return _squares(dispersions), _squares(distances)


def _dirichlet(pool: FloatArray, omega: float | None, clients: int, rng: np.random.Generator) -> FloatArray:
    if omega is None:
        return np.tile(pool, (clients, 1))
    alpha = pool * (1 - omega) / omega
    logs = np.log(rng.standard_gamma(alpha + 1.0, (clients, len(pool)))) + np.log1p(-rng.random((clients, len(pool)))) / alpha
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _fitted(counts: IntArray, wanted: FloatArray, capacity: IntArray, rng: np.random.Generator) -> IntArray:
    """Counts inside the categories' sizes, the overflow drawn again by ``wanted`` (see ``preference.category_counts``)."""
    while True:
        over = np.maximum(counts - capacity, 0).sum(axis=1)
        counts = np.minimum(counts, capacity)
        rows = np.flatnonzero(over)
        if not len(rows):
            return counts
        room = np.where(counts[rows] < capacity, wanted[rows], 0.0)
        none = room.sum(axis=1) <= 0
        room[none] = (capacity - counts[rows[none]]).astype(np.float64)
        counts[rows] += rng.multinomial(over[rows], room / room.sum(axis=1, keepdims=True))


def simulated_easy(partition: Partition, easy: BoolArray, rng: np.random.Generator) -> tuple[Forecast, Forecast]:
    """``hardness`` measure and mean share of easy tasks with the knob off, given the clients' categories: tasks are picked blindly."""
    counts, sizes = partition.counts, partition.sizes
    number = len(partition.categories)
    members = np.bincount(partition.category_of, minlength=number)
    rates = np.bincount(partition.category_of, weights=easy, minlength=number) / members
    shrink = np.sqrt(np.maximum(members - counts, 0) / np.maximum(members - 1, 1))
    variances, means = [], []
    for _ in range(redraws(len(sizes))):
        hits = counts * rates + (rng.binomial(counts, np.broadcast_to(rates, counts.shape)) - counts * rates) * shrink
        shares = hits.sum(axis=1) / sizes
        variances.append(float(shares.var()))
        means.append(float(shares.mean()))
    return _squares(variances), Forecast(float(np.mean(means)), float(np.std(means)))


def union_of_draws(partition: Partition) -> Forecast:
    """Share of tasks with an owner where every client draws its cells on its own."""
    kinds = [np.ones(len(partition.tasks), dtype=bool)]
    if partition.spec.hardness is not None and partition.easy is not None:
        kinds = [partition.easy, ~partition.easy]
    covered, variance, total = 0.0, 0.0, len(partition.tasks)
    for kind in kinds:
        for category in range(len(partition.categories)):
            cell = kind & (partition.category_of == category)
            size = int(cell.sum())
            if size:
                held = np.array([int(cell[part].sum()) for part in partition.owned])
                missed = float(np.prod(1 - held / size))
                covered += size * (1 - missed)
                variance += size * missed * (1 - missed)
    return Forecast(covered / total, float(np.sqrt(variance)) / total)


def label_test(partition: Partition, easy: BoolArray) -> tuple[float, int, float]:
    """Chi-square of category against label over the pool, degrees of freedom, and its probability if the two were independent.

    Under independence no knob on one can move the other (threshold independence in the paper).
    """
    number = len(partition.categories)
    table = np.array([np.bincount(partition.category_of[kind], minlength=number) for kind in (easy, ~easy)], dtype=np.float64)
    wanted = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    chi2 = float(((table - wanted) ** 2 / np.where(wanted > 0, wanted, 1.0)).sum())
    degrees = number - 1
    return chi2, degrees, chi2_tail(chi2, degrees)


def chi2_tail(value: float, degrees: int) -> float:
    """Probability that a chi-square variable with so many degrees of freedom exceeds ``value``.

    Exact: Q(a + 1, x) = Q(a, x) + x^a exp(-x) / Gamma(a + 1) from Q(1/2, x) = erfc(sqrt(x)) or Q(1, x) = exp(-x).
    """
    if degrees < 1 or value <= 0:
        return 1.0
    x, odd = value / 2, degrees % 2
    at = 0.5 if odd else 1.0
    tail = math.erfc(math.sqrt(x)) if odd else math.exp(-x)
    while at < degrees / 2:
        tail += math.exp(at * math.log(x) - x - math.lgamma(at + 1))
        at += 1
    return tail


def _squares(values: list[float]) -> Forecast:
    return Forecast(float(np.mean(values)), float(np.std(np.sqrt(values))), root=True)
