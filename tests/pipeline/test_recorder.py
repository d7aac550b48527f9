"""The recorder: every record goes everywhere, tracebacks stay on the client's side, and few episodes are kept by default."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.client import ClientFailure
from pipeline.config import RunConfig
from pipeline.progress import Progress
from pipeline.recorder import SAMPLED_HELDOUT_EPISODES, SAMPLED_TRAIN_EPISODES, RunRecorder
from pipeline.run_folder import RunFolder
from pipeline.runlog import RunLog, read_history
from pipeline.tracking import NoTracker

SECRET = "buy the red wig"


class Tracker(NoTracker):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []

    def record(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)


class Parts:
    """A recorder with all that it writes to."""

    def __init__(self, folder: Path, save_episodes: str = "sample") -> None:
        self.folder, self.tracker, self.screen = RunFolder(folder), Tracker(), io.StringIO()
        self.log = RunLog(self.folder.metrics)
        self.log.write({"kind": "start"})
        config = RunConfig.model_validate({"save_episodes": save_episodes})
        self.progress = Progress({"rounds": 2, "episodes_per_round": 8}, stream=self.screen)
        self.recorder = RunRecorder(config, self.folder, self.log, self.tracker, self.progress)


def test_a_record_reaches_log_tracker_and_terminal(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    parts.recorder.record({"kind": "round", "round": 1, "success": 0.25, "clients": ["c000"], "failed": [], "episodes": 8})
    parts.recorder.record({"kind": "client", "round": 1, "client": "c000", "success": 0.25})
    assert [r["kind"] for r in parts.tracker.records] == ["round", "client"]
    history = read_history(tmp_path)
    assert (len(history.rounds), len(history.clients)) == (1, 1)
    assert "round 1/2  success 25.0%" in parts.screen.getvalue()


def test_a_traceback_stays_in_the_folder(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    parts.recorder.failed(ClientFailure("c001", 3, "LearnerError: no", f"Traceback ...\n{SECRET}", 2))
    kept = (tmp_path / "failures" / "round-0003-c001.txt").read_text()
    assert SECRET in kept
    assert "attempts: 2" in kept
    assert SECRET not in parts.screen.getvalue()
    assert "c001 failed in round 3" in parts.screen.getvalue()
    assert not parts.tracker.records


@pytest.mark.parametrize(
    ("kept", "train", "heldout"),
    [("none", None, None), ("sample", SAMPLED_TRAIN_EPISODES, SAMPLED_HELDOUT_EPISODES), ("all", "all", "all")],
)
def test_how_many_episodes_are_kept(tmp_path: Path, kept: str, train: object, heldout: object) -> None:
    recorder = Parts(tmp_path, kept).recorder
    for kind, limit in (("train", train), ("heldout", heldout)):
        target = recorder.episode_log(kind, "c001", 2, 1)
        if limit is None:
            assert target is None
            continue
        assert target is not None
        assert target.limit == (None if limit == "all" else limit)
        assert target.path == tmp_path / "episodes" / f"{kind}-c001.jsonl"
        assert (target.round, target.epoch) == (2, 1)


def test_batches_are_counted_within_a_round(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    seen: list[tuple[int, int]] = []
    parts.progress.episodes = lambda done_in_round, tokens: seen.append((done_in_round, tokens))  # type: ignore[method-assign]
    batch = {"episodes": 4.0, "tokens_prompt": 10.0, "tokens_response": 2.0}
    parts.recorder.batch(batch)
    parts.recorder.batch(batch)
    parts.recorder.record({"kind": "round", "round": 1})
    parts.recorder.batch(batch)
    assert seen == [(4, 12), (8, 24), (4, 12)]


@pytest.mark.parametrize(("kept", "words"), [("sample", "their tasks are named there"), ("none", "named there with run.save_episodes")])
def test_episodes_left_out_are_counted_on_the_screen_and_say_where_they_are_named(tmp_path: Path, kept: str, words: str) -> None:
    parts = Parts(tmp_path, kept)
    record = {"kind": "round", "round": 1, "success": 0.25, "clients": ["c000"], "failed": [], "episodes": 8}
    parts.recorder.record({**record, "failed_episodes": 0})
    assert "left out" not in parts.screen.getvalue()
    parts.recorder.record({**record, "round": 2, "failed_episodes": 3})
    shown = " ".join(parts.screen.getvalue().split())
    assert "round 2: 3 episodes were left out, because their environment hung or broke" in shown
    assert words in shown
