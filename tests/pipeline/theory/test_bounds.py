from __future__ import annotations

import math

import numpy as np
import pytest

from envs.partition.uniform import uniform_slices
from pipeline import theory


def test_the_task_bound_holds_on_random_federations_and_is_attained() -> None:
    rng = np.random.default_rng(0)
    tightest = 0.0
    for case in range(2000):
        clients, tasks = int(rng.integers(2, 8)), int(rng.integers(2, 12))
        own = rng.dirichlet(np.full(tasks, 0.3), size=clients)
        if case % 10 == 0:
            # Disjoint supports, and a policy that fails one client alone.
            clients = tasks
            own = np.eye(tasks)
        gaps = rng.random(tasks) ** 3 if case % 10 else np.eye(tasks)[0]
        mean = own.mean(axis=0)
        names = [str(task) for task in range(tasks)]
        error = float(mean @ gaps)
        for mixture in own:
            chi2 = theory.chi_square(dict(zip(names, mixture, strict=True)), dict(zip(names, mean, strict=True)))
            bound = theory.task_bound(chi2, error, clients)
            assert float(mixture @ gaps) <= bound + 1e-12
            assert chi2 <= clients - 1 + 1e-9
            tightest = max(tightest, float(mixture @ gaps) / bound if bound else 0.0)
    assert tightest == pytest.approx(1.0)


def test_chi_square_of_equal_pools_is_the_size_of_the_union() -> None:
    rng = np.random.default_rng(1)
    pools = [rng.choice(50, size=10, replace=False) for _ in range(12)]
    counts = np.zeros(50)
    for pool in pools:
        counts[pool] += 1
    mean = {str(task): count / 120 for task, count in enumerate(counts) if count}
    chi2 = [theory.chi_square({str(task): 0.1 for task in pool}, mean) for pool in pools]
    assert np.mean(chi2) + 1 == pytest.approx(len(mean) / 10)


def test_the_published_uniform_split_is_further_apart_task_by_task_than_by_category() -> None:
    pools = uniform_slices(6410, 100, 100)
    counts = np.zeros(6410)
    for pool in pools:
        counts[list(pool)] += 1
    # 1 + chi^2 of a client: the mean over its tasks of (1/100) / (count / 10,000).
    factors = [float(np.mean(100 / counts[list(pool)])) for pool in pools]
    assert np.mean(factors) == pytest.approx(6410 / 100, abs=1e-9)
    assert 55 <= min(factors) < max(factors) <= 78
    mean = {str(task): count / 10_000 for task, count in enumerate(counts)}
    first = theory.chi_square({str(task): 0.01 for task in pools[0]}, mean)
    assert 1 + first == pytest.approx(factors[0])


@pytest.mark.parametrize("sizes", [(10,) * 5, (50, 20, 10, 10, 5, 5)])
def test_clients_of_one_category_each_have_a_mean_factor_of_the_number_of_categories(sizes: tuple[int, ...]) -> None:
    mean = {str(category): size / sum(sizes) for category, size in enumerate(sizes)}
    factors = [1 + theory.chi_square({str(category): 1.0}, mean) for category in range(len(sizes))]
    assert factors == pytest.approx([sum(sizes) / size for size in sizes])
    assert sum(size * factor for size, factor in zip(sizes, factors, strict=True)) / sum(sizes) == pytest.approx(len(sizes))
    assert 1 + theory.chi_square(mean, mean) == pytest.approx(1.0)


def test_the_square_root_bound_alone_holds_and_is_attained() -> None:
    rng = np.random.default_rng(5)
    tightest = 0.0
    for case in range(2000):
        clients, tasks = int(rng.integers(2, 8)), int(rng.integers(2, 12))
        own = np.eye(tasks)[:clients] if case % 10 == 0 and clients <= tasks else rng.dirichlet(np.full(tasks, 0.3), size=clients)
        gaps = np.eye(tasks)[0] if case % 10 == 0 else rng.random(tasks) ** 3
        mean, names = own.mean(axis=0), [str(task) for task in range(tasks)]
        for mixture in own:
            chi2 = theory.chi_square(dict(zip(names, mixture, strict=True)), dict(zip(names, mean, strict=True)))
            bound = theory.task_bound(chi2, float(mean @ gaps))
            assert float(mixture @ gaps) <= bound + 1e-12
            tightest = max(tightest, float(mixture @ gaps) / bound if bound else 0.0)
    assert tightest == pytest.approx(1.0)


def test_chi_square_by_hand() -> None:
    assert theory.chi_square({"a": 1.0}, {"a": 0.25, "b": 0.75}) == 3.0
    assert theory.chi_square({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}) == 0.0
    assert theory.chi_square({"c": 1.0}, {"a": 1.0}) == math.inf
    assert theory.heterogeneity_factor(3.0) == 2.0


def test_the_square_root_is_sharper_only_for_large_errors() -> None:
    assert theory.task_bound(3.0, 0.01, clients=4) == pytest.approx(0.04)
    assert theory.task_bound(0.0, 0.25, clients=4) == pytest.approx(0.5)


@pytest.mark.parametrize("on_arrival", [False, True])
def test_values_of_one_policy_in_two_chains_stay_inside_the_exact_bound(on_arrival: bool) -> None:
    rng = np.random.default_rng(2)
    horizon, tightest = 5, 0.0
    for case in range(400):
        states = 3
        first = rng.dirichlet(np.ones(states), size=states)
        second = rng.dirichlet(np.ones(states), size=states)
        rewards = rng.random(states)
        if case == 0:
            # Staying where it pays against leaving for good, from a start that pays.
            first, second, rewards = np.eye(3), np.array([[0.7, 0.3, 0], [0, 1, 0], [0, 0, 1]]), np.array([1.0, 0, 0])
        delta = float(max(np.abs(a - b).sum() / 2 for a, b in zip(first, second, strict=True)))
        difference = float(np.abs(value(first, rewards, horizon, on_arrival) - value(second, rewards, horizon, on_arrival)).max())
        bound = theory.value_difference_bound(delta, horizon, on_arrival=on_arrival)
        assert difference <= bound + 1e-12
        tightest = max(tightest, difference / bound)
    assert tightest > 0.5


def value(kernel: np.ndarray, rewards: np.ndarray, horizon: int, on_arrival: bool) -> np.ndarray:
    values = np.zeros(len(rewards))
    for _ in range(horizon):
        values = kernel @ (rewards + values) if on_arrival else rewards + kernel @ values
    return values


def test_the_recovery_bound_adds_its_three_costs() -> None:
    assert theory.recovery_bound(2, 0.1, 0.01, loss_per_turn=0.5, horizon=5) == pytest.approx(2 * 0.5 + 5 * 0.1 + 2 * 25 * 0.01)
    assert theory.recovery_bound(0, 0.0, 0.0) == 0.0


def test_the_discounted_floor() -> None:
    assert theory.discounted_floor(0.4, 0.5) == pytest.approx(0.5 * 0.4 / (2 * 0.75))
    for horizon in (2, 5, 50):
        assert theory.discounted_floor(1.0, 1 - 1 / horizon) >= horizon / 6
    # Summed directly: in every other step the swap decides, and the policy is right with probability 1/2.
    gamma = 0.9
    direct = sum(gamma ** (2 * k + 1) * 0.3 / 2 for k in range(2000))
    assert theory.discounted_floor(0.3, gamma) == pytest.approx(direct)
