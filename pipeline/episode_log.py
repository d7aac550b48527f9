"""Episodes as readable text, one JSON object per line: what ``fedagent view`` shows. Written on the client's side and never sent on.

Owns the file format. Knows nothing of engines or training; token ids become text by a function that the caller gives.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.episodes import Episode, Turn
from pipeline.errors import DataError

SCHEMA = 1
_FIELDS = frozenset(
    (
        *("schema", "task_id", "instruction", "client", "round", "epoch", "variant", "adapter"),
        *("success", "score", "ret", "stop", "retries", "turns", "final_observation"),
    )
)


def episode_record(
    episode: Episode, instruction: str, *, round: int | None, epoch: int | None, text: Callable[[Sequence[int]], str]
) -> dict[str, Any]:
    """One episode as a JSON object. ``text`` turns token ids into text, special tokens included."""
    seen = episode.observations
    return {
        "schema": SCHEMA,
        "task_id": episode.task_id,
        "instruction": instruction,
        "client": episode.client,
        "round": round,
        "epoch": epoch,
        "variant": episode.variant,
        "adapter": episode.adapter,
        "success": episode.success,
        "score": episode.score,
        "ret": episode.ret,
        "stop": episode.stop,
        "retries": episode.retries,
        "turns": [_turn_record(turn, seen[i] if i < len(seen) else "", text) for i, turn in enumerate(episode.turns)],
        "final_observation": seen[len(episode.turns)] if len(seen) > len(episode.turns) else "",
    }


def append_episodes(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Append records to ``path``. One write call per record to a file opened for appending: lines of several writers never interleave."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for record in records:
            line = (json.dumps(record) + "\n").encode()
            written = os.write(descriptor, line)
            if written != len(line):
                raise DataError(f"{path}: wrote {written} of {len(line)} bytes of an episode; the disk is probably full")
    finally:
        os.close(descriptor)


def read_episodes(path: Path) -> Iterator[dict[str, Any]]:
    """Records of ``path`` in order. A last line without line end is the trace of a killed writer and is left out.

    Raises ``DataError`` naming file, line and problem for anything else that is not an episode of this schema.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such episode file; episodes are saved by runs with run.save_episodes on")
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):
                return
            yield _check(path, number, line)


def _check(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not JSON ({error}); delete the line, or the file and evaluate again") from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        found = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise DataError(f"{path}, line {number}: schema {found!r}, this version reads {SCHEMA}")
    missing = sorted(_FIELDS - record.keys())
    if missing:
        raise DataError(f"{path}, line {number}: an episode lacks {', '.join(missing)}")
    return record


def _turn_record(turn: Turn, observation: str, text: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    return {
        "observation": observation,
        "prompt": text(turn.prompt_ids),
        "response": text(turn.response_ids),
        "action": turn.action,
        "valid": turn.valid,
        "reward": turn.reward,
        "logprob": sum(turn.logprobs),
        "n_prompt": len(turn.prompt_ids),
        "n_response": len(turn.response_ids),
    }
