"""The published ablations: one setting of the federation at a time, the others as in the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ray import tune

from pipeline.config import Config
from tune_spaces import Space
from tune_spaces.algorithm import equal_budget

CLIENTS_PER_ROUND = (1, 2, 4)
LOCAL_EPOCHS = (1, 3, 5)
"""With rounds in inverse proportion: the published ones keep 210 client-epochs, these keep the base's."""

TASK_FACTORS = (0.5, 1.0, 2.0)
"""Tasks per client in multiples of the base's. Published: 100, 500 and 1000."""

CLIENT_FACTORS = (0.5, 1.0, 2.0)
"""Clients in multiples of the base's; not published."""


def federation(config: Config) -> Space:
    """The base, then clients per round, local epochs, tasks per client and the number of clients, each on its own."""
    return {"ablation": tune.grid_search([dict(arm) for arm in arms(config)])}


def arms(config: Config) -> Iterator[Mapping[str, Any]]:
    """The points of the space; one that repeats the base is left out. Raises nothing: what the world cannot serve, the sweep refuses."""
    base = config.federation
    yield {}
    for clients in CLIENTS_PER_ROUND:
        if clients != base.clients_per_round and clients <= base.clients:
            yield {"federation.clients_per_round": clients}
    for epochs in LOCAL_EPOCHS:
        if epochs != base.local_epochs:
            yield equal_budget(config, epochs)
    if base.partition.file is not None:
        return
    for factor in TASK_FACTORS:
        tasks = round(base.tasks_per_client * factor)
        if factor != 1 and tasks >= config.algorithm.tasks_per_epoch:
            yield {"federation.tasks_per_client": tasks}
    for factor in CLIENT_FACTORS:
        clients = round(base.clients * factor)
        if factor != 1 and clients >= base.clients_per_round:
            yield {"federation.clients": clients}
