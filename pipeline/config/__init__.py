"""Strict, typed configuration of a run. Imports no torch, Ray or vLLM; validation takes milliseconds.

One section per file. ``load`` reads a TOML or YAML file and dotted overrides; ``rules`` refuses combinations that cannot work and
options that cannot matter.
"""

from pipeline.config.aggregation import AggregationConfig
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.config import Config
from pipeline.config.critic import CriticConfig
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.federation import FederationConfig
from pipeline.config.learner import LearnerConfig
from pipeline.config.model import LoraConfig, ModelConfig
from pipeline.config.partition import PartitionConfig
from pipeline.config.resources import ResourcesConfig
from pipeline.config.rollout import RolloutConfig
from pipeline.config.run import RunConfig
from pipeline.config.tracking import TrackingConfig
from pipeline.config.variant import VariantConfig
from pipeline.config.world import WorldConfig

__all__ = [
    "AggregationConfig",
    "AlgorithmConfig",
    "Config",
    "CriticConfig",
    "EvaluationConfig",
    "FederationConfig",
    "LearnerConfig",
    "LoraConfig",
    "ModelConfig",
    "PartitionConfig",
    "ResourcesConfig",
    "RolloutConfig",
    "RunConfig",
    "TrackingConfig",
    "VariantConfig",
    "WorldConfig",
]
