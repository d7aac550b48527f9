"""Intervals over seeds, against SciPy's."""

from __future__ import annotations

import pytest
from scipy import stats

from pipeline.reproduce.statistics import by_seed, difference, over_seeds, paired, pooled
from tests.pipeline.reproduce.synthetic import synthetic_results


@pytest.mark.parametrize("values", [[0.81, 0.86], [0.81, 0.86, 0.84], [0.2, 0.9, 0.4, 0.5, 0.1]])
def test_t_interval_is_scipys(values: list[float]) -> None:
    summary = over_seeds(values)
    assert summary is not None
    mean, error = sum(values) / len(values), stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error)
    assert (summary.mean, summary.n) == (pytest.approx(mean), len(values))
    assert summary.interval == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))


def test_bootstrap_is_near_scipys_and_the_same_every_time() -> None:
    values = [0.61, 0.7, 0.72, 0.55, 0.66, 0.74, 0.69]
    summary = over_seeds(values)
    assert summary is not None
    theirs = stats.bootstrap((values,), lambda x, axis: x.mean(axis=axis), method="percentile", rng=1).confidence_interval
    assert summary.boot_low == pytest.approx(theirs.low, abs=0.004)
    assert summary.boot_high == pytest.approx(theirs.high, abs=0.004)
    assert over_seeds(values) == summary
    assert over_seeds(values, boot=False) != summary


def test_one_seed_has_no_spread_and_no_seed_no_mean() -> None:
    one = over_seeds([0.5, None])
    assert one is not None
    assert (one.mean, one.n, one.interval, one.boot_low) == (0.5, 1, None, None)
    assert over_seeds([None]) is None
    assert over_seeds([]) is None


def test_difference_is_paired_by_seed() -> None:
    a = {0: 0.50, 1: 0.70, 2: 0.91, 3: 0.1}
    b = {2: 0.80, 1: 0.60, 0: 0.41, 4: 0.9}
    found = paired(a, b)
    assert found is not None
    test = stats.ttest_rel([0.50, 0.70, 0.91], [0.41, 0.60, 0.80])
    low, high = test.confidence_interval(0.95)
    assert found.n == 3
    assert found.interval == (pytest.approx(low, abs=1e-9), pytest.approx(high, abs=1e-9))
    # Seeds differ by 40 points, the difference by two: what is common to a seed has cancelled.
    assert found.interval is not None
    assert found.interval.high - found.interval.low < 0.06
    assert paired({0: 0.5}, {1: 0.5}) is None
    assert paired({0: None}, {0: 0.5}) is None


def test_pooled_is_wilson_over_all_tasks() -> None:
    theirs = stats.binomtest(81 + 90, 200).proportion_ci(method="wilson")
    found = pooled([0.81, 0.90], [100, 100])
    assert found == (pytest.approx(theirs.low), pytest.approx(theirs.high))
    with pytest.raises(ValueError, match="n > 0"):
        pooled([], [])


def test_differences_of_arms() -> None:
    arms = synthetic_results().arms
    lost = difference(arms, "buy4", "uniform")
    assert lost is not None
    assert lost.n == 3
    assert lost.interval is not None
    assert lost.interval.high < -0.4
    assert lost.mean == pytest.approx(sum(by_seed(arms, "buy4")[s] - by_seed(arms, "uniform")[s] for s in range(3)) / 3)
    assert difference(arms, "buy4", "nothing") is None
