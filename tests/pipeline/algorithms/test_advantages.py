"""Group statistics on numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.algorithms.advantages import group_advantages, zero_variance_groups

SCORES = np.array([10, 10, 10, 0], np.float32)
EPISODES = np.array([0, 0, 0, 1], np.int64)
GROUPS = np.zeros(4, np.int64)


def test_turn_unit_counts_long_episodes_more() -> None:
    # Mean over rows 7.5, unbiased std 5.
    got = group_advantages(SCORES, GROUPS, EPISODES, unit="turn", normalize_std=True, std_floor=0.0)
    np.testing.assert_allclose(got, [0.5, 0.5, 0.5, -1.5], rtol=1e-6)


def test_trajectory_unit_counts_every_episode_once() -> None:
    # Episodes 10 and 0: mean 5, unbiased std sqrt(50).
    got = group_advantages(SCORES, GROUPS, EPISODES, unit="trajectory", normalize_std=True, std_floor=0.0)
    np.testing.assert_allclose(got, np.array([5, 5, 5, -5]) / np.sqrt(50), rtol=1e-6)


def test_floor_keeps_a_penalty_small_where_nobody_succeeds() -> None:
    scores = np.array([0, 0, 0, -0.1], np.float32)
    floored = group_advantages(scores, GROUPS, EPISODES, unit="turn", normalize_std=True, std_floor=1.0)
    np.testing.assert_allclose(floored, [0.025, 0.025, 0.025, -0.075], rtol=1e-5)
    free = group_advantages(scores, GROUPS, EPISODES, unit="turn", normalize_std=True, std_floor=0.0)
    assert free.min() == pytest.approx(-1.5, rel=1e-4)


def test_without_normalization_only_the_mean_goes() -> None:
    got = group_advantages(SCORES, GROUPS, EPISODES, unit="turn", normalize_std=False, std_floor=1.0)
    np.testing.assert_allclose(got, [2.5, 2.5, 2.5, -7.5])


def test_groups_do_not_see_each_other() -> None:
    scores = np.array([10, 0, 3, 1], np.float32)
    got = group_advantages(scores, np.array([0, 0, 1, 1]), np.arange(4), unit="turn", normalize_std=True, std_floor=0.0)
    np.testing.assert_allclose(got, np.array([1, -1, 1, -1]) / np.sqrt(2), rtol=1e-5)


def test_a_group_of_one_row_has_no_advantage() -> None:
    one = np.zeros(1, np.int64)
    assert group_advantages(np.array([10.0], np.float32), one, one, unit="turn", normalize_std=True, std_floor=0.0) == 0


def test_zero_variance_looks_at_the_spread_of_raw_returns() -> None:
    returns = np.array([10, 10, 0, 10, 0, 0], np.float32)
    assert zero_variance_groups(returns, np.array([0, 0, 1, 1, 2, 2])).tolist() == [0, 2]
