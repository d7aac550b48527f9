"""Value iteration, what is shared, and where differences come from: on random worlds, the escape hatches, and the chains."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pipeline import theory
from pipeline.theory import FiniteWorld

GOLDENS = {0.2: {1: 0.100, 5: 0.401, 15: 0.940, 50: 1.876}, 0.5: {1: 0.250, 5: 0.656, 15: 0.938, 50: 1.000}, 0.8: {5: 0.605, 50: 0.625}}


def random_world(rng: np.random.Generator, states: int = 4, actions: int = 3) -> FiniteWorld:
    kernel = rng.dirichlet(np.ones(states), size=(states, actions))
    return FiniteWorld(kernel, rng.random((states, actions)), rng.dirichlet(np.ones(states)))


def random_policy(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])


def bandit(*pays: float) -> FiniteWorld:
    """One step, one state: arm a pays 1 with chance ``pays[a]``, which is also where the kernel leads (paid, or not)."""
    kernel = np.zeros((3, len(pays), 3))
    kernel[0] = [[0, p, 1 - p] for p in pays]
    kernel[1:, :, 2] = 1
    reward = np.zeros((3, len(pays)))
    reward[0] = pays
    return FiniteWorld(kernel, reward, np.array([1.0, 0, 0]))


def swap_chain(right: int, delta: float, *, silent: bool) -> FiniteWorld:
    """The swap bandit played again and again: arm ``right`` is the good one. States are the last arm and outcome, or tell nothing."""
    chance = np.full(2, (1 - delta) / 2)
    chance[right] = (1 + delta) / 2
    if silent:
        return FiniteWorld(np.ones((1, 2, 1)), chance[None], np.ones(1))
    kernel = np.zeros((5, 2, 5))
    for arm in (0, 1):
        kernel[:, arm, 1 + 2 * arm], kernel[:, arm, 2 + 2 * arm] = chance[arm], 1 - chance[arm]
    return FiniteWorld(kernel, np.broadcast_to(chance, (5, 2)), np.eye(5)[0])


def banner_world(right: int, delta: float, error: float) -> FiniteWorld:
    """The swap bandit under a banner that names an arm (the state), the wrong one with chance ``error``. Outcomes are not shown."""
    chance = np.full(2, (1 - delta) / 2)
    chance[right] = (1 + delta) / 2
    start = np.full(2, error)
    start[right] = 1 - error
    return FiniteWorld(np.repeat(np.eye(2)[:, None], 2, axis=1), np.broadcast_to(chance, (2, 2)), start)


def door_world(right: int, delta: float, error: float, *, dead_end: bool = False) -> FiniteWorld:
    """As ``banner_world``, but the banner hangs behind a door: action 2 spends a step and leads to it. Before it, arms may be played
    blindly. With ``dead_end`` nothing is paid behind the door."""
    inner = banner_world(right, delta, error)
    kernel, reward = np.zeros((3, 3, 3)), np.zeros((3, 3))
    kernel[1:, :, 1:] = np.eye(2)[:, None]
    reward[1:, :2] = 0 if dead_end else inner.reward
    kernel[0, :2, 0] = 1
    kernel[0, 2, 1:] = inner.start
    reward[0, :2] = inner.reward[0]
    return FiniteWorld(kernel, reward, np.eye(3)[0])


def disagreement(worlds: list[FiniteWorld], horizon: int) -> float:
    """Delta_pol of agents that remember."""
    return float(np.mean([theory.solve(world, horizon).value for world in worlds])) - theory.shared_value(worlds, horizon)


def test_value_iteration_finds_the_best_of_all_deterministic_policies() -> None:
    rng = np.random.default_rng(0)
    world, horizon = random_world(rng, 2, 2), 3
    choices = (np.eye(2)[np.array(picks).reshape(horizon, 2)] for picks in itertools.product((0, 1), repeat=2 * horizon))
    best = max(theory.evaluate(world, policy, horizon, 0.9).value for policy in choices)
    found = theory.solve(world, horizon, 0.9)
    assert found.value == pytest.approx(best, abs=1e-12)
    assert theory.evaluate(world, found.policy, horizon, 0.9).value == pytest.approx(best, abs=1e-12)


def test_visits_and_values_agree_with_playing() -> None:
    rng = np.random.default_rng(1)
    world, horizon = random_world(rng), 4
    policy = random_policy(rng, horizon, 4, 3)
    there = theory.visits(world, policy, horizon)
    np.testing.assert_allclose(there.sum(axis=1), 1)
    assert np.einsum("hi,hia,ia->", there, policy, world.reward) == pytest.approx(theory.evaluate(world, policy, horizon).value)
    returns = []
    for _ in range(4000):
        state, total = rng.choice(4, p=world.start), 0.0
        for step in range(horizon):
            action = rng.choice(3, p=policy[step, state])
            total += world.reward[state, action]
            state = rng.choice(4, p=world.kernel[state, action])
        returns.append(total)
    error = np.std(returns, ddof=1) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - theory.evaluate(world, policy, horizon).value) < 4 * error


@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_the_performance_difference_adds_up(gamma: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        world, horizon = random_world(rng), 5
        policy, reference = random_policy(rng, horizon, 4, 3), random_policy(rng, 4, 3)
        direct = theory.evaluate(world, policy, horizon, gamma).value - theory.evaluate(world, reference, horizon, gamma).value
        assert theory.performance_difference(world, policy, reference, horizon, gamma).sum() == pytest.approx(direct, abs=1e-12)
        costs = -theory.performance_difference(world, policy, theory.solve(world, horizon, gamma).policy, horizon, gamma)
        assert costs.min() >= -1e-12, "against the optimum every step costs"


def test_the_performance_difference_tells_which_step_it_was() -> None:
    worlds = [swap_chain(0, 0.6, silent=True), swap_chain(1, 0.6, silent=True)]
    policy = np.array([[[0.5, 0.5]], [[1.0, 0.0]], [[0.0, 1.0]]])
    costs = [-theory.performance_difference(world, policy, theory.solve(world, 3).policy, 3) for world in worlds]
    np.testing.assert_allclose(costs, [[0.3, 0, 0.6], [0.3, 0.6, 0]], atol=1e-12)
    np.testing.assert_allclose(np.mean(costs, axis=0), theory.floor(0.6), atol=1e-12)


def test_along_a_path_the_losses_are_the_negative_advantages() -> None:
    rng = np.random.default_rng(3)
    kernel = np.eye(4)[rng.integers(0, 4, (4, 3))]
    world, horizon = FiniteWorld(kernel, rng.random((4, 3)), np.eye(4)[0]), 4
    best, actions = theory.solve(world, horizon), rng.integers(0, 3, horizon)
    mixed = np.array([np.broadcast_to(np.eye(3)[action], (4, 3)) for action in actions])
    continued = [theory.evaluate(world, np.concatenate([mixed[:turn], best.policy[turn:]]), horizon).value for turn in range(horizon + 1)]
    losses = theory.losses_by_turn(continued)
    np.testing.assert_allclose(losses, -theory.performance_difference(world, mixed, best.policy, horizon), atol=1e-12)
    assert sum(losses) == pytest.approx(best.value - theory.evaluate(world, mixed, horizon).value)
    assert theory.losses_by_turn([0.5]) == []


@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_the_difference_of_two_kernels_adds_up_and_stays_inside_lemma_2(gamma: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        first, horizon = random_world(rng), 5
        second = FiniteWorld(random_world(rng).kernel, first.reward, first.start)
        policy = random_policy(rng, horizon, 4, 3)
        direct = theory.evaluate(first, policy, horizon, gamma).value - theory.evaluate(second, policy, horizon, gamma).value
        terms = theory.kernel_difference(first, second, policy, horizon, gamma)
        assert terms.sum() == pytest.approx(direct, abs=1e-12)
        delta, effective = theory.kernel_distance(first, second), theory.effective_distance(first, second, policy, horizon)
        assert effective <= delta + 1e-12
        assert abs(direct) <= theory.value_difference_bound(delta, horizon) + 1e-12
        if gamma == 1.0:
            # By step: distance there, times the most that is left, here bounded by H - 1 in every step.
            assert abs(direct) <= horizon * effective * (horizon - 1) + 1e-12


def test_a_common_optimum_off_the_disagreement_costs_nothing() -> None:
    safe, twin = [bandit(0.8, 0.6), bandit(0.8, 0.1)], [bandit(0.8, 0.9), bandit(0.8, 0.1)]
    assert theory.kernel_distance(*safe) == pytest.approx(0.5)
    policy = theory.common_policy(safe, 1)
    assert policy is not None
    assert theory.effective_distance(*safe, policy, 1) == 0
    assert [theory.evaluate(world, policy, 1).value for world in safe] == [theory.solve(world, 1).value for world in safe]
    assert disagreement(safe, 1) == pytest.approx(0, abs=1e-12)
    # Its negative twin: always-safe still avoids the disagreement, but is not optimal everywhere.
    assert theory.common_policy(twin, 1) is None
    always_safe = np.broadcast_to(np.eye(2)[0], (3, 2))
    assert theory.effective_distance(*twin, always_safe, 1) == 0
    assert disagreement(twin, 1) == pytest.approx(0.05)
    gaps = [theory.solve(world, 1).value - theory.evaluate(world, always_safe, 1).value for world in twin]
    assert max(gaps) == pytest.approx(0.1)


def test_worlds_that_rank_actions_alike_cost_nothing() -> None:
    worlds = [bandit(0.9, 0.5), bandit(0.6, 0.2)]
    assert theory.kernel_distance(*worlds) == pytest.approx(0.3)
    policy = theory.common_policy(worlds, 1)
    assert policy is not None
    assert theory.effective_distance(*worlds, policy, 1) == pytest.approx(0.3), "the difference is met, and does not matter"
    assert disagreement(worlds, 1) == pytest.approx(0, abs=1e-12)


def test_a_common_policy_need_only_agree_where_it_goes() -> None:
    # Action 0 stays in state 0, action 1 leads to state 1, where the two worlds want different things for less.
    kernel = np.zeros((2, 2, 2))
    kernel[0] = np.eye(2)
    kernel[1, :, 1] = 1
    worlds = [FiniteWorld(kernel, np.array([[1.0, 0.0], after]), np.array([1.0, 0.0])) for after in ([0.5, 0.0], [0.0, 0.5])]
    policy = theory.common_policy(worlds, 3)
    assert policy is not None
    assert [theory.evaluate(world, policy, 3).value for world in worlds] == [3, 3]
    begun = [FiniteWorld(world.kernel, world.reward, np.array([0.0, 1.0])) for world in worlds]
    assert theory.common_policy(begun, 3) is None


@pytest.mark.parametrize(("delta", "horizon"), [(d, h) for d, rows in GOLDENS.items() for h in rows])
def test_the_chain_with_memory_by_value_iteration_over_beliefs(delta: float, horizon: int) -> None:
    chain = [swap_chain(arm, delta, silent=False) for arm in (0, 1)]
    assert disagreement(chain, horizon) == pytest.approx(theory.memory_gap(delta, horizon), abs=1e-9)
    assert disagreement(chain, horizon) == pytest.approx(GOLDENS[delta][horizon], abs=5.1e-4)
    quiet = [swap_chain(arm, delta, silent=True) for arm in (0, 1)]
    assert disagreement(quiet, horizon) == pytest.approx(theory.floor(delta, horizon=horizon), abs=1e-9)


@pytest.mark.parametrize("error", [0.0, 0.1, 0.3, 0.5])
def test_a_revealed_world_costs_what_its_banner_gets_wrong(error: float) -> None:
    delta, horizon = 0.8, 6
    gap = disagreement([banner_world(arm, delta, error) for arm in (0, 1)], horizon)
    assert gap == pytest.approx(theory.banner_gap(error, delta, horizon=horizon), abs=1e-9)
    # t* = 0: the banner hangs at the start, and who reads it right knows the world.
    assert gap <= theory.recovery_bound(0, error, 0.0, horizon=horizon) + 1e-12


@pytest.mark.parametrize(("delta", "error", "horizon"), [(0.8, 0.0, 6), (0.8, 0.1, 6), (0.3, 0.05, 20), (1.0, 0.2, 4), (0.5, 0.4, 3)])
def test_finding_out_stays_inside_the_bound_with_the_worlds_own_cost(delta: float, error: float, horizon: int) -> None:
    worlds = [door_world(arm, delta, error) for arm in (0, 1)]
    own = theory.solve(worlds[0], horizon)
    # What is left behind the door, which is reached at turn 1 by always taking it: c0 t* = V(start) - V(after), with R = 1.
    left = float(worlds[0].kernel[0, 2] @ own.states[1])
    loss = own.value - left
    assert loss == pytest.approx((1 + delta) / 2)
    bound = theory.recovery_bound(1, error, 0.0, loss_per_turn=loss, horizon=horizon)
    through = np.array([np.eye(3)[[2, 0, 1]]] * horizon)
    gap = float(np.mean([own.value - theory.evaluate(world, through, horizon).value for world in worlds]))
    assert gap == pytest.approx(loss + (horizon - 1) * delta * error)
    assert disagreement(worlds, horizon) == pytest.approx(min(gap, theory.floor(delta, horizon=horizon)))
    assert gap <= bound + 1e-12


def test_without_a_way_back_the_identity_is_worth_nothing() -> None:
    delta, horizon = 0.8, 6
    worlds = [door_world(arm, delta, 0.0, dead_end=True) for arm in (0, 1)]
    gap = disagreement(worlds, horizon)
    assert gap == pytest.approx(theory.floor(delta, horizon=horizon)), "playing blindly is all that is left"
    cheap = theory.recovery_bound(1, 0.0, 0.0, loss_per_turn=(1 + delta) / 2, horizon=horizon)
    assert gap > cheap, "the bound fails where recoverability does"


@pytest.mark.parametrize(("delta", "gamma"), [(0.3, 0.9), (1.0, 0.5), (0.7, 0.8)])
def test_the_discounted_chain(delta: float, gamma: float) -> None:
    """Choose, be paid at the good place or not at the bad one, come back."""

    def chain(right: int) -> FiniteWorld:
        kernel = np.zeros((3, 2, 3))
        for arm in (0, 1):
            chance = (1 + delta) / 2 if arm == right else (1 - delta) / 2
            kernel[0, arm] = [0, chance, 1 - chance]
        kernel[1:, :, 0] = 1
        return FiniteWorld(kernel, np.array([[0, 0], [1, 1], [0, 0.0]]), np.eye(3)[0])

    worlds, horizon = [chain(0), chain(1)], 400
    own = theory.solve(worlds[0], horizon, gamma).value
    for p in (0.0, 0.3, 1.0):
        policy = np.array([[p, 1 - p]] * 3)
        shared = np.mean([theory.evaluate(world, policy, horizon, gamma).value for world in worlds])
        assert own - shared == pytest.approx(theory.discounted_floor(delta, gamma), abs=1e-9)


def test_what_is_no_world_is_refused() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        FiniteWorld(np.full((1, 1, 1), 0.5), np.zeros((1, 1)), np.ones(1))
    with pytest.raises(ValueError, match="needs a kernel"):
        FiniteWorld(np.ones((1, 1)), np.zeros((1, 1)), np.ones(1))  # type: ignore[arg-type]
