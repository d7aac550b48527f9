"""What the update does: algorithm, clip, KL and how far a client goes between two averagings."""

from __future__ import annotations

from typing import Any

from ray import tune

from pipeline.config import Config
from tune_spaces import Space

CLIPS = (0.1, 0.2)
"""Half ranges of the ratio; 0.2 is published."""

KL_WEIGHTS = (0.0, 0.01)
"""Without an anchor, and the published weight."""

LOCAL_EPOCHS = (1, 2, 4)


def algorithm(config: Config) -> Space:
    """GRPO and PPO, each by clip, KL weight and local epochs; rounds shrink as local epochs grow, so that all spend the same episodes."""
    return {
        "algorithm": tune.grid_search([{"algorithm.name": "grpo"}, {"algorithm.name": "ppo", **single_episodes(config)}]),
        "clip": tune.grid_search([{"algorithm.clip_low": clip, "algorithm.clip_high": clip} for clip in CLIPS]),
        "algorithm.kl_coef": tune.grid_search(list(KL_WEIGHTS)),
        "local": tune.grid_search([equal_budget(config, epochs) for epochs in LOCAL_EPOCHS]),
    }


def single_episodes(config: Config) -> dict[str, Any]:
    """PPO compares no episodes of one task: as many episodes as the base's batch, each of another task as far as a client's tasks go."""
    episodes = config.algorithm.tasks_per_epoch * config.algorithm.group_size
    tasks = max(n for n in range(1, config.federation.tasks_per_client + 1) if episodes % n == 0)
    return {"algorithm.tasks_per_epoch": tasks, "algorithm.group_size": episodes // tasks}


def equal_budget(config: Config, local_epochs: int) -> dict[str, Any]:
    """``local_epochs`` per round, and as many rounds as keep the base's client-epochs (to the nearest whole round)."""
    federation = config.federation
    rounds = max(1, round(federation.rounds * federation.local_epochs / local_epochs))
    return {"federation.local_epochs": local_epochs, "federation.rounds": rounds}
