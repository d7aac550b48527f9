"""The paper's closed forms as pure functions of numbers: the bandits of the lower bound, the bounds, the best shared policy, and small
worlds solved exactly.

Numbers of theorems, lemmas and conditions (C1 to C3) are those of Chen, Zhu et al. 2026, "Is Decentralized LLM Agent RL Robust to
Heterogeneity? An Asymmetric Tale". Symbols: ``reward`` R, the largest reward of a step; ``horizon`` H, steps of an episode; ``delta``, the
largest total-variation distance between two worlds' kernels, in [0, 1]; ``gamma``, the discount per step; a gap is what a client loses to
its own optimum, and Delta_pol the mean gap of the best shared policy, both in units of reward. Where an episode pays once (WebShop,
ALFWorld), read ``reward * horizon`` as the value of one success. Knows nothing of the worlds that agents act in, of clients or training.
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
