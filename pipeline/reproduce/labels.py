"""The file of easy and hard tasks that arms of task hardness share: a task is easy when the oracle does it in few turns."""

from __future__ import annotations

from envs.partition import write_labels
from pipeline.labelling import try_oracle
from pipeline.reproduce.arms import EASY_TURNS
from pipeline.reproduce.store import Store
from pipeline.reproduce.trials import Trial
from pipeline.worlds import build_world, resolve_world, world_spec


def make_labels(store: Store, trial: Trial) -> None:
    """Let the oracle try every train task of the world of ``trial``. Raises ``FedAgentError`` as building that world does."""
    config = trial.config(store.labels)
    world = build_world(world_spec(resolve_world(config.world)))
    tried = try_oracle(world, world.tasks("train"), EASY_TURNS)
    metadata = {"agent": "oracle", "world": config.world.name, "within": EASY_TURNS, "easy": sum(t.successes for t in tried)}
    write_labels(store.labels, ((t.task, t.rate, t.episodes) for t in tried), 1.0, metadata)
