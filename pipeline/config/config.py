"""The whole configuration: sections and the rules that span them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from pipeline.config.aggregation import AggregationConfig
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.base import Section
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.federation import FederationConfig
from pipeline.config.learner import LearnerConfig
from pipeline.config.model import ModelConfig
from pipeline.config.resources import ResourcesConfig
from pipeline.config.rollout import RolloutConfig
from pipeline.config.run import RunConfig
from pipeline.config.tracking import TrackingConfig
from pipeline.config.world import WorldConfig


class Config(Section):
    """A run, completely."""

    run: RunConfig = Field(RunConfig(), description="Identity of the run.")
    model: ModelConfig = Field(ModelConfig(), description="The language model.")
    world: WorldConfig = Field(WorldConfig(), description="Where agents act.")
    federation: FederationConfig = Field(FederationConfig(), description="Clients and rounds.")
    rollout: RolloutConfig = Field(RolloutConfig(), description="Generating episodes.")
    learner: LearnerConfig = Field(LearnerConfig(), description="Training on them.")
    algorithm: AlgorithmConfig = Field(AlgorithmConfig(), description="The objective.")
    aggregation: AggregationConfig = Field(AggregationConfig(), description="Averaging.")
    evaluation: EvaluationConfig = Field(EvaluationConfig(), description="Measuring.")
    tracking: TrackingConfig = Field(TrackingConfig(), description="MLflow.")
    resources: ResourcesConfig = Field(ResourcesConfig(), description="Ray resources.")

    def plain(self) -> dict[str, Any]:
        """The configuration as JSON values."""
        return self.model_dump(mode="json")

    def training_hash(self) -> str:
        """Hash of all that decides what is learned; where the run lives and what it may use of the machine do not count."""
        plain = self.plain()
        for section in ("tracking", "resources"):
            del plain[section]
        del plain["run"]
        plain["seed"] = self.run.seed
        del plain["federation"]["rounds"]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
