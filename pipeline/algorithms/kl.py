"""Per-token estimators of KL(policy || anchor) from samples of the policy (Schulman 2020, "Approximating KL divergence")."""

from __future__ import annotations

from typing import Literal

import torch

_LOG_RATIO_BOUND = 20.0


def kl_estimate(logprobs: torch.Tensor, ref_logprobs: torch.Tensor, estimator: Literal["k1", "k2", "k3"]) -> torch.Tensor:
    """Estimate per token, with d = ref - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1.

    As values k1 and k3 are unbiased. As a loss only k2 has the gradient of the divergence; k1's has mean zero and k3's follows
    the divergence taken the other way round, which agrees near the anchor. d is clamped to +-20, so that k3 cannot overflow.
    """
    d = (ref_logprobs - logprobs).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d.square()
    return torch.expm1(d) - d
