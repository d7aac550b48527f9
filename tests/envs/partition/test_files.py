"""Label files and explicit partitions: what is read, what is written, and errors that name file, record and fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.base import Task
from envs.partition import (
    Labels,
    PartitionError,
    PartitionSpec,
    build_partition,
    read_assignment,
    read_labels,
    write_assignment,
    write_labels,
)
from envs.partition.hardness import label_ids
from tests.envs.partition.pools import pool

TASKS = pool({"a": 3, "b": 3})
IDS = [task.id for task in TASKS]


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def trajectory(name: Any, success: Any) -> dict[str, Any]:
    return {"task_info": {"task_id": name}, "traj_info": {"success": success}}


def test_the_published_form_and_the_compact_one_say_the_same(tmp_path: Path) -> None:
    pairs = [(name, i % 2 == 0) for i, name in enumerate(IDS)]
    long = write(tmp_path / "long.json", {"metadata": {"by": "x"}, "trajectories": [trajectory(*pair) for pair in pairs]})
    short = write(tmp_path / "short.json", {"metadata": {}, "rows": [[name, int(easy)] for name, easy in pairs]})
    assert read_labels(long).flags(TASKS).tolist() == read_labels(short).flags(TASKS).tolist() == [True, False] * 3
    assert read_labels(long).metadata == {"by": "x"}


def test_several_records_of_a_task_are_episodes(tmp_path: Path) -> None:
    rows = [[name, 0] for name in IDS] + [[IDS[0], 1], [IDS[0], 1], [IDS[1], 1]]
    path = write(tmp_path / "rows.json", {"rows": rows})
    found = read_labels(path)
    assert found.rates[IDS[0]] == pytest.approx(2 / 3)
    assert found.flags(TASKS).tolist() == [True, True, False, False, False, False]
    assert read_labels(path, threshold=0.6).flags(TASKS).tolist() == [True] + [False] * 5
    with pytest.raises(PartitionError, match="threshold = 0"):
        read_labels(path, threshold=0)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    write_labels(path, [(name, i / 5, 5) for i, name in enumerate(IDS)], 0.5, {"agent": "oracle"})
    data = json.loads(path.read_text())
    assert data["metadata"] == {"total_trajectories": 6, "agent": "oracle"}
    assert data["trajectories"][3] == {"task_info": {"task_id": IDS[3]}, "traj_info": {"success": True, "rate": 0.6, "episodes": 5}}
    assert read_labels(path).flags(TASKS).tolist() == [False, False, False, True, True, True]


def test_tasks_are_found_under_their_published_names() -> None:
    assert label_ids("B01_123#2") == ("B01_123#2", "B01_123")
    assert label_ids("train/pick-Kettle-1/trial_7")[-1] == "alfworld_pick-Kettle-1_trial_7_game"
    shared = [Task("B01_5", "", "a"), Task("B01_5#2", "", "a"), Task("train/look/trial_1", "", "b")]
    flags = Labels({"B01_5": 1.0, "alfworld_look_trial_1_game": 0.0}).flags(shared)
    assert flags.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"labels.json: no JSON at line 1, column 2"),
        ([], "expected an object with `trajectories` or `rows`, found a list"),
        ({"rows": []}, "at least one record"),
        ({"rows": [["x", 1], ["y"]]}, "record 1: no task id"),
        ({"trajectories": [trajectory(None, True)]}, "record 0: no task id"),
        ({"rows": [["x", "yes"]]}, r"record 0 \(task 'x'\): success = 'yes'; expected true, false or a rate"),
        ({"rows": [["x", 2]]}, "success = 2"),
        ('{"rows": [], "rows": []}', "'rows' stands in it twice"),
    ],
)
def test_damaged_label_files_are_refused_by_record(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        read_labels(write(tmp_path / "labels.json", content))


def test_absent_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PartitionError, match=r"nowhere\.json: cannot be read"):
        read_labels(tmp_path / "nowhere.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(PartitionError, match="byte 0 is no UTF-8"):
        read_labels(tmp_path / "binary.json")
    with pytest.raises(PartitionError, match="nested too deeply"):
        read_labels(write(tmp_path / "deep.json", "[" * 100_000))


def test_labels_must_cover_the_tasks_and_nothing_else() -> None:
    rates = dict.fromkeys(IDS, 1.0)
    rates.pop(IDS[4])
    with pytest.raises(PartitionError, match=f"labels file mine.json: 1 of 6 train tasks have no label, for instance '{IDS[4]}'; write"):
        Labels(rates, "mine.json").flags(TASKS)
    with pytest.raises(
        PartitionError, match=r"1 of its 8 tasks are no train tasks of this world, for instance 'task1' \(did you mean 'task'"
    ):
        Labels({**dict.fromkeys([*IDS, "task"], 1.0), "task1": 0.0}, "mine.json").flags([*TASKS, Task("task", "", "a")])


def test_an_explicit_partition_goes_round(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    built = build_partition(TASKS, 3, PartitionSpec(2, preference=0.5), seed=1)
    write_assignment(path, built.plain())
    again = build_partition(TASKS, 3, PartitionSpec(2), assignment=read_assignment(path), source=str(path))
    assert again.plain() == built.plain()
    assert again.source == str(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "expected an object from client to a list"),
        ({"c000": "t0"}, "client 'c000': expected a list of task ids"),
        ({"c000": []}, "client 'c000': owns no task"),
        ({"c000": ["t0", "t1", "t0"]}, "client 'c000': task 't0' is listed twice"),
        ('{"c000": ["t0"], "c000": ["t1"]}', "'c000' stands in it twice"),
    ],
)
def test_damaged_partition_files_are_refused_by_client(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(PartitionError, match=message):
        read_assignment(write(tmp_path / "p.json", content))


def test_partition_files_must_fit_clients_and_tasks() -> None:
    spec = PartitionSpec(1)
    with pytest.raises(PartitionError, match=r"f.json: 1 clients in it, 2 in the federation \(c000 to c001\): no tasks for 'c001'"):
        build_partition(TASKS, 2, spec, assignment={"c000": ["t0"]}, source="f.json")
    with pytest.raises(PartitionError, match="'c7' unknown"):
        build_partition(TASKS, 1, spec, assignment={"c000": ["t0"], "c7": ["t1"]}, source="f.json")
    with pytest.raises(PartitionError, match=r"f.json, client 'c000': 'task0' not among this world's 6 train tasks"):
        build_partition(TASKS, 1, spec, assignment={"c000": ["task0"]}, source="f.json")
    with pytest.raises(PartitionError, match="leave preference out"):
        build_partition(TASKS, 1, PartitionSpec(1, preference=0.5), assignment={"c000": ["t0"]}, source="f.json")
