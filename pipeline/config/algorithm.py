"""Section ``algorithm``: the policy-gradient objective; and what each algorithm needs and cannot use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pipeline.config.base import Section
from pipeline.config.named import Named


@dataclass(frozen=True)
class AlgorithmTraits:
    """What a configuration must know of an algorithm.

    ``critic`` says that it trains one, ``smallest_group`` how many episodes of a task it compares at least. ``defaults`` take the place of
    the section's where they differ; ``unused`` are dotted settings that cannot matter with it.
    """

    critic: bool = False
    smallest_group: int = 1
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: tuple[str, ...] = ()


ALGORITHMS: dict[str, AlgorithmTraits] = {
    "grpo": AlgorithmTraits(
        smallest_group=2,
        unused=(
            *(f"algorithm.{name}" for name in ("gae_unit", "gamma", "lam", "whiten", "kl_in")),
            *(f"critic.{name}" for name in ("lr", "value_clip", "value_scale", "federate", "warmup_rounds")),
        ),
    ),
    "ppo": AlgorithmTraits(
        critic=True,
        defaults={"tasks_per_epoch": 64, "group_size": 1},
        unused=tuple(f"algorithm.{name}" for name in ("norm_unit", "normalize_std", "drop_zero_variance")),
    ),
}
"""Algorithms by name. PPO needs no two episodes of a task: by default it takes as many episodes as GRPO, each of another task."""


class AlgorithmConfig(Section):
    """GRPO (Shao et al. 2024, arXiv 2402.03300) and PPO (Schulman et al. 2017, arXiv 1707.06347) with the choices that implementations
    leave implicit made explicit."""

    name: Annotated[str, Named("algorithm", strict=False)] = Field("grpo", description="The algorithm.")
    options: dict[str, bool | int | float | str] = Field({}, description="Settings of a plug-in's algorithm, by name.")
    tasks_per_epoch: int = Field(8, ge=1, le=100_000, description="Tasks in one rollout batch of a client. Default: 8, with ppo 64.")
    group_size: int = Field(8, ge=1, le=1024, description="Episodes per task. Default: 8, with ppo 1.")
    passes: int = Field(1, ge=1, le=64, description="Passes over a rollout batch.")
    clip_low: float = Field(0.2, gt=0, lt=1, description="Ratio clip below 1.")
    clip_high: float = Field(0.2, gt=0, le=10, description="Ratio clip above 1.")
    dual_clip: float | None = Field(
        3.0, gt=1, le=100, description="Bound on ratio times negative advantage (Ye et al. 2020); null turns it off."
    )
    target_kl: float | None = Field(
        None, gt=0, le=100, description="End a rollout batch's steps once a mini-batch shows a larger mean KL(sampler || policy)."
    )
    kl_coef: float = Field(0.01, ge=0, le=10, description="Weight of the KL to the anchor.")
    kl_estimator: Literal["k1", "k2", "k3", "k3_unbiased"] = Field(
        "k3", description="Estimator of KL(policy || anchor) per token (Schulman 2020); `k3_unbiased` has the divergence's own gradient."
    )
    kl_anchor: Literal["base", "round"] = Field("base", description="What the policy is held to: the base model, or the round's start.")
    kl_in: Literal["loss", "reward"] = Field(
        "loss", description="PPO: where the KL enters, as a loss or as a penalty on every token's reward."
    )
    entropy_coef: float = Field(0.001, ge=0, le=1, description="Weight of the entropy bonus.")
    invalid_penalty: float = Field(0.1, ge=0, le=100, description="Subtracted from the return of a turn whose action was invalid.")
    norm_unit: Literal["turn", "trajectory"] = Field("turn", description="Group mean and deviation over turns (published) or trajectories.")
    normalize_std: bool = Field(True, description="GRPO: divide by the group's standard deviation.")
    std_floor: float = Field(1.0, ge=0, le=1000, description="Smallest standard deviation divided by; 10 % of the reward scale.")
    drop_zero_variance: bool = Field(False, description="GRPO: leave out groups whose episodes all had the same return.")
    gae_unit: Literal["turn", "trajectory"] = Field(
        "trajectory",
        description="PPO: a turn's rewards to come, over all later turns; or the episode's return at the end of every turn (published).",
    )
    gamma: float = Field(1.0, gt=0, le=1, description="PPO: discount per turn; per token with gae_unit `turn`.")
    lam: float = Field(1.0, ge=0, le=1, description="PPO: GAE's lambda, per turn or token as gamma.")
    whiten: bool = Field(True, description="PPO: subtract the batch's mean advantage and divide by its standard deviation.")

    @model_validator(mode="before")
    @classmethod
    def _own_defaults(cls, given: Any) -> Any:
        traits = ALGORITHMS.get(given.get("name", "")) if isinstance(given, dict) and isinstance(given.get("name", ""), str) else None
        return given if traits is None else {**traits.defaults, **given}
