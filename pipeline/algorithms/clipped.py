"""What GRPO and PPO share: which turns are trained on, and the clipped surrogate with its KL and entropy terms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pipeline.algorithms.base import Algorithm, Loss, MicroBatch
from pipeline.algorithms.kl import kl_estimate
from pipeline.algorithms.losses import clipped_policy_loss
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.episodes import Episode, FloatArray
from pipeline.errors import LearnerError


class ClippedAlgorithm(Algorithm):
    """Token-level clipped surrogate over turns of episodes (Schulman et al. 2017, eq. 7)."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        self.needs_reference = config.kl_coef > 0
        self.needs_entropy = config.entropy_coef > 0
        self.passes = config.passes

    def loss(self, batch: MicroBatch, logprobs: torch.Tensor, entropy: torch.Tensor, ref_logprobs: torch.Tensor | None) -> Loss:
        """Clipped surrogate + kl_coef * KL to the anchor (unless it is in the reward) - entropy_coef * entropy, summed over tokens.

        ``approx_kl`` is KL(sampler || policy), estimated by k3.
        """
        config = self.config
        pg, ratio, clipped = clipped_policy_loss(
            logprobs, batch.old_logprobs, batch.advantages, low=config.clip_low, high=config.clip_high, dual=config.dual_clip
        )
        per_token = pg
        sums = {"pg_loss": pg.detach().sum(), "entropy": entropy.detach().sum(), "clip_fraction": clipped.sum().float()}
        with torch.no_grad():
            sums["approx_kl"] = kl_estimate(batch.old_logprobs, logprobs, "k3").sum()
        if self.needs_entropy:
            per_token = per_token - config.entropy_coef * entropy
        if self.needs_reference and config.kl_in == "loss":
            if ref_logprobs is None:
                raise LearnerError("the KL term needs log-probabilities of the anchor, and none were given")
            kl = kl_estimate(logprobs, ref_logprobs, config.kl_estimator, batch.old_logprobs)
            per_token = per_token + config.kl_coef * kl
            sums["kl"] = kl.detach().sum()
        total = per_token.sum()
        sums["loss"] = total.detach()
        return Loss(total=total, sums=sums, maxima={"ratio_max": ratio.detach().max()})


def usable(episodes: Sequence[Episode]) -> tuple[list[Episode], FloatArray]:
    """The episodes that say something, and their returns. Failed ones (their environment kept dying) do not: their return means nothing.

    Raises ``LearnerError`` for a return that is not finite.
    """
    kept = [e for e in episodes if e.stop != "failed" and e.turns]
    returns = np.array([e.ret for e in kept], np.float32)
    if not np.isfinite(returns).all():
        bad = next(e for e in kept if not np.isfinite(e.ret))
        raise LearnerError(f"client {bad.client}: an episode has the return {bad.ret}; returns must be finite")
    return kept, returns


def count_failed(episodes: Sequence[Episode]) -> float:
    """Episodes whose environment kept failing."""
    return float(sum(e.stop == "failed" for e in episodes))
