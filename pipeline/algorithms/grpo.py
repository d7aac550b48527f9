"""GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300) over turns of episodes, with every silent choice made explicit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pipeline.algorithms.advantages import group_advantages, zero_variance_groups
from pipeline.algorithms.base import Algorithm, Loss, MicroBatch, Rows
from pipeline.algorithms.kl import kl_estimate
from pipeline.algorithms.losses import clipped_policy_loss
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.episodes import Episode
from pipeline.errors import LearnerError


class GRPO(Algorithm):
    """Episode-level outcome, turn-level rows: every response token of a turn carries the turn's advantage."""

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config
        self.needs_reference = config.kl_coef > 0
        self.needs_entropy = config.entropy_coef > 0
        self.passes = config.passes

    def rows(self, episodes: Sequence[Episode]) -> Rows:
        """One row per turn. Groups are (task, group label); a turn's score is its episode's return less the penalty if it was invalid.

        Episodes that failed (their environment kept dying) are left out: their return means nothing. Groups whose episodes all had
        the same return are counted, and left out with ``drop_zero_variance``.
        """
        kept = [e for e in episodes if e.stop != "failed" and e.turns]
        labels: dict[tuple[str, int], int] = {}
        group_of = np.array([labels.setdefault((e.task_id, e.group), len(labels)) for e in kept], np.int64)
        returns = np.array([e.ret for e in kept], np.float32)
        if not np.isfinite(returns).all():
            bad = next(e for e in kept if not np.isfinite(e.ret))
            raise LearnerError(f"client {bad.client}: an episode has the return {bad.ret}; returns must be finite")
        flat = zero_variance_groups(returns, group_of)
        dropped = set(flat.tolist()) if self.config.drop_zero_variance else set()
        picked = [
            (index, turn)
            for index, episode in enumerate(kept)
            if int(group_of[index]) not in dropped
            for turn in episode.turns
            if turn.response_ids
        ]
        scores = np.array([returns[i] - (0.0 if t.valid else self.config.invalid_penalty) for i, t in picked], np.float32)
        episode_of = np.array([i for i, _ in picked], np.int64)
        groups = group_of[episode_of] if picked else np.zeros(0, np.int64)
        advantages = group_advantages(
            scores,
            groups,
            episode_of,
            unit=self.config.norm_unit,
            normalize_std=self.config.normalize_std,
            std_floor=self.config.std_floor,
        )
        return Rows(
            tokens=[np.array(t.prompt_ids + t.response_ids, np.int64) for _, t in picked],
            response_lengths=np.array([len(t.response_ids) for _, t in picked], np.int64),
            logprobs=[np.array(t.logprobs, np.float32) for _, t in picked],
            advantages=advantages,
            episodes=episode_of,
            groups=groups,
            metrics={
                "groups": float(len(labels)),
                "zero_variance": len(flat) / len(labels) if labels else 0.0,
                "failed_episodes": float(sum(e.stop == "failed" for e in episodes)),
                "advantage_mean": float(advantages.mean()) if len(advantages) else 0.0,
                "advantage_abs": float(np.abs(advantages).mean()) if len(advantages) else 0.0,
            },
        )

    def loss(self, batch: MicroBatch, logprobs: torch.Tensor, entropy: torch.Tensor, ref_logprobs: torch.Tensor | None) -> Loss:
        """Clipped surrogate + kl_coef * KL to the anchor - entropy_coef * entropy, summed over response tokens."""
        config = self.config
        pg, ratio, clipped = clipped_policy_loss(
            logprobs, batch.old_logprobs, batch.advantages, low=config.clip_low, high=config.clip_high, dual=config.dual_clip
        )
        per_token = pg
        sums = {"pg_loss": pg.detach().sum(), "entropy": entropy.detach().sum(), "clip_fraction": clipped.sum().float()}
        if self.needs_entropy:
            per_token = per_token - config.entropy_coef * entropy
        if self.needs_reference:
            if ref_logprobs is None:
                raise LearnerError("the KL term needs log-probabilities of the anchor, and none were given")
            kl = kl_estimate(logprobs, ref_logprobs, config.kl_estimator)
            per_token = per_token + config.kl_coef * kl
            sums["kl"] = kl.detach().sum()
        total = per_token.sum()
        sums["loss"] = total.detach()
        return Loss(total=total, sums=sums, maxima={"ratio_max": ratio.detach().max()})
