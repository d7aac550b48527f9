"""Section ``federation.partition``: which client owns which tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from pipeline.config.base import Section
from pipeline.config.named import Named


class PartitionConfig(Section):
    """Task heterogeneity, one dispersion knob per measure; those left out are uniform. All three may be combined; a file and a plug-in's
    partition stand alone."""

    preference: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Omega: how far the clients' category mixes spread (Dirichlet); near 1 one category each.",
    )
    coverage: float | None = Field(
        None, gt=0, lt=1, description="Xi: how far the clients' numbers of tasks spread (Beta) around `mean_size`; near 0 equal."
    )
    hardness: float | None = Field(
        None, gt=0, lt=1, description="Xi': how far the clients' shares of easy tasks spread (Beta); near 0 alike, near 1 all easy or none."
    )
    scenes: float | None = Field(
        None,
        ge=0,
        le=1,
        description="ALFWorld: share of rooms that belong to one client alone (the divergence of `env_disjoint` with `reference`).",
    )
    file: Path | None = Field(None, description="JSON object from client name to a list of task ids; stands in for the knobs.")
    name: Annotated[str, Named("partition")] | None = Field(None, description="A plug-in's partition; stands in for the knobs.")
    options: dict[str, bool | int | float | str] = Field({}, description="Settings of a plug-in's partition, by name.")
    labels: Path | None = Field(None, description="JSON file of easy and hard tasks, as `fedagent data label` writes it; for `hardness`.")
    min_size: int | None = Field(
        None, ge=1, le=1_000_000, description="Fewest tasks of a client with `coverage`. Default: a tenth of the mean size."
    )
    mean_size: int | None = Field(None, ge=1, le=1_000_000, description="Mean tasks with `coverage`. Default: federation.tasks_per_client.")
    max_size: int | None = Field(
        None, ge=1, le=1_000_000, description="Most tasks of a client with `coverage`. Default: twice the mean size."
    )
    easy_mean: float | None = Field(
        None, gt=0, lt=1, description="Mean share of easy tasks with `hardness`. Default: the share among all tasks."
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="Seed of the partition. Default: run.seed.")
    reference: bool = Field(False, description="The published constructors, defects included, instead of what they were meant to do.")
