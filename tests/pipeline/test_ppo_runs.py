"""Whole PPO runs in one process: critics that are shared and critics that are kept, cut in the middle and resumed, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from pipeline.config.load import load_config
from pipeline.trial import Kept, TrialResult, run_trial

pytestmark = pytest.mark.slow

SMALL = (
    "--resources.layout=process",
    "--rollout.backend=transformers",
    "--world.name=bandit",
    "--tracking.mlflow=false",
    "--algorithm.name=ppo",
    "--algorithm.tasks_per_epoch=16",
    "--federation.clients=3",
    "--federation.clients_per_round=2",
    "--federation.rounds=4",
    "--evaluation.every=2",
    "--evaluation.tasks=20",
    "--evaluation.greedy=false",
)

CASES: Mapping[str, tuple[str, ...]] = {
    "shared": ("--model.adapter=full", "--learner.optimizer_state=average"),
    "kept": ("--model.adapter=full", "--critic.federate=false"),
    "kept with moments": ("--model.adapter=full", "--critic.federate=false", "--learner.optimizer_state=keep"),
    "adapters": ("--learner.optimizer_state=keep", "--aggregation.rule=merge", "--critic.warmup_rounds=1"),
}


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    parts = Kept()
    yield parts
    parts.close()


def learned(result: TrialResult) -> list[tuple[object, ...]]:
    """What a run learned, without times."""
    rounds = [r for r in result.records if r["kind"] == "round"]
    return [(r["round"], r["version"], r.get("loss"), r["value_loss"], r["explained_variance"], r["success"]) for r in rounds]


@pytest.mark.parametrize("case", CASES)
def test_four_rounds_are_two_and_two(case: str, kept: Kept, tmp_path: Path) -> None:
    whole = run_trial(load_config(None, [*SMALL, *CASES[case]]), tmp_path / "whole", kept=kept)
    run_trial(load_config(None, [*SMALL, *CASES[case], "--federation.rounds=2"]), tmp_path / "cut", kept=kept)
    resumed = run_trial(load_config(None, [*SMALL, *CASES[case]]), tmp_path / "cut", kept=kept, resume=True)
    assert len(learned(whole)) == 4
    assert learned(resumed) == learned(whole)
    assert whole.records[-1]["status"] == "finished"

    last = whole.folder / "rounds" / "0004"
    state = load_file(last / "state.safetensors")
    shared = case in ("shared", "adapters")
    assert any(name.startswith("critic.") for name in state) is shared
    clients = [load_file(path) for path in sorted((last / "clients").glob("*"))] if (last / "clients").exists() else []
    assert bool(clients) is (case != "shared")
    assert all(any(name.startswith("kept/") for name in found) is not shared for found in clients)
    if case == "shared":
        average = load_file(last / "average.safetensors")
        assert {"step", "critic_step"} <= average.keys()
        assert any(name.startswith("exp_avg/critic.") for name in average)


def test_sharing_the_critic_matters(kept: Kept, tmp_path: Path) -> None:
    found = [run_trial(load_config(None, [*SMALL, *CASES[case][:2]]), tmp_path / case, kept=kept).records for case in ("shared", "kept")]
    errors = [[r["value_loss"] for r in records if r["kind"] == "round"] for records in found]
    assert errors[0] != errors[1]
