"""A streaming weighted mean of named arrays: memory does not grow with the number of terms.

Terms are gathered in small groups. A group is summed in float32 in pieces that stay in cache, and each partial sum is added to a
float64 accumulator: memory is read once per term, and rounding does not grow with the number of groups. Knows nothing of clients.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pipeline.episodes import FloatArray

Float64Array = npt.NDArray[np.float64]

CHUNK = 49_152
"""Elements handled at a time: 192 KiB of float32, so that the partial sums of a group stay in the second-level cache."""

GROUP = 8
"""Terms summed in float32 before they meet the accumulator. Seven additions lose at most 2 ** -21 of the sum of their magnitudes."""


class StreamingMean:
    """Weighted mean of arrays by name. The result depends on the order of ``add`` in its last bits, so callers fix that order."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = dict(shapes)
        self.weight = 0.0
        self._sums: dict[str, Float64Array] = {name: np.zeros(int(np.prod(shape)), np.float64) for name, shape in self.shapes.items()}
        self._group: list[tuple[Mapping[str, FloatArray], float]] = []

    def add(self, arrays: Mapping[str, FloatArray], weight: float) -> None:
        """Take a term in: a finite float32 array of the right shape per name. It is referred to, not copied, for up to ``GROUP`` calls."""
        self._group.append((arrays, weight))
        self.weight += weight
        if len(self._group) == GROUP:
            self._fold()

    def _fold(self) -> None:
        if not self._group:
            return
        partial, term = np.empty(CHUNK, np.float32), np.empty(CHUNK, np.float32)
        for name, total in self._sums.items():
            flats = [(np.ascontiguousarray(arrays[name]).reshape(-1), np.float32(weight)) for arrays, weight in self._group]
            for begin in range(0, total.size, CHUNK):
                target = total[begin : begin + CHUNK]
                _sum_piece(flats, begin, partial[: target.size], term[: target.size])
                target += partial[: target.size]
        self._group.clear()

    def mean(self, name: str) -> Float64Array:
        """The mean of one array."""
        self._fold()
        return (self._sums[name] / self.weight).reshape(self.shapes[name])

    def added_to(self, base: Mapping[str, FloatArray]) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """``base`` plus the mean, float32, for every name; and the mean's squared norm, by name."""
        self._fold()
        result: dict[str, FloatArray] = {}
        squares: dict[str, float] = {}
        scale, piece = 1.0 / self.weight, np.empty(CHUNK, np.float64)
        for name, total in self._sums.items():
            start = np.ascontiguousarray(base[name]).reshape(-1)
            moved, squared = np.empty(total.size, np.float32), 0.0
            for begin in range(0, total.size, CHUNK):
                value = piece[: min(CHUNK, total.size - begin)]
                np.multiply(total[begin : begin + CHUNK], scale, out=value)
                squared += float(value @ value)
                value += start[begin : begin + CHUNK]
                moved[begin : begin + CHUNK] = value
            result[name] = moved.reshape(self.shapes[name])
            squares[name] = squared
        return result, squares


def _sum_piece(flats: list[tuple[FloatArray, np.float32]], begin: int, partial: FloatArray, term: FloatArray) -> None:
    end = begin + partial.size
    first, weight = flats[0]
    np.multiply(first[begin:end], weight, out=partial)
    for flat, weight in flats[1:]:
        if weight == 1:
            partial += flat[begin:end]
        else:
            np.multiply(flat[begin:end], weight, out=term)
            partial += term


def squared_norm(array: FloatArray) -> float:
    """Sum of squares, accurate to about 1e-6 of itself; infinite or NaN when ``array`` has an element that is not finite."""
    flat = np.ascontiguousarray(array).reshape(-1)
    total = 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, flat.size, CHUNK):
            piece = flat[begin : begin + CHUNK]
            total += float(piece @ piece)
    if not np.isfinite(total) and bool(np.isfinite(flat).all()):
        wide = flat.astype(np.float64)  # finite elements whose squares overflow float32
        return float(wide @ wide)
    return total
