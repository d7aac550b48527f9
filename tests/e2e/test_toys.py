"""The lesson of the lower bound, learned by real runs in about a minute each: one policy serves worlds that are alike or that say which
they are, and none serves two bandits that look the same and pay for opposite arms."""

from __future__ import annotations

from statistics import mean

import pytest

from tests.e2e.runs import Run, Train

pytestmark = pytest.mark.slow

SETTINGS = (
    "--world.name=bandit",
    "--model.adapter=full",
    "--federation.rounds=15",
    "--evaluation.every=0",
    "--evaluation.greedy=false",
)
BEST, FLOOR = 0.75, 0.5
"""What the good arm pays, and the best that one arm can be worth in both worlds of a conflict (delta = 0.5)."""
ERROR = 0.08
"""Three standard errors of a success over 400 tasks."""


def success(run: Run, number: int) -> float:
    """Mean over the clients' worlds, or of the default world where they are alike."""
    found = [r for r in run.of("evaluation") if r["round"] == number]
    worlds = [r["success"] for r in found if r["world"] != "default"]
    return float(mean(worlds or [r["success"] for r in found]))


def test_alike_worlds_are_learned_to_the_best_arms_rate(train: Train) -> None:
    run = train("alike", SETTINGS)
    assert success(run, 0) == pytest.approx(FLOOR, abs=2 * ERROR)
    assert success(run, 15) == pytest.approx(BEST, abs=1.25 * ERROR)


def test_worlds_in_conflict_stay_at_the_floor(train: Train) -> None:
    run = train("conflict", [*SETTINGS, "--world.variant.family=conflict"])
    assert len(set(run.of("start")[0]["plan"]["worlds_per_client"].values())) == 2
    assert success(run, 15) == pytest.approx(FLOOR, abs=ERROR)


def test_worlds_in_conflict_that_say_which_they_are_are_learned(train: Train) -> None:
    run = train("hint", [*SETTINGS, "--world.variant.family=conflict", "--world.variant.reveal=hint"])
    assert success(run, 0) == pytest.approx(FLOOR, abs=ERROR)
    assert success(run, 15) > FLOOR + 1.25 * ERROR
