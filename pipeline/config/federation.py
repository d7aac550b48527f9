"""Section ``federation``: clients, rounds and what happens when a client fails."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section
from pipeline.config.partition import PartitionConfig


class FederationConfig(Section):
    """Who trains when, on how many tasks.

    ``centralized`` pools all clients' tasks in one client and ``local`` trains one client alone; both train as many
    client-epochs per round as ``federated`` does, so that the three spend the same number of episodes.
    """

    mode: Literal["federated", "centralized", "local"] = Field("federated", description="Who learns from whose tasks.")
    clients: int = Field(8, ge=1, le=100_000, description="Clients in the federation.")
    clients_per_round: int = Field(4, ge=1, le=100_000, description="Clients sampled in a round.")
    rounds: int = Field(15, ge=1, le=100_000, description="Communication rounds.")
    local_epochs: int = Field(2, ge=1, le=1000, description="Rollout batches that a client trains on in a round.")
    tasks_per_client: int = Field(100, ge=1, le=1_000_000, description="Tasks that each client owns.")
    partition: PartitionConfig = Field(PartitionConfig(), description="How clients differ in their tasks.")
    local_client: int = Field(0, ge=0, description="The client that trains; only with `mode: local`.")
    schedule: Literal["hash", "reference"] = Field(
        "hash",
        description="Client sampling and task order: streams per seed, or as published (`Random(seed + round - 1)`, given order).",
    )
    quorum: float = Field(0.5, gt=0, le=1, description="Share of the sampled clients that must report for a round to close.")
    client_deadline_s: float = Field(1800.0, gt=0, le=604_800, description="Seconds a client may take in a round, per attempt.")
    client_retries: int = Field(1, ge=0, le=10, description="Further attempts after a client failed.")
