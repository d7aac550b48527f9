"""From configuration to a partition: which client owns which tasks. Reads the files that settings name; draws nothing itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envs.base import Task
from envs.partition import Partition, PartitionError, PartitionSpec, build_partition, deal_outside, read_assignment, read_labels
from pipeline.config import FederationConfig
from pipeline.errors import ConfigError, DataError

FILE_ERRORS = ("labels file ", "partition file ")
"""How errors about the content of a file begin."""


def partition_spec(federation: FederationConfig) -> PartitionSpec:
    """The settings as a spec. Raises ``PartitionError`` for numbers that do not go together."""
    wanted = federation.partition
    return PartitionSpec(
        size=federation.tasks_per_client,
        preference=wanted.preference,
        coverage=wanted.coverage,
        hardness=wanted.hardness,
        min_size=wanted.min_size,
        mean_size=wanted.mean_size,
        max_size=wanted.max_size,
        easy_mean=wanted.easy_mean,
        given_order=federation.schedule == "reference",
        reference=wanted.reference,
    )


def partition_tasks(federation: FederationConfig, clients: Sequence[str], tasks: Sequence[Task], seed: int) -> Partition:
    """The partition that a federation asks for. ``seed`` is the run's, for where the partition has none of its own.

    Raises ``DataError`` for a file that cannot be read or does not fit the tasks, ``ConfigError`` for settings that do not.
    """
    wanted = federation.partition
    try:
        labels = None if wanted.labels is None else read_labels(wanted.labels)
        assignment = None if wanted.file is None else read_assignment(wanted.file)
    except PartitionError as error:
        raise DataError(f"federation.partition: {error}") from error
    seed, source, spec = seed if wanted.seed is None else wanted.seed, str(wanted.file or ""), partition_spec(federation)
    try:
        if wanted.scenes is not None:
            assignment, source = scene_assignment(federation, clients, tasks, seed), "scenes"
            spec = replace(spec, reference=False)
        if wanted.name is not None:
            size, options = federation.tasks_per_client, wanted.options
            assignment = deal_outside(wanted.name, tasks, clients, size=size, seed=seed, options=options)
            source = wanted.name
        return build_partition(tasks, clients, spec, seed=seed, labels=labels, assignment=assignment, source=source)
    except PartitionError as error:
        named = str(error).partition(" ")[0].rstrip(":")
        if wanted.name is not None and str(error).startswith(f"partition file {source}"):
            what = str(error).removeprefix(f"partition file {source}").lstrip(",: ")
            raise ConfigError(f"federation.partition.name = {source!r}: dealt out what cannot be: {what}") from error
        if str(error).startswith(FILE_ERRORS):
            raise DataError(f"federation.partition: {error}") from error
        if named == "mean_size" and wanted.mean_size is None:
            raise ConfigError(f"federation.{str(error).replace(named, 'tasks_per_client', 1)}") from error
        if named in type(wanted).model_fields:
            raise ConfigError(f"federation.partition.{error}") from error
        raise ConfigError(f"federation.{error}" if named == "tasks_per_client" else f"federation.partition: {error}") from error


def scene_assignment(federation: FederationConfig, clients: Sequence[str], tasks: Sequence[Task], seed: int) -> dict[str, list[str]]:
    """Ids of every client's games when clients live in different rooms, at most ``tasks_per_client`` of them; all of them in the published
    form. Raises ``PartitionError`` for more clients than rooms."""
    from envs.alfworld.disjoint import env_disjoint, scene_disjoint

    wanted = federation.partition
    assert wanted.scenes is not None
    ids = [task.id for task in tasks]
    try:
        if wanted.reference:
            dealt = env_disjoint(ids, len(clients), wanted.scenes)
        else:
            dealt = [places[: federation.tasks_per_client] for places in scene_disjoint(ids, len(clients), seed, wanted.scenes)]
    except ValueError as error:
        raise PartitionError(f"scenes = {wanted.scenes:g}: {error}") from error
    return {client: [ids[i] for i in places] for client, places in zip(clients, dealt, strict=True)}
