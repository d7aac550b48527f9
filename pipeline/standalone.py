"""``fedagent eval``: measure a checkpoint on held-out tasks, in its own world or another, without training anything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from envs.base import Task, World
from envs.variants import DEFAULT
from pipeline.checkpoint import Checkpoint, latest, load
from pipeline.config import Config, PartitionConfig, VariantConfig
from pipeline.config.load import load_resolved
from pipeline.episodes import Sampling
from pipeline.errors import CheckpointError, ConfigError
from pipeline.evaluation import Measurement, chosen_tasks, evaluate
from pipeline.preflight import check_cluster, check_world
from pipeline.services import Parts


def find_checkpoint(path: Path) -> tuple[Path, Checkpoint]:
    """The run folder and the checkpoint of a run folder (its last whole round) or of one of its ``rounds/NNNN``."""
    if not path.is_dir():
        raise CheckpointError(f"--checkpoint {path}: {'is a file, a folder is needed' if path.exists() else 'no such folder'}")
    run = path if (path / "config.resolved.json").is_file() else path.parent.parent
    if not (run / "config.resolved.json").is_file():
        raise CheckpointError(f"{path}: neither a run folder nor one of its rounds (no config.resolved.json)")
    found = latest(path) if run == path else load(path)
    if found is None:
        raise CheckpointError(f"{path}: no whole round in it yet")
    return run, found


def evaluation_config(run: Path, world: str | None, data: Path | None, tasks: int | None, address: str | None = None) -> Config:
    """The run's configuration, pointed at another world or data folder where asked."""
    overrides = [f"--evaluation.tasks={tasks}"] if tasks is not None else []
    overrides += [f"--resources.address={address}"] if address is not None else []
    config = load_resolved(run / "config.resolved.json", [*overrides, "--tracking.mlflow=false"])
    changes: dict[str, object] = {}
    if world is not None and world != config.world.name:
        changes = {"name": world, "data": None}
    if data is not None:
        changes["data"] = data
    federation = config.federation
    if changes:
        # Who owns which tasks, and the clients' own worlds, belong to the run's data; held-out tasks of others need neither.
        changes |= {"variant": VariantConfig(), **({"options": {}} if "name" in changes else {})}
        federation = federation.model_copy(
            update={"partition": PartitionConfig(), "clients": 1, "clients_per_round": 1, "tasks_per_client": 1, "mode": "federated"}
        )
        config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"tasks_per_epoch": 1})})
        changes |= {"results_per_page": None, "max_steps": None, "heldout": None}
    return config.model_copy(update={"world": config.world.model_copy(update=changes), "federation": federation})


def evaluate_checkpoint(
    checkpoint: Path,
    *,
    world: str | None,
    data: Path | None,
    tasks: int | None,
    temperatures: Sequence[float],
    as_json: bool,
    address: str | None = None,
    variants: Sequence[str] = (),
) -> int:
    """Print success with Wilson 95 % intervals at every temperature; returns the exit code."""
    for temperature in temperatures:
        if not 0 <= temperature <= 5:
            raise ConfigError(f"--temperature {temperature:g}: allowed 0 (greedy) to 5")
    run, found = find_checkpoint(checkpoint)
    config = evaluation_config(run, world, data, tasks, address)
    check_world(config)
    check_cluster(config)

    from pipeline.job import prepare, running

    prepared = prepare(config)
    worlds = [_variant(prepared.world, text) for text in variants] or [DEFAULT]
    with running(prepared, run) as parts:
        measured = asyncio.run(_measure(parts, found, prepared.config, prepared.world.tasks("heldout"), temperatures, worlds))
    show(measured, as_json)
    return 0


async def _measure(
    cluster: Parts, found: Checkpoint, config: Config, heldout: Sequence[Task], temperatures: Sequence[float], worlds: Sequence[str]
) -> list[Measurement]:
    await cluster.ready()
    start = cluster.restore(found)
    await cluster.rollouts.publish(start.name, start.state)
    tasks = chosen_tasks(config, heldout)
    measured = []
    for world in worlds:
        for temperature in temperatures:
            sampling = Sampling(temperature, 1.0, config.rollout.max_new_tokens)
            work = evaluate(cluster.rollouts, start.name, start.round, tasks, sampling, config.run.seed, world=world)
            measured.append(await work)
    return measured


def _variant(world: World, text: str) -> str:
    """A name that the environment workers know: one of the run's own worlds, or the text form of a variant."""
    try:
        world.variant(text)
    except ValueError as error:
        raise ConfigError(f"--variant {text}: {error}") from error
    return text


def show(measured: Sequence[Measurement], as_json: bool) -> None:
    """A table, or one JSON object per line."""
    if as_json:
        for m in measured:
            print(json.dumps(m.record()))
        return
    table = Table(title=f"{measured[0].version}, {measured[0].n} held-out tasks", title_justify="left")
    several = len({m.world for m in measured}) > 1 or measured[0].world != DEFAULT
    for column in (*(["world"] if several else []), "sampling", "success", "95 % interval", "score", "turns", "invalid"):
        table.add_column(
            column, justify="left" if column in ("world", "sampling") else "right", overflow="fold" if column == "world" else "ellipsis"
        )
    for m in measured:
        name = "greedy" if m.temperature == 0 else f"T = {m.temperature:g}"
        interval = f"{100 * m.success_low:.1f} - {100 * m.success_high:.1f}"
        world = [m.world] if several else []
        table.add_row(*world, name, f"{100 * m.success:.1f} %", interval, f"{m.score:.3f}", f"{m.turns:.2f}", f"{100 * m.invalid:.1f} %")
    Console().print(table)
