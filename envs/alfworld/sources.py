"""Reading games: official folders, and packed or generated files of one game a line.

Owns file formats and the index of a packed file, which is kept in the cache so that one game can be read without decompressing all.
Knows nothing of engines.
"""

from __future__ import annotations

import difflib
import functools
import gzip
import hashlib
import importlib.metadata
import importlib.util
import json
import lzma
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.games import TASK_TYPES, Game, GameInfo, Source

PACKED = re.compile(r"(.*_)?games\.jsonl(\.xz|\.gz)?")
OFFICIAL_SPLITS = ("train", "valid_seen", "valid_train", "valid_unseen")
GAME_FILE = "game.tw-pddl"
TEXTS = ("pddl_problem", "pddl_domain", "grammar")
INSTALL = 'Install the text engine: pip install "fedagent-ray[alfworld]"'
GENERATE = "or generate one: fedagent data alfworld"
FETCH = "Fetch or unpack the games again"

_FORMAT = "alfworld-games-1"
_GRAMMAR = re.compile(r'grammar\s*::\s*"""')
_COMMENT = re.compile(r";[^\n]*")
_TASK = re.compile(r"Your task is to: (.*?)\"")


def cache_root(cache_dir: Path | str | None = None) -> Path:
    """Where games are kept: ``cache_dir``, else ``$FEDAGENT_CACHE``, else ``~/.cache/fedagent``, else a temporary folder."""
    root = Path(cache_dir or os.environ.get("FEDAGENT_CACHE") or "~/.cache/fedagent").expanduser() / "alfworld"
    try:
        root.mkdir(parents=True, exist_ok=True)
        if os.access(root, os.W_OK):
            return root
    except OSError:
        pass
    root = Path(tempfile.gettempdir()) / f"fedagent-{os.getuid()}" / "alfworld"
    root.mkdir(parents=True, exist_ok=True)
    return root


@functools.cache
def package_version(name: str) -> str:
    """Version of an installed package. Raises ``AlfWorldDataError`` where it is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise AlfWorldDataError(f"the package {name} is not installed", hint=INSTALL) from None


def base_text(name: str) -> str:
    """``alfred.pddl`` (domain) or ``alfred.twl2`` (grammar) of the installed ``alfworld`` package, which is not imported for it.

    Raises ``AlfWorldDataError`` where the package is missing."""
    found = importlib.util.find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise AlfWorldDataError(f"the package alfworld, whose {name} packed games need, is not installed", hint=INSTALL)
    path = Path(found.submodule_search_locations[0]) / "data" / name
    try:
        return path.read_text()
    except OSError as error:
        raise AlfWorldDataError(f"cannot be read: {error}", path=path, hint=INSTALL) from None


def open_source(path: Path, cache: Path) -> Source:
    """The games at ``path``. Raises ``AlfWorldDataError`` where there are none."""
    packed = packed_file(path)
    return OfficialFolder(official_folder(path), cache) if packed is None else PackedFile(packed, cache)


def packed_file(path: Path) -> Path | None:
    """The packed file that ``path`` is or holds, if there is one. Raises ``AlfWorldDataError`` for no folder or for several files."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise AlfWorldDataError("no such folder", path=path, hint=f"Name the folder of the ALFWorld games, {GENERATE}")
    packed = sorted(file for file in path.iterdir() if PACKED.fullmatch(file.name))
    if len(packed) > 1:
        names = ", ".join(file.name for file in packed)
        raise AlfWorldDataError(f"holds {len(packed)} packed files ({names})", path=path, hint="Keep one of them there")
    return packed[0] if packed else None


def official_folder(path: Path) -> Path:
    """The folder of splits that ``path`` is or holds. Raises ``AlfWorldDataError`` where there is none."""
    for folder in [path, *sorted(path.glob("json_2.1.*"), reverse=True)]:
        if any((folder / split).is_dir() for split in OFFICIAL_SPLITS):
            return folder
    raise AlfWorldDataError(
        "no games: neither json_2.1.1/<split>/ nor *games.jsonl(.xz)", path=path, hint=f"Name another folder, {GENERATE}"
    )


def no_such_game(source: Source, path: Path, game_id: str) -> AlfWorldDataError:
    """The error for an id that is not there, with the nearest id of its split."""
    split = game_id.partition("/")[0]
    if game_id in source.unsolvable:
        return AlfWorldDataError("it is marked as unsolvable", path=path, game=game_id, hint="Choose another game")
    if split not in source.splits:
        return AlfWorldDataError(
            f"no game {game_id!r}: an id is <split>/<task>/<trial>, with split one of {', '.join(source.splits)}", path=path
        )
    near = difflib.get_close_matches(game_id, source.infos(split), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"the split {split} has {len(source.infos(split))} games"
    return AlfWorldDataError(f"no game {game_id!r}; {hint}", path=path)


def parse_info(record: Any, path: Path, line: int | None = None) -> GameInfo:
    """What a record says of its game. Raises ``AlfWorldDataError`` for one that lacks something or has it wrong."""
    if not isinstance(record, dict):
        raise AlfWorldDataError(f"expected an object, found {type(record).__name__}", path=path, record=line, hint=FETCH)
    game_id = record.get("id") if isinstance(record.get("id"), str) else None

    def wrong(what: str) -> AlfWorldDataError:
        return AlfWorldDataError(what, path=path, record=line, game=game_id, hint=FETCH)

    for name in ("id", "task_type", "task"):
        if not isinstance(record.get(name), str) or not record[name]:
            raise wrong(f"{name!r} is {'missing' if name not in record else 'no text'}")
    game_id, task_type = record["id"], record["task_type"]
    if task_type not in TASK_TYPES:
        raise wrong(f"task_type {task_type!r} is none of {', '.join(TASK_TYPES)}")
    split = record.get("split", game_id.partition("/")[0])
    if not isinstance(split, str) or not game_id.startswith(f"{split}/"):
        raise wrong(f"the id does not start with its split {split!r}")
    walkthrough = record.get("walkthrough") or ()
    if not isinstance(walkthrough, list | tuple) or not all(isinstance(command, str) for command in walkthrough):
        raise wrong("'walkthrough' is no list of commands")
    scene = record.get("scene", "")
    if not isinstance(scene, int | str):
        raise wrong("'scene' is neither a number nor a name")
    known = {"id", "split", "task_type", "task", "walkthrough", "scene", "solvable", *TEXTS}
    meta = {name: value for name, value in record.items() if name not in known}
    return GameInfo(game_id, split, task_type, record["task"], scene, tuple(walkthrough), bool(record.get("solvable", True)), meta)


class PackedFile:
    """One game a line: ``id``, ``task_type``, ``task``, ``pddl_problem``; optional ``split``, ``scene``, ``walkthrough``, ``solvable``,
    ``pddl_domain`` and ``grammar`` (default: those of the alfworld package). Other fields come back as ``meta``."""

    def __init__(self, path: Path, cache: Path) -> None:
        self.path = path
        self._folder = self._index(cache)
        try:
            rows = json.loads((self._folder / "index.json").read_text())
        except (OSError, ValueError) as error:
            raise AlfWorldDataError(f"the index made of {path} cannot be read: {error}", path=self._folder, hint="Delete it") from None
        self._places: dict[str, tuple[int, int]] = {}
        self.unsolvable: set[str] = set()
        self.damaged: dict[str, AlfWorldDataError] = {}
        self._infos: dict[str, dict[str, GameInfo]] = {}
        for row in sorted(rows, key=lambda row: str(row["id"])):
            info = parse_info(row, path)
            self._places[info.id] = tuple(row["_place"])
            del info.meta["_place"]  # type: ignore[attr-defined]
            if found := info.meta.pop("_damage", None):  # type: ignore[attr-defined]
                self.damaged[info.id] = AlfWorldDataError(found[0], path=path, record=found[1], game=info.id, hint=FETCH)
            if info.solvable:
                self._infos.setdefault(info.split, {})[info.id] = info
            else:
                self.unsolvable.add(info.id)
        self._base: tuple[str, str] | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that are there, sorted."""
        return tuple(sorted(self._infos))

    def infos(self, split: str) -> Mapping[str, GameInfo]:
        """Playable games of a split by id, sorted by id."""
        return self._infos.get(split, {})

    def game(self, info: GameInfo) -> Game:
        """The text of a game."""
        start, length = self._places[info.id]
        with (self._folder / "games.bin").open("rb") as file:
            file.seek(start)
            problem, domain, grammar = json.loads(zlib.decompress(file.read(length)))
        if domain is None or grammar is None:
            self._base = self._base or (base_text("alfred.pddl"), base_text("alfred.twl2"))
        base = self._base or ("", "")
        return Game.of(info, base[0] if domain is None else domain, problem, base[1] if grammar is None else grammar)

    def _index(self, cache: Path) -> Path:
        """The folder with the games of this file, each compressed by itself; written if it is not there."""
        try:
            digest = hashlib.sha256(_FORMAT.encode() + self.path.read_bytes()).hexdigest()[:32]
        except OSError as error:
            raise AlfWorldDataError(f"cannot be read: {error}", path=self.path) from None
        folder = cache / f"packed-{digest}"
        if (folder / "index.json").is_file():
            return folder
        aside = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=cache))
        try:
            self._write(aside)
            try:
                aside.replace(folder)
            except OSError:
                if not (folder / "index.json").is_file():
                    shutil.rmtree(folder, ignore_errors=True)
                    aside.replace(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        return folder

    def _write(self, target: Path) -> None:
        rows: list[dict[str, Any]] = []
        seen: dict[str, int] = {}
        place = 0
        with (target / "games.bin").open("wb") as blob:
            for line, record in packed_records(self.path):
                info = parse_info(record, self.path, line)
                if info.id in seen:
                    raise AlfWorldDataError(
                        f"repeats line {seen[info.id]}", path=self.path, record=line, game=info.id, hint="Remove one of them"
                    )
                seen[info.id] = line
                texts = packed_text(record, self.path, line)
                data = zlib.compress(json.dumps(texts).encode(), 3)
                keep = {name: value for name, value in record.items() if name not in TEXTS}
                damage = cut_short(*texts)
                rows.append({**keep, "_place": (place, len(data)), **({"_damage": (damage, line)} if damage else {})})
                place += blob.write(data)
        if not rows:
            raise AlfWorldDataError("holds no game", path=self.path, hint=FETCH)
        (target / "index.json").write_text(json.dumps(rows))


def cut_short(problem: str, domain: str | None, grammar: str | None) -> str:
    """Which of a game's texts is not whole, at a quick look; an empty text where all are. ``None`` stands for the package's own."""
    for name, text, parts in (("domain", domain, ("(:predicates",)), ("problem", problem, ("(:init", "(:goal"))):
        if text is None:
            continue
        code = _COMMENT.sub("", text)
        if code.count("(") != code.count(")") or any(part not in code for part in parts):
            return f"its PDDL {name} is cut short"
    if grammar is not None and (not _GRAMMAR.search(grammar) or grammar.count('"""') % 2):
        return "its grammar is cut short"
    return ""


def packed_text(record: Any, path: Path, line: int) -> tuple[str, str | None, str | None]:
    """Problem, domain and grammar of a record; ``None`` stands for the package's own. Raises ``AlfWorldDataError`` for anything else."""
    texts = [record.get(name) for name in TEXTS]
    for name, text in zip(TEXTS, texts, strict=True):
        if not (isinstance(text, str) and text) and (name == TEXTS[0] or text is not None):
            raise AlfWorldDataError(f"{name!r} is missing or no text", path=path, record=line, game=record["id"], hint=FETCH)
    return texts[0], texts[1], texts[2]


def packed_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Line number (from 1) and record of each line. Raises ``AlfWorldDataError`` where a line or the file is damaged."""
    line = 0
    try:
        with _open(path) as file:
            for line, text in enumerate(file, 1):
                if text.strip():
                    yield line, json.loads(text)
    except (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError, OSError) as error:
        raise AlfWorldDataError(f"damaged after line {line}: {error}", path=path, hint=FETCH) from None
    except json.JSONDecodeError as error:
        raise AlfWorldDataError(f"no JSON: {error}", path=path, record=line, hint=FETCH) from None


def _open(path: Path) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


class OfficialFolder:
    """``<split>/<task>/<trial>/game.tw-pddl``, as ALFWorld publishes it. Like ALFWorld's own loader it leaves out games marked unsolvable
    and those with ``movable`` or ``Sliced`` in their path."""

    def __init__(self, path: Path, cache: Path) -> None:
        self.path = path
        self._cache = cache
        self.unsolvable: set[str] = set()
        self.damaged: dict[str, AlfWorldDataError] = {}
        self._infos: dict[str, dict[str, GameInfo]] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that are there, sorted."""
        return tuple(split for split in OFFICIAL_SPLITS if (self.path / split).is_dir())

    def infos(self, split: str) -> Mapping[str, GameInfo]:
        """Playable games of a split by id, sorted by id. Reads every file of the split the first time on a machine."""
        if split not in self._infos:
            self._infos[split] = self._read(split) if split in self.splits else {}
        return self._infos[split]

    def game(self, info: GameInfo) -> Game:
        """The text of a game. Raises ``AlfWorldDataError`` for a damaged file."""
        record = read_game_file(self.path / info.id / GAME_FILE)
        return Game.of(info, record["pddl_domain"], record["pddl_problem"], record["grammar"])

    def _read(self, split: str) -> dict[str, GameInfo]:
        files = [file for file in game_files(self.path / split) if not left_out(file.relative_to(self.path))]
        label = hashlib.sha256(f"{_FORMAT}|{self.path.resolve()}".encode())
        for file in files:
            stat = file.stat()
            label.update(f"|{file.relative_to(self.path)}|{stat.st_size}|{stat.st_mtime_ns}".encode())
        note = self._cache / f"official-{label.hexdigest()[:32]}.json"
        try:
            rows = json.loads(note.read_text())
        except (OSError, ValueError):
            rows = [_with_damage(official_record(file, self.path), file) for file in files]
            aside = note.with_name(f"{note.name}.{os.getpid()}")
            aside.write_text(json.dumps(rows))
            aside.replace(note)
        for row in rows:
            if found := row.pop("_damage", None):
                self.damaged[row["id"]] = AlfWorldDataError(found, path=self.path / row["id"] / GAME_FILE, hint=FETCH)
        infos = [parse_info(row, self.path / str(row["id"]) / GAME_FILE) for row in rows]
        self.unsolvable.update(info.id for info in infos if not info.solvable)
        return {info.id: info for info in sorted(infos, key=lambda info: info.id) if info.solvable}


def _with_damage(row: dict[str, Any], file: Path) -> dict[str, Any]:
    record = read_game_file(file)
    damage = cut_short(record["pddl_problem"], record["pddl_domain"], record["grammar"])
    return {**row, "_damage": damage} if damage else row


def read_game_file(path: Path) -> dict[str, Any]:
    """A ``game.tw-pddl``. Raises ``AlfWorldDataError`` where it is damaged or of the older generation, which has no walkthrough."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AlfWorldDataError(f"cannot be read: {error}", path=path, hint=FETCH) from None
    if not isinstance(record, dict):
        raise AlfWorldDataError(f"expected an object, found {type(record).__name__}", path=path, hint=FETCH)
    for name in ("pddl_domain", "pddl_problem", "grammar"):
        if not isinstance(record.get(name), str) or not record[name]:
            raise AlfWorldDataError(f"{name!r} is missing", path=path, hint=FETCH)
    return record


def game_files(split: Path) -> list[Path]:
    """The game files of an official split, sorted."""
    return sorted(split.glob(f"*/*/{GAME_FILE}"))


def left_out(path: Path) -> bool:
    """Whether ALFWorld's loader leaves out the game at this path (from the folder of splits on)."""
    return "movable" in str(path) or "Sliced" in str(path)


def official_record(file: Path, root: Path) -> dict[str, Any]:
    """What a game file below ``root`` says of its game, in the form of a packed record."""
    record = read_game_file(file)
    found = _TASK.search(record["grammar"])
    if found is None:
        raise AlfWorldDataError("the grammar names no task ('Your task is to: ...')", path=file, hint=FETCH)
    trial = file.parent.relative_to(root)
    task = trial.parts[1].split("-")
    scene = int(task[-1]) if task[-1].isdigit() else task[-1]
    names = dict(zip(("object", "mrecep", "parent_or_lamp"), task[1:-1], strict=False))
    return {
        "id": trial.as_posix(),
        "split": trial.parts[0],
        "task_type": task[0],
        "task": found[1],
        "scene": scene,
        "walkthrough": record.get("walkthrough") or [],
        "solvable": record.get("solvable", True),
        **names,
    }
