"""The folder of a run: which files it holds and how a new one gets its name.

``config.resolved.json``, ``metrics.jsonl``, ``rounds/NNNN/`` and ``report.html`` are the server's; ``episodes/`` and ``failures/`` stay
on the client side: nothing in them is sent to the aggregator or the tracker.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pipeline.client import ClientFailure
from pipeline.config import Config
from pipeline.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.resolved.json"

    @property
    def metrics(self) -> Path:
        """The run's log."""
        return self.path / "metrics.jsonl"

    @property
    def episodes(self) -> Path:
        """Client-side episodes."""
        return self.path / "episodes"

    @property
    def report(self) -> Path:
        """The report."""
        return self.path / "report.html"

    @property
    def partition(self) -> Path:
        """The page on who owns which tasks."""
        return self.path / "partition.html"

    @property
    def assignment(self) -> Path:
        """Every client's tasks, where they come from a file of the user's."""
        return self.path / "partition.json"

    def write_config(self, config: Config) -> None:
        """Store the resolved configuration, atomically."""
        write_atomic(self.config, json.dumps(config.plain(), indent=2) + "\n")

    def write_failure(self, failed: ClientFailure) -> Path:
        """Store the first traceback of a failed client."""
        path = self.path / "failures" / f"round-{failed.round:04d}-{failed.client}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, f"{failed.error}\nattempts: {failed.attempts}\n\n{failed.traceback}")
        return path


def new_run_folder(config: Config) -> RunFolder:
    """A fresh folder ``<run.dir>/<run.name>``, or the same with ``-2``, ``-3``, ... when that one is taken."""
    base = config.run.dir.expanduser().resolve()
    for number in range(1, 10_000):
        path = base / (config.run.name if number == 1 else f"{config.run.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(f"run.dir = {config.run.dir}: cannot make {path}: {error}") from error
        return RunFolder(path)
    raise CheckpointError(f"{base} holds 10,000 runs named {config.run.name!r}; choose another --run.name")


def write_atomic(path: Path, text: str) -> None:
    """Write beside the target, then rename, so that a reader never sees half a file."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(aside).chmod(0o644)
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise
