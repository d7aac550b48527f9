"""A world, an algorithm and a rule of one's own in a real run: on Ray's actors, resumed in one process from elsewhere, and evaluated."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.embedded import embedded_path
from pipeline.trial import run_trial
from tests.e2e.runs import ROOT, environment
from tests.plugin_state import OWN_PARTS, THERMOSTAT, forgotten_afterwards

pytestmark = pytest.mark.slow

MODEL = (
    f"--model.name={embedded_path('bandit')}",
    "--model.adapter=full",
    "--rollout.template=plain",
    "--rollout.history=4",
    "--rollout.max_new_tokens=2",
    "--rollout.backend=transformers",
    "--evaluation.greedy=false",
    "--tracking.mlflow=false",
)
OWN = (
    "--world.name=thermostat",
    "--algorithm.name=rloo",
    "--algorithm.options.scale=0.1",
    "--aggregation.rule=trimmed_mean",
    "--learner.lr=2e-3",
    "--learner.mini_batch=4096",
)
SMALL = (
    "--world.variant.family=wiring",
    "--federation.partition.name=neighbours",
    "--federation.clients=4",
    "--federation.local_epochs=1",
    "--federation.tasks_per_client=40",
    "--federation.rounds=1",
    "--evaluation.tasks=20",
    "--evaluation.world_tasks=20",
)


def run(module: str, *words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=cwd,
        env=environment(PYTHONPATH=str(ROOT), COLUMNS="140"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_a_run_of_ones_own_parts(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    for file in (THERMOSTAT, OWN_PARTS):
        shutil.copy(file, project)
    run("pipeline.run", "--plugins", "thermostat,own_parts", *MODEL, *OWN, *SMALL, "--run.name=rooms", cwd=project)
    folder = project / "runs" / "rooms"
    config = json.loads((folder / "config.resolved.json").read_text())
    assert config["run"]["plugins"] == [f"{project}:thermostat", f"{project}:own_parts"]

    run("pipeline.run", "--resume", str(folder), "--federation.rounds=2", "--resources.layout=process", cwd=elsewhere)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rounds = [record for record in records if record["kind"] == "round"]
    assert [record["round"] for record in rounds] == [1, 2]
    assert all(record["n_clients"] == 4 and record["update_norm"] > 0 for record in rounds)
    assert {record["world"] for record in records if record["kind"] == "evaluation"} >= {"wiring:control", "wiring:reversed"}

    shown = run(
        "pipeline.cli", "eval", "--checkpoint", str(folder), "--variant", "wiring:reversed", "--temperature", "1", "--json", cwd=elsewhere
    )
    (measured,) = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert (measured["world"], measured["round"], measured["n"]) == ("wiring:reversed", 2, 20)
    assert measured["success"] > 0


def test_what_is_not_in_the_package_is_learned_too(tmp_path: Path) -> None:
    with forgotten_afterwards():
        words = [*MODEL, *OWN, f"--run.plugins={THERMOSTAT},{OWN_PARTS}", "--resources.layout=process", "--federation.rounds=9"]
        done = run_trial(load_config(None, [*words, "--evaluation.every=0"]), tmp_path / "rooms")
    before, after = (float(str(r["success"])) for r in done.records if r["kind"] == "evaluation")
    assert before < 0.5
    assert after > 0.75
