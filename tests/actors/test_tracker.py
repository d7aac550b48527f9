from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

START = {"kind": "start", "config": {"run": {"name": "demo"}}, "versions": {}, "resumed_from": None}


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.usefixtures("ray_cluster")
def test_records_arrive_and_the_controller_does_not_wait(tmp_path: Path) -> None:
    from actors.tracker import RemoteTracker

    tracker = RemoteTracker(tmp_path, "demo", uri=f"sqlite:///{tmp_path}/mlflow.db", options={"num_cpus": 0.1})
    began = time.monotonic()
    tracker.record(START)
    for round in range(1, 51):
        tracker.record({"kind": "round", "round": round, "success": round / 50})
    assert time.monotonic() - began < 2.0
    summary = tracker.finish("finished")
    assert (summary.errors, summary.lost, summary.written) == (0, 0, 51)
    assert json.loads((tmp_path / "mlflow.json").read_text())["run_id"] == summary.run_id


@pytest.mark.usefixtures("ray_cluster")
def test_a_server_that_is_not_there_and_a_dead_actor_do_not_raise(tmp_path: Path) -> None:
    import ray

    from actors.tracker import RemoteTracker

    tracker = RemoteTracker(tmp_path, "demo", uri="sqlite:////proc/nowhere/mlflow.db")
    tracker.record(START)
    summary = tracker.finish("finished")
    assert summary.lost == 1
    assert "failed writes" in (summary.warning() or "")

    dead = RemoteTracker(tmp_path, "demo", uri="sqlite:////proc/nowhere/mlflow.db", deadline_s=20.0)
    ray.kill(dead._actor)
    dead.record(START)
    dead.artifact(tmp_path)
    summary = dead.finish("finished")
    assert summary.lost == 1
    assert "did not finish" in (summary.first_error or "")
