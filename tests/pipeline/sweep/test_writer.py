"""One hand writes for all trials: sixteen at once, again after a kill, and a store that says what the folders say."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import TrackingConfig
from pipeline.runlog import RunLog
from pipeline.sweep.writer import PARENT, RemoteWriter, SweepWriter

pytestmark = pytest.mark.slow

START = {"kind": "start", "config": {"run": {"seed": 0}}, "versions": {}, "resumed_from": None}
TRIALS = 16
ROUNDS = 5


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def round_record(round: int, success: float = 0.5) -> dict[str, Any]:
    return {"kind": "round", "round": round, "success": success, "loss": 0.1, "seconds": 1.0, "clients": ["c0"], "failed": []}


def evaluation(round: int, success: float = 0.5) -> dict[str, Any]:
    return {"kind": "evaluation", "round": round, "success": success, "mode": "sampled", "world": "default", "client": None}


def query(folder: Path, text: str) -> list[Any]:
    with sqlite3.connect(folder / "mlflow.db") as database:
        return database.execute(text).fetchall()


@pytest.mark.usefixtures("ray_cluster")
def test_sixteen_trials_at_once_make_one_tree(tmp_path: Path) -> None:
    writer = RemoteWriter.start(tmp_path, TrackingConfig())
    writer.of(PARENT).record({**START, "config": {"sweep": {"space": "x"}}})
    summaries = []

    def tell(number: int) -> None:
        tracker = RemoteWriter.find(tmp_path).of(f"trial-{number}")
        tracker.record(START)
        for round in range(1, ROUNDS + 1):
            tracker.record(round_record(round))
            tracker.record(evaluation(round))
        summaries.append(tracker.finish("finished"))

    threads = [threading.Thread(target=tell, args=(number,)) for number in range(TRIALS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    summaries.append(writer.finish(PARENT, "finished"))
    assert {(summary.errors, summary.lost, summary.first_error) for summary in summaries} == {(0, 0, None)}
    assert Counter(status for (status,) in query(tmp_path, "select status from runs")) == {"FINISHED": TRIALS + 1}
    parents = query(tmp_path, "select value, count(*) from tags where key = 'mlflow.parentRunId' group by value")
    assert [count for _, count in parents] == [TRIALS]
    assert query(tmp_path, "select count(*) from metrics where key = 'round/success'") == [(TRIALS * ROUNDS,)]


def test_a_writer_that_died_is_followed_by_one_that_repeats_nothing(tmp_path: Path) -> None:
    log_folder = tmp_path / "trial-0" / "run"
    with RunLog(log_folder / "metrics.jsonl") as log:
        for record in (START, evaluation(0, 0.2), round_record(1), round_record(2), evaluation(2, 0.6)):
            log.write(record)
    first = SweepWriter(str(tmp_path), TrackingConfig())
    for trial in (PARENT, "trial-0"):
        first.record(trial, START)
    for record in (evaluation(0, 0.2), round_record(1)):
        first.record("trial-0", record)
    (log_folder / "mlflow.json").unlink()

    # It died there, before it had kept the id; the rest is in the trial's folder alone.
    second = SweepWriter(str(tmp_path), TrackingConfig())
    second.record(PARENT, START)
    summary = second.settle("trial-0", "finished")
    assert (summary.errors, summary.lost) == (0, 0)
    assert query(tmp_path, "select count(*) from runs") == [(2,)]
    metrics = Counter((key, step) for key, step in query(tmp_path, "select key, step from metrics where key like '%success'"))
    told = [(f"{name}/success", step) for name in ("heldout/sampled", "round") for step in (0, 1, 2)]
    assert metrics == {key: 1 for key in told if key not in (("heldout/sampled/success", 1), ("round/success", 0))}
    second.settle("trial-0", "finished")
    second.finish(PARENT, "finished")
    assert Counter(status for (status,) in query(tmp_path, "select status from runs")) == {"FINISHED": 2}
    assert metrics.total() == len(query(tmp_path, "select key from metrics where key like '%success'"))


def test_a_store_that_is_not_there_is_counted_and_does_not_raise(tmp_path: Path) -> None:
    writer = SweepWriter(str(tmp_path), TrackingConfig(uri="sqlite:////proc/nowhere/mlflow.db"))
    writer.record(PARENT, START)
    writer.record("trial-0", START)
    writer.record("trial-0", round_record(1))
    assert writer.finish("trial-0", "finished").lost > 0
    assert writer.settle("trial-0", "finished") is not None


def test_without_tracking_nothing_is_written(tmp_path: Path) -> None:
    writer = RemoteWriter.start(tmp_path, TrackingConfig(mlflow=False))
    writer.of(PARENT).record(START)
    assert writer.settle("trial-0", "finished").warning() is None
    assert not list(tmp_path.iterdir())
