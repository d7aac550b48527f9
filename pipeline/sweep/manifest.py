"""What a sweep is, on disk: space, base, seeds, every trial, and the code that trains them; and the comparison before a restore.

A restored sweep must be the sweep that began: what differs is named and refused, and nothing is written before that.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pipeline
from pipeline.errors import CheckpointError, ConfigError
from pipeline.run_folder import write_atomic
from pipeline.sweep.spaces import Point, words_of
from pipeline.sweep.trials import DRIVER_SETTINGS, Base, Trial

FILE = "sweep.spec.json"
LOCK = ".sweep.lock"
SCHEMA = 1
TRIAL_RUN = "run"
"""Folder of a trial's run inside the trial's own."""

NOT_TRAINING = (
    "pipeline/sweep/", "pipeline/report/", "pipeline/reproduce/", "pipeline/diagnose/", "pipeline/theory/",
    "pipeline/cli.py", "pipeline/doctor.py", "pipeline/play", "pipeline/view.py", "pipeline/progress.py", "pipeline/partition_command.py",
    "pipeline/labelling.py", "pipeline/standalone.py",
)  # fmt: skip
"""Code that no trial's result depends on."""

SHOWN = 6


@dataclass(frozen=True)
class Manifest:
    """A sweep. ``space`` is its name as given; ``base`` the settings under all trials; ``code`` a hash by source file and the versions."""

    space: str
    base: Base
    seeds: tuple[int, ...] | None
    samples: int
    asha: bool
    retries: int
    trials: tuple[Trial, ...]
    code: Mapping[str, str]

    def write(self, folder: Path) -> None:
        """Store it, atomically."""
        plain = {
            "schema": SCHEMA,
            "space": self.space,
            "base": dict(self.base.given),
            "seeds": None if self.seeds is None else list(self.seeds),
            "samples": self.samples,
            "asha": self.asha,
            "retries": self.retries,
            "trials": [{"number": t.number, "name": t.name, "arm": t.arm, "point": t.point} for t in self.trials],
            "code": dict(self.code),
        }
        write_atomic(folder / FILE, json.dumps(plain, indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The stored sweep. Raises ``CheckpointError`` for a folder that holds none, a damaged file, or one of another schema."""
    if not folder.is_dir():
        raise CheckpointError(f"--resume {folder}: {'is a file, a sweep folder is needed' if folder.exists() else 'no such folder'}")
    try:
        plain = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = ": it holds a run; go on with python -m pipeline.run --resume" if (folder / "metrics.jsonl").is_file() else ""
        raise CheckpointError(f"--resume {folder}: not a sweep folder (no {FILE} in it){what}") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{folder / FILE} cannot be read: {error}. Restore it from a copy") from error
    if not isinstance(plain, dict) or plain.get("schema") != SCHEMA:
        found = plain.get("schema") if isinstance(plain, dict) else None
        raise CheckpointError(f"{folder / FILE} has schema {found}, this program reads {SCHEMA}: use the version that began the sweep")
    try:
        return Manifest(
            space=plain["space"],
            base=Base(plain["base"]),
            seeds=None if plain["seeds"] is None else tuple(plain["seeds"]),
            samples=plain["samples"],
            asha=plain["asha"],
            retries=plain["retries"],
            trials=tuple(Trial(t["number"], t["name"], t["arm"], t["point"]) for t in plain["trials"]),
            code=plain["code"],
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / FILE} is damaged ({type(error).__name__}: {error}). Restore it from a copy") from error


def check_same(folder: Path, there: Manifest, now: Manifest, *, allow_code: bool = False) -> None:
    """Raise ``CheckpointError`` naming everything in which ``now`` is another sweep than the one in ``folder``."""
    changed = [*_base_changes(there, now), *_trial_changes(there.trials, now.trials)]
    for name in ("space", "asha"):
        if getattr(there, name) != getattr(now, name):
            changed.insert(0, f"{name}: {getattr(there, name)} there, {getattr(now, name)} now")
    if changed:
        raise CheckpointError(
            f"{folder}: a restored sweep cannot change ({_some(changed)}). Leave the change out, or start a new sweep; nothing was written"
        )
    code = _differing(there.code, now.code)
    if code and not allow_code:
        raise CheckpointError(
            f"{folder}: the code of the trials has changed since the sweep began ({_some(code)}): finished and new trials could not be "
            "compared. Go back to that version, start a new sweep, or accept it with --allow-changed-code; nothing was written"
        )


def _some(changes: Sequence[str]) -> str:
    return "; ".join(changes[:SHOWN]) + (f"; and {len(changes) - SHOWN} more" if len(changes) > SHOWN else "")


def _base_changes(there: Manifest, now: Manifest) -> list[str]:
    before, after = there.base.given, now.base.given
    names = [name for name in {**before, **after} if name not in DRIVER_SETTINGS and before.get(name) != after.get(name)]
    return [f"{name}: {_value(before, name)} there, {_value(after, name)} now" for name in names]


def _trial_changes(there: Sequence[Trial], now: Sequence[Trial]) -> list[str]:
    if len(there) != len(now):
        old, new = [t.point for t in there], [t.point for t in now]
        gone, more = [p for p in old if p not in new], [p for p in new if p not in old]
        named = [f"gone: {_points(gone)}"] * bool(gone) + [f"new: {_points(more)}"] * bool(more)
        return [f"the space: {len(there)} trials there, {len(now)} now ({'; '.join(named) or 'in another order'})"]
    changes = []
    for before, after in zip(there, now, strict=True):
        for name in {**before.point, **after.point}:
            if before.point.get(name) != after.point.get(name):
                values = f"{_value(before.point, name)} there, {_value(after.point, name)} now"
                changes.append(f"the space: trial {before.number}: {name}: {values}")
    return changes


def _points(points: Sequence[Point]) -> str:
    return " | ".join(words_of(point) for point in points[:2]) + (f" | and {len(points) - 2} more" if len(points) > 2 else "")


def _value(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values[name]) if name in values else "not set"


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    words = []
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            is_file = name.endswith(".py")
            words.append(name if is_file else f"{name} {before.get(name, 'absent')} there, {after.get(name, 'absent')} now")
    return words


def code_identity() -> dict[str, str]:
    """A hash of every source file that can change what a trial learns, and the versions of the libraries under them."""
    from pipeline.job import versions

    root = Path(pipeline.__file__).resolve().parent.parent
    files = (file for package in ("envs", "actors", "pipeline") for file in sorted((root / package).rglob("*.py")))
    hashes = {file.relative_to(root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in files}
    return {**{name: value for name, value in hashes.items() if not name.startswith(NOT_TRAINING)}, **versions()}


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Within the block no other process runs the sweep in ``folder``. Raises ``ConfigError`` when one does."""
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process runs this sweep; wait for it, or end it") from None
        except OSError:
            # A file system without locks.
            pass
        yield
