"""The whole configuration: sections and the rules that span them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from pipeline.config.aggregation import AggregationConfig
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.base import Section
from pipeline.config.critic import CriticConfig
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.federation import FederationConfig
from pipeline.config.learner import LearnerConfig
from pipeline.config.model import ModelConfig
from pipeline.config.resources import ResourcesConfig
from pipeline.config.rollout import RolloutConfig
from pipeline.config.run import RunConfig
from pipeline.config.tracking import TrackingConfig
from pipeline.config.world import WorldConfig

FREE_SETTINGS = frozenset(
    {
        "federation.rounds",
        "federation.quorum",
        "federation.client_deadline_s",
        "federation.client_retries",
        "rollout.engines",
        "rollout.max_num_seqs",
        "rollout.max_batched_tokens",
        "rollout.kv_cache_gb",
        "rollout.gpu_memory_utilization",
        "rollout.tensor_parallel",
        "rollout.adapter_slots",
        "rollout.self_test",
        "rollout.self_test_tolerance",
        "rollout.env_workers",
        "rollout.env_slots",
        "rollout.env_deadline_s",
        "rollout.env_retries",
        "learner.groups",
        "learner.workers",
        "learner.zero_stage",
        "learner.micro_batch_tokens",
        "learner.threads",
        "learner.gradient_checkpointing",
    }
)
"""Settings of the training sections that a resumed run may change: they decide how fast and how patiently, not what is learned."""


class Config(Section):
    """A run, completely."""

    run: RunConfig = Field(RunConfig(), description="Identity of the run.")
    model: ModelConfig = Field(ModelConfig(), description="The language model.")
    world: WorldConfig = Field(WorldConfig(), description="Where agents act.")
    federation: FederationConfig = Field(FederationConfig(), description="Clients and rounds.")
    rollout: RolloutConfig = Field(RolloutConfig(), description="Generating episodes.")
    learner: LearnerConfig = Field(LearnerConfig(), description="Training on them.")
    algorithm: AlgorithmConfig = Field(AlgorithmConfig(), description="The objective.")
    critic: CriticConfig = Field(CriticConfig(), description="PPO's value function.")
    aggregation: AggregationConfig = Field(AggregationConfig(), description="Averaging.")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="Measuring.")
    tracking: TrackingConfig = Field(TrackingConfig(), description="MLflow.")
    resources: ResourcesConfig = Field(ResourcesConfig(), description="Ray resources.")

    def plain(self) -> dict[str, Any]:
        """The configuration as JSON values."""
        return self.model_dump(mode="json")

    def training_hash(self) -> str:
        """Hash of all that decides what is learned. Where the run lives, how it is measured, how long it goes on and what it may use of the
        machine do not count."""
        return hashlib.sha256(json.dumps(self.decisive(), sort_keys=True).encode()).hexdigest()[:16]

    def decisive(self) -> dict[str, Any]:
        """The settings behind ``training_hash``, as JSON values by dotted name."""
        plain = self.plain()
        chosen: dict[str, Any] = {"run.seed": self.run.seed}
        for section in ("model", "world", "federation", "rollout", "learner", "algorithm", "critic", "aggregation"):
            chosen.update({path: value for name, value in plain[section].items() if (path := f"{section}.{name}") not in FREE_SETTINGS})
        return chosen
