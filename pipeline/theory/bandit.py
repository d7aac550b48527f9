"""The swap bandit of the lower bound (theorem 4) and its kin, exactly.

Two arms, two clients, ``horizon`` plays: an arm pays ``reward`` with probability (1 + delta) / 2 for one client and (1 - delta) / 2 for
the other, the other arm the other way round. ``delta`` is the total-variation distance between the two worlds.
"""

from __future__ import annotations

import math


def swap_returns(p: float, delta: float, reward: float = 1.0, horizon: int = 1) -> tuple[float, float]:
    """Expected returns of both clients when one blind policy plays the first arm with probability ``p``."""
    lean = (2 * p - 1) * delta / 2
    return reward * horizon * (0.5 + lean), reward * horizon * (0.5 - lean)


def swap_gaps(p: float, delta: float, reward: float = 1.0, horizon: int = 1) -> tuple[float, float]:
    """What both clients lose to their own optimum. The mean is ``floor`` for every ``p``: only the worst client is evidence."""
    return reward * horizon * delta * (1 - p), reward * horizon * delta * p


def floor(delta: float, reward: float = 1.0, horizon: int = 1) -> float:
    """R H delta / 2: what a policy that cannot tell two clients apart costs on average, and its worst client at least (theorem 4)."""
    return reward * horizon * delta / 2


def many_clients_gap(clients: int, delta: float, reward: float = 1.0, horizon: int = 1) -> float:
    """Mean gap with as many arms as clients, each client's good arm another one: R H delta (1 - 1/K), for every blind policy."""
    return reward * horizon * delta * (1 - 1 / clients)


def memory_gap(delta: float, horizon: int, reward: float = 1.0) -> float:
    """The gap when the policy sees what paid: R delta times the sum over plays of the chance that the majority so far points to the wrong
    arm (ties count half). The myopic Bayes rule is optimal because both arms tell equally much. Bounded in the horizon."""
    right = (1 + delta) / 2
    return reward * delta * math.fsum(_misled(played, right) for played in range(horizon))


def _misled(draws: int, right: float) -> float:
    """Chance that fewer than half of ``draws`` are right, plus half the chance of a tie."""
    total = []
    for k in range(draws // 2 + 1):
        weight = 0.5 if 2 * k == draws else 1.0
        total.append(weight * math.comb(draws, k) * right**k * (1 - right) ** (draws - k))
    return math.fsum(total)


def banner_gap(error: float, delta: float, reward: float = 1.0, horizon: int = 1) -> float:
    """The gap of the policy that follows a banner which names the wrong arm with probability ``error`` (optimal up to 1/2)."""
    return reward * horizon * delta * error


def gradient_heterogeneity(p: float, delta: float, reward: float = 1.0, horizon: int = 1) -> float:
    """zeta^2 of a two-logit softmax at ``p``: 2 (R H delta p (1 - p))^2. It vanishes as the policy saturates, the gap does not."""
    return 2 * (reward * horizon * delta * p * (1 - p)) ** 2
