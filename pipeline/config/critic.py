"""Section ``critic``: the value function that PPO learns beside the policy."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.algorithm import ALGORITHMS, AlgorithmConfig
from pipeline.config.base import Section


class CriticConfig(Section):
    """A copy of the policy's backbone with a scalar head that starts at zero; with LoRA an adapter of its own on the frozen backbone, whose
    factor A stays as it was drawn, so that the mean of critics is exact. Mini-batches, clipping and decay are those of ``learner``."""

    lr: float = Field(
        1e-3,
        gt=0,
        le=1,
        description="Learning rate of its AdamW. Default: 1e-3, with LoRA 5e-3; other models than the embedded ones 1e-5, with LoRA 1e-4.",
    )
    value_clip: float | None = Field(
        0.5, gt=0, le=1e6, description="How far a value may move from the one before the update, in units of value_scale; null: freely."
    )
    value_scale: float = Field(10.0, gt=0, le=1e6, description="The critic predicts returns divided by this: the reward of a success.")
    federate: bool = Field(True, description="Average critics like policies; else every client keeps its own.")
    warmup_rounds: int = Field(0, ge=0, le=100_000, description="First rounds in which the critic alone is trained.")


def servers_average_critics(algorithm: AlgorithmConfig, critic: CriticConfig) -> bool:
    """Whether a critic is part of the shared state."""
    return ALGORITHMS[algorithm.name].critic and critic.federate


def clients_keep_critics(algorithm: AlgorithmConfig, critic: CriticConfig) -> bool:
    """Whether every client has a critic of its own, which never leaves it."""
    return ALGORITHMS[algorithm.name].critic and not critic.federate
