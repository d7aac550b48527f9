"""GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300) over turns of episodes, with every silent choice made explicit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.algorithms.advantages import group_advantages, zero_variance_groups
from pipeline.algorithms.base import Rows
from pipeline.algorithms.clipped import ClippedAlgorithm, count_failed, usable
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.episodes import Episode


class GRPO(ClippedAlgorithm):
    """Episode-level outcome, turn-level rows: every response token of a turn carries the turn's advantage."""

    config: AlgorithmConfig

    def rows(self, episodes: Sequence[Episode]) -> Rows:
        """One row per turn. Groups are (task, group label); a turn's score is its episode's return less the penalty if it was invalid.

        Episodes that failed (their environment kept dying) are left out: their return means nothing. Groups whose episodes all had
        the same return are counted, and left out with ``drop_zero_variance``.
        """
        kept, returns = usable(episodes)
        labels: dict[tuple[str, int], int] = {}
        group_of = np.array([labels.setdefault((e.task_id, e.group), len(labels)) for e in kept], np.int64)
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
                "failed_episodes": count_failed(episodes),
                "advantage_mean": float(advantages.mean()) if len(advantages) else 0.0,
                "advantage_abs": float(np.abs(advantages).mean()) if len(advantages) else 0.0,
            },
        )
