"""The episode file: what a record holds, that lines are whole, and what a reader says about damage."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest

from pipeline.episode_log import append_episodes, episode_record, read_episodes
from pipeline.episodes import Episode, Turn
from pipeline.errors import DataError

EPISODE = Episode(
    task_id="t1",
    client="shop-3",
    variant="default",
    adapter="shop-3-2-0-abc",
    turns=(Turn((5, 6, 7), (8, 9), (-0.25, -0.5), "search[é]", True, 0.0), Turn((5,), (8,), (-1.0,), "buy", False, 10.0)),
    ret=10.0,
    score=1.0,
    success=True,
    stop="done",
    retries=1,
    observations=("first", "second", "last"),
)


def record() -> dict[str, object]:
    return episode_record(EPISODE, "find it", round=2, epoch=0, text=lambda ids: "|".join(map(str, ids)))


def test_record_holds_text_and_counts_of_every_turn() -> None:
    found = record()
    assert found["turns"] == [
        {
            "observation": "first",
            "prompt": "5|6|7",
            "response": "8|9",
            "action": "search[é]",
            "valid": True,
            "reward": 0.0,
            "logprob": -0.75,
            "n_prompt": 3,
            "n_response": 2,
        },
        {
            "observation": "second",
            "prompt": "5",
            "response": "8",
            "action": "buy",
            "valid": False,
            "reward": 10.0,
            "logprob": -1.0,
            "n_prompt": 1,
            "n_response": 1,
        },
    ]
    del found["turns"]
    assert found == {
        "schema": 1,
        "task_id": "t1",
        "instruction": "find it",
        "client": "shop-3",
        "round": 2,
        "epoch": 0,
        "variant": "default",
        "adapter": "shop-3-2-0-abc",
        "success": True,
        "score": 1.0,
        "ret": 10.0,
        "stop": "done",
        "retries": 1,
        "final_observation": "last",
    }


def test_write_append_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "episodes.jsonl"
    append_episodes(path, [record()])
    append_episodes(path, [record(), record()])
    assert list(read_episodes(path)) == [record()] * 3


def _write(path: Path, mark: str) -> None:
    append_episodes(path, [{**record(), "client": mark, "instruction": mark * 20_000} for _ in range(20)])


def test_lines_of_several_writers_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, mark)) for mark in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = list(read_episodes(path))
    assert sorted(str(r["client"]) for r in found) == ["a"] * 20 + ["b"] * 20
    assert all(set(str(r["instruction"])) == {r["client"]} for r in found)


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    append_episodes(path, [record()])
    with path.open("a") as stream:
        stream.write(json.dumps(record())[:50])
    assert list(read_episodes(path)) == [record()]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{nonsense\n", r"line 2: not JSON"),
        ('{"schema": 9}\n', r"line 2: schema 9, this version reads 1"),
        ("[1]\n", r"line 2: schema 'list'"),
        ('{"schema": 1, "task_id": "x"}\n', r"line 2: an episode lacks adapter, client, .*"),
    ],
)
def test_damage_is_named_with_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "episodes.jsonl"
    append_episodes(path, [record()])
    with path.open("a") as stream:
        stream.write(line)
    with pytest.raises(DataError, match=message):
        list(read_episodes(path))


def test_no_file_is_an_error_that_says_what_writes_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such episode file"):
        list(read_episodes(tmp_path / "none.jsonl"))
