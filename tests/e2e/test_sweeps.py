"""Sweeps as users run them: submitted as a job, killed in the middle, restored; a trial's process killed; trials that place actors."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.runs import ROOT, SMALL, environment, wait_for
from tests.e2e.test_ray_jobs import Head, head  # noqa: F401 (a fixture)
from tests.pipeline.sweep.points import QUICK

pytestmark = pytest.mark.slow

SPACE = "tests.pipeline.sweep.points:four"
TRIALS = 12


def sweep_line(*arguments: str) -> list[str]:
    """The command line of a sweep."""
    return [sys.executable, "-m", "pipeline.cli", "sweep", *arguments]


def submit(head: Head, name: str, *arguments: str, wait: bool = True) -> subprocess.CompletedProcess[str]:  # noqa: F811
    """Submit a sweep as a job."""
    options = ["--submission-id", name, *([] if wait else ["--no-wait"])]
    return head.ray("job", "submit", "--address", head.dashboard, *options, "--", *sweep_line(*arguments))


def finished(folder: Path) -> list[Path]:
    """Run folders of trials that have ended well."""
    logs = folder.glob("*/run/metrics.jsonl")
    return [log.parent for log in logs if '"status": "finished"' in log.read_text()]


def drivers(folder: Path) -> list[psutil.Process]:
    """Processes that run the sweep in ``folder``'s parent: the command itself, and what the job put around it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if "pipeline.cli sweep" in line and str(folder.parent) in line and "job submit" not in line:
            found.append(process)
    return found


def mlflow_runs(store: Path) -> list[dict[str, Any]]:
    """Every run of the store with its tags, straight from its tables."""
    with sqlite3.connect(store) as database:
        rows = database.execute("select run_uuid, name, status from runs")
        runs: dict[str, dict[str, Any]] = {row[0]: {"id": row[0], "name": row[1], "status": row[2]} for row in rows}
        for run, key, value in database.execute("select run_uuid, key, value from tags"):
            runs[run][key] = value
        for run, key, step, count in database.execute("select run_uuid, key, step, count(*) from metrics group by run_uuid, key, step"):
            runs[run].setdefault("metrics", {})[key, step] = count
    return list(runs.values())


def test_a_submitted_sweep_killed_in_the_middle_and_restored_is_whole(head: Head, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "twelve"
    first = submit(head, "first", SPACE, *QUICK, f"--run.dir={tmp_path}", "--run.name=twelve", wait=False)
    assert first.returncode == 0, first.stdout + first.stderr
    wait_for(lambda: folder.is_dir(), 60, "the sweep to begin")
    wait_for(lambda: len(finished(folder)) >= 3, 240, "three trials to end")
    for process in drivers(folder):
        process.kill()
    wait_for(lambda: not drivers(folder), 30, "the driver to be gone")
    before = {run.parent.name: (run / "metrics.jsonl").read_bytes() for run in finished(folder)}
    assert 3 <= len(before) < TRIALS

    changed = submit(head, "changed", "--resume", str(folder), "--seeds", "0,1")
    assert changed.returncode != 0
    assert "12 trials there, 8 now" in changed.stdout + changed.stderr

    done = submit(head, "second", "--resume", str(folder))
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    assert "12 finished of 12 trials" in output

    summary = json.loads((folder / "sweep.json").read_text())
    assert summary["complete"]
    trials = summary["trials"]
    assert [trial["status"] for trial in trials] == ["finished"] * TRIALS
    assert Counter(trial["seed"] for trial in trials) == {0: 4, 1: 4, 2: 4}
    assert all(trial["round"] == 3 and 0 <= trial["worlds_worst"] <= trial["worlds_mean"] <= 1 for trial in trials)
    assert len((folder / "sweep.csv").read_text().splitlines()) == TRIALS + 1
    for name, log in before.items():
        assert (folder / name / "run" / "metrics.jsonl").read_bytes() == log, "a trial that had ended was touched"

    # One clean tree: the sweep, its trials, nothing twice, nothing open.
    runs = mlflow_runs(folder / "mlflow.db")
    assert Counter(run["status"] for run in runs) == {"FINISHED": TRIALS + 1}
    (parent,) = [run for run in runs if "mlflow.parentRunId" not in run]
    children = [run for run in runs if run is not parent]
    assert {child["mlflow.parentRunId"] for child in children} == {parent["id"]}
    assert sorted(child["name"] for child in children) == [trial["name"] for trial in trials]
    for child in children:
        told = {("round/success", 1), ("round/success", 3), ("heldout/sampled/success", 0), ("heldout/sampled/success", 3)}
        assert told <= set(child["metrics"])
        assert set(child["metrics"].values()) == {1}, f"{child['name']} has a metric twice at one step"

    # Tune's own results, and TensorBoard's files.
    assert len(list(folder.glob("*/result.json"))) == len(list(folder.glob("*/progress.csv"))) == TRIALS
    assert {path.parent.name for path in folder.glob("*/events.out.tfevents.*")} == {trial["name"] for trial in trials}

    again = submit(head, "third", "--resume", str(folder))
    assert again.returncode == 0
    assert len(mlflow_runs(folder / "mlflow.db")) == TRIALS + 1


def test_a_killed_trial_goes_on_from_its_last_round(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    base = [word for word in QUICK if "world_tasks" not in word]
    longer = ("--federation.rounds=60", "--evaluation.every=30")
    arguments = ["tests.pipeline.sweep.points:single", *base, *longer, "--seeds=0", "--resources.cpus=1", "--tracking.mlflow=false"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            sweep_line(*arguments, f"--run.dir={tmp_path}", "--run.name=one"), cwd=ROOT, env=environment(), stdout=log, stderr=log
        )
    try:
        rounds = folder / "000-base-s0" / "run" / "rounds"
        wait_for(lambda: rounds.is_dir() and any(int(path.name) > 2 for path in rounds.glob("0*")), 120, "the third round")
        trial = next(p for p in psutil.Process(process.pid).children(recursive=True) if "ray::SweepTrial" in " ".join(p.cmdline()))
        trial.kill()
        records = folder / "000-base-s0" / "run" / "metrics.jsonl"
        wait_for(lambda: records.read_text().count('"kind": "start"') == 2, 120, "the trial to start again")
    finally:
        os.kill(process.pid, 15)
        code = process.wait(60)
    starts = [json.loads(line) for line in records.read_text().splitlines() if '"kind": "start"' in line]
    assert starts[1]["resumed_from"] >= 2
    output = (tmp_path / "log").read_text()
    assert "000-base-s0: died, goes on from its last whole round (retry 1)" in output
    assert code == 130, output[-2000:]
    assert "continue with: fedagent sweep --resume" in output


def test_a_trial_places_its_actors_in_its_own_group(tmp_path: Path) -> None:
    # On two cores there is room for the trial's group, and not for a second one of the same size.
    layout = ("--resources.layout=actors", "--rollout.backend=transformers", "--federation.rounds=1", "--seeds=0", "--resources.cpus=2")
    line = sweep_line("tests.pipeline.sweep.points:single", *SMALL, *layout, "--world.name=bandit", "--model.adapter=full", "--retries=0")
    done = subprocess.run(
        [*line, f"--run.dir={tmp_path}", "--run.name=actors"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (trial,) = json.loads((tmp_path / "actors" / "sweep.json").read_text())["trials"]
    assert (trial["status"], trial["round"]) == ("finished", 1)
    stored = json.loads((tmp_path / "actors" / trial["name"] / "run" / "config.resolved.json").read_text())
    assert stored["resources"]["layout"] == "actors"


def test_successive_halving_stops_trials_that_fall_behind(tmp_path: Path) -> None:
    line = sweep_line(SPACE, *QUICK, "--asha", "--seeds=0,1", "--federation.rounds=8", "--tracking.mlflow=false", "--resources.cpus=2")
    done = subprocess.run(
        [*line, f"--run.dir={tmp_path}", "--run.name=halved"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    trials = json.loads((tmp_path / "halved" / "sweep.json").read_text())["trials"]
    assert len(trials) == 8
    rounds = {status: [trial["round"] for trial in trials if trial["status"] == status] for status in ("finished", "stopped")}
    assert len(rounds["finished"]) + len(rounds["stopped"]) == len(trials)
    assert rounds["finished"]
    assert set(rounds["finished"]) == {8}
    assert rounds["stopped"], "none fell behind"
    assert all(1 <= round < 8 for round in rounds["stopped"])
