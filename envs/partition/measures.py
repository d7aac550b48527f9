"""What a partition turned out to be: how far clients differ in size, in category mix and in difficulty, and how much they share.

The three dispersion measures are those of the FedAgent paper: squared coefficient of variation of the sizes, mean squared distance of the
clients' category mixes from their mean, variance of the clients' shares of easy tasks. Judges nothing; see ``invariants``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.partition.spec import FloatArray, IntArray, Partition

COMPARED = 400
"""Most clients that are compared pairwise; of more, so many at even distances."""


@dataclass(frozen=True)
class Measures:
    """Numbers of one partition. Arrays have one entry per client, in the order of the clients.

    ``chi2`` and ``tv`` are the chi-square divergence and the total-variation distance of a client's category mix from the pool's.
    """

    sizes: IntArray
    mixes: FloatArray
    pool_mix: FloatArray
    easy: FloatArray | None
    pool_easy: float | None
    union: float
    overlap: Overlap

    @property
    def coverage(self) -> float:
        """Squared coefficient of variation of the sizes."""
        return float(self.sizes.var() / self.sizes.mean() ** 2)

    @property
    def preference(self) -> float:
        """Mean squared Euclidean distance of the mixes from the mean mix, at most 1 - 1 / categories."""
        return float(((self.mixes - self.mean_mix) ** 2).sum(axis=1).mean())

    @property
    def hardness(self) -> float | None:
        """Variance of the shares of easy tasks, at most 1/4; None without labels."""
        return None if self.easy is None else float(self.easy.var())

    @cached_property
    def mean_mix(self) -> FloatArray:
        """Mean of the clients' mixes."""
        return np.asarray(self.mixes.mean(axis=0))

    @cached_property
    def chi2(self) -> FloatArray:
        """Chi-square divergence of each client's mix from the pool's: the sum of (p_i - p)^2 / p."""
        return np.asarray(((self.mixes - self.pool_mix) ** 2 / self.pool_mix).sum(axis=1))

    @cached_property
    def tv(self) -> FloatArray:
        """Half the absolute difference of each client's mix from the pool's, in [0, 1]."""
        return np.asarray(0.5 * np.abs(self.mixes - self.pool_mix).sum(axis=1))


@dataclass(frozen=True)
class Overlap:
    """Jaccard similarity of the task sets of ``clients`` (places), shape (clients, clients), ones on the diagonal."""

    clients: IntArray
    jaccard: FloatArray

    @cached_property
    def pairs(self) -> FloatArray:
        """Every pair once."""
        return np.asarray(self.jaccard[np.triu_indices(len(self.clients), k=1)])

    @property
    def mean(self) -> float:
        """Mean over pairs; 0 for a single client."""
        return float(self.pairs.mean()) if len(self.pairs) else 0.0

    @property
    def most(self) -> tuple[float, int, int]:
        """The largest similarity and the two clients that have it."""
        if not len(self.pairs):
            return 0.0, 0, 0
        rows, columns = np.triu_indices(len(self.clients), k=1)
        best = int(self.pairs.argmax())
        return float(self.pairs[best]), int(self.clients[rows[best]]), int(self.clients[columns[best]])


def measure(partition: Partition) -> Measures:
    """Measure a partition."""
    owners = np.zeros(len(partition.tasks), dtype=np.int64)
    for part in partition.owned:
        owners[part] += 1
    easy = partition.easy
    return Measures(
        sizes=partition.sizes,
        mixes=partition.counts / partition.sizes[:, None],
        pool_mix=partition.pool_mix,
        easy=partition.easy_shares,
        pool_easy=None if easy is None else float(easy.mean()),
        union=float((owners > 0).mean()),
        overlap=overlap(partition),
    )


def overlap(partition: Partition) -> Overlap:
    """Jaccard similarities between clients, ``COMPARED`` of them at most."""
    number = len(partition.clients)
    chosen = np.unique(np.linspace(0, number - 1, min(number, COMPARED)).round().astype(np.int64))
    member = np.zeros((len(chosen), len(partition.tasks)), dtype=np.float32)
    for row, client in enumerate(chosen.tolist()):
        member[row, partition.owned[client]] = 1.0
    shared = (member @ member.T).astype(np.float64)
    sizes = partition.sizes[chosen].astype(np.float64)
    return Overlap(chosen, shared / (sizes[:, None] + sizes[None, :] - shared))
