"""What end-to-end tests share: running the command line as a user does, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]

SMALL = (
    "--federation.clients=3",
    "--federation.clients_per_round=2",
    "--federation.local_epochs=1",
    "--federation.tasks_per_client=20",
    "--algorithm.tasks_per_epoch=4",
    "--algorithm.group_size=4",
    "--evaluation.tasks=20",
    "--evaluation.every=0",
    "--evaluation.greedy=false",
    "--rollout.env_slots=32",
    "--rollout.max_num_seqs=32",
)
"""A federation that takes seconds a round."""


@dataclass(frozen=True)
class Run:
    """A finished run: exit code, what it printed, and its folder."""

    code: int
    output: str
    folder: Path

    @property
    def records(self) -> list[dict[str, Any]]:
        """Everything in ``metrics.jsonl``."""
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Records of one kind."""
        return [record for record in self.records if record["kind"] == kind]


def environment(**more: str) -> dict[str, str]:
    """The environment of a run: nothing of the caller's Ray, tracking or data."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_")) and k not in ("WEBSHOP_DATA", "ALFWORLD_DATA")}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", **more}


def command(*arguments: str) -> list[str]:
    """The command line of a run."""
    return [sys.executable, "-m", "pipeline.run", *arguments]


Train = Callable[..., Run]


def trainer(folder: Path) -> Train:
    """A function that trains in ``folder/<name>`` and checks the exit code."""

    def run(name: str, arguments: Sequence[str] = (), *, expect: int = 0, timeout: float = 400, **env: str) -> Run:
        line = command(f"--run.name={name}", f"--run.dir={folder}", *arguments)
        done = subprocess.run(line, cwd=ROOT, env=environment(**env), capture_output=True, text=True, timeout=timeout, check=False)
        output = done.stdout + done.stderr
        assert done.returncode == expect, output[-4000:]
        return Run(done.returncode, output, folder / name)

    return run


def start(folder: Path, name: str, arguments: Sequence[str] = (), **env: str) -> tuple[subprocess.Popen[str], Run]:
    """A run in the background; its folder may not exist yet. Its output goes to ``folder/<name>.log``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("a") as log:
        process = subprocess.Popen(
            command(f"--run.name={name}", f"--run.dir={folder}", *arguments),
            cwd=ROOT,
            env=environment(**env),
            stdout=log,
            stderr=log,
            text=True,
        )
    return process, Run(0, "", folder / name)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until ``condition`` holds; fails the test after ``seconds``."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds:g} s for {what}"
        time.sleep(0.1)


def descendants(pid: int, name: str = "") -> list[psutil.Process]:
    """Processes below ``pid`` whose command line contains ``name``."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def end(process: subprocess.Popen[str], known: Sequence[psutil.Process] = ()) -> None:
    """Kill a run and all that it started (what is below it now, and ``known`` from before), if it is still there."""
    try:
        below = descendants(process.pid)
    except psutil.NoSuchProcess:
        below = []
    for child in (process, *below, *known):
        try:
            child.kill()
        except (psutil.Error, ProcessLookupError):
            continue
    process.wait(timeout=30)
