"""A short run in one process: how far its clients drift apart stands in the log, in MLflow and in the report."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.trial import run_trial

DRIFT = ("drift_cosine", "drift_norm", "drift_ratio", "policy_divergence", "policy_shift")

SMALL = (
    "--resources.layout=process",
    "--rollout.backend=transformers",
    "--world.name=bandit",
    "--model.adapter=full",
    "--federation.clients=3",
    "--federation.clients_per_round=3",
    "--federation.rounds=2",
    "--federation.local_epochs=1",
    "--evaluation.every=0",
    "--evaluation.tasks=20",
    "--evaluation.greedy=false",
)


@pytest.mark.slow
def test_drift_is_recorded_tracked_and_reported(tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    result = run_trial(load_config(None, [*SMALL, "--run.name=drift"]), tmp_path / "run")
    rounds = [record for record in result.records if record["kind"] == "round"]
    assert len(rounds) == 2
    for record in rounds:
        assert {*DRIFT, "clip_fraction"} <= record.keys()
        assert -0.5 <= record["drift_cosine"] <= 1
        assert 0 < record["drift_norm"]
        # Uniform weights: |mean|^2 <= mean |d|^2, and far from it where clients disagree.
        assert record["drift_ratio"] == pytest.approx(record["update_norm"] / record["drift_norm"])
        assert 0 <= record["policy_divergence"] <= math.log(3)
        assert 0 < record["policy_shift"]
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name != "Default"]
    (run,) = client.search_runs([experiment.experiment_id], filter_string="attributes.run_name = 'drift'")
    tracked = {name.rsplit("/", 1)[-1]: value for name, value in run.data.metrics.items()}
    assert {name: tracked[name] for name in DRIFT} == pytest.approx({name: rounds[-1][name] for name in DRIFT})
    page = (tmp_path / "run" / "report.html").read_text()
    assert "policies apart" in page
    assert "Agreement of clients" in page


@pytest.mark.slow
def test_without_probe_prompts_only_the_drift_of_parameters_is_recorded(tmp_path: Path) -> None:
    result = run_trial(load_config(None, [*SMALL, "--tracking.mlflow=false", "--evaluation.probe_prompts=0"]), tmp_path / "run")
    for record in (record for record in result.records if record["kind"] == "round"):
        assert "drift_cosine" in record
        assert "policy_divergence" not in record
