"""Objectives: from episodes to rows, and from log-probabilities to a loss. numpy and torch only: no Ray, no DeepSpeed, no models."""

from __future__ import annotations

from pipeline.algorithms.base import Algorithm
from pipeline.config.algorithm import AlgorithmConfig

__all__ = ["Algorithm", "make_algorithm"]


def make_algorithm(config: AlgorithmConfig) -> Algorithm:
    """The algorithm that ``config.name`` names."""
    from pipeline.algorithms.grpo import GRPO

    return GRPO(config)
