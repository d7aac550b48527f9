"""The folder of a reproduction: run folders of trials, their results, floors and labels, each written whole or not at all.

``trials/ID/`` is the run folder of a trial, ``trials/ID.json`` what came of it, ``trials/ID.progress.json`` how far it is; IDs change
with an arm's settings, so what was done under other settings is neither used nor touched. ``floors/`` and ``labels.json`` are made once.
The results themselves are ``NAME.json``, ``NAME.html`` and ``NAME.txt``. Workers of a cluster need the folder shared.
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, DataError
from pipeline.reproduce.floors import Floor
from pipeline.reproduce.trials import Trial
from pipeline.run_folder import write_atomic


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: its ``numbers`` when it is done, else what its last attempt failed with."""

    done: bool
    numbers: Mapping[str, Any]
    error: str = ""
    attempts: int = 1


@dataclass(frozen=True)
class Underway:
    """How far a trial is: rounds done of all, processor and wall seconds of all attempts so far, and the process that is at it."""

    round: int = 0
    rounds: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    pid: int = 0


@dataclass(frozen=True)
class Store:
    """Paths of a reproduction, and what is in them."""

    path: Path
    name: str = "tale"

    @property
    def results(self) -> Path:
        """The results file."""
        return self.path / f"{self.name}.json"

    @property
    def page(self) -> Path:
        """The report."""
        return self.path / f"{self.name}.html"

    @property
    def text(self) -> Path:
        """The table."""
        return self.path / f"{self.name}.txt"

    @property
    def labels(self) -> Path:
        """Easy and hard tasks."""
        return self.path / "labels.json"

    @property
    def started(self) -> bool:
        """Whether anything was done here before."""
        return (self.path / "trials").is_dir()

    def run(self, trial: Trial) -> Path:
        """The run folder of a trial."""
        return self.path / "trials" / trial.id

    def _result(self, trial: Trial) -> Path:
        return self.path / "trials" / f"{trial.id}.json"

    def _progress(self, trial: Trial) -> Path:
        return self.path / "trials" / f"{trial.id}.progress.json"

    def _floor(self, trial: Trial) -> Path:
        return self.path / "floors" / f"{trial.arm.name}-{trial.key[:8]}.json"

    def prepare(self, resume: bool) -> None:
        """Make the folder. Raises ``ConfigError`` for one that was begun before, unless it is to be resumed, or that cannot be made."""
        if self.started and not resume:
            raise ConfigError(f"{self.path} holds a reproduction already; --resume continues it, or choose another --out")
        try:
            for part in ("trials", "floors"):
                (self.path / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out {self.path}: cannot be made: {error.strerror or error}") from error

    def outcome(self, trial: Trial) -> Outcome | None:
        """What came of a trial; None when nothing did yet."""
        found = _read(self._result(trial))
        if found is None or found.get("key") != trial.key:
            return None
        return Outcome(bool(found.get("done")), found.get("numbers") or {}, str(found.get("error") or ""), int(found.get("attempts") or 1))

    def save(self, trial: Trial, outcome: Outcome) -> None:
        """Keep what came of a trial."""
        plain = {
            "name": trial.arm.name,
            "seed": trial.seed,
            "key": trial.key,
            "done": outcome.done,
            "error": outcome.error,
            "attempts": outcome.attempts,
            "numbers": outcome.numbers,
        }
        write_atomic(self._result(trial), json.dumps(plain, allow_nan=False) + "\n")

    def underway(self, trial: Trial) -> Underway:
        """How far a trial is."""
        found = _read(self._progress(trial)) or {}
        return Underway(**{name: found[name] for name in ("round", "rounds", "cpu", "wall", "pid") if name in found})

    def note(self, trial: Trial, underway: Underway) -> None:
        """Keep how far a trial is."""
        write_atomic(self._progress(trial), json.dumps(underway.__dict__) + "\n")

    def floor(self, trial: Trial) -> Floor | None:
        """The floor of an arm, where it was found."""
        found = _read(self._floor(trial))
        with suppress(TypeError):
            return None if found is None else Floor(**found)
        return None

    def save_floor(self, trial: Trial, floor: Floor) -> None:
        """Keep the floor of an arm."""
        write_atomic(self._floor(trial), json.dumps(floor.plain()) + "\n")

    def keep_traceback(self, trial: Trial, error: BaseException) -> None:
        """Keep where a trial failed, in its run folder."""
        folder = self.run(trial)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "error.txt", "".join(traceback.format_exception(error)))

    def start_over(self, trial: Trial) -> None:
        """Throw a trial's run folder away: it cannot be resumed."""
        shutil.rmtree(self.run(trial), ignore_errors=True)
        self._progress(trial).unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any] | None:
    """A file of the folder. One that is not there or was damaged counts as not made. Raises ``DataError`` where it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
    return value if isinstance(value, dict) else None
