"""The best that one shared policy can do in several one-step worlds, exactly: on average, and for the client worst off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SharedOptimum:
    """``own`` mean over clients of their own optimum, ``shared`` of the best shared policy, which plays ``arm``; ``disagreement`` is the
    difference (Delta_pol). ``worst_gap`` is the least worst-client gap that any shared policy, mixed ones included, can have."""

    own: float
    shared: float
    arm: int
    worst_gap: float

    @property
    def disagreement(self) -> float:
        """Delta_pol: what the shared parameter costs on average."""
        return self.own - self.shared


def shared_optimum(values: Sequence[Sequence[float]], weights: Sequence[float] | None = None) -> SharedOptimum:
    """For ``values`` [clients, arms] of one-step worlds; ``weights`` of the clients add up to 1 (equal by default).

    The mean is linear in the policy, so a pure one is best; the worst gap is a linear program.
    """
    from scipy.optimize import linprog

    table = np.asarray(values, dtype=np.float64)
    clients, arms = table.shape
    shares = np.full(clients, 1 / clients) if weights is None else np.asarray(weights, dtype=np.float64)
    best = table.max(axis=1)
    means = shares @ table
    arm = int(means.argmax())
    # Minimise t with best_i - sum_a pi_a values_ia <= t over distributions pi.
    found = linprog(
        c=[0.0] * arms + [1.0],
        A_ub=np.hstack([-table, -np.ones((clients, 1))]),
        b_ub=-best,
        A_eq=[[1.0] * arms + [0.0]],
        b_eq=[1.0],
        bounds=[(0, 1)] * arms + [(0, None)],
    )
    return SharedOptimum(float(shares @ best), float(means[arm]), arm, float(found.fun))
