"""Section ``algorithm``: the policy-gradient objective."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class AlgorithmConfig(Section):
    """GRPO (Shao et al. 2024, arXiv 2402.03300) with the choices that implementations leave implicit made explicit."""

    name: Literal["grpo"] = Field("grpo", description="The algorithm.")
    tasks_per_epoch: int = Field(8, ge=1, le=100_000, description="Tasks in one rollout batch of a client.")
    group_size: int = Field(8, ge=2, le=1024, description="Episodes per task.")
    passes: int = Field(1, ge=1, le=64, description="Passes over a rollout batch.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Ratio clip below 1.")
    clip_high: float = Field(0.2, gt=0, le=10, description="Ratio clip above 1.")
    dual_clip: float | None = Field(
        3.0, gt=1, le=100, description="Bound on ratio times negative advantage (Ye et al. 2020); null turns it off."
    )
    kl_coef: float = Field(0.01, ge=0, le=10, description="Weight of the KL term in the loss.")
    kl_estimator: Literal["k1", "k2", "k3"] = Field("k3", description="Estimator of KL(policy || anchor) per token (Schulman 2020).")
    kl_anchor: Literal["base", "round"] = Field("base", description="What the policy is held to: the base model, or the round's start.")
    entropy_coef: float = Field(0.001, ge=0, le=1, description="Weight of the entropy bonus.")
    invalid_penalty: float = Field(0.1, ge=0, le=100, description="Subtracted from the return of a turn whose action was invalid.")
    norm_unit: Literal["turn", "trajectory"] = Field("turn", description="Group mean and deviation over turns (published) or trajectories.")
    normalize_std: bool = Field(True, description="Divide by the group's standard deviation.")
    std_floor: float = Field(1.0, ge=0, le=1000, description="Smallest standard deviation divided by; 10 % of the reward scale.")
    drop_zero_variance: bool = Field(False, description="Leave out groups whose episodes all had the same return.")
