"""The paper's closed forms as pure functions of numbers: the bandits of the lower bound, the bounds, and the best shared policy.

Knows nothing of worlds, clients or training. ``reward`` is the largest reward of a step; where an episode pays once (WebShop, ALFWorld),
read ``reward * horizon`` as the value of one success.
"""

from pipeline.theory.bandit import banner_gap, floor, gradient_heterogeneity, many_clients_gap, memory_gap, swap_gaps, swap_returns
from pipeline.theory.bounds import (
    chi_square,
    discounted_floor,
    heterogeneity_factor,
    recovery_bound,
    task_bound,
    value_difference_bound,
)
from pipeline.theory.shared import SharedOptimum, shared_optimum

__all__ = [
    "SharedOptimum",
    "banner_gap",
    "chi_square",
    "discounted_floor",
    "floor",
    "gradient_heterogeneity",
    "heterogeneity_factor",
    "many_clients_gap",
    "memory_gap",
    "recovery_bound",
    "shared_optimum",
    "swap_gaps",
    "swap_returns",
    "task_bound",
    "value_difference_bound",
]
