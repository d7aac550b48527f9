"""The main job with real Ray, vLLM, DeepSpeed and MLflow: it learns, accounts for what it did, and leaves everything a user looks for."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.e2e.runs import SMALL, Train

pytestmark = pytest.mark.slow


def test_a_short_demo_learns_and_leaves_a_whole_run_folder(train: Train) -> None:
    run = train(
        "learns",
        ["--model.adapter=full", "--federation.rounds=6", "--evaluation.every=0", "--evaluation.greedy=false", "--run.seed=3"],
        timeout=500,
    )
    first, last = run.of("evaluation")
    assert (first["round"], last["round"]) == (0, 6)
    assert first["n"] == last["n"] == 300
    assert last["success_low"] > first["success_high"], "held-out success rises clearly in six rounds"

    rounds = run.of("round")
    assert [r["round"] for r in rounds] == list(range(1, 7))
    assert all(r["episodes"] == 512 and not r["failed"] for r in rounds)
    assert all(r["logprob_gap"] < 1e-4 for r in rounds), "the learner sees the sampler's own log-probabilities"
    clients = run.of("client")
    assert len(clients) == 6 * 4
    assert sum(c["tokens"] for c in clients if c["round"] == 1) == rounds[0]["tokens"]

    report = (run.folder / "report.html").read_text()
    assert "<html" in report
    assert "http://" not in report.replace("http://www.w3.org", "")
    assert (run.folder / "episodes.html").is_file()
    config = json.loads((run.folder / "config.resolved.json").read_text())
    assert config["aggregation"]["rule"] == "full"
    assert config["world"]["max_steps"] == 8

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{run.folder / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "fedagent"]
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [r for r in runs if "mlflow.parentRunId" not in r.data.tags]
    children = [r for r in runs if r.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert {r.info.run_name for r in children} == {f"learns/{c['client']}" for c in clients}
    assert parent.info.status == "FINISHED"
    assert {a.path for a in client.list_artifacts(parent.info.run_id)} >= {"config.resolved.json", "report.html"}


@pytest.mark.parametrize("rule", ["product", "factors", "frozen_a", "merge"])
def test_adapters_train_and_are_averaged(train: Train, rule: str) -> None:
    run = train(
        f"lora-{rule}", [*SMALL, "--federation.rounds=2", "--model.adapter=lora", "--learner.lr=0.005", f"--aggregation.rule={rule}"]
    )
    start, end = (load_file(run.folder / "rounds" / f"000{r}" / "state.safetensors") for r in (1, 2))
    moved = {name: float(np.abs(end[name] - start[name]).max()) for name in end}
    changed = "merged." if rule == "merge" else "lora_B"
    assert any(v > 0 for name, v in moved.items() if changed in name)
    frozen = [v for name, v in moved.items() if "lora_A" in name]
    assert (max(frozen) == 0) is (rule == "frozen_a")
    assert all(r["logprob_gap"] < 1e-3 for r in run.of("round"))
    if rule == "product":
        assert all(0 < r["residual_mean"] < 1 for r in run.of("round"))
    if rule == "merge":
        assert any(name.startswith("merged.") and np.abs(value).max() > 0 for name, value in end.items())


@pytest.mark.parametrize(("mode", "clients"), [("centralized", {"pooled"}), ("local", {"c001"})], ids=["centralized", "local"])
def test_modes_spend_the_same_budget(train: Train, mode: str, clients: set[str]) -> None:
    arguments: Sequence[str] = [*SMALL, "--federation.rounds=1", f"--federation.mode={mode}"]
    if mode == "local":
        arguments = [*arguments, "--federation.local_client=1"]
    run = train(mode, arguments)
    (record,) = run.of("round")
    assert set(record["clients"]) == clients
    # 2 clients a round x 1 local epoch x 4 tasks x 4 episodes.
    assert record["episodes"] == 32


def test_nothing_of_the_episodes_leaves_the_client(train: Train) -> None:
    run = train("private", [*SMALL, "--federation.rounds=1", "--run.save_episodes=all"])
    episodes = [json.loads(line) for path in (run.folder / "episodes").glob("train-*.jsonl") for line in path.read_text().splitlines()]
    assert len(episodes) == 32
    outside = run.output + "".join(
        p.read_text(errors="ignore")
        for p in run.folder.rglob("*")
        if p.is_file() and p.parent.name != "episodes" and p.name not in ("episodes.html",)
    )
    for episode in episodes:
        assert episode["instruction"] not in outside
        for turn in episode["turns"]:
            assert turn["observation"] not in outside
            assert turn["prompt"] not in outside
