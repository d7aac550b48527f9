"""The run's log, ``metrics.jsonl``: one JSON object per line, appended and flushed, readable while the run goes on.

Owns the file's format, its version, what a killed writer may leave behind, and what a resumed run makes of it. Does not know what
the numbers mean. Kinds: ``start`` (first line, one more per resume), ``evaluation``, ``client``, ``round``, ``end``.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from pipeline.errors import DataError

SCHEMA = 1
FILE_NAME = "metrics.jsonl"
KINDS = ("start", "evaluation", "client", "round", "end")
ROUND_KINDS = ("evaluation", "client", "round")

Record = dict[str, Any]
Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """The time now, with its zone."""
    return datetime.datetime.now(datetime.UTC)


class RunLog:
    """Appends records to a file. A torn last line, left by a killed writer, is cut off before the first append."""

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._empty = _cut_torn_line(path)
        self._stream: TextIO = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record and flush. ``ValueError`` for an unknown kind, a round that is not a number >= 0, or a file without a start.

        Numbers that are not finite become null; ``time`` is added, and ``schema`` to a start.
        """
        kind = record.get("kind")
        if kind not in KINDS:
            raise ValueError(f"a record's kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if self._empty and kind != "start":
            raise ValueError(f"the first record of a run log must be of kind 'start', got {kind!r}")
        if kind in ROUND_KINDS:
            round = record.get("round")
            if not isinstance(round, int) or isinstance(round, bool) or round < 0:
                raise ValueError(f"a record of kind {kind!r} needs a round number >= 0, got {round!r}")
        full: Record = {"kind": kind}
        if kind == "start":
            full["schema"] = SCHEMA
        full["time"] = self._clock().isoformat(timespec="milliseconds")
        full.update(record)
        self._stream.write(json.dumps(jsonable(full), allow_nan=False) + "\n")
        self._stream.flush()
        self._empty = False

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class History:
    """What a run log says, with rounds that a resumed run did again replaced by the later ones."""

    starts: Sequence[Record] = ()
    evaluations: Sequence[Record] = ()
    clients: Sequence[Record] = ()
    rounds: Sequence[Record] = ()
    end: Record | None = None
    torn: bool = False
    """The last line was incomplete: the writer was killed, or is writing."""
    session_seconds: float | None = None
    """Wall clock of all sessions together; a session that was killed counts up to its last record. None when times are missing."""
    superseded: int = field(default=0)
    """Records dropped because a resume went back before them."""

    @property
    def start(self) -> Record:
        """The latest start: the configuration in force. Empty when the log has none."""
        return self.starts[-1] if self.starts else {}

    @property
    def last_time(self) -> str | None:
        """When the newest record was written."""
        records = [*self.starts, *self.evaluations, *self.clients, *self.rounds, *([self.end] if self.end else [])]
        return max((str(r["time"]) for r in records if r.get("time")), default=None)


def read_records(path: Path) -> tuple[list[Record], bool]:
    """Every record in order, and whether the last line was torn.

    Raises:
        DataError: the file is missing, a line before the last is damaged, or the file has a newer schema.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"there is no {path.name} in {path.parent}: is it a run folder, and has the run started?") from None
    lines = data.split(b"\n")
    tail = lines.pop()
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        record = _parse(line)
        if record is None:
            shown = line[:80].decode(errors="replace")
            raise DataError(f"{path}, line {number}: not a JSON object: {shown!r}. Restore or delete that line.")
        records.append(record)
    last = _parse(tail) if tail.strip() else None
    if last is not None:
        records.append(last)
    for record in records:
        if record.get("kind") == "start" and isinstance(record.get("schema"), int) and record["schema"] > SCHEMA:
            raise DataError(f"{path} has schema {record['schema']}, this program reads up to {SCHEMA}: use a newer fedagent-ray")
    return records, bool(tail.strip()) and last is None


def read_history(path: Path) -> History:
    """Read a run folder or its ``metrics.jsonl``. Unknown kinds and missing keys are tolerated. Raises as ``read_records``."""
    records, torn = read_records(path / FILE_NAME if path.is_dir() or path.suffix != ".jsonl" else path)
    kept: list[Record] = []
    superseded = 0
    for record in records:
        if record.get("kind") == "start":
            before = len(kept)
            back_to = record.get("resumed_from")
            kept = [r for r in kept if not _undone(r, back_to)]
            superseded += before - len(kept)
        kept.append(record)

    def of(kind: str) -> list[Record]:
        found = [r for r in kept if r.get("kind") == kind]
        return [r for r in found if isinstance(r.get("round"), int)] if kind in ROUND_KINDS else found

    ends = of("end")
    return History(
        starts=of("start"),
        evaluations=sorted(of("evaluation"), key=lambda r: int(r["round"])),
        clients=sorted(of("client"), key=lambda r: int(r["round"])),
        rounds=sorted(of("round"), key=lambda r: int(r["round"])),
        end=ends[-1] if ends else None,
        torn=torn,
        session_seconds=_session_seconds(records),
        superseded=superseded,
    )


def _session_seconds(records: Sequence[Record]) -> float | None:
    sessions: list[list[Record]] = []
    for record in records:
        if record.get("kind") == "start":
            sessions.append([record])
        elif sessions:
            sessions[-1].append(record)
    total = 0.0
    for session in sessions:
        told = session[-1].get("seconds") if session[-1].get("kind") == "end" else None
        if isinstance(told, int | float):
            total += told
            continue
        try:
            first, last = (datetime.datetime.fromisoformat(str(r["time"])) for r in (session[0], session[-1]))
            total += (last - first).total_seconds()
        except (KeyError, ValueError, TypeError):
            return None
    return total if sessions else None


def jsonable(value: Any) -> Any:
    """``value`` as JSON values: NumPy scalars become Python's, what is not finite becomes None, other objects their ``str``."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        return [jsonable(v) for v in value]
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    return str(value)


def _undone(record: Record, back_to: object) -> bool:
    """Whether a start with ``resumed_from = back_to`` takes ``record`` back. An end before a resume was no end."""
    if record.get("kind") == "end":
        return True
    if record.get("kind") not in ROUND_KINDS:
        return False
    # A resume from round 0 begins anew, with its own evaluation before training.
    last = back_to if isinstance(back_to, int) and back_to > 0 else -1
    return back_to is None or (isinstance(record.get("round"), int) and record["round"] > last)


def _parse(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _cut_torn_line(path: Path) -> bool:
    """Make the file end with a whole line; whether it is empty then."""
    if not path.exists():
        return True
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        whole = data.rfind(b"\n") + 1
        if _parse(data[whole:]) is not None:
            with path.open("ab") as stream:
                stream.write(b"\n")
            return False
        with path.open("r+b") as stream:
            stream.truncate(whole)
        data = data[:whole]
    return not data
