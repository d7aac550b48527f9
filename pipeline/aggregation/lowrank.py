"""The mean of low-rank products B A, exactly and in bounded memory, and its best approximation of a given rank.

Pure linear algebra in float64; knows nothing of adapters' names, clients or rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64Array = npt.NDArray[np.float64]

_TINY = float(np.finfo(np.float64).tiny)

_NEGLIGIBLE = 1e-12
"""Singular values below this share of the largest are zeros that rounding made visible."""


@dataclass(frozen=True)
class Projection:
    """Factors ``b`` [out, r], ``a`` [r, in] of the best rank-r approximation, and what it leaves out (norm of the rest over norm)."""

    b: Float64Array
    a: Float64Array
    residual: float


class ProductMean:
    """Weighted mean of products ``b @ a`` of one matrix [out, in].

    Factors are stacked side by side while the stack is smaller than the matrix; from then on the matrix itself is kept. Memory is at most
    ``out * in`` numbers, whatever the number of terms.
    """

    def __init__(self, out_features: int, in_features: int) -> None:
        self.shape = (out_features, in_features)
        self.weight = 0.0
        self.terms = 0
        self._stack: list[tuple[Float64Array, Float64Array]] = []
        self._dense: Float64Array | None = None

    @property
    def stacked_rank(self) -> int:
        """Columns of the stack; 0 once the matrix is kept."""
        return sum(b.shape[1] for b, _ in self._stack)

    def add(self, b: Float64Array, a: Float64Array, weight: float) -> None:
        """Take ``weight * b @ a`` in. ``b`` is [out, r], ``a`` is [r, in]."""
        out_features, in_features = self.shape
        self.weight += weight
        self.terms += 1
        self._stack.append((b * weight, a))
        if self._dense is not None or self.stacked_rank * (out_features + in_features) > out_features * in_features:
            self._dense = self._sum()
            self._stack.clear()

    def _sum(self) -> Float64Array:
        total = np.zeros(self.shape, np.float64) if self._dense is None else self._dense
        for b, a in self._stack:
            total += b @ a
        return total

    def dense(self) -> Float64Array:
        """The mean, [out, in]."""
        return (self._sum() if self._dense is None else self._dense) / self.weight

    def project(self, rank: int, like: Float64Array) -> Projection:
        """The mean's best approximation of ``rank`` (Eckart-Young), split so that ``a`` resembles ``like`` [rank, in].

        Of all the equal splits, ``a`` is the one with orthogonal rows of equal norm, the mean row norm of ``like``, that lies nearest to it
        (orthogonal Procrustes); the rest of the scale is in ``b``. Directions that the mean does not use are filled from ``like``.
        """
        u, s, v = self._top(rank) if self._dense is not None else self._stacked_svd()
        norm = float(np.linalg.norm(s)) if self._dense is None else float(np.linalg.norm(self._dense / self.weight))
        kept = int(np.count_nonzero(s[:rank] > _NEGLIGIBLE * max(float(s[0]), _TINY))) if s.size else 0
        u, v, top = u[:, :kept], v[:kept], s[:kept]
        if self._dense is None:
            rest = float(np.linalg.norm(s[kept:]))
        else:
            rest = float(np.linalg.norm(self._dense / self.weight - (u * top) @ v))
        rows = _fill(v, like, min(rank, self.shape[1]))
        scale = float(np.linalg.norm(like, axis=1).mean()) or 1.0
        left, _, right = np.linalg.svd(like @ rows.T, full_matrices=False)
        rotation = left @ right  # [rank, rows], orthonormal columns
        b = np.zeros((self.shape[0], rows.shape[0]), np.float64)
        b[:, :kept] = u * top
        return Projection(b @ rotation.T / scale, scale * (rotation @ rows), rest / norm if norm > 0 else 0.0)

    def _stacked_svd(self) -> tuple[Float64Array, Float64Array, Float64Array]:
        b = np.concatenate([b for b, _ in self._stack], axis=1) / self.weight
        a = np.concatenate([a for _, a in self._stack], axis=0)
        qb, rb = np.linalg.qr(b)
        qa, ra = np.linalg.qr(a.T)
        u, s, v = np.linalg.svd(rb @ ra.T, full_matrices=False)
        return qb @ u, s, v @ qa.T

    def _top(self, rank: int) -> tuple[Float64Array, Float64Array, Float64Array]:
        """The first singular triples of the kept matrix, by way of its smaller Gram matrix and one step of subspace iteration."""
        m = self.dense()
        wide = m.shape[0] <= m.shape[1]
        tall = m.T if wide else m  # [n, d] with d <= n
        _, vectors = np.linalg.eigh(tall.T @ tall)
        # The Gram matrix squares the condition number; one more product restores the accuracy of small singular directions.
        q, _ = np.linalg.qr(tall @ vectors[:, ::-1][:, :rank])
        u, s, v = np.linalg.svd(q.T @ tall, full_matrices=False)
        return (v.T, s, (q @ u).T) if wide else (q @ u, s, v)


def _fill(rows: Float64Array, like: Float64Array, count: int) -> Float64Array:
    """``rows`` [k, in] (orthonormal) completed to ``count``, with directions of ``like`` first."""
    if rows.shape[0] >= count:
        return rows
    rest = like - (like @ rows.T) @ rows
    _, s, v = np.linalg.svd(rest, full_matrices=False)
    useful = int(np.count_nonzero(s > 1e-9 * max(float(np.linalg.norm(like)), _TINY)))
    rows = np.concatenate([rows, v[: min(count - rows.shape[0], useful)]])
    if rows.shape[0] < count:
        # ``like`` has too few directions itself: any others will do, as long as they do not depend on chance.
        basis, _ = np.linalg.qr(np.concatenate([rows, np.eye(like.shape[1])]).T)
        rows = np.concatenate([rows, basis.T[rows.shape[0] : count]])
    return rows
