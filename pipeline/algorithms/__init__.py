"""Objectives: from episodes to rows, and from log-probabilities to a loss. numpy and torch only: no Ray, no DeepSpeed, no models."""

from __future__ import annotations

from envs.registry import RegistryError
from pipeline.algorithms.base import Algorithm
from pipeline.config.algorithm import ALGORITHMS as TRAITS
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.critic import CriticConfig
from pipeline.errors import ConfigError
from pipeline.plugins import ALGORITHMS

__all__ = ["Algorithm", "make_algorithm"]


def make_algorithm(config: AlgorithmConfig, critic: CriticConfig | None = None) -> Algorithm:
    """The algorithm that ``config.name`` names. Raises ``ConfigError`` for one that there is not, and for options
    that a plug-in's algorithm does not take."""
    from pipeline.algorithms.grpo import GRPO
    from pipeline.algorithms.ppo import PPO

    match config.name:
        case "grpo":
            return GRPO(config)
        case "ppo":
            return PPO(config, critic or CriticConfig())
    try:
        made = ALGORITHMS.get(config.name)
    except RegistryError as error:
        raise ConfigError(f"algorithm.name = {config.name!r}: {error}") from error
    try:
        return made(config, critic or CriticConfig()) if TRAITS[config.name].critic else made(config)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"algorithm.options = {config.options} of algorithm {config.name!r}: {error}") from error
