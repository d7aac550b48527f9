from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import DataError
from pipeline.runlog import RunLog, jsonable, read_history, read_records


def fixed() -> datetime.datetime:
    return datetime.datetime(2026, 11, 2, 12, 0, tzinfo=datetime.UTC)


def write(path: Path, *records: dict[str, object]) -> None:
    with RunLog(path, fixed) as log:
        for record in records:
            log.write(record)


START: dict[str, object] = {"kind": "start", "name": "demo", "resumed_from": None}


def test_the_first_line_carries_the_schema_and_every_line_the_time(tmp_path: Path) -> None:
    write(tmp_path / "metrics.jsonl", START, {"kind": "round", "round": 1, "success": 0.5})
    first, second = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert first["schema"] == 1
    assert second == {"kind": "round", "time": "2026-11-02T12:00:00.000+00:00", "round": 1, "success": 0.5}


def test_every_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "metrics.jsonl")
    log.write(START)
    assert len(read_records(tmp_path / "metrics.jsonl")[0]) == 1
    log.close()


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"kind": "lap", "round": 1}, "kind must be one of"),
        ({"round": 1}, "got None"),
        ({"kind": "round"}, "needs a round number"),
        ({"kind": "client", "round": -1}, "got -1"),
        ({"kind": "evaluation", "round": True}, "got True"),
        ({"kind": "round", "round": 1.0}, "got 1.0"),
    ],
)
def test_a_wrong_kind_or_round_is_refused(tmp_path: Path, record: dict[str, object], complaint: str) -> None:
    with RunLog(tmp_path / "metrics.jsonl") as log:
        log.write(START)
        with pytest.raises(ValueError, match=complaint):
            log.write(record)
    assert len(read_records(tmp_path / "metrics.jsonl")[0]) == 1


def test_a_log_begins_with_a_start(tmp_path: Path) -> None:
    with RunLog(tmp_path / "metrics.jsonl") as log, pytest.raises(ValueError, match="first record"):
        log.write({"kind": "round", "round": 1})


def test_numbers_without_a_json_form_become_null_and_numpy_is_unpacked(tmp_path: Path) -> None:
    values = {
        "a": float("nan"),
        "b": np.float32(0.5),
        "c": np.array([1, 2]),
        "d": Path("x"),
        "e": -np.inf,
        "f": np.int64(3),
        "g": (1, None),
    }
    assert jsonable(values) == {"a": None, "b": 0.5, "c": [1, 2], "d": "x", "e": None, "f": 3, "g": [1, None]}
    write(tmp_path / "metrics.jsonl", START, {"kind": "round", "round": 1, "loss": float("inf")})
    assert read_history(tmp_path).rounds[0]["loss"] is None


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_torn_last_line_is_left_out_and_cut_before_the_next_append(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, START, {"kind": "round", "round": 1, "success": 0.5})
    path.write_bytes(path.read_bytes()[:-cut])
    whole = cut == 1
    records, torn = read_records(path)
    assert (len(records), torn) == ((2, False) if whole else (1, True))
    write(path, {"kind": "round", "round": 1, "success": 0.75})
    records, torn = read_records(path)
    assert [r.get("success") for r in records] == ([None, 0.5, 0.75] if whole else [None, 0.75])
    assert not torn


def test_a_log_torn_in_its_first_line_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "sta')
    write(path, START)
    assert [r["kind"] for r in read_records(path)[0]] == ["start"]


def test_damage_before_the_last_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, START, {"kind": "round", "round": 1})
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + "{oops\n" + lines[1])
    with pytest.raises(DataError, match=r"metrics.jsonl, line 2: .*oops"):
        read_records(path)


def test_no_log_and_a_newer_log_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is it a run folder"):
        read_history(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"kind":"start","schema":2}\n')
    with pytest.raises(DataError, match="schema 2, this program reads up to 1"):
        read_history(tmp_path)


def test_a_resume_takes_back_later_rounds_and_the_end(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rounds = [{"kind": "round", "round": r, "success": 0.1 * r} for r in (1, 2, 3)]
    write(path, START, {"kind": "evaluation", "round": 0}, *rounds, {"kind": "client", "round": 3, "client": "c001"})
    write(path, {"kind": "end", "status": "stopped"})
    write(path, {**START, "resumed_from": 2}, {"kind": "round", "round": 3, "success": 0.9})
    history = read_history(tmp_path)
    assert [r["success"] for r in history.rounds] == pytest.approx([0.1, 0.2, 0.9])
    assert (len(history.evaluations), len(history.clients), history.end, history.superseded) == (1, 0, None, 3)
    assert history.start["resumed_from"] == 2
    assert len(history.starts) == 2


def test_a_start_from_nothing_takes_everything_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, START, {"kind": "evaluation", "round": 0, "n": 1})
    write(path, START, {"kind": "evaluation", "round": 0, "n": 2})
    assert [e["n"] for e in read_history(path).evaluations] == [2]


def test_unknown_kinds_and_missing_keys_are_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"kind":"start"}\n{"kind":"later"}\n{"kind":"round"}\n{"kind":"round","round":2}\n')
    history = read_history(tmp_path)
    assert [r["round"] for r in history.rounds] == [2]
    assert history.last_time is None
