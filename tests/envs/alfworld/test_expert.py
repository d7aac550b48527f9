"""The player that sees only the text wins every generated game; it reads tasks of all forms."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest

from envs.alfworld.expert import UNSURE, USUAL, SearchingExpert, Wish, read_task
from envs.alfworld.world import AlfWorldWorld
from envs.base import Task


def played(world: AlfWorldWorld, task: Task, expert: SearchingExpert, variant: str = "default") -> tuple[bool, list[str]]:
    env = world.make(variant)
    observation, _ = env.reset(options={"task": task})
    expert.reset(observation)
    commands, over, info = [], False, {}
    while not over:
        commands.append(expert.act())
        observation, _, terminated, truncated, info = env.step(commands[-1])
        expert.observe(commands[-1], observation)
        over = terminated or truncated
    return bool(info["success"]), commands


def everything(world: AlfWorldWorld) -> list[Task]:
    return [*world.tasks("train"), *world.tasks("heldout")]


@pytest.mark.parametrize("appliances", [USUAL, UNSURE])
def test_it_wins_every_generated_game_within_the_step_limit(house: AlfWorldWorld, appliances: Mapping[str, Sequence[str]]) -> None:
    expert = SearchingExpert(appliances, random.Random(0))
    for task in everything(house):
        won, commands = played(house, task, expert)
        assert won, (task.id, commands)


@pytest.mark.parametrize(
    "variant",
    ["appliance:heat_at_stove", "appliance:cool_at_sink", "appliance:must_open", "words:swapped", "feedback:silent_arrival", "placement"],
)
def test_it_finds_out_what_is_different(house: AlfWorldWorld, variant: str) -> None:
    """Without being told, where a few tries suffice."""
    expert = SearchingExpert({**UNSURE, "heat": ("microwave", "stoveburner")} if variant.startswith("appliance") else USUAL)
    for task in everything(house):
        if variant == "placement" or "then_place" in task.category:
            won, commands = played(house, task, expert, variant)
            assert won, (task.id, commands)


def test_it_goes_on_after_commands_of_somebody_else(house: AlfWorldWorld) -> None:
    """Six random commands first; a wrong thing in hand is put down."""
    rng = random.Random(1)
    won = 0
    for task in everything(house):
        play = house.alfworld.engine().play(task.id)
        expert = SearchingExpert()
        expert.reset(play.observation)
        for step in range(60):
            command = rng.choice(play.admissible) if step < 6 else expert.act()
            observation, _, done, _ = play.step(command)
            expert.observe(command, observation)
            if done:
                won += 1
                break
    assert won == len(everything(house))


def test_the_same_rng_gives_the_same_play(house: AlfWorldWorld) -> None:
    task = next(task for task in everything(house) if task.category == "pick_heat_then_place_in_recep")
    plays = [played(house, task, SearchingExpert(UNSURE, random.Random(seed)))[1] for seed in (1, 1, 2, 3, 4, 5)]
    assert plays[0] == plays[1]
    assert len({tuple(commands) for commands in plays}) == 2


@pytest.mark.parametrize(
    ("sentence", "wish"),
    [
        ("put a mug in shelf.", Wish("mug", "shelf")),
        ("put some mug on shelf.", Wish("mug", "shelf")),
        ("put a clean mug in shelf.", Wish("mug", "shelf", "clean")),
        ("clean some mug and put it in shelf.", Wish("mug", "shelf", "clean")),
        ("put a hot mug in shelf.", Wish("mug", "shelf", "heat")),
        ("heat some mug and put it in shelf.", Wish("mug", "shelf", "heat")),
        ("put a cool mug in shelf.", Wish("mug", "shelf", "cool")),
        ("cool some mug and put it in shelf.", Wish("mug", "shelf", "cool")),
        ("put two mug in shelf.", Wish("mug", "shelf", count=2)),
        ("find two mug and put them in shelf.", Wish("mug", "shelf", count=2)),
        ("look at mug under the desklamp.", Wish("mug", "desklamp", look=True)),
        ("examine the mug with the desklamp.", Wish("mug", "desklamp", look=True)),
    ],
)
def test_it_reads_tasks_of_all_forms(sentence: str, wish: Wish) -> None:
    assert read_task(sentence) == wish


def test_what_it_cannot_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="wash the dog"):
        read_task("wash the dog")
    with pytest.raises(ValueError, match="no task or no room"):
        SearchingExpert().reset("Hello")
