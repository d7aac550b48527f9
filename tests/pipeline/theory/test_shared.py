from __future__ import annotations

import itertools

import numpy as np
import pytest

from pipeline.theory import floor, many_clients_gap, shared_optimum


@pytest.mark.parametrize(
    ("values", "disagreement", "worst"),
    [
        ([(0.8, 0.6), (0.8, 0.1)], 0.0, 0.0),
        ([(0.8, 0.9), (0.8, 0.1)], 0.05, 0.0875),
        ([(0.9, 0.5), (0.6, 0.2)], 0.0, 0.0),
        ([(0.75, 0.25), (0.25, 0.75)], 0.25, 0.25),
        ([(1.0, 0.0), (0.0, 1.0)], 0.5, 0.5),
    ],
    ids=["off the path", "its negative twin", "same ranking", "swap", "transition swap"],
)
def test_the_smallest_worlds(values: list[tuple[float, float]], disagreement: float, worst: float) -> None:
    found = shared_optimum(values)
    assert found.disagreement == pytest.approx(disagreement, abs=1e-12)
    assert found.worst_gap == pytest.approx(worst, abs=1e-9)


def test_a_pure_policy_in_the_negative_twin_leaves_its_worst_client_a_tenth() -> None:
    values = np.array([(0.8, 0.9), (0.8, 0.1)])
    arm = shared_optimum(values.tolist()).arm
    assert arm == 0
    assert max(values.max(axis=1) - values[:, arm]) == pytest.approx(0.1)


@pytest.mark.parametrize("clients", [2, 3, 4])
def test_one_good_arm_per_client_costs_what_the_formula_says(clients: int) -> None:
    delta = 0.6
    values = [[(1 + delta) / 2 if arm == client else (1 - delta) / 2 for arm in range(clients)] for client in range(clients)]
    found = shared_optimum(values)
    assert found.disagreement == pytest.approx(many_clients_gap(clients, delta))
    assert found.worst_gap == pytest.approx(many_clients_gap(clients, delta))
    assert found.disagreement >= floor(delta) - 1e-12


def test_weights_decide_who_is_served() -> None:
    values = [(1.0, 0.0), (0.0, 1.0)]
    found = shared_optimum(values, [7 / 8, 1 / 8])
    assert (found.arm, found.disagreement) == (0, pytest.approx(1 / 8))


def test_no_policy_on_a_grid_beats_the_worst_gap() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.random((3, 3))
        found = shared_optimum(values.tolist())
        grid = [(a / 20, b / 20, (20 - a - b) / 20) for a, b in itertools.product(range(21), repeat=2) if a + b <= 20]
        gaps = [max(values.max(axis=1) - values @ np.array(policy)) for policy in grid]
        assert found.worst_gap <= min(gaps) + 1e-9
        assert min(gaps) - found.worst_gap < 0.06
