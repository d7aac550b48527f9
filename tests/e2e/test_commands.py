"""The other commands as a user types them: dry run, doctor, eval, view, report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT, SMALL, Train, command, environment


def fedagent(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the ``fedagent`` command."""
    line = [sys.executable, "-m", "pipeline.cli", *arguments]
    return subprocess.run(line, cwd=ROOT, env=environment(COLUMNS="140"), capture_output=True, text=True, timeout=400, check=False)


def test_a_dry_run_prints_the_plan_and_leaves_nothing(tmp_path: Path) -> None:
    line = command(*SMALL, "--dry-run", f"--run.dir={tmp_path / 'runs'}", "--federation.rounds=3")
    done = subprocess.run(line, cwd=ROOT, env=environment(COLUMNS="140"), capture_output=True, text=True, timeout=120, check=True)
    for words in ("federated: 3 clients, 2 per round, 3 rounds", "32 episodes, about", "3 adapter slots", "rollout", "learner", "c002"):
        assert words in done.stdout, words
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_doctor_finds_a_working_installation() -> None:
    done = fedagent("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no problems" in done.stdout
    for check in ("engine = learner", "deepspeed step", "ray job server", "WEBSHOP_DATA"):
        assert check in done.stdout


@pytest.mark.slow
def test_a_finished_run_is_evaluated_viewed_and_reported_again(train: Train, tmp_path: Path) -> None:
    run = train("looked-at", [*SMALL, "--federation.rounds=1", "--model.adapter=full", "--tracking.mlflow=false"])
    done = fedagent("eval", "--checkpoint", str(run.folder), "--tasks", "12", "--json")
    assert done.returncode == 0, done.stderr[-2000:]
    sampled, greedy = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (sampled["mode"], greedy["mode"]) == ("sampled", "greedy")
    assert sampled["n"] == greedy["n"] == 12
    assert sampled["version"] == run.of("round")[0]["version"]

    page = tmp_path / "page.html"
    assert fedagent("view", str(run.folder), "--out", str(page)).returncode == 0
    assert "turn" in page.read_text()
    (run.folder / "report.html").unlink()
    assert fedagent("report", str(run.folder)).returncode == 0
    assert (run.folder / "report.html").is_file()
