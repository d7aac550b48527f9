"""What a run survives: killed learners and environments, a killed driver, a stop signal; and that resuming changes nothing."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from pipeline.checkpoint import latest
from tests.e2e.runs import SMALL, Run, Train, descendants, end, start, wait_for

pytestmark = pytest.mark.slow


def rounds_done(run: Run) -> int:
    """Rounds that the run log records as finished."""
    path = run.folder / "metrics.jsonl"
    if not path.is_file():
        return 0
    return sum(line.startswith('{"kind": "round"') for line in path.read_text().splitlines())


def test_killed_workers_cost_an_attempt_not_the_run(tmp_path: Path) -> None:
    process, run = start(tmp_path, "killed", [*SMALL, "--federation.rounds=12", "--tracking.mlflow=false"])
    try:
        wait_for(lambda: rounds_done(run) >= 1 or process.poll() is not None, 180, "the first round")
        for role in ("LearnerActor", "EnvironmentActor", "RolloutActor"):
            victims = descendants(process.pid, role)
            assert victims, f"no {role} process below the run"
            victims[0].kill()
            seen = rounds_done(run)
            wait_for(lambda: rounds_done(run) > seen or process.poll() is not None, 120, f"a round after the {role} was killed")  # noqa: B023
        assert process.wait(timeout=240) == 0, (tmp_path / "killed.log").read_text()[-3000:]
    finally:
        end(process)
    assert [r["round"] for r in run.of("round")] == list(range(1, 13))
    assert all(r["episodes"] == 32 and not r["failed"] for r in run.of("round")), "whoever lost a worker succeeded at the second attempt"


def test_a_killed_driver_resumes_where_the_last_whole_round_ended(tmp_path: Path, train: Train) -> None:
    options = [*SMALL, "--federation.rounds=4", "--tracking.mlflow=false"]
    process, run = start(tmp_path / "runs", "kill9", options)
    children: list[psutil.Process] = []
    try:
        wait_for(lambda: rounds_done(run) >= 2 or process.poll() is not None, 180, "the second round")
        children = descendants(process.pid)
        process.kill()
        process.wait(timeout=30)
        # Ray's two agents outlive a killed raylet for a while; everything that is ours, or holds memory, must be gone.
        ours = [child for child in children if "Agent" not in child.name()]
        _, alive = psutil.wait_procs(ours, timeout=60)
        assert not alive, f"left behind: {[p.name() for p in alive]}"
    finally:
        end(process, children)
    kept = latest(run.folder)
    assert kept is not None
    resumed = train("unused", ["--resume", str(run.folder)])
    records = run.records
    starts = [r for r in records if r["kind"] == "start"]
    assert [s["resumed_from"] for s in starts] == [None, kept.round]
    after = [r for r in records[records.index(starts[1]) :] if r["kind"] == "round"]
    assert [r["round"] for r in after] == list(range(kept.round + 1, 5))
    assert f"finished: {run.folder}" in resumed.output

    whole = train("whole", options)
    schedule = {r["round"]: r["clients"] for r in whole.of("round")}
    assert all(r["clients"] == schedule[r["round"]] for r in run.of("round"))


def test_four_rounds_equal_two_and_two_to_the_bit(train: Train) -> None:
    options = [*SMALL, "--rollout.backend=transformers", "--tracking.mlflow=false", "--model.adapter=lora", "--learner.lr=0.005"]
    options += ["--learner.optimizer_state=keep"]
    whole = train("whole", [*options, "--federation.rounds=4"])
    half = train("half", [*options, "--federation.rounds=2"])
    train("unused", ["--resume", str(half.folder), "--federation.rounds=4"])
    for round in (2, 3, 4):
        place = Path("rounds") / f"{round:04d}" / "state.safetensors"
        a, b = load_file(whole.folder / place), load_file(half.folder / place)
        assert a.keys() == b.keys()
        assert all(np.array_equal(a[k], b[k]) for k in a), f"round {round} differs"
    first = {r["round"]: r["success"] for r in whole.of("round")}
    assert {r["round"]: r["success"] for r in half.of("round")} == first


def test_another_configuration_is_not_resumed(train: Train) -> None:
    run = train("mine", [*SMALL, "--federation.rounds=1", "--tracking.mlflow=false"])
    refused = train("unused", ["--resume", str(run.folder), "--learner.lr=0.5"], expect=9)
    assert "training configuration" in refused.output
    assert [r["kind"] for r in run.records].count("start") == 1, "a refused resume leaves the log as it was"


def test_sigterm_stops_cleanly_and_leaves_a_resumable_run(tmp_path: Path) -> None:
    process, run = start(tmp_path, "term", [*SMALL, "--federation.rounds=50"])
    try:
        wait_for(lambda: rounds_done(run) >= 1 or process.poll() is not None, 180, "the first round")
        children = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=90) == 130
        _, alive = psutil.wait_procs(children, timeout=30)
        assert not alive
    finally:
        end(process)
    assert run.records[-1]["kind"] == "end"
    assert run.records[-1]["status"] == "stopped"
    assert "--resume" in (tmp_path / "term.log").read_text()
    assert latest(run.folder) is not None
    assert json.loads((run.folder / "config.resolved.json").read_text())["federation"]["rounds"] == 50
