from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import theory

PROBABILITY = st.floats(0, 1)

GOLDENS = {
    0.2: {1: (0.100, 0.100), 5: (0.401, 0.5), 15: (0.940, 1.5), 50: (1.876, 5.0)},
    0.5: {1: (0.250, 0.250), 5: (0.656, 1.25), 15: (0.938, 3.75), 50: (1.000, 12.5)},
    0.8: {1: (0.400, 0.400), 5: (0.605, 2.0), 15: (0.625, 6.0), 50: (0.625, 20.0)},
}
"""Gap of the chain with memory and of the silent one, by delta and horizon, to three digits."""


@pytest.mark.parametrize(("delta", "horizon"), [(d, h) for d, rows in GOLDENS.items() for h in rows])
def test_a_chain_with_memory_pays_a_constant_and_a_silent_one_pays_per_play(delta: float, horizon: int) -> None:
    memory, silent = GOLDENS[delta][horizon]
    assert theory.memory_gap(delta, horizon) == pytest.approx(memory, abs=5.1e-4)
    assert theory.floor(delta, horizon=horizon) == pytest.approx(silent, abs=1e-12)


def test_the_chain_with_memory_equals_playing_it_out() -> None:
    delta, horizon = 0.5, 6
    right = (1 + delta) / 2
    lost = 0.0
    for draws in itertools.product((0, 1), repeat=horizon - 1):
        chance = math.prod(right if draw else 1 - right for draw in draws)
        for played in range(horizon):
            hits = sum(draws[:played])
            wrong = 0.5 if 2 * hits == played else float(2 * hits < played)
            lost += chance * delta * wrong
    assert theory.memory_gap(delta, horizon) == pytest.approx(lost, abs=1e-12)


@given(PROBABILITY, PROBABILITY)
def test_the_mean_gap_is_the_floor_for_every_policy_and_the_worst_is_no_less(p: float, delta: float) -> None:
    first, second = theory.swap_gaps(p, delta, reward=2.0, horizon=3)
    bound = theory.floor(delta, 2.0, 3)
    assert (first + second) / 2 == pytest.approx(bound, abs=1e-12)
    assert max(first, second) >= bound - 1e-12


@given(PROBABILITY, PROBABILITY)
def test_the_federated_objective_of_the_swap_does_not_depend_on_the_policy(p: float, delta: float) -> None:
    first, second = theory.swap_returns(p, delta)
    assert (first + second) / 2 == pytest.approx(0.5, abs=1e-12)
    best = theory.swap_returns(1.0, delta)[0]
    assert best - first == pytest.approx(theory.swap_gaps(p, delta)[0], abs=1e-12)


def test_delta_one_is_the_transition_swap() -> None:
    assert max(theory.swap_gaps(0.5, 1.0)) == 0.5
    assert theory.many_clients_gap(2, 0.6) == pytest.approx(theory.floor(0.6))
    assert theory.many_clients_gap(4, 1.0) == 0.75


def test_a_coin_toss_banner_gives_the_floor_back() -> None:
    assert theory.banner_gap(0.5, 0.8, horizon=7) == pytest.approx(theory.floor(0.8, horizon=7))
    assert theory.banner_gap(0.0, 0.8) == 0.0


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_gradient_heterogeneity_equals_the_gradients_of_a_softmax(p: float) -> None:
    delta = 0.6
    # d J_i / d logits of a two-logit softmax is +-delta p (1 - p) (1, -1); the mean of both clients' gradients is 0.
    gradients = [[sign * delta * p * (1 - p) * side for side in (1, -1)] for sign in (1, -1)]
    zeta2 = sum(g * g for gradient in gradients for g in gradient) / 2
    assert theory.gradient_heterogeneity(p, delta) == pytest.approx(zeta2, abs=1e-15)
    assert theory.gradient_heterogeneity(0.5, delta, horizon=2) == pytest.approx((2 * delta) ** 2 / 8)


def test_gradients_agree_in_the_end_while_one_client_loses_everything() -> None:
    delta, horizon = 0.6, 4
    saturated = 1 - 1e-6
    assert theory.gradient_heterogeneity(saturated, delta, horizon=horizon) < 1e-10
    assert max(theory.swap_gaps(saturated, delta, horizon=horizon)) == pytest.approx(horizon * delta, rel=1e-5)


def test_many_rounds_without_an_answer_cost_as_many_times_as_much() -> None:
    for p in (0.0, 0.4, 1.0):
        once, often = theory.swap_gaps(p, 0.7), theory.swap_gaps(p, 0.7, horizon=9)
        assert often == pytest.approx([9 * gap for gap in once])


def test_the_gap_with_memory_is_met_by_sampling() -> None:
    delta, horizon, episodes, rng = 0.5, 15, 4000, random.Random(0)
    lost = []
    for _ in range(episodes):
        lead, total = 0, 0.0
        for _ in range(horizon):
            right = lead > 0 or (lead == 0 and rng.random() < 0.5)
            total += 0.0 if right else delta
            lead += 1 if rng.random() < (1 + delta) / 2 else -1
        lost.append(total)
    mean = sum(lost) / episodes
    error = math.sqrt(sum((x - mean) ** 2 for x in lost) / episodes / (episodes - 1))
    assert abs(mean - theory.memory_gap(delta, horizon)) < 3 * error
