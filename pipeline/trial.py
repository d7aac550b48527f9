"""A whole run in this process, for callers that make many: trials of a sweep, arms of a reproduction.

Owns the silence around a run: no display, no signal handlers, a folder that the caller names. The run itself is ``pipeline.job``'s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Before torch is loaded: a kept engine is called from a new thread by every run, and insists on the number of threads it was built with.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pipeline.checkpoint import Identity, latest
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.inside import Kept
from pipeline.job import Closing, prepare, run_parts, write_partition
from pipeline.progress import Progress
from pipeline.run_folder import RunFolder
from pipeline.runlog import RunLog, read_history
from pipeline.worlds import world_key

Record = Mapping[str, object]


@dataclass(frozen=True)
class TrialResult:
    """What came of a trial: its run folder, how it ended, and the records of its log by kind, those of rounds that a resumed attempt
    did again left out."""

    folder: Path
    status: str
    records: tuple[Record, ...]
    seconds: float
    cpu_seconds: float
    """Processor seconds of this process, its threads included, that this attempt took."""


class _Log(RunLog):
    """A run's log that tells somebody of every record."""

    def __init__(self, path: Path, tell: Callable[[Record], None] | None) -> None:
        super().__init__(path)
        self._tell = tell

    def write(self, record: Record) -> None:
        """Write, then tell."""
        super().write(record)
        if self._tell is not None:
            self._tell(record)


def run_trial(
    config: Config, folder: Path, *, on_record: Callable[[Record], None] | None = None, kept: Kept | None = None, resume: bool = False
) -> TrialResult:
    """Train to the end in this process and leave a run folder at ``folder``.

    ``resume`` goes on after the last whole round found there, if there is one; a folder that holds a run is refused without it.
    ``kept`` lends engine and learner to the next trial. What ``on_record`` raises ends the run, which stays resumable.
    A configuration that asks for actors needs a connected Ray; only the round loop is in this process then, and ``kept`` stays as it is.
    Raises ``ConfigError`` where there is no such Ray, and what a run raises.
    """
    if config.resources.layout != "process" and not _ray_is_connected():
        raise ConfigError(f"resources.layout = {config.resources.layout!r}: a trial in this process needs `process`")
    began, cpu = time.monotonic(), time.process_time()
    prepared = prepare(config)
    config = prepared.config
    run = RunFolder(folder.resolve())
    if run.metrics.exists() and not resume:
        raise ConfigError(f"{folder} holds a run already; resume it, or choose another folder")
    run.path.mkdir(parents=True, exist_ok=True)
    identity = Identity(config.training_hash(), prepared.model.key, world_key(config, prepared.world))
    checkpoint = latest(run.path, identity) if resume else None
    run.write_config(config)
    write_partition(prepared, run)
    with open(os.devnull, "w", encoding="utf-8") as nowhere, Progress({}, stream=nowhere) as progress, _Log(run.metrics, on_record) as log:
        closing = Closing(run, log)
        resumed = checkpoint.round if checkpoint is not None else None
        run_parts(prepared, run, log, progress, resumed, checkpoint, identity, closing, kept)
    history = read_history(run.metrics)
    end = [] if history.end is None else [history.end]
    records = (*history.starts, *history.evaluations, *history.clients, *history.rounds, *end)
    return TrialResult(run.path, closing.status, records, time.monotonic() - began, time.process_time() - cpu)


def _ray_is_connected() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
