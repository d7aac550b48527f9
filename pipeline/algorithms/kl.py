"""Per-token estimators of KL(policy || anchor) from samples of the policy (Schulman 2020, "Approximating KL divergence")."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from pipeline.episodes import FloatArray

_LOG_RATIO_BOUND = 20.0

Estimator = Literal["k1", "k2", "k3", "k3_unbiased"]


def kl_estimate(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor, estimator: Estimator, old_logprobs: torch.Tensor | None = None
) -> torch.Tensor:
    """Estimate per token, with d = ref - policy: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - d - 1, and k3_unbiased = policy / sampler * k3.

    As values k1 and k3 are unbiased for samples of the policy itself. As a loss, k1's gradient has mean zero and k3's follows the
    divergence taken the other way round, which agrees near the anchor; k2's is the divergence's while the policy is still the sampler.
    k3_unbiased (DeepSeek-AI 2025, arXiv 2512.02556) is unbiased in value and gradient for samples of ``old_logprobs``, which it needs,
    however far the policy has moved. d and the log-ratio to the sampler are clamped to +-20, so that neither can overflow.
    """
    d = (ref_logprobs - logprobs).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return 0.5 * d.square()
    k3 = torch.expm1(d) - d
    if estimator == "k3":
        return k3
    if old_logprobs is None:
        raise ValueError("k3_unbiased needs the sampler's log-probabilities")
    return (logprobs - old_logprobs).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp() * k3


def kl_values(logprobs: FloatArray, ref_logprobs: FloatArray, estimator: Estimator) -> npt.NDArray[np.float64]:
    """The same as numbers, for samples of the policy itself (k3_unbiased is k3 then)."""
    named: Estimator = "k3" if estimator == "k3_unbiased" else estimator
    return kl_estimate(torch.from_numpy(logprobs).double(), torch.from_numpy(ref_logprobs).double(), named).numpy()
