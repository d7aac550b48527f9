"""A partition written down: a JSON object from client to the ids of its tasks."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from envs.base import Task
from envs.partition.hardness import read_json
from envs.partition.spec import IntArray, PartitionError, examples

FIX = "`fedagent data partition --out FILE` writes such a file"


def read_assignment(path: Path | str) -> dict[str, list[str]]:
    """Task ids by client. Raises ``PartitionError`` naming file and client for what has another form."""
    data = read_json(path, "partition file")
    if not isinstance(data, dict) or not data:
        raise PartitionError(f"partition file {path}: expected an object from client to a list of task ids; {FIX}")
    for client, ids in data.items():
        where = f"partition file {path}, client {client!r}"
        if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
            raise PartitionError(f"{where}: expected a list of task ids (texts)")
        if not ids:
            raise PartitionError(f"{where}: owns no task; give it at least one, or leave the client out")
        if len(set(ids)) < len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise PartitionError(f"{where}: task {twice!r} is listed twice; name it once")
    return data


def write_assignment(path: Path, assignment: Mapping[str, Sequence[str]]) -> None:
    """Write a partition file, one client a line; the file appears whole or not at all."""
    lines = ",\n".join(f"{json.dumps(client)}: {json.dumps(list(ids), ensure_ascii=False)}" for client, ids in assignment.items())
    part = path.with_name(f".{path.name}.part")
    part.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    os.replace(part, path)


def places(assignment: Mapping[str, Sequence[str]], clients: Sequence[str], tasks: Sequence[Task], source: str) -> list[IntArray]:
    """Places in ``tasks`` of every client's tasks, in the order of ``clients``.

    Raises ``PartitionError`` for clients that are missing or unknown, and for ids that are no train tasks.
    """
    missing = [client for client in clients if client not in assignment]
    unknown = [client for client in assignment if client not in set(clients)]
    if missing or unknown:
        parts = [f"no tasks for {examples(missing)}"] if missing else []
        parts += [f"{examples(unknown)} unknown"] if unknown else []
        raise PartitionError(
            f"partition file {source}: {len(assignment)} clients in it, {len(clients)} in the federation ({clients[0]} to {clients[-1]}): "
            f"{', '.join(parts)}; change federation.clients or the file"
        )
    place = {task.id: i for i, task in enumerate(tasks)}
    found = []
    for client in clients:
        strange = [name for name in assignment[client] if name not in place]
        if strange:
            near = difflib.get_close_matches(strange[0], list(place)[:2000], n=1, cutoff=0.8)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise PartitionError(
                f"partition file {source}, client {client!r}: {examples(strange)} not among this world's {len(tasks)} train tasks{hint}"
            )
        if not assignment[client]:
            raise PartitionError(f"partition file {source}, client {client!r}: owns no task; give it at least one")
        found.append(np.array([place[name] for name in assignment[client]], dtype=np.int64))
    return found
