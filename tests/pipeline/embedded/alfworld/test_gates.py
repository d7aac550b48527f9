"""The gates of the ALFWorld model, measured on hand-made policies."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from envs.alfworld import AlfWorld
from pipeline.embedded.alfworld.gates import STOVE, Gates, Measured, check, command, decisions, measure, play
from pipeline.embedded.gates import GateError

GOOD = Measured(
    success=0.6,
    greedy_success=0.9,
    inadmissible=0.1,
    greedy_inadmissible=0.05,
    demonstrated=0.6,
    stove=0.5,
    games=300,
    decisions={"take": 1.0, "bring": 0.95},
)


def looks(prompts: Sequence[str], temperature: float) -> list[str]:
    return ["look<stop>"] * len(prompts)


def first_place(prompts: Sequence[str], temperature: float) -> list[str]:
    """Always to the first place that was not looked into."""
    lines = [dict(line.partition(": ")[::2] for line in prompt.splitlines()) for prompt in prompts]
    return [f"go to {line['Left'].split(', ')[0]}<stop>" for line in lines]


def test_a_policy_that_does_nothing_wins_nothing_and_wastes_nothing(houses: AlfWorld) -> None:
    outcome = play(looks, houses, houses.games("train")[:12], 1.0, 5)
    assert (outcome.success, outcome.inadmissible, outcome.turns) == (0.0, 0.0, 5.0)
    assert set(outcome.by_type.values()) == {0.0}
    with pytest.raises(ValueError, match="no games"):
        play(looks, houses, [], 1.0, 5)


def test_a_plan_wins_and_nonsense_is_counted(houses: AlfWorld) -> None:
    game = houses.games("train")[0]
    plan = iter(houses.info(game).walkthrough)
    won = play(lambda prompts, _: [f"{next(plan)}<stop>"], houses, [game], 1.0, 24)
    assert (won.success, won.inadmissible, won.turns) == (1.0, 0.0, float(len(houses.info(game).walkthrough)))
    nonsense = play(lambda prompts, _: ["fly to moon 1<stop>"], houses, [game], 1.0, 4)
    assert nonsense.inadmissible == 1.0


def test_a_game_is_played_in_the_world_that_is_asked_for(houses: AlfWorld) -> None:
    game = next(g for g in houses.games("train") if houses.info(g).task_type == "pick_heat_then_place_in_recep")
    plan = list(houses.info(game).walkthrough)

    def follow(world: str) -> float:
        left = iter(plan)
        return play(lambda prompts, _: [f"{next(left)}<stop>"], houses, [game], 1.0, len(plan), world).success

    assert (follow(""), follow(STOVE)) == (1.0, 0.0)


def test_decisions_are_counted_by_kind(houses: AlfWorld) -> None:
    shares = decisions(first_place, houses, houses.games("train")[::3], 24)
    assert shares["take"] == shares["treat"] == 0.0
    assert shares["search"] > 0.4
    assert set(decisions(looks, houses, houses.games("train")[:4], 24).values()) == {0.0}


def test_everything_is_measured_and_written_with_four_digits(houses: AlfWorld) -> None:
    games = houses.games("train")[::3]
    rng = random.Random(0)
    measured = measure(lambda prompts, _: [rng.choice(["look", "inventory"]) for _ in prompts], houses, games, games, 3)
    assert measured.games == 12
    assert measured.success == measured.stove == 0.0
    assert set(measured.as_dict()) >= {"success", "stove", "demonstrated", "decisions", "by_type"}
    assert replace(GOOD, success=0.123456).as_dict()["success"] == 0.1235


def test_a_measurement_within_the_gates_passes() -> None:
    check(GOOD, Gates())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"success": 0.1}, r"success at temperature 1 is 10.0%, accepted"),
        ({"success": 0.99}, r"success at temperature 1 is 99.0%"),
        ({"greedy_success": 0.5}, r"greedy success: 50.0%, at least"),
        ({"stove": 0.05}, r"success where the stove heats: 5.0%"),
        ({"inadmissible": 0.5}, r"inadmissible commands at temperature 1: 50.0%, at most"),
        ({"decisions": {"take": 0.5, "bring": 1.0}}, r"right greedy decisions to take: 50.0%"),
        ({"decisions": {"take": 1.0, "bring": 0.1}}, r"right greedy decisions to bring: 10.0%"),
        ({"success": 0.0, "decisions": {}}, r"misses 2 gate\(s\) on 300 held-out games"),
        ({"greedy_success": float("nan")}, r"greedy success"),
    ],
)
def test_every_missed_gate_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(GateError, match=message):
        check(replace(GOOD, **change), Gates())  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "expected"), [("go to bed 1<stop>", "go to bed 1"), ("look", "look"), ("<stop>", "")])
def test_an_answer_ends_at_the_stop_token(answer: str, expected: str) -> None:
    assert command(answer) == expected
