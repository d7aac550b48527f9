"""The scripted housekeeper: it wins every game from its notebook, and is clumsy only where it may be."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from envs.alfworld import AlfWorld
from envs.alfworld.expert import read_task
from envs.alfworld.variants import dynamics
from envs.memory import Memory, recall
from envs.variants import Variant
from pipeline.embedded.alfworld.housekeeper import Skill, clumsy_action, right_action

PUT = read_task("put a apple in fridge.")
HEAT = read_task("put a hot apple in fridge.")
TWO = read_task("put two apple in fridge.")
LOOK = read_task("look at apple under the desklamp.")


def decide(wish: object, memory: Memory, seed: int = 0) -> tuple[str, str]:
    return right_action(wish, memory, Skill(), random.Random(seed))  # type: ignore[arg-type]


def notebook(**more: object) -> Memory:
    return Memory(left=["cabinet 1", "microwave 1", "stoveburner 1"], done=["fridge 1", "countertop 1"], here="countertop 1", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wish", "memory", "decision", "action"),
    [
        (PUT, notebook(), "search", "go to cabinet 1"),
        (PUT, notebook(noted={"apple 1": "countertop 1"}), "take", "take apple 1 from countertop 1"),
        (PUT, notebook(noted={"apple 1": "countertop 1"}, closed=True), "open", "open countertop 1"),
        (PUT, notebook(noted={"apple 1": "cabinet 1"}), "search", "go to cabinet 1"),
        (PUT, notebook(noted={"apple 1": "fridge 1"}), "search", "go to cabinet 1"),
        (PUT, notebook(held=["knife 1"]), "put", "move knife 1 to countertop 1"),
        (PUT, notebook(held=["apple 2"]), "bring", "go to fridge 1"),
        (PUT, notebook(held=["knife 1", "apple 2"]), "bring", "go to fridge 1"),
        (HEAT, notebook(noted={"apple 1": "fridge 1"}), "search", "go to fridge 1"),
        (HEAT, notebook(held=["apple 1"], marks={"apple 1": ["hot"]}), "bring", "go to fridge 1"),
        (HEAT, notebook(held=["apple 1"], failed=["heat apple 1 with microwave 1"]), "bring", "go to stoveburner 1"),
        (TWO, notebook(noted={"apple 1": "fridge 1", "apple 2": "countertop 1"}), "take", "take apple 2 from countertop 1"),
        (LOOK, notebook(held=["apple 1"], noted={"desklamp 1": "countertop 1"}), "lamp", "use desklamp 1"),
        (LOOK, notebook(held=["apple 1"], noted={"desklamp 1": "cabinet 1"}), "bring", "go to cabinet 1"),
        (LOOK, notebook(held=["apple 1"]), "search", "go to cabinet 1"),
    ],
)
def test_what_is_right_follows_from_the_notebook(wish: object, memory: Memory, decision: str, action: str) -> None:
    assert decide(wish, memory) == (decision, action)


def test_a_goal_or_a_closed_place_is_dealt_with_where_one_stands() -> None:
    at_fridge = Memory(left=["cabinet 1"], done=["fridge 1"], here="fridge 1", held=["apple 1"], closed=True)
    assert decide(PUT, at_fridge) == ("open", "open fridge 1")
    at_fridge.closed = False
    assert decide(PUT, at_fridge) == ("put", "move apple 1 to fridge 1")
    closed = Memory(left=["cabinet 1", "fridge 1"], here="cabinet 1", closed=True)
    assert decide(PUT, closed) == ("open", "open cabinet 1")
    silent = Memory(left=["countertop 1"], done=["fridge 1"], here="countertop 1")
    assert decide(PUT, silent) == ("open", "examine countertop 1")


def test_it_is_unsure_where_things_are_heated_and_tries_both() -> None:
    tries = Counter(decide(HEAT, notebook(held=["apple 1"]), seed)[1] for seed in range(400))
    assert set(tries) == {"go to microwave 1", "go to stoveburner 1"}
    assert 150 < tries["go to microwave 1"] < 250


def play(world: AlfWorld, game: str, variant: str = "default", most: int = 40) -> int:
    """Commands until the right housekeeper wins; 0 when it does not."""
    play = world.engine(dynamics(Variant.parse(variant))).play(game)
    task, history = world.info(game).task, list[tuple[str, str]]()
    rng = random.Random(game)
    for _ in range(most):
        _, action = right_action(read_task(task), recall(task, history, play.observation), Skill(), rng)
        history.append((play.observation, action))
        if play.step(action)[2]:
            return len(history)
    return 0


def test_it_wins_every_game_in_few_commands(houses: AlfWorld) -> None:
    lengths = [play(houses, game) for game in houses.games("train")]
    assert min(lengths) > 0
    assert sum(lengths) / len(lengths) < 12


@pytest.mark.parametrize(
    "variant",
    [
        "appliance:heat_at_stove",
        "appliance:cool_at_sink",
        "appliance:must_open",
        "doors:shut_behind",
        "doors:start_open",
        "feedback:silent_arrival",
    ],
)
def test_it_wins_in_worlds_that_differ_without_being_told(houses: AlfWorld, variant: str) -> None:
    assert all(play(houses, game, variant) for game in houses.games("train"))


def test_clumsiness_spares_taking_and_is_as_frequent_as_asked() -> None:
    rng = random.Random(0)
    offered = ["go to cabinet 1", "open cabinet 1", "look", "examine fridge 1", "inventory"]
    in_view = notebook(noted={"apple 1": "countertop 1"})
    taken = {clumsy_action(PUT, in_view, offered, Skill(stray=1.0), rng)[1] for _ in range(50)}
    assert taken == {"take apple 1 from countertop 1"}
    fumbled = Counter(clumsy_action(PUT, notebook(held=["apple 1"]), offered, Skill(fumble=0.4), rng)[1] for _ in range(2000))
    assert set(fumbled) == {"go to fridge 1", "go to cabinet 1", "open cabinet 1"}
    assert fumbled["go to fridge 1"] / 2000 == pytest.approx(0.6, abs=0.04)
    searched = [clumsy_action(PUT, notebook(), ["open fridge 1"], Skill(stray=0.2), rng)[1] for _ in range(2000)]
    assert searched.count("open fridge 1") / 2000 == pytest.approx(0.2, abs=0.03)
