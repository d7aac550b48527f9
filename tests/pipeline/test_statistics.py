from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.statistics import bootstrap_interval, newcombe, t_interval, t_quantile, wilson


def test_wilson_agrees_with_newcombes_published_example() -> None:
    # Newcombe 1998 (two-sided intervals for the single proportion), table I: 81 of 263 gives 0.2553 to 0.3662.
    low, high = wilson(81, 263)
    assert low == pytest.approx(0.2553, abs=5e-5)
    assert high == pytest.approx(0.3662, abs=5e-5)


def test_wilson_by_hand() -> None:
    # z = 2, 1 of 4: centre (1/4 + 4/8) / (1 + 1) = 0.375, half = 2 sqrt(0.1875/4 + 4/64) / 2 = sqrt(0.109375).
    low, high = wilson(1, 4, z=2.0)
    assert low == pytest.approx(0.375 - math.sqrt(0.109375))
    assert high == pytest.approx(0.375 + math.sqrt(0.109375))


def test_wilson_ends_are_exact() -> None:
    # 0 of n: high is z^2 / (n + z^2).
    assert wilson(0, 10, z=2.0) == (0.0, pytest.approx(4 / 14))
    assert wilson(10, 10, z=2.0) == (pytest.approx(10 / 14), 1.0)


@pytest.mark.parametrize(("successes", "n"), [(1, 0), (-1, 5), (6, 5)])
def test_wilson_refuses_what_is_no_rate(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match=f"got {successes} of {n}"):
        wilson(successes, n)


def test_wilson_covers_at_the_stated_rate() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for successes in rng.binomial(60, 0.3, size=4000):
        low, high = wilson(int(successes), 60)
        covered += low <= 0.3 <= high
    assert 0.935 < covered / 4000 < 0.97


def test_newcombe_agrees_with_the_published_example() -> None:
    # Newcombe 1998 (interval estimation for the difference), table II, method 10: 56/70 - 48/80 gives 0.0524 to 0.3339.
    low, high = newcombe(56, 70, 48, 80)
    assert low == pytest.approx(0.0524, abs=5e-5)
    assert high == pytest.approx(0.3339, abs=5e-5)


def test_newcombe_turns_its_sign_with_its_arguments() -> None:
    low, high = newcombe(10, 50, 25, 60)
    other_low, other_high = newcombe(25, 60, 10, 50)
    assert (low, high) == (pytest.approx(-other_high), pytest.approx(-other_low))


@pytest.mark.parametrize(
    ("df", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (5, 2.5706), (10, 2.2281), (30, 2.0423), (31, 2.0395)]
)
def test_t_quantile_agrees_with_printed_tables(df: int, expected: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(expected, abs=5e-5)
    assert t_quantile(0.025, df) == pytest.approx(-expected, abs=5e-5)


def test_t_interval_by_hand() -> None:
    # mean 2, deviation 1, n = 3: half = 4.30265 / sqrt(3).
    low, high = t_interval([1.0, 2.0, 3.0])
    assert (high + low) / 2 == pytest.approx(2.0)
    assert (high - low) / 2 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        t_interval([0.5])
    with pytest.raises(ValueError, match="at least 2"):
        bootstrap_interval([0.5], np.random.default_rng(0))


def test_bootstrap_is_seeded_and_near_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, size=400).tolist()
    low, high = bootstrap_interval(values, np.random.default_rng(7))
    assert (low, high) == bootstrap_interval(values, np.random.default_rng(7))
    half = 1.96 * float(np.std(values)) / 20
    assert (high - low) / 2 == pytest.approx(half, rel=0.08)
    assert (high + low) / 2 == pytest.approx(float(np.mean(values)), abs=0.1 * half)
