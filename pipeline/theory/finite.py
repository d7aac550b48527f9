"""Small worlds solved exactly: finite-horizon value iteration, what a policy is worth, and where a difference in value comes from.

A world has S states and A actions; a policy is an array [S, A] of probabilities, or [H, S, A] where it changes from step to step. Rewards
are those expected of a step in a state. Values add up ``horizon`` rewards, each discounted by ``gamma`` per step that lies before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_TIE = 1e-12
"""Values this close count as equal."""


@dataclass(frozen=True)
class FiniteWorld:
    """``kernel`` [S, A, S] (the last axis adds up to 1), ``reward`` [S, A], ``start`` [S]. Raises ``ValueError`` for what is none."""

    kernel: Array
    reward: Array
    start: Array

    def __post_init__(self) -> None:
        states, actions = self.reward.shape
        if self.kernel.shape != (states, actions, states) or self.start.shape != (states,):
            raise ValueError(
                f"a world with rewards {self.reward.shape} needs a kernel {(states, actions, states)} and a start {(states,)}, "
                f"got {self.kernel.shape} and {self.start.shape}"
            )
        for name, chances in (("kernel", self.kernel), ("start", self.start)):
            if (chances < 0).any() or not np.allclose(chances.sum(-1), 1.0, atol=1e-9):
                raise ValueError(f"{name}: probabilities must be 0 or more and add up to 1")


@dataclass(frozen=True)
class Valued:
    """``value`` from the start, ``states`` [H + 1, S] and ``actions`` [H, S, A] from every step on, of the ``policy`` [H, S, A]."""

    value: float
    states: Array
    actions: Array
    policy: Array


def solve(world: FiniteWorld, horizon: int, gamma: float = 1.0) -> Valued:
    """The optimum by value iteration (Bellman 1957): Q_h(s, a) = r(s, a) + gamma sum_s' P(s' | s, a) max_a' Q_h+1(s', a'). Of equally good
    actions the policy takes the first."""
    states, actions = world.reward.shape
    values, q = np.zeros((horizon + 1, states)), np.zeros((horizon, states, actions))
    for step in reversed(range(horizon)):
        q[step] = world.reward + gamma * world.kernel @ values[step + 1]
        values[step] = q[step].max(axis=1)
    best = (q >= values[:-1, :, None] - _TIE).argmax(axis=2)
    return Valued(float(world.start @ values[0]), values, q, np.eye(actions)[best])


def evaluate(world: FiniteWorld, policy: Array, horizon: int, gamma: float = 1.0) -> Valued:
    """What ``policy`` is worth."""
    whole = _by_step(policy, horizon)
    states, actions = world.reward.shape
    values, q = np.zeros((horizon + 1, states)), np.zeros((horizon, states, actions))
    for step in reversed(range(horizon)):
        q[step] = world.reward + gamma * world.kernel @ values[step + 1]
        values[step] = (whole[step] * q[step]).sum(axis=1)
    return Valued(float(world.start @ values[0]), values, q, whole)


def visits(world: FiniteWorld, policy: Array, horizon: int) -> Array:
    """Where ``policy`` is: distributions [H, S] over states, step by step."""
    whole = _by_step(policy, horizon)
    found, here = np.zeros((horizon, len(world.start))), world.start
    for step in range(horizon):
        found[step] = here
        here = np.einsum("s,sa,sat->t", here, whole[step], world.kernel)
    return found


def performance_difference(world: FiniteWorld, policy: Array, reference: Array, horizon: int, gamma: float = 1.0) -> Array:
    """J(policy) - J(reference), taken apart by step, [H]: gamma^h E over states s that ``policy`` visits at step h of
    sum_a policy(a | s) A_h(s, a), with A the advantage over ``reference`` (Kakade and Langford 2002, lemma 6.1). Adds up exactly.

    With ``reference`` a world's optimum, minus the terms is what each step of a shared policy costs a client.
    """
    whole, known = _by_step(policy, horizon), evaluate(world, reference, horizon, gamma)
    gained = ((whole - known.policy) * known.actions).sum(axis=2)
    terms: Array = gamma ** np.arange(horizon) * (visits(world, policy, horizon) * gained).sum(axis=1)
    return terms


def losses_by_turn(continued: Sequence[float]) -> list[float]:
    """The same decomposition along one path. ``continued[t]`` is the value of doing what the policy does for t turns and the best from then
    on, the last one the policy's own value: turn t loses V_t - V_t+1, its negative advantage under the optimum. Adds up to the gap."""
    return [before - after for before, after in itertools.pairwise(continued)]


def kernel_difference(first: FiniteWorld, second: FiniteWorld, policy: Array, horizon: int, gamma: float = 1.0) -> Array:
    """J_1(policy) - J_2(policy), taken apart by step, [H]: gamma^h E over what the policy visits in ``first`` at step h of
    r_1 - r_2 + gamma (P_1 - P_2) V_2,h+1 (the simulation lemma, Kearns and Singh 2002). Adds up exactly.

    With equal rewards every term is at most the total-variation distance there times the spread of values that are left: lemma 2.
    """
    whole, known = _by_step(policy, horizon), evaluate(second, policy, horizon, gamma)
    gaps = first.reward - second.reward + gamma * np.einsum("iaj,hj->hia", first.kernel - second.kernel, known.states[1:])
    terms: Array = gamma ** np.arange(horizon) * np.einsum("hi,hia,hia->h", visits(first, policy, horizon), whole, gaps)
    return terms


def kernel_distance(first: FiniteWorld, second: FiniteWorld) -> float:
    """delta of two worlds: the largest total-variation distance of their kernels over states and actions (definition 2), in [0, 1]."""
    return float(np.abs(first.kernel - second.kernel).sum(axis=2).max() / 2)


def effective_distance(first: FiniteWorld, second: FiniteWorld, policy: Array, horizon: int) -> float:
    """delta_eff: the mean total-variation distance of the kernels where ``policy`` goes in ``first`` (C1), in [0, 1]."""
    apart = np.abs(first.kernel - second.kernel).sum(axis=2) / 2
    there = np.einsum("hi,hia,ia->h", visits(first, policy, horizon), _by_step(policy, horizon), apart)
    return float(there.mean())


def common_policy(worlds: Sequence[FiniteWorld], horizon: int, gamma: float = 1.0) -> Array | None:
    """A policy [H, S, A] without memory that is optimal in every world, whose Delta_pol is then 0 (C1 a, C2). At each state that it reaches
    it takes the first action that is among the best in all worlds where it gets there; None where it comes to a state without one."""
    solved = [solve(world, horizon, gamma) for world in worlds]
    here = [world.start for world in worlds]
    policy = np.array(solved[0].policy)
    for step in range(horizon):
        for state in range(policy.shape[1]):
            agreed = np.ones(policy.shape[2], bool)
            for there, own in zip(here, solved, strict=True):
                if there[state] > 0:
                    agreed &= own.actions[step, state] >= own.states[step, state] - _TIE
            if not agreed.any():
                return None
            policy[step, state] = np.eye(policy.shape[2])[agreed.argmax()]
        here = [np.einsum("s,sa,sat->t", there, policy[step], world.kernel) for there, world in zip(here, worlds, strict=True)]
    return policy


def shared_value(worlds: Sequence[FiniteWorld], horizon: int, weights: Sequence[float] | None = None, gamma: float = 1.0) -> float:
    """sup J_fed over policies that remember all states and actions so far, but are not told the world: the mean over worlds (equal
    ``weights`` by default) of the best such policy. Value iteration over states and beliefs, exact; for small worlds and horizons only.

    What an agent can remember is what states tell: of a world whose states do not show outcomes it learns nothing (the silent one).
    """
    shares = np.full(len(worlds), 1 / len(worlds)) if weights is None else np.asarray(weights, dtype=np.float64)
    kernels, rewards = np.stack([world.kernel for world in worlds]), np.stack([world.reward for world in worlds])
    known: dict[tuple[int, int, bytes], float] = {}

    def after(step: int, arrivals: Array) -> float:
        """The same for all states where worlds may arrive, [worlds, S]."""
        return sum(best(step, state, arrivals[:, state]) for state in np.flatnonzero(arrivals.any(axis=0)))

    def best(step: int, state: int, mass: Array) -> float:
        """The most that is left, summed over worlds; ``mass`` is each world's share times the chance of being here in it."""
        total = float(mass.sum())
        if step == horizon or total == 0.0:
            return 0.0
        belief = mass / total
        key = (step, state, np.round(belief, 12).tobytes())
        if key not in known:
            arrivals = belief[:, None, None] * kernels[:, state]  # [worlds, A, S]
            known[key] = max(
                float(belief @ rewards[:, state, action]) + gamma * after(step + 1, arrivals[:, action])
                for action in range(rewards.shape[2])
            )
        return total * known[key]

    return after(0, shares[:, None] * np.stack([world.start for world in worlds]))


def _by_step(policy: Array, horizon: int) -> Array:
    return np.broadcast_to(policy, (horizon, *policy.shape[-2:]))
