"""What can be refused before anything is loaded, started or written: places on disk, the world's settings, the cluster, a run to resume.

Owns the checks that need a look at the machine but no model and no data; what the settings mean together is in ``pipeline.config.rules``,
what needs model and world is in ``pipeline.planning``. Imports no Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.errors import CheckpointError, ConfigError, DataError, PlacementError
from pipeline.worlds import resolve_world

CONNECT_TIMEOUT_S = 5.0
"""Seconds that a cluster's port may take to answer. Ray itself goes on trying for minutes."""

GPU_DEVICES = ("nvidia*", "kfd", "dri", "dxg", "accel*")
"""Names under /dev that an accelerator's driver makes."""


def check_run_folder(config: Config) -> None:
    """Raise ``ConfigError`` where the run's folder cannot be made. Makes nothing."""
    wanted = config.run.dir.expanduser().absolute() / config.run.name
    try:
        place = next(path for path in (wanted.parent, *wanted.parent.parents) if path.exists())
        wanted.exists()
    except OSError as error:
        raise ConfigError(f"run.dir = {str(config.run.dir)[:80]}: {error.strerror}; choose another folder") from error
    if not place.is_dir():
        raise ConfigError(f"run.dir = {config.run.dir}: {place} is a file, runs need a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"run.dir = {config.run.dir}: {place} cannot be written to; choose another folder or change its permissions")


def check_world(config: Config) -> None:
    """Raise ``ConfigError`` or ``DataError`` for a world that does not exist or holds out too few tasks, before its data are read."""
    from envs.base import world_names
    from pipeline.worlds import unknown_world

    if config.world.name not in world_names():
        raise unknown_world(config.world.name)
    heldout, tasks = resolve_world(config.world).heldout, config.evaluation.tasks
    if heldout is not None and tasks > heldout - config.evaluation.skip and "tasks" in config.evaluation.model_fields_set:
        wanted = tasks + config.evaluation.skip
        raise ConfigError(
            f"evaluation.tasks = {tasks}: the world holds out {heldout}; allowed: 1 to {heldout - config.evaluation.skip}, "
            f"or raise world.heldout to {wanted} or more"
        )


def check_cluster(config: Config) -> None:
    """Raise ``PlacementError`` where no cluster answers at the address, or the plan is larger than the local cluster that would be started.

    ``ConfigError`` for an address that is none. Takes at most ``CONNECT_TIMEOUT_S`` seconds.
    """
    if config.resources.layout == "process":
        return
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return
    source = "resources.address" if config.resources.address is not None else "RAY_ADDRESS"
    address = config.resources.address or os.environ.get("RAY_ADDRESS")
    if address is None or address in ("", "local"):
        from actors.placement import check_fit, needs

        # Where there may be GPUs, Ray alone counts them.
        gpus = float("inf") if may_have_gpus() else 0.0
        check_fit(needs(config), [{"CPU": float(config.resources.cpus or os.cpu_count() or 1), "GPU": gpus}])
        return
    if address == "auto" or ("://" in address and not address.startswith("ray://")):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{source} = {address!r}: allowed: host:port, ray://host:port, auto (this machine's cluster), local (a new one)")
    try:
        with contextlib.closing(socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT_S)):
            return
    except OSError as error:
        raise PlacementError(
            f"no Ray cluster answers at {source} = {address} ({error.strerror or error}). "
            "Start it (ray start --head), correct the address, or use --resources.address local"
        ) from error


def may_have_gpus() -> bool:
    """Whether anything on this machine looks like an accelerator."""
    return bool(os.environ.get("CUDA_VISIBLE_DEVICES")) or any(any(Path("/dev").glob(pattern)) for pattern in GPU_DEVICES)


def check_same_training(folder: Path, config: Config) -> None:
    """Raise ``CheckpointError`` naming every setting that decides what is learned and differs from the run's stored configuration."""
    from pipeline.config.load import load_resolved

    stored, wanted = load_resolved(folder / "config.resolved.json").decisive(), config.decisive()
    changed = [
        f"{name}: {json.dumps(there)} there, {json.dumps(now)} now"
        for setting in wanted
        for name, there, now in _differences(setting, stored[setting], wanted[setting])
    ]
    if changed:
        raise CheckpointError(
            f"{folder}: the training configuration cannot change on resume ({'; '.join(changed)}). Start a new run for that"
        )


def _differences(name: str, there: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Where two values of a setting differ: in a section, its settings one by one."""
    if isinstance(there, dict) and isinstance(now, dict):
        for key in {**there, **now}:
            yield from _differences(f"{name}.{key}", there.get(key), now.get(key))
    elif there != now:
        yield name, there, now


def check_resume(folder: Path, config: Config) -> None:
    """Raise ``CheckpointError`` or ``DataError`` for a run folder that cannot be continued, leaving it as it is.

    A run whose rounds are all damaged must not begin again in silence: it would overwrite what may still be restored.
    """
    from pipeline.checkpoint import latest_folder
    from pipeline.runlog import FILE_NAME, read_history

    if not os.access(folder, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder} cannot be written to: a resumed run goes on in its folder. Change its permissions, or copy it")
    log, rounds = folder / FILE_NAME, folder / "rounds"
    if log.exists() and not log.is_file():
        raise DataError(f"{log} is not a file; restore it")
    if rounds.exists() and not rounds.is_dir():
        raise CheckpointError(f"{rounds} is not a folder; restore it from a copy of the run")
    finished = [int(record["round"]) for record in read_history(log).rounds] if log.exists() else []
    newest = latest_folder(folder)
    if newest is not None:
        if config.federation.rounds < int(newest.name):
            raise ConfigError(
                f"federation.rounds = {config.federation.rounds}: {folder} has finished round {int(newest.name)}; "
                f"allowed: {int(newest.name)} or more"
            )
        return
    damaged = sorted(path.name for path in rounds.iterdir() if path.name.isdigit()) if rounds.is_dir() else []
    if damaged or max(finished, default=0) >= config.run.checkpoint_every:
        what = f"none of its rounds {', '.join(damaged)} is whole" if damaged else f"{rounds} is gone, the log has round {max(finished)}"
        raise CheckpointError(f"{folder}: {what}. Restore a round from a copy of the run, or start a new run")
