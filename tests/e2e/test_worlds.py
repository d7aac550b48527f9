"""Heterogeneous federations end to end on real Ray, vLLM and DeepSpeed: WebShop variants with a preference partition, ALFWorld's engine."""

from __future__ import annotations

import json

import pytest

from tests.e2e.runs import SMALL, Train

pytestmark = pytest.mark.slow

LONE = tuple(word for word in SMALL if not word.startswith(("--federation.clients=", "--federation.clients_per_round=")))


def test_shops_that_rank_differently_train_together_and_are_measured_apart(train: Train) -> None:
    run = train(
        "ranks",
        [
            *LONE,
            "--federation.clients=4",
            "--federation.clients_per_round=4",
            "--federation.rounds=1",
            "--federation.partition.preference=0.9",
            "--world.variant.family=rank_wrapper",
            "--world.variant.members=control,invert",
            "--evaluation.worlds=2",
            "--evaluation.world_tasks=10",
            "--evaluation.clients=true",
            "--run.save_episodes=all",
        ],
    )
    plan = run.of("start")[0]["plan"]
    homes = plan["worlds_per_client"]
    assert sorted(homes.values()) == ["rank_wrapper:control"] * 2 + ["rank_wrapper:invert"] * 2
    assert {r["client"] for r in plan["proof"]["reach"]} == set(homes)
    for client, world in homes.items():
        lines = (run.folder / "episodes" / f"train-{client}.jsonl").read_text().splitlines()
        assert {json.loads(line)["variant"] for line in lines} == {world}
    measured = {(e["client"], e["world"]) for e in run.of("evaluation") if e["round"] == 1}
    worlds = {"default", *homes.values()}
    assert measured == {(client, world) for client in (None, *homes) for world in worlds}
    report = (run.folder / "report.html").read_text()
    assert "rank_wrapper:invert" in report
    assert "worst world" in report


def test_households_whose_appliances_differ_train_together(train: Train) -> None:
    run = train(
        "homes",
        [*SMALL, "--world.name=alfworld", "--federation.rounds=1", "--world.variant.family=appliance", "--evaluation.world_tasks=10"],
    )
    (record,) = run.of("round")
    assert record["episodes"] == 32
    assert not record["failed"]
    assert record["logprob_gap"] < 1e-3
    assert len(set(run.of("start")[0]["plan"]["worlds_per_client"].values())) > 1
