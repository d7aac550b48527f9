"""Generalized advantage estimation: a table worked by hand, the definition written out as a sum, and RLlib's implementation."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.algorithms.gae import Float64Array, explained_variance, gae, whiten


def advantages(rewards: list[float], values: list[float], lengths: list[int], gamma: float, lam: float) -> Float64Array:
    n = len(rewards)
    return gae(np.array(rewards), np.array(values), np.array(lengths, np.int64), np.full(n, gamma), np.full(n, lam))


def test_a_table_worked_by_hand() -> None:
    # Chain one: rewards 1, 0, 2 and values 0.5, 1, 1.5; gamma 0.9, lambda 0.8, so that each step back weighs 0.72.
    #   delta = 1 + 0.9 * 1 - 0.5 = 1.4;  0 + 0.9 * 1.5 - 1 = 0.35;  2 - 1.5 = 0.5
    #   A     = 1.4 + 0.72 * 0.71 = 1.9112;  0.35 + 0.72 * 0.5 = 0.71;  0.5
    # Chain two: one step, reward 3, value 4: -1.
    found = advantages([1, 0, 2, 3], [0.5, 1, 1.5, 4], [3, 1], 0.9, 0.8)
    np.testing.assert_allclose(found, [1.9112, 0.71, 0.5, -1.0], rtol=1e-12)


def test_the_ends_of_lambda() -> None:
    rewards, values = [1.0, 0.0, 2.0], [0.5, 1.0, 1.5]
    # 1: the discounted return less the value. 0: the temporal difference.
    np.testing.assert_allclose(advantages(rewards, values, [3], 1.0, 1.0), [3 - 0.5, 2 - 1.0, 2 - 1.5])
    np.testing.assert_allclose(advantages(rewards, values, [3], 0.9, 0.0), [1.4, 0.35, 0.5])


def by_definition(rewards: Float64Array, values: Float64Array, gamma: Float64Array, lam: Float64Array) -> Float64Array:
    """One chain: the sum over later differences, each weighed by the product of what lies between (Schulman et al. 2016, eq. 16)."""
    n = len(rewards)
    after = np.append(values[1:], 0.0)
    delta = [rewards[t] + gamma[t] * after[t] - values[t] for t in range(n)]
    return np.array([sum(np.prod(gamma[t:s] * lam[t:s]) * delta[s] for s in range(t, n)) for t in range(n)])


def test_chains_of_all_lengths_and_factors_that_change_from_step_to_step() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 12, 40)
    n = int(lengths.sum())
    rewards, values = rng.standard_normal(n), rng.standard_normal(n)
    gamma, lam = rng.uniform(0.5, 1, n), rng.uniform(0, 1, n)
    found = gae(rewards, values, lengths, gamma, lam)
    ends = np.cumsum(lengths)[:-1]
    wanted = [by_definition(*parts) for parts in zip(*(np.split(a, ends) for a in (rewards, values, gamma, lam)), strict=True)]
    np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-10, atol=1e-12)


def test_nothing_gives_nothing() -> None:
    assert len(advantages([], [], [], 1.0, 1.0)) == 0


@pytest.mark.slow
def test_it_is_what_rllib_computes() -> None:
    postprocessing = pytest.importorskip("ray.rllib.evaluation.postprocessing")
    from ray.rllib.policy.sample_batch import SampleBatch

    rng = np.random.default_rng(1)
    for length, gamma, lam in ((1, 0.9, 0.5), (7, 0.99, 0.95), (30, 1.0, 1.0)):
        rewards, values = rng.standard_normal(length).astype(np.float32), rng.standard_normal(length).astype(np.float32)
        batch = SampleBatch({SampleBatch.REWARDS: rewards, SampleBatch.VF_PREDS: values})
        theirs = postprocessing.compute_advantages(batch, 0.0, gamma, lam)
        ours = advantages(rewards.tolist(), values.tolist(), [length], gamma, lam)
        np.testing.assert_allclose(ours, theirs[postprocessing.Postprocessing.ADVANTAGES], atol=1e-5)
        np.testing.assert_allclose(ours + values, theirs[postprocessing.Postprocessing.VALUE_TARGETS], atol=1e-5)


def test_whitening() -> None:
    raw = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(whiten(raw, 0.0), (raw - 3) / np.sqrt(7 + 1e-8))
    # A floor keeps a batch in which everything went alike from being blown up.
    np.testing.assert_allclose(whiten(raw / 100, 1.0), (raw - 3) / 100)
    np.testing.assert_allclose(whiten(np.array([5.0, 5.0]), 0.0), [0, 0])
    assert whiten(np.array([3.0]), 1.0).tolist() == [0.0]
    assert len(whiten(np.zeros(0), 1.0)) == 0


def test_explained_variance() -> None:
    targets = np.array([0.0, 1.0, 2.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(np.full(3, 7.0), targets) == 0.0
    assert explained_variance(0.5 * targets, targets) == pytest.approx(0.75)
    assert explained_variance(-targets, targets) == -1.0
    assert explained_variance(targets, np.ones(3)) == 0.0
