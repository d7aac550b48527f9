"""Round checkpoints on disk: whole or not there.

Layout of a run folder: ``rounds/NNNN/`` with ``state.safetensors`` (the global state, float32), ``record.json`` (the round's record),
``clients/<client>.safetensors`` and ``average.safetensors`` (optimizer moments, where the run keeps them) and ``manifest.json``, which
lists every file with its size and SHA-256 and what the checkpoint belongs to. A round is written in a hidden sibling, manifest last,
and renamed into place; a reader believes a folder only as far as its manifest. Knows nothing of torch, Ray or what the arrays mean.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as tensors_from_bytes
from safetensors.numpy import save as tensors_to_bytes

from pipeline.episodes import FloatArray, GlobalState, State
from pipeline.errors import CheckpointError
from pipeline.moments import Moments, MomentsLike, flatten, unflatten
from pipeline.services import Handle, Published

FORMAT = 1
ROUNDS, CLIENTS = "rounds", "clients"
MANIFEST, STATE, RECORD, AVERAGE = "manifest.json", "state.safetensors", "record.json", "average.safetensors"

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Identity:
    """What a checkpoint belongs to: a run continues only where all three agree.

    ``training`` is ``Config.training_hash()``, ``model`` the base model's content key, ``data`` the hash of the world's tasks.
    """

    training: str
    model: str
    data: str


_MEANING: Mapping[str, str] = {"training": "training configuration", "model": "base model", "data": "tasks of the world"}


@dataclass(frozen=True)
class Checkpoint:
    """A whole round, read and verified. ``optimizers`` holds clients' own moments, ``average`` those that the server averaged."""

    path: Path
    state: GlobalState
    record: Mapping[str, Any]
    optimizers: Mapping[str, Moments] = field(default_factory=dict)
    average: Moments | None = None

    @property
    def round(self) -> int:
        """The round that it closes."""
        return self.state.round


class Files(Protocol):
    """The file operations that a save or a prune is made of, so that tests can stop between any two."""

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a new file and flush it to the disk."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, or copy it where the file system has no links."""

    def flush_folder(self, path: Path) -> None:
        """Flush a folder's entries to the disk."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a folder."""

    def remove_folder(self, path: Path) -> None:
        """Delete a folder and what is in it."""


class Disk:
    """The real file system."""

    def make_folder(self, path: Path) -> None:
        """See ``Files``."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, content: bytes) -> None:
        """See ``Files``."""
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def link(self, source: Path, target: Path) -> None:
        """See ``Files``."""
        try:
            os.link(source, target)
        except OSError:
            self.write(target, source.read_bytes())

    def flush_folder(self, path: Path) -> None:
        """See ``Files``."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, source: Path, target: Path) -> None:
        """See ``Files``."""
        source.rename(target)

    def remove_folder(self, path: Path) -> None:
        """See ``Files``."""
        shutil.rmtree(path)


DISK = Disk()


def round_folder(run_dir: Path, round: int) -> Path:
    """Where a round's checkpoint lies."""
    return run_dir / ROUNDS / f"{round:04d}"


def save(
    run_dir: Path,
    state: GlobalState,
    record: Mapping[str, Any],
    identity: Identity,
    *,
    optimizers: Mapping[str, MomentsLike] | None = None,
    average: MomentsLike | None = None,
    keep: int | None = None,
    files: Files = DISK,
) -> Path:
    """Write the checkpoint of ``state.round`` and return its folder; with ``keep``, then delete older ones (``prune``).

    ``optimizers`` holds the moments that changed since the last whole round before this one; those of all other clients are taken over
    from there (as links, so they cost nothing). Numbers in ``record`` that are not finite are written as null.
    Raises ``CheckpointError`` when the disk refuses.
    """
    target = round_folder(run_dir, state.round)
    aside = target.with_name(f".{target.name}.part")
    try:
        _remove_leftovers(target.parent, files)
        files.make_folder(aside)
        listed: dict[str, dict[str, Any]] = {}

        def put(name: str, content: bytes) -> None:
            files.write(aside / name, content)
            listed[name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}

        put(STATE, _to_bytes(state.state))
        put(RECORD, json.dumps(_finite(record), indent=1).encode())
        if average is not None:
            put(AVERAGE, _to_bytes(flatten(average)))
        _put_clients(target, aside, optimizers or {}, listed, put, files)
        manifest = {
            "format": FORMAT,
            "round": state.round,
            "version": state.version,
            "metrics": _finite(state.metrics),
            "identity": asdict(identity),
            "files": listed,
        }
        files.write(aside / MANIFEST, json.dumps(manifest, indent=1).encode())
        files.flush_folder(aside)
        if target.exists():
            files.rename(target, target.with_name(f".{target.name}.old"))
        files.rename(aside, target)
        files.flush_folder(target.parent)
        _remove_leftovers(target.parent, files)
    except OSError as error:
        raise CheckpointError(f"round {state.round}: the checkpoint cannot be written under {target.parent}: {error}") from error
    if keep is not None:
        prune(run_dir, keep, files=files)
    return target


def _put_clients(
    target: Path,
    aside: Path,
    clients: Mapping[str, MomentsLike],
    listed: dict[str, dict[str, Any]],
    put: Callable[[str, bytes], None],
    files: Files,
) -> None:
    before = next(
        (path for path in _newest_first(target.parent) if int(path.name) < int(target.name) and _problem(path, deep=False) is None), None
    )
    carried: dict[str, dict[str, Any]] = {}
    if before is not None:
        old = json.loads((before / MANIFEST).read_text())["files"]
        carried = {name: entry for name, entry in old.items() if name.startswith(f"{CLIENTS}/") and Path(name).stem not in clients}
    if not clients and not carried:
        return
    files.make_folder(aside / CLIENTS)
    for client in sorted(clients):
        put(f"{CLIENTS}/{client}.safetensors", _to_bytes(flatten(clients[client])))
    for name, entry in sorted(carried.items()):
        assert before is not None
        files.link(before / name, aside / name)
        listed[name] = entry
    files.flush_folder(aside / CLIENTS)


def latest(run_dir: Path, identity: Identity | None = None) -> Checkpoint | None:
    """The last whole round, read; None when there is none. Raises ``CheckpointError`` when it belongs to another run (see ``load``)."""
    folder = latest_folder(run_dir)
    return None if folder is None else _read_whole(folder, identity)


def latest_folder(run_dir: Path) -> Path | None:
    """The last whole round's folder, or None. A damaged or unfinished one is passed over with a warning that names the file."""
    for folder in _newest_first(run_dir / ROUNDS):
        problem = _problem(folder, deep=True)
        if problem is None:
            return folder
        _log.warning("checkpoint %s is not whole and is passed over: %s", folder, problem)
    return None


def load(path: Path, identity: Identity | None = None) -> Checkpoint:
    """Read a round's folder and verify every file.

    With ``identity``, raises ``CheckpointError`` when the checkpoint belongs to another configuration, base model or data; in any case
    when it is missing or damaged.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint; give a run folder's rounds/NNNN")
    problem = _problem(path, deep=True)
    if problem is not None:
        raise CheckpointError(f"checkpoint {path} is damaged: {problem}. Resume from an earlier round.")
    return _read_whole(path, identity)


def _read_whole(path: Path, identity: Identity | None) -> Checkpoint:
    manifest = json.loads((path / MANIFEST).read_text())
    if identity is not None:
        found, wanted = manifest.get("identity") or {}, asdict(identity)
        different = [
            f"{_MEANING[name]}: checkpoint {found.get(name)}, this run {wanted[name]}" for name in wanted if found.get(name) != wanted[name]
        ]
        if different:
            raise CheckpointError(
                f"checkpoint {path} belongs to another run: {'; '.join(different)}. Resume with what it was made with, or start a new run."
            )
    try:
        return Checkpoint(
            path=path,
            state=GlobalState(manifest["version"], int(manifest["round"]), _read(path / STATE), manifest["metrics"]),
            record=json.loads((path / RECORD).read_text()),
            optimizers={Path(name).stem: unflatten(_read(path / name)) for name in manifest["files"] if name.startswith(f"{CLIENTS}/")},
            average=unflatten(_read(path / AVERAGE)) if AVERAGE in manifest["files"] else None,
        )
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error


def prune(run_dir: Path, keep: int, *, files: Files = DISK) -> list[Path]:
    """Keep the ``keep`` newest whole rounds; delete what is older, whole or not, and return it. The newest whole round always stays."""
    whole: list[Path] = []
    folders = list(_newest_first(run_dir / ROUNDS))
    for folder in folders:
        # Only the newest is read through: it alone must be beyond doubt before older ones go.
        if _problem(folder, deep=not whole) is None:
            whole.append(folder)
            if len(whole) >= max(keep, 1):
                break
    if not whole:
        return []
    doomed = [folder for folder in folders if int(folder.name) < int(whole[-1].name)] if len(whole) >= max(keep, 1) else []
    for folder in doomed:
        gone = folder.with_name(f".{folder.name}.old")
        files.rename(folder, gone)
        files.remove_folder(gone)
    return doomed


def _newest_first(rounds: Path) -> Iterator[Path]:
    if rounds.is_dir():
        yield from sorted(
            (path for path in rounds.iterdir() if path.is_dir() and path.name.isdigit()), key=lambda p: int(p.name), reverse=True
        )


def _remove_leftovers(rounds: Path, files: Files) -> None:
    """Delete what an interrupted save or prune left behind."""
    for pattern in (".*.old", ".*.part"):
        for path in sorted(rounds.glob(pattern)):
            files.remove_folder(path)


def _problem(folder: Path, *, deep: bool) -> str | None:
    """Why a folder is not a whole checkpoint; None when it is. ``deep`` reads every file, otherwise only sizes are compared."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            return f"{MANIFEST} has format {manifest['format']}, expected {FORMAT}"
        listed = {str(name): (int(entry["size"]), str(entry["sha256"])) for name, entry in manifest["files"].items()}
        outside = [name for name in listed if Path(name).is_absolute() or ".." in Path(name).parts]
        if outside:
            return f"{MANIFEST} lists {outside[0]!r}, which is not inside the folder"
        for needed in (STATE, RECORD):
            if needed not in listed:
                return f"{MANIFEST} does not list {needed}"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read ({error})"
    for name, (size, sha256) in listed.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} bytes, expected {size}"
        if deep:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != sha256:
                return f"{name} has SHA-256 {found[:12]}..., expected {sha256[:12]}..."
    return None


def _to_bytes(arrays: State) -> bytes:
    content: bytes = tensors_to_bytes({name: np.ascontiguousarray(value) for name, value in arrays.items()})
    return content


def _read(path: Path) -> dict[str, FloatArray]:
    return dict(tensors_from_bytes(path.read_bytes()))


def _finite(value: Any) -> Any:
    """``value`` as strict JSON."""
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


class Fetches(Protocol):
    """What can turn a handle into its value."""

    async def fetch(self, handle: Handle) -> Any:
        """The value behind ``handle``."""


class CheckpointStore:
    """``pipeline.federation.Store`` on disk. Writes in a thread, so that the round loop's deadlines keep running."""

    def __init__(self, run_dir: Path, identity: Identity, keep: int, cluster: Fetches, files: Files = DISK) -> None:
        self._run_dir, self._identity, self._keep, self._cluster, self._files = run_dir, identity, keep, cluster, files
        self._saved: dict[str, Handle] = {}

    async def save(
        self, version: Published, record: Mapping[str, object], optimizers: Mapping[str, Handle], average: Handle | None
    ) -> None:
        """Write a whole round; of the clients' moments only those that changed since the last one."""
        changed = {client: handle for client, handle in optimizers.items() if self._saved.get(client) is not handle}
        state = GlobalState(version.name, version.round, await self._cluster.fetch(version.state), version.metrics)
        moments = {client: await self._cluster.fetch(handle) for client, handle in changed.items()}
        mean = None if average is None else await self._cluster.fetch(average)
        await asyncio.to_thread(
            save, self._run_dir, state, record, self._identity, optimizers=moments, average=mean, keep=self._keep, files=self._files
        )
        self._saved.update(changed)
