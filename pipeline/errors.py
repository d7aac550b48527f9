"""Every error that a user can meet, one flat class per boundary crossed, each with its exit code.

Policy: a message says what happened, to whom (client, round), measured against what was expected, and what to do next.
Errors are caught only where a retry or a quarantine follows; a failed client is data (``ClientFailure`` in the round record), not a crash.
"""

from __future__ import annotations


class FedAgentError(Exception):
    """Base of the errors below. ``exit_code`` is what the command line returns."""

    exit_code = 1


class ConfigError(FedAgentError):
    """The configuration cannot be run: unknown key, wrong type, out of range, or an option that cannot matter."""

    exit_code = 2


class DataError(FedAgentError):
    """A data folder, catalogue or model folder is missing, incomplete or damaged."""

    exit_code = 3


class PlacementError(FedAgentError):
    """The cluster cannot hold the plan."""

    exit_code = 4


class EngineError(FedAgentError):
    """The rollout engine failed, or disagrees with the learner."""

    exit_code = 5


class EnvironmentFailure(FedAgentError):
    """An environment died or passed its deadline more often than allowed."""

    exit_code = 6


class LearnerError(FedAgentError):
    """A learner group failed or produced a non-finite loss."""

    exit_code = 7


class AggregationError(FedAgentError):
    """A client's update does not fit the global state."""

    exit_code = 8


class CheckpointError(FedAgentError):
    """A checkpoint is missing, damaged, or belongs to another configuration, base model or data."""

    exit_code = 9


class QuorumError(FedAgentError):
    """Too few clients reported in a round."""

    exit_code = 10


class SelfTestError(FedAgentError):
    """Engine and learner disagree about log-probabilities: training on such samples would be unsound, so the run stops."""

    exit_code = 11
