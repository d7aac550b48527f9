"""The paper's closed forms as pure functions of numbers: the bandits of the lower bound, the bounds, the best shared policy, and small
worlds solved exactly.

Knows nothing of the worlds that agents act in, of clients or of training. ``reward`` is the largest reward of a step; where an episode pays once (WebShop, ALFWorld),
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
from pipeline.theory.finite import (
    FiniteWorld,
    Valued,
    common_policy,
    effective_distance,
    evaluate,
    kernel_difference,
    kernel_distance,
    losses_by_turn,
    performance_difference,
    shared_value,
    solve,
    visits,
)
from pipeline.theory.shared import SharedOptimum, shared_optimum

__all__ = [
    "FiniteWorld",
    "SharedOptimum",
    "Valued",
    "banner_gap",
    "chi_square",
    "common_policy",
    "discounted_floor",
    "effective_distance",
    "evaluate",
    "floor",
    "gradient_heterogeneity",
    "heterogeneity_factor",
    "kernel_difference",
    "kernel_distance",
    "losses_by_turn",
    "many_clients_gap",
    "memory_gap",
    "performance_difference",
    "recovery_bound",
    "shared_optimum",
    "shared_value",
    "solve",
    "swap_gaps",
    "swap_returns",
    "task_bound",
    "value_difference_bound",
    "visits",
]
