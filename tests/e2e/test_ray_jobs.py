"""Ray as users run it: a cluster with token authentication, ``ray job submit``, logs, exit codes, ``ray job stop``."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.e2e.runs import ROOT, SMALL, environment, wait_for

pytestmark = pytest.mark.slow


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass(frozen=True)
class Head:
    """A running head node."""

    dashboard: str
    gcs: str
    env: dict[str, str]

    def ray(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the ``ray`` command against this cluster."""
        line = [str(Path(sys.executable).parent / "ray"), *arguments]
        return subprocess.run(line, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=timeout, check=False)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    folder = tmp_path_factory.mktemp("ray")
    port, dashboard, agent, metrics = (free_port() for _ in range(4))
    token = folder / "token"
    env = environment(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_TMPDIR=f"/tmp/ray-fa-{os.getpid()}")
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    token.write_text("a" * 64)
    before = set(psutil.pids())
    result = Head(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{port}", env)
    try:
        started = result.ray(
            "start", "--head", "--num-cpus=2", f"--port={port}", "--include-dashboard=true", f"--dashboard-port={dashboard}",
            f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}",
            "--node-ip-address=127.0.0.1", "--object-store-memory=500000000", "--disable-usage-stats",
        )  # fmt: skip
        assert started.returncode == 0, started.stdout + started.stderr
        # The job agent comes up a moment after the head does.
        hello = ("job", "submit", "--address", result.dashboard, "--", "echo", "hello")
        wait_for(lambda: result.ray(*hello).returncode == 0, 120, "the job agent to start")
        yield result
    finally:
        stop(env["RAY_TMPDIR"], before)


def stop(folder: str, before: set[int]) -> None:
    """End the cluster whose files are in ``folder``: by its own processes, so that another cluster on this machine is left alone."""
    mine = [p for p in psutil.process_iter(["pid", "cmdline"]) if p.pid not in before and folder in " ".join(p.info["cmdline"] or [])]
    below = [child for process in mine for child in process.children(recursive=True)]
    for process in (*mine, *below):
        try:
            process.kill()
        except psutil.Error:
            continue
    shutil.rmtree(folder, ignore_errors=True)


def submit(head: Head, name: str, folder: Path, *arguments: str, wait: bool = True) -> subprocess.CompletedProcess[str]:
    """Submit a run as a job."""
    options = ["--submission-id", name, *([] if wait else ["--no-wait"])]
    run = [sys.executable, "-m", "pipeline.run", f"--run.name={name}", f"--run.dir={folder}", *arguments]
    return head.ray("job", "submit", "--address", head.dashboard, *options, "--", *run)


def test_a_job_trains_and_its_logs_and_exit_code_come_back(head: Head, tmp_path: Path) -> None:
    done = submit(head, "fine", tmp_path, *SMALL, "--federation.rounds=1", "--tracking.mlflow=false")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "round 1/1" in done.stdout
    assert "succeeded" in (done.stdout + done.stderr).lower()
    assert (tmp_path / "fine" / "report.html").is_file()


def test_a_refused_configuration_fails_the_job_with_its_message(head: Head, tmp_path: Path) -> None:
    done = submit(head, "wrong", tmp_path, "--federation.roudns=3")
    assert done.returncode != 0
    assert "federation.rounds" in done.stdout + done.stderr


def test_a_plan_that_does_not_fit_fails_in_seconds(head: Head, tmp_path: Path) -> None:
    done = submit(head, "large", tmp_path, *SMALL, "--federation.rounds=1", "--learner.workers=9", "--learner.mini_batch=90")
    assert done.returncode != 0
    assert "the plan needs" in done.stdout + done.stderr


def test_a_stopped_job_leaves_no_process_and_a_resumable_run(head: Head, tmp_path: Path) -> None:
    submit(head, "halted", tmp_path, *SMALL, "--federation.rounds=100", "--tracking.mlflow=false", wait=False)
    log = tmp_path / "halted" / "metrics.jsonl"
    wait_for(lambda: log.is_file() and '"kind": "round"' in log.read_text(), 180, "the first round of the job")
    assert actors_of(head)
    head.ray("job", "stop", "--address", head.dashboard, "halted")
    wait_for(lambda: not actors_of(head), 60, "the job's actors to end")
    assert list((tmp_path / "halted" / "rounds").glob("0*/manifest.json"))
    nodes = head.ray("status", "--address", head.gcs)
    assert nodes.returncode == 0, "the cluster that the job joined is still up"


def actors_of(head: Head) -> list[str]:
    """Command lines of this project's actor processes in the cluster."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if line.startswith(("ray::RolloutActor", "ray::LearnerActor", "ray::EnvironmentActor")):
            try:
                above = [" ".join(parent.cmdline()) for parent in process.parents()]
            except psutil.Error:
                continue
            if any(head.env["RAY_TMPDIR"] in text for text in above):
                found.append(line)
    return found
