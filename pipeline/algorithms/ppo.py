"""PPO with a critic (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) over turns of episodes, with every silent choice explicit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from pipeline.algorithms.base import Loss, MicroBatch, Rows
from pipeline.algorithms.clipped import ClippedAlgorithm, count_failed, usable
from pipeline.algorithms.gae import Float64Array, explained_variance, gae, whiten
from pipeline.algorithms.kl import kl_values
from pipeline.algorithms.losses import clipped_value_loss
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.critic import CriticConfig
from pipeline.episodes import Episode, FloatArray
from pipeline.errors import LearnerError


class PPO(ClippedAlgorithm):
    """Every response token has a value, predicted before it is seen, and an advantage of its own.

    With ``gae_unit`` ``trajectory`` an episode's turns are one chain: a turn's reward stands at its last token, and gamma and lambda act
    from turn to turn; inside a turn both are 1, so that the first token's advantage is the turn's in the decision process whose actions are
    whole responses. With ``turn`` (published) every turn is a chain that ends with the episode's return, whatever the turn's share in it,
    and gamma and lambda act from token to token.
    """

    config: AlgorithmConfig
    needs_critic = True

    def __init__(self, config: AlgorithmConfig, critic: CriticConfig) -> None:
        super().__init__(config)
        self.critic = critic

    def rows(self, episodes: Sequence[Episode]) -> Rows:
        """One row per turn, with the reward at its end: the turn's own or the episode's return, less the penalty if the turn was invalid.

        The reward of a turn without a response (there is nothing to train on) counts for the turn before.
        """
        kept, returns = usable(episodes)
        picked = [(index, turn) for index, episode in enumerate(kept) for turn in episode.turns if turn.response_ids]
        return Rows(
            tokens=[np.array(t.prompt_ids + t.response_ids, np.int64) for _, t in picked],
            response_lengths=np.array([len(t.response_ids) for _, t in picked], np.int64),
            logprobs=[np.array(t.logprobs, np.float32) for _, t in picked],
            advantages=np.zeros(len(picked), np.float32),
            episodes=np.array([i for i, _ in picked], np.int64),
            groups=np.array([i for i, _ in picked], np.int64),
            rewards=self._rewards(kept, returns),
            metrics={"failed_episodes": count_failed(episodes)},
        )

    def _rewards(self, episodes: Sequence[Episode], returns: FloatArray) -> FloatArray:
        whole = self.config.gae_unit == "turn"
        rewards: list[float] = []
        for episode, ret in zip(episodes, returns.tolist(), strict=True):
            first = len(rewards)
            for turn in episode.turns:
                reward = (ret if whole else turn.reward) - (0.0 if turn.valid else self.config.invalid_penalty)
                if turn.response_ids:
                    rewards.append(reward)
                elif not whole and len(rewards) > first:
                    rewards[-1] += reward
        return np.array(rewards, np.float32)

    def credit(self, rows: Rows, values: Sequence[FloatArray], ref_logprobs: Sequence[FloatArray] | None) -> Rows:
        """See ``Algorithm``. Raises ``LearnerError`` where the KL is in the reward and the anchor's log-probabilities are missing."""
        assert rows.rewards is not None
        if len(rows) == 0:
            return replace(rows, token_advantages=[], old_values=[], value_targets=[])
        config, scale = self.config, self.critic.value_scale
        lengths = rows.response_lengths
        ends = np.cumsum(lengths)
        old = np.concatenate(values).astype(np.float64)
        rewards = np.zeros(len(old), np.float64)
        rewards[ends - 1] = rows.rewards
        metrics: dict[str, float] = {}
        if self.needs_reference and config.kl_in == "reward":
            if ref_logprobs is None:
                raise LearnerError("the KL penalty needs log-probabilities of the anchor, and none were given")
            kl = kl_values(np.concatenate(rows.logprobs), np.concatenate(ref_logprobs), config.kl_estimator)
            rewards -= config.kl_coef * kl
            metrics["kl"] = float(kl.mean())
        gamma, lam = np.full(len(old), config.gamma), np.full(len(old), config.lam)
        chains = lengths
        if config.gae_unit == "trajectory":
            inside = np.ones(len(old), bool)
            inside[ends - 1] = False
            gamma[inside] = lam[inside] = 1.0
            chains = np.bincount(rows.episodes, weights=lengths).astype(np.int64)
            chains = chains[chains > 0]
        advantages = gae(rewards, scale * old, chains, gamma, lam)
        targets = advantages / scale + old
        metrics |= {
            "advantage_mean": float(advantages.mean()),
            "advantage_std": float(advantages.std()),
            "value_mean": float(scale * old.mean()),
            "explained_variance": explained_variance(old, targets),
        }
        if config.whiten:
            advantages = whiten(advantages, config.std_floor)
        return replace(
            rows,
            token_advantages=_by_row(advantages, ends),
            old_values=list(values),
            value_targets=_by_row(targets, ends),
            metrics={**rows.metrics, **metrics},
        )

    def value_loss(self, batch: MicroBatch, values: torch.Tensor) -> Loss:
        """See ``Algorithm``."""
        assert batch.old_values is not None
        assert batch.value_targets is not None
        loss, clipped = clipped_value_loss(values, batch.old_values, batch.value_targets, self.critic.value_clip)
        total = loss.sum()
        return Loss(total=total, sums={"value_loss": total.detach(), "value_clip_fraction": clipped.sum().float()}, maxima={})


def _by_row(flat: Float64Array, ends: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[FloatArray]:
    return [part.astype(np.float32) for part in np.split(flat, ends[:-1])]
