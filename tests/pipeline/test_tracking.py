from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import GuardedTracker, MlflowWriter, NoTracker, flatten, numbers, tracking_uri

START: dict[str, Any] = {
    "kind": "start",
    "config": {
        "run": {"name": "demo", "seed": 0},
        "federation": {"rounds": 2, "quorum": 0.5},
        "model": {"lora": {"targets": ["q", "v"]}, "x": None},
    },
    "versions": {"torch": "2.13"},
    "resumed_from": None,
}
SECRET = "buy the red wig under 30 dollars"
CLIENT = {"kind": "client", "round": 1, "client": "c003", "success": 0.4, "kl": 0.01, "note": SECRET, "episodes": 64, "loss": None}
EVALUATION = {
    "kind": "evaluation",
    "round": 1,
    "mode": "greedy",
    "world": "default",
    "n": 300,
    "success": 0.5,
    "client": None,
    "version": SECRET,
}
ROUND = {
    "kind": "round",
    "round": 1,
    "clients": ["c001", "c003"],
    "failed": [{"client": "c001", "error": "LearnerError: loss is nan\nsecond line", "attempts": 2}],
    "success": 0.4,
    "phases": {"rollout": 2.5},
    "task": SECRET,
}


def read(uri: str, run_id: str) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=uri).get_run(run_id)


def test_the_uri_is_the_configured_one_else_the_variable_else_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://there:5000")
    assert tracking_uri(tmp_path) == "http://there:5000"
    assert tracking_uri(tmp_path, "sqlite:///mine.db") == "sqlite:///mine.db"


def test_flatten_names_fields_by_their_path() -> None:
    assert flatten(START["config"]) == {
        "run.name": "demo",
        "run.seed": "0",
        "federation.rounds": "2",
        "federation.quorum": "0.5",
        "model.lora.targets": '["q", "v"]',
        "model.x": "null",
    }
    assert len(flatten({"long": "x" * 10_000})["long"]) == 6000


def test_only_numbers_of_a_record_become_metrics() -> None:
    record = {
        "kind": "client",
        "round": 3,
        "client": "c1",
        "success": 1,
        "flag": True,
        "text": "secret",
        "kl": None,
        "list": [1.0],
        "odd:name!": 2.0,
    }
    assert numbers(record, "train/") == {"train/success": 1.0, "train/odd_name_": 2.0}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run that was tracked, stopped, and continued for a round: its folder, its server, its id."""
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "config.resolved.json").write_text("{}")
    (folder / "report.html").write_text("<p>report</p>")
    writer = MlflowWriter(folder, "demo", uri=f"sqlite:///{folder}/mlflow.db")
    tracker = GuardedTracker(writer)
    for record in (START, CLIENT, EVALUATION, ROUND):
        tracker.record(record)
    assert tracker.finish("stopped").warning() is None
    again = GuardedTracker(MlflowWriter(folder, "demo", uri=f"sqlite:///{folder}/mlflow.db"))
    more = {**START, "resumed_from": 1, "config": {**START["config"], "federation": {"rounds": 5, "quorum": 0.5}}}
    for record in (more, {**CLIENT, "round": 2, "success": 0.6}, {**ROUND, "round": 2, "success": 0.6, "failed": []}):
        again.record(record)
    again.artifact(folder / "report.html")
    summary = again.finish("finished")
    assert summary.errors == 0
    assert (summary.written, summary.run_id) == (3, writer.run_id)
    return folder, summary.uri or "", summary.run_id or ""


@pytest.mark.slow
def test_a_run_has_params_metrics_by_round_versions_and_failures(tracked: tuple[Path, str, str]) -> None:
    from mlflow.tracking import MlflowClient

    _, uri, run_id = tracked
    run = read(uri, run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "demo"
    assert run.data.params["federation.rounds"] == "2"
    assert run.data.params["model.lora.targets"] == '["q", "v"]'
    assert run.data.tags["version.torch"] == "2.13"
    assert run.data.tags["failure.round0001.c001"] == "LearnerError: loss is nan"
    assert run.data.metrics["heldout/greedy/success"] == 0.5
    assert run.data.metrics["phase/rollout_s"] == 2.5
    history = MlflowClient(tracking_uri=uri).get_metric_history(run_id, "round/success")
    assert [(m.step, m.value) for m in history] == [(1, 0.4), (2, 0.6)]


@pytest.mark.slow
def test_a_resume_continues_the_same_run_and_notes_what_changed(tracked: tuple[Path, str, str]) -> None:
    folder, uri, run_id = tracked
    run = read(uri, run_id)
    assert run.data.tags["resumed_from_round"] == "1"
    assert run.data.tags["changed.federation.rounds"] == "5"
    assert json.loads((folder / "mlflow.json").read_text())["run_id"] == run_id


@pytest.mark.slow
def test_clients_have_nested_runs_and_artifacts_are_stored_in_the_run_folder(tracked: tuple[Path, str, str]) -> None:
    from mlflow.tracking import MlflowClient

    folder, uri, run_id = tracked
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("fedagent")
    children = client.search_runs([experiment.experiment_id], f"tags.`mlflow.parentRunId` = '{run_id}'")
    assert [(c.info.run_name, c.data.metrics["train/success"], c.info.status) for c in children] == [("demo/c003", 0.6, "FINISHED")]
    assert {a.path for a in client.list_artifacts(run_id)} == {"config.resolved.json", "report.html"}
    assert list((folder / "mlartifacts").rglob("report.html"))


@pytest.mark.slow
def test_no_text_of_a_record_reaches_the_tracking_files(tracked: tuple[Path, str, str]) -> None:
    folder, _, _ = tracked
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_two_runs_in_one_database_do_not_mix(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/shared.db"
    writers = [MlflowWriter(tmp_path / name, name, uri=uri, clients=False) for name in ("a", "b")]
    for writer in writers:
        (tmp_path / writer._name).mkdir()
        writer.record(START)
    for writer, success in zip(writers, (0.25, 0.75), strict=True):
        writer.record({**ROUND, "success": success})
        writer.record(CLIENT)
    assert [read(uri, w.run_id or "").data.metrics["round/success"] for w in writers] == [0.25, 0.75]
    assert writers[0]._children == {}


class FlakyWriter:
    """Fails as told; what got through is in ``got``."""

    uri, run_id = "fake://", "r1"

    def __init__(self) -> None:
        self.down = False
        self.poison: set[str] = set()
        self.got: list[str] = []
        self.calls = 0

    def record(self, record: Mapping[str, Any]) -> None:
        self.calls += 1
        if self.down or record["kind"] in self.poison:
            raise ConnectionError("no route\nto host")
        self.got.append(f"{record['kind']}{record.get('round', '')}")

    def artifact(self, path: Path, folder: str | None) -> None:
        self.got.append(path.name)

    def finish(self, status: str) -> None:
        if self.down:
            raise ConnectionError("no route")
        self.got.append(status)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guarded() -> tuple[GuardedTracker, FlakyWriter, Clock]:
    writer, clock = FlakyWriter(), Clock()
    return GuardedTracker(writer, clock), writer, clock  # type: ignore[arg-type]


def test_records_wait_in_order_while_the_server_is_away() -> None:
    tracker, writer, clock = guarded()
    writer.down = True
    tracker.record(START)
    for round in (1, 2, 3):
        tracker.record({"kind": "round", "round": round})
    assert writer.calls == 1
    writer.down = False
    clock.now = 10.0
    tracker.artifact(Path("report.html"))
    summary = tracker.finish("finished")
    assert writer.got == ["start", "round1", "round2", "round3", "report.html", "finished"]
    assert (summary.written, summary.errors, summary.lost) == (4, 1, 0)
    assert "1 failed writes, 0 records lost" in (summary.warning() or "")
    assert summary.first_error == "record: ConnectionError: no route"


def test_a_record_that_cannot_be_written_does_not_stop_the_others() -> None:
    tracker, writer, clock = guarded()
    writer.poison = {"client"}
    tracker.record(START)
    tracker.record({"kind": "client", "round": 1})
    for round in range(1, 6):
        clock.now += 100.0
        tracker.record({"kind": "round", "round": round})
    summary = tracker.finish("finished")
    assert writer.got == ["start", "round1", "round2", "round3", "round4", "round5", "finished"]
    assert (summary.errors, summary.lost) == (3, 1)


def test_a_server_that_never_answers_costs_few_calls_and_is_told_once() -> None:
    tracker, writer, clock = guarded()
    writer.down = True
    tracker.record(START)
    for round in range(1, 200):
        clock.now += 1.0
        tracker.record({"kind": "round", "round": round})
    assert writer.calls <= 9
    summary = tracker.finish("failed")
    assert summary.lost == 200
    assert summary.errors <= 12
    assert writer.got == []


def test_switched_off_it_does_nothing(tmp_path: Path) -> None:
    tracker = NoTracker()
    tracker.record(START)
    tracker.artifact(tmp_path)
    assert tracker.finish("finished").warning() is None
