"""Settings to partitions: knobs, files, rooms, and what is refused naming the setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.base import Task
from pipeline.config import Config
from pipeline.errors import ConfigError, DataError
from pipeline.partitioning import partition_tasks
from pipeline.schedule import Schedule, client_names


def tasks(n: int = 120) -> list[Task]:
    return [Task(f"train/pick-Mug-None-Desk-{1 + i % 12}/trial_{i}", f"do {i}", "abc"[i % 3]) for i in range(n)]


def federation(clients: int = 4, tasks_per_client: int = 20, **partition: Any) -> Config:
    section = {"clients": clients, "clients_per_round": 2, "tasks_per_client": tasks_per_client, "partition": partition}
    return Config.model_validate({"federation": section, "world": {"name": "alfworld"}})


def owned(config: Config, seed: int = 0) -> dict[str, tuple[Task, ...]]:
    return partition_tasks(config.federation, client_names(config.federation), tasks(), seed).by_client()


def test_a_seed_of_the_partitions_own_stands_over_the_runs() -> None:
    assert owned(federation(preference=0.5), 0) != owned(federation(preference=0.5), 1)
    assert owned(federation(preference=0.5, seed=7), 0) == owned(federation(preference=0.5, seed=7), 1)


def test_a_file_names_every_clients_tasks(tmp_path: Path) -> None:
    wanted = {f"c00{i}": [task.id for task in tasks()[10 * i : 10 * i + 10]] for i in range(4)}
    path = tmp_path / "partition.json"
    path.write_text(json.dumps(wanted))
    assert {client: [t.id for t in part] for client, part in owned(federation(file=path)).items()} == wanted
    del wanted["c003"]
    path.write_text(json.dumps(wanted))
    with pytest.raises(DataError, match=r"federation.partition: partition file .*no tasks for 'c003'"):
        owned(federation(file=path))
    path.write_text("[")
    with pytest.raises(DataError, match=r"partition\.json"):
        owned(federation(file=path))


def test_rooms_belong_to_one_client_each() -> None:
    parts = owned(federation(scenes=1.0, tasks_per_client=25))
    rooms = {client: {task.id.split("/")[1].rpartition("-")[2] for task in part} for client, part in parts.items()}
    assert sum(len(r) for r in rooms.values()) == len(set().union(*rooms.values())) == 12
    assert all(len(part) == 25 for part in parts.values())
    with pytest.raises(ConfigError, match=r"federation.partition.scenes = 1: 13 clients cannot have disjoint scenes"):
        owned(federation(clients=13, scenes=1.0))


def test_a_client_without_enough_tasks_for_a_batch_is_named() -> None:
    config = federation(coverage=0.9, min_size=1, tasks_per_client=20)
    with pytest.raises(ConfigError, match=r"tasks_per_epoch = 8: client c00\d owns \d tasks.*federation.partition.min_size"):
        _ = Schedule(config, tasks()).owned
