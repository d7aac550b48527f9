"""Means of products: exact when they fit, best otherwise, bounded in memory, on wide, tall and square matrices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.aggregation.lowrank import ProductMean

Matrix = npt.NDArray[np.float64]


def build(out: int, inside: int, rank: int, terms: int, seed: int, *, same_space: bool = False) -> tuple[ProductMean, Matrix, Matrix]:
    """A filled mean, the true mean, and the mean of A."""
    rng = np.random.default_rng(seed)
    product = ProductMean(out, inside)
    basis = rng.standard_normal((rank, inside))
    total, total_a, weights = np.zeros((out, inside)), np.zeros((rank, inside)), 0.0
    for _ in range(terms):
        b = rng.standard_normal((out, rank))
        a = rng.standard_normal((rank, rank)) @ basis if same_space else rng.standard_normal((rank, inside))
        weight = float(rng.integers(1, 9))
        product.add(b, a, weight)
        total, total_a, weights = total + weight * b @ a, total_a + weight * a, weights + weight
    return product, total / weights, total_a / weights


CASES = st.tuples(st.integers(1, 24), st.integers(1, 24), st.integers(1, 5), st.integers(1, 9), st.integers(0, 1000))


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_dense_mean_is_exact(case: tuple[int, int, int, int, int]) -> None:
    product, mean, _ = build(*case)
    np.testing.assert_allclose(product.dense(), mean, atol=1e-10 * max(1.0, float(np.abs(mean).max())))


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_a_mean_that_fits_is_kept_exactly(case: tuple[int, int, int, int, int]) -> None:
    product, mean, like = build(*case, same_space=True)
    found = product.project(case[2], like)
    scale = float(np.linalg.norm(mean))
    np.testing.assert_allclose(found.b @ found.a, mean, atol=1e-9 * scale)
    assert found.residual < 1e-7


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_projection_is_the_best_and_reports_what_it_leaves_out(case: tuple[int, int, int, int, int]) -> None:
    rank = case[2]
    product, mean, like = build(*case)
    found = product.project(rank, like)
    singular = np.linalg.svd(mean, compute_uv=False)
    best = float(np.linalg.norm(singular[rank:])) / float(np.linalg.norm(singular))
    achieved = float(np.linalg.norm(found.b @ found.a - mean)) / float(np.linalg.norm(mean))
    assert achieved == pytest.approx(best, abs=1e-7)
    assert found.residual == pytest.approx(best, abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(CASES)
def test_a_keeps_the_scale_of_the_mean_and_its_rows_stay_orthogonal(case: tuple[int, int, int, int, int]) -> None:
    _, inside, rank, _, _ = case
    product, _, like = build(*case)
    found = product.project(rank, like)
    scale = float(np.linalg.norm(like, axis=1).mean())
    if rank <= inside:
        np.testing.assert_allclose(found.a @ found.a.T, scale**2 * np.eye(rank), atol=1e-8 * scale**2)
    assert found.a.shape == like.shape


def test_a_lies_near_the_mean_of_a() -> None:
    # The clients' A differ little from orthogonal rows, so the new A has to be close to them: no arbitrary rotation or sign.
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((40, 4)))[0].T
    product = ProductMean(30, 40)
    for _ in range(3):
        product.add(rng.standard_normal((30, 4)), rows + 1e-3 * rng.standard_normal(rows.shape), 1.0)
    found = product.project(4, rows)
    assert float(np.abs(found.a - rows).max()) < 0.01


def test_stack_and_matrix_give_the_same_projection() -> None:
    stacked, mean, like = build(40, 60, 2, 5, seed=3)
    assert stacked.stacked_rank == 10
    dense = ProductMean(40, 60)
    dense.add(mean, np.eye(60), 1.0)
    assert dense.stacked_rank == 0
    one, two = stacked.project(2, like), dense.project(2, like)
    np.testing.assert_allclose(one.b @ one.a, two.b @ two.a, atol=1e-10)
    assert one.residual == pytest.approx(two.residual, rel=1e-9)


def test_memory_is_bounded_by_the_matrix() -> None:
    product = ProductMean(16, 24)
    rng = np.random.default_rng(0)
    for _ in range(200):
        product.add(rng.standard_normal((16, 4)), rng.standard_normal((4, 24)), 1.0)
        assert product.stacked_rank * (16 + 24) <= 16 * 24


def test_nothing_learned_gives_zero_and_keeps_a() -> None:
    like = np.random.default_rng(0).standard_normal((3, 10))
    product = ProductMean(6, 10)
    product.add(np.zeros((6, 3)), like, 1.0)
    product.add(np.zeros((6, 3)), like, 1.0)
    found = product.project(3, like)
    assert not found.b.any()
    assert found.residual == 0.0
    assert np.linalg.matrix_rank(np.concatenate([found.a, like])) == 3, "A spans what it spanned before"
