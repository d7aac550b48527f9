"""Actors or one process: the same federation, bit for bit, with the deterministic engine."""

from __future__ import annotations

import pytest

from tests.e2e.runs import SMALL, Run, Train

pytestmark = pytest.mark.slow

TOY = (
    *SMALL,
    "--world.name=bandit",
    "--model.adapter=full",
    "--rollout.backend=transformers",
    "--federation.rounds=2",
    "--tracking.mlflow=false",
)


def learned(run: Run) -> list[tuple[object, ...]]:
    return [(r["version"], r["success"], r["loss"]) for r in run.of("round")]


def test_both_layouts_learn_the_same(train: Train) -> None:
    actors = train("actors", TOY)
    process = train("process", [*TOY, "--resources.layout=process"])
    assert learned(process) == learned(actors)
    assert len(learned(process)) == 2
    assert process.output.count("round ") >= 2
