"""The paper's bounds: tasks (theorem 2), values in two kernels (lemma 2), recovery by classification (theorem 5)."""

from __future__ import annotations

import math
from collections.abc import Mapping

ABSENT = math.inf


def chi_square(own: Mapping[str, float], reference: Mapping[str, float]) -> float:
    """Chi-square divergence of ``own`` from ``reference``, both distributions over the same names: sum of own^2 / reference, minus 1.

    Infinite where ``own`` has mass that the reference lacks. At most N - 1 when the reference is the mean of N clients.
    """
    total = -1.0
    for name, mass in own.items():
        if mass:
            base = reference.get(name, 0.0)
            if base == 0.0:
                return ABSENT
            total += mass * mass / base
    return max(0.0, total)


def heterogeneity_factor(chi2: float) -> float:
    """sqrt(1 + chi^2), by which the task bound grows."""
    return math.sqrt(1 + chi2)


def task_bound(chi2: float, error: float, clients: int | None = None, reward: float = 1.0, horizon: int = 1) -> float:
    """The most that any client can lose when the shared policy is within ``error`` of optimal on the mixture (theorem 2):
    sqrt((1 + chi^2) R H error), or ``clients`` times ``error`` where that is less."""
    root = math.sqrt((1 + chi2) * reward * horizon * error)
    return root if clients is None else min(root, clients * error)


def value_difference_bound(delta: float, horizon: int, reward: float = 1.0, *, on_arrival: bool = False) -> float:
    """The most that one policy's values in two kernels can differ: R delta H (H - 1) / 2 for rewards of a state and action, R delta H (H +
    1) / 2 for rewards of the state reached (lemma 2 with exact finite-horizon constants; both are attained)."""
    return reward * delta * horizon * (horizon + (1 if on_arrival else -1)) / 2


def recovery_bound(
    turn: int, error: float, kernel_error: float, loss_per_turn: float = 1.0, reward: float = 1.0, horizon: int = 1
) -> float:
    """What a policy that learns its world by acting can lose (theorem 5, C3): c0 R t* + R H eta_cls + 2 R H^2 eta_ker.

    ``turn`` is t*, ``error`` eta_cls, ``kernel_error`` eta_ker, ``loss_per_turn`` c0.
    """
    return loss_per_turn * reward * turn + reward * horizon * error + 2 * reward * horizon**2 * kernel_error


def discounted_floor(delta: float, gamma: float, reward: float = 1.0) -> float:
    """Delta_pol of the discounted chain: gamma R delta / (2 (1 - gamma^2)); at least R H delta / 6 for gamma = 1 - 1/H >= 1/2."""
    return gamma * reward * delta / (2 * (1 - gamma**2))
