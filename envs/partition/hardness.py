"""Hardness: labels of easy and hard tasks, their file format, and the share of easy tasks that a client is given (Beta quota).

The file is the published one, ``{"metadata": ..., "trajectories": [{"task_info": {"task_id": ...}, "traj_info": {"success": ...}}]}``, or
its compact form ``{"metadata": ..., "rows": [[task_id, 0 or 1], ...]}``.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from envs.base import Task
from envs.partition.beta import log_odds, rounded, spread
from envs.partition.spec import BoolArray, FloatArray, IntArray, PartitionError, PartitionSpec, examples
from envs.partition.streams import stream

WRITE_LABELS = "write labels of this world with `fedagent data label`"


@dataclass(frozen=True)
class Labels:
    """Success rates in [0, 1] by label id, in the order of the file. A task is easy where its rate is ``threshold`` or more."""

    rates: Mapping[str, float] = field(repr=False)
    source: str = "labels"
    threshold: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def flags(self, tasks: Sequence[Task]) -> BoolArray:
        """Whether each task is easy. Raises ``PartitionError`` for tasks without a label, and for labels without a task."""
        flags, missing, used = np.zeros(len(tasks), dtype=bool), [], set()
        for place, task in enumerate(tasks):
            name = next((name for name in label_ids(task.id) if name in self.rates), None)
            if name is None:
                missing.append(task.id)
            else:
                used.add(name)
                flags[place] = self.rates[name] >= self.threshold
        if missing:
            raise PartitionError(
                f"labels file {self.source}: {len(missing)} of {len(tasks)} train tasks have no label, for instance {examples(missing)}; "
                f"{WRITE_LABELS}"
            )
        unknown = [name for name in self.rates if name not in used]
        if unknown:
            near = difflib.get_close_matches(unknown[0], [task.id for task in tasks][:1000], n=1, cutoff=0.8)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise PartitionError(
                f"labels file {self.source}: {len(unknown)} of its {len(self.rates)} tasks are no train tasks of this world, for instance "
                f"{examples(unknown)}{hint}; take them out, or {WRITE_LABELS}"
            )
        return flags


def label_ids(task: str) -> tuple[str, ...]:
    """Names under which a task may appear in a label file: its id, the id without the ``#n`` of tasks that share one, and the published
    form of a game's path."""
    head, mark, number = task.rpartition("#")
    parts = task.split("/")
    shared = (head,) if mark and number.isdigit() else ()
    game = (f"alfworld_{parts[-2]}_{parts[-1]}_game",) if len(parts) >= 2 else ()
    return (task, *shared, *game)


def read_labels(path: Path | str, threshold: float = 0.5) -> Labels:
    """Labels of a file; several records of a task are averaged. Raises ``PartitionError`` naming file and record."""
    if not 0.0 < threshold <= 1.0:
        raise PartitionError(f"threshold = {threshold:g}; allowed: more than 0, up to 1")
    data = read_json(path, "labels file")
    if not isinstance(data, dict):
        raise PartitionError(f"labels file {path}: expected an object with `trajectories` or `rows`, found {_kind(data)}")
    records = data.get("trajectories", data.get("rows"))
    if not isinstance(records, list) or not records:
        raise PartitionError(f"labels file {path}: no list `trajectories` (nor `rows`) with at least one record in it; {WRITE_LABELS}")
    found: dict[str, list[float]] = {}
    for number, record in enumerate(records):
        name, rate = _record(record, f"labels file {path}, record {number}")
        found.setdefault(name, []).append(rate)
    metadata = data.get("metadata")
    rates = {name: sum(values) / len(values) for name, values in found.items()}
    return Labels(rates, str(path), threshold, metadata if isinstance(metadata, dict) else {})


def _record(record: object, where: str) -> tuple[str, float]:
    name: object = None
    value: object = None
    if isinstance(record, list) and len(record) == 2:
        name, value = record
    elif isinstance(record, dict) and isinstance(record.get("task_info"), dict) and isinstance(record.get("traj_info"), dict):
        name, value = record["task_info"].get("task_id"), record["traj_info"].get("success")
    if not isinstance(name, str) or not name:
        raise PartitionError(f'{where}: no task id; expected {{"task_info": {{"task_id": "..."}}, "traj_info": {{"success": true}}}}')
    if not isinstance(value, bool | int | float) or not 0.0 <= value <= 1.0:
        raise PartitionError(f"{where} (task {name!r}): success = {value!r}; expected true, false or a rate from 0 to 1")
    return name, float(value)


def read_json(path: Path | str, what: str) -> Any:
    """The JSON value in a file. Raises ``PartitionError`` naming file and place; an object with a key twice is refused."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PartitionError(f"{what} {path}: cannot be read ({error.strerror or error}); name a file that exists") from error
    except UnicodeDecodeError as error:
        raise PartitionError(f"{what} {path}: byte {error.start} is no UTF-8; it should be a JSON text") from error
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise PartitionError(f"{what} {path}: no JSON at line {error.lineno}, column {error.colno} ({error.msg})") from error
    except _Twice as error:
        raise PartitionError(f"{what} {path}: {error.args[0]!r} stands in it twice; merge the two") from error
    except RecursionError:
        raise PartitionError(f"{what} {path}: nested too deeply to be one") from None


class _Twice(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return made


def _kind(value: object) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(value), "null")


def write_labels(path: Path, rates: Iterable[tuple[str, float, int]], threshold: float, metadata: Mapping[str, Any]) -> None:
    """Write the published format: (task id, success rate, episodes) per task. ``rate`` and ``episodes`` stand beside ``success``."""
    trajectories = [
        {"task_info": {"task_id": name}, "traj_info": {"success": rate >= threshold, "rate": rate, "episodes": episodes}}
        for name, rate, episodes in rates
    ]
    head = json.dumps({"total_trajectories": len(trajectories), **metadata}, ensure_ascii=False)
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in trajectories)
    part = path.with_name(f".{path.name}.part")
    part.write_text(f'{{"metadata": {head},\n"trajectories": [\n{lines}\n]}}\n', encoding="utf-8")
    os.replace(part, path)


def easy_mean(spec: PartitionSpec, easy: BoolArray) -> float:
    """The mean share of easy tasks that clients are given. Raises ``PartitionError`` where all tasks are alike."""
    number = int(easy.sum())
    if number in (0, len(easy)):
        kind, other = ("hard", "easy") if number == 0 else ("easy", "hard")
        raise PartitionError(
            f"hardness: all {len(easy)} train tasks are labelled {kind} and none {other}; choose another threshold, or labels of an agent "
            "that solves some tasks and fails others"
        )
    return spec.easy_mean if spec.easy_mean is not None else number / len(easy)


def easy_counts(sizes: IntArray, spec: PartitionSpec, easy: BoolArray, seed: int) -> tuple[IntArray, FloatArray, tuple[str, ...]]:
    """Easy tasks of every client, the shares that were drawn, and notes on limits met.

    The mean share is exact; shares reach 0 and 1 unless there are too few tasks of a kind.
    """
    assert spec.hardness is not None
    mean, clients = easy_mean(spec, easy), len(sizes)
    odds = log_odds((stream(seed, "hardness", client) for client in range(clients)), mean, spec.hardness)
    shares = spread(odds, mean, (1 - 1 / clients) * spec.hardness * mean * (1 - mean))
    pool = int(easy.sum())
    low, high = np.maximum(sizes - (len(easy) - pool), 0), np.minimum(sizes, pool)
    wanted = shares * sizes
    cut = int(((wanted > high + 0.5) | (wanted < low - 0.5)).sum())
    notes: tuple[str, ...] = ()
    if cut:
        notes = (
            f"hardness: {cut} of {clients} clients cannot get their share of easy tasks, because only {pool} of {len(easy)} tasks are easy "
            f"and {len(easy) - pool} hard; give clients fewer tasks, or label with another threshold",
        )
    return rounded(np.clip(wanted, low, high), low, high), shares, notes
