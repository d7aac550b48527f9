"""The streaming mean: equal to the float64 mean, flat in memory, indifferent to chunk borders."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from pipeline.aggregation.mean import CHUNK, GROUP, StreamingMean, squared_norm


@pytest.mark.parametrize("terms", [1, 2, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP + 2])
@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_equals_the_float64_mean(terms: int, size: int) -> None:
    rng = np.random.default_rng(terms * size)
    arrays = [rng.standard_normal(size).astype(np.float32) for _ in range(terms)]
    weights = rng.integers(1, 500, terms).astype(float)
    base = {"x": rng.standard_normal(size).astype(np.float32)}
    mean = StreamingMean({"x": (size,)})
    for array, weight in zip(arrays, weights, strict=True):
        mean.add({"x": array}, weight)
    expected = sum(a.astype(np.float64) * w for a, w in zip(arrays, weights, strict=True)) / weights.sum()
    np.testing.assert_allclose(mean.mean("x"), expected, atol=1e-6, rtol=0)
    moved, squares = mean.added_to(base)
    assert moved["x"].dtype == np.float32
    np.testing.assert_allclose(moved["x"], base["x"] + expected, atol=1e-6, rtol=0)
    assert squares == {"x": pytest.approx(float(expected @ expected), rel=1e-5)}


def test_rounding_does_not_grow_with_the_number_of_terms() -> None:
    # 2 ** 24 + 1 is not a float32: a float32 accumulator would stop counting here.
    mean = StreamingMean({"x": (1,)})
    mean.add({"x": np.array([2.0**24], np.float32)}, 1.0)
    for _ in range(GROUP - 1):
        mean.add({"x": np.zeros(1, np.float32)}, 1.0)
    for _ in range(400):
        mean.add({"x": np.ones(1, np.float32)}, 1.0)
    assert float(mean.mean("x")[0]) * mean.weight == 2.0**24 + 400


def test_memory_does_not_depend_on_the_number_of_terms() -> None:
    size = 500_000
    shared = np.ones(size, np.float32)

    def peak(terms: int) -> int:
        tracemalloc.start()
        mean = StreamingMean({"x": (size,)})
        for _ in range(terms):
            mean.add({"x": shared * np.float32(1)}, 2.0)
        mean.added_to({"x": shared})
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(10 * GROUP) < 1.05 * peak(GROUP)


def test_shapes_are_kept_and_arrays_need_not_be_contiguous() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T
    mean = StreamingMean({"x": (4, 3)})
    mean.add({"x": array}, 1.0)
    np.testing.assert_array_equal(mean.mean("x"), array)


def test_squared_norm_tells_overflow_from_what_is_not_finite() -> None:
    assert squared_norm(np.array([3.0, 4.0], np.float32)) == 25.0
    assert squared_norm(np.array([1e30], np.float32)) == pytest.approx(1e60)
    assert not np.isfinite(squared_norm(np.array([1.0, np.nan], np.float32)))
    assert not np.isfinite(squared_norm(np.array([1.0, np.inf], np.float32)))
