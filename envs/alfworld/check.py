"""Validation of an ALFWorld folder, official, packed or generated: what is in it, whether it can be played, and the first thing wrong.

Knows how games are read from the modules that do it; adds only what a careful look finds beyond them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.games import TASK_TYPES, AlfWorld, GameInfo
from envs.alfworld.sources import (
    GAME_FILE,
    OFFICIAL_SPLITS,
    game_files,
    left_out,
    official_folder,
    official_record,
    packed_file,
    packed_records,
    packed_text,
    parse_info,
    read_game_file,
)

MANIFEST = "generated.json"
PUBLISHED = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
"""Games of ALFWorld's splits."""


@dataclass
class FolderReport:
    """What ``check_folder`` found. ``problems`` keep games from being played, ``warnings`` do not; each names file and record."""

    path: Path
    kind: str = ""
    files: dict[str, int] = field(default_factory=dict)
    """File name -> size in bytes; game files of an official folder together."""
    counts: dict[str, int] = field(default_factory=dict)
    task_types: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def raise_first(self) -> None:
        """Raise ``AlfWorldDataError`` with the first problem, if there is one."""
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            raise AlfWorldDataError(self.problems[0] + more)

    def lines(self) -> list[str]:
        """The report as text lines."""
        out = [f"{self.path}: {self.kind + ', ' if self.kind else ''}{'ok' if self.ok else 'NOT OK'}"]
        out += [f"  file      {name:32} {size:>14,} bytes" for name, size in self.files.items()]
        out += [f"  count     {name:32} {count:>14,}" for name, count in self.counts.items()]
        out += [f"  task type {name:32} {count:>14,}" for name, count in self.task_types.items()]
        out += [f"  problem   {text}" for text in self.problems]
        return out + [f"  warning   {text}" for text in self.warnings]


class _Findings:
    """Keeps the first finding of each kind and counts the others."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.count: Counter[str] = Counter()

    def add(self, kind: str, text: object) -> None:
        self.first.setdefault(kind, str(text))
        self.count[kind] += 1

    def texts(self) -> list[str]:
        return [text + (f" ({self.count[kind]} such games)" if self.count[kind] > 1 else "") for kind, text in self.first.items()]


def check_folder(path: Path | str, cache_dir: Path | str | None = None, play: int = 2) -> FolderReport:
    """Read every game of a folder and play the stored plans of the first ``play`` games of each split and task type. Never raises for bad
    data."""
    report = FolderReport(Path(path).expanduser())
    problems, warnings = _Findings(), _Findings()
    try:
        _check_games(report, problems, warnings)
        if not problems.first:
            _check_play(report, cache_dir, play, problems, warnings)
    except AlfWorldDataError as error:
        problems.add("folder", error)
    report.problems, report.warnings = problems.texts(), warnings.texts()
    return report


def _check_games(report: FolderReport, problems: _Findings, warnings: _Findings) -> None:
    counts, types, seen = Counter[str](), Counter[str](), dict[str, Path | int]()
    for where, info, problem in _games(report, problems, counts):
        if info.id in seen:
            problems.add(
                "repeated", AlfWorldDataError(f"repeats {seen[info.id]}", path=report.path, game=info.id, hint="Remove one of them")
            )
            continue
        seen[info.id] = where
        place: dict[str, Any] = {"path": where} if isinstance(where, Path) else {"path": report.path, "record": where}
        if not info.solvable:
            counts["unsolvable, left out"] += 1
            continue
        counts[f"games, {info.split}"] += 1
        types[info.task_type] += 1
        counts["without a stored plan"] += not info.walkthrough
        if problem.count("(") != problem.count(")") or "(:goal" not in problem or "agent1" not in problem:
            problems.add(
                "pddl", AlfWorldDataError("its PDDL problem is cut short", **place, game=info.id, hint="Fetch or generate it again")
            )
        if not info.walkthrough:
            warnings.add("plan", AlfWorldDataError("no plan is stored, so the oracle must ask the planner", **place, game=info.id))
    if not types and not problems.first:
        problems.add("empty", AlfWorldDataError("no game can be played", path=report.path, hint="Name another folder, or generate games"))
    generated = not any("trial_T" in game_id for game_id in seen)
    for split, expected in PUBLISHED.items():
        found = counts[f"games, {split}"]
        if found and found != expected and not generated:
            warnings.add(split, f"{report.path}: {found} games in {split}; ALFWorld's has {expected}")
    report.counts = {name: count for name, count in sorted(counts.items()) if count}
    report.task_types = {name: types[name] for name in TASK_TYPES if types[name]}


def _games(report: FolderReport, problems: _Findings, counts: Counter[str]) -> Iterator[tuple[Path | int, GameInfo, str]]:
    file = packed_file(report.path)
    if file is not None:
        report.kind = "packed games"
        report.files = {file.name: file.stat().st_size}
        _check_manifest(file, problems)
        for line, record in packed_records(file):
            try:
                info = parse_info(record, file, line)
                yield line, info, packed_text(record, file, line)[0]
            except AlfWorldDataError as error:
                problems.add(f"record: {error.problem[:24]}", error)
        return
    folder = official_folder(report.path)
    report.kind = "official folder"
    for split in sorted(child for child in folder.iterdir() if child.name in OFFICIAL_SPLITS):
        for path in game_files(split):
            report.files[GAME_FILE] = report.files.get(GAME_FILE, 0) + path.stat().st_size
            if left_out(path.relative_to(folder)):
                counts["movable or sliced, left out"] += 1
                continue
            try:
                info = parse_info(official_record(path, folder), path)
                yield path, info, read_game_file(path)["pddl_problem"]
            except AlfWorldDataError as error:
                problems.add(f"record: {error.problem[:24]}", error)


def _check_manifest(file: Path, problems: _Findings) -> None:
    manifest = file.parent / MANIFEST
    if manifest.is_file() and file.name == "games.jsonl":
        try:
            expected = json.loads(manifest.read_text()).get("sha256")
        except (ValueError, AttributeError):
            problems.add("manifest", AlfWorldDataError("is no JSON object", path=manifest, hint="Generate the games again"))
            return
        if expected != hashlib.sha256(file.read_bytes()).hexdigest():
            hint = f"Generate the games again, or delete {MANIFEST} to keep the change"
            problems.add("manifest", AlfWorldDataError("changed since it was generated", path=file, hint=hint))


def _check_play(report: FolderReport, cache_dir: Path | str | None, play: int, problems: _Findings, warnings: _Findings) -> None:
    world = AlfWorld(report.path, cache_dir)
    for split in world.splits:
        for task_type in TASK_TYPES:
            for info in [info for info in world.infos(split) if info.task_type == task_type and info.walkthrough][:play]:
                try:
                    engine = world.engine()
                except AlfWorldDataError as error:
                    warnings.add("engine", f"no plan was played: {error}")
                    return
                try:
                    going = engine.play(info.id)
                    for command in info.walkthrough:
                        going.step(command)
                except AlfWorldDataError as error:
                    problems.add(f"play: {error.problem[:24]}", error)
                    continue
                report.counts["plans played"] = report.counts.get("plans played", 0) + 1
                if not going.won:
                    hint = "Its commands may be of an older ALFWorld; fetch or generate it again"
                    problems.add("plan", AlfWorldDataError("its stored plan does not win it", path=report.path, game=info.id, hint=hint))
