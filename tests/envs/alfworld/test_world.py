"""ALFWorld as a world: splits, episodes, rewards, marks, and many environments on one engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from envs.alfworld import TASK_TYPES, AlfWorldDataError
from envs.alfworld.placement import ROOMS
from envs.alfworld.world import AlfWorldWorld, sign
from envs.base import Task, World, WorldSpec, make_world
from envs.prompts import PromptSpec, render
from envs.variants import Variant
from tests.envs.alfworld import rooms


def first(world: AlfWorldWorld, task_type: str = "pick_heat_then_place_in_recep") -> Task:
    return next(task for task in world.tasks("train") if task.category == task_type)


def test_splits_are_disjoint_and_tasks_say_what_they_are(house: AlfWorldWorld) -> None:
    train, heldout = house.tasks("train"), house.tasks("heldout")
    assert len(train) == 24
    assert len(heldout) == 12
    assert not {task.id for task in train} & {task.id for task in heldout}
    assert {task.category for task in train} == set(TASK_TYPES)
    for task in [*train, *heldout]:
        assert task.payload["game"] == task.id
        assert task.instruction.endswith(".")
    assert house.overlap()["heldout_tasks"] == 12
    assert house.overlap()["tasks_in_train_scenes"] <= 6
    with pytest.raises(ValueError, match="train, heldout"):
        house.tasks("test")  # type: ignore[arg-type]


def test_any_stretch_of_tasks_mixes_types(house: AlfWorldWorld) -> None:
    assert len({task.category for task in house.tasks("train")[:8]}) >= 4


def test_the_stored_plan_solves_a_task_with_reward_10(house: AlfWorldWorld) -> None:
    env = house.make()
    for task in house.tasks("heldout"):
        observation, info = env.reset(options={"task": task})
        assert task.instruction in observation
        assert info["task_text"] == task.instruction
        assert info["score"] == 0.0
        assert not info["success"]
        plan = house.oracle(task)
        steps = [env.step(command) for command in plan]
        assert [reward for _, reward, *_ in steps] == [0.0] * (len(plan) - 1) + [10.0]
        assert [terminated for _, _, terminated, _, _ in steps] == [False] * (len(plan) - 1) + [True]
        assert not any(truncated for *_, truncated, _ in steps)
        assert steps[-1][4]["success"]
        assert steps[-1][4]["score"] == 1.0
        assert steps[-1][4]["admissible"] == []


def test_help_is_not_offered_and_works(house: AlfWorldWorld) -> None:
    env = house.make()
    _, info = env.reset(options={"task": first(house)})
    assert "help" not in info["admissible"]
    assert {"look", "inventory", "go to fridge 1"} <= set(info["admissible"])
    assert "Available commands" in env.step("help")[0]


def test_what_cannot_be_done_is_not_applied(house: AlfWorldWorld) -> None:
    env = house.make()
    env.reset(options={"task": first(house)})
    observation, reward, terminated, truncated, info = env.step("dance")
    assert (observation, reward, terminated, truncated) == ("Nothing happens.", 0.0, False, False)
    assert info["applied"] is False
    assert env.step("go to fridge 1")[4]["applied"] is True


def test_an_episode_ends_at_the_step_limit_and_then_needs_a_reset(house: AlfWorldWorld) -> None:
    env = house.make()
    env.reset(options={"task": first(house)})
    ends = [env.step("look")[3] for _ in range(house.max_steps)]
    assert ends == [False] * 23 + [True]
    with pytest.raises(ValueError, match="call reset first"):
        env.step("look")
    with pytest.raises(ValueError, match="needs an ALFWorld task"):
        env.reset(options={})


def test_many_environments_on_one_engine_do_not_disturb_each_other(house: AlfWorldWorld) -> None:
    """Eight interleaved episodes, some of the same game and some in another variant, equal the same episodes one after the other."""
    tasks = house.tasks("train")[:3]
    variants = ("default", "doors:start_open")

    def episode(slot: int) -> tuple[Task, str, random.Random]:
        return tasks[slot % 3], variants[slot % 2], random.Random(slot)

    def run(slots: list[int]) -> dict[int, list[str]]:
        told: dict[int, list[str]] = {}
        running = {}
        for slot in slots:
            task, variant, rng = episode(slot)
            env = house.make(variant)
            observation, info = env.reset(options={"task": task})
            told[slot] = [observation]
            running[slot] = (env, info, rng)
        for _ in range(20):
            for slot, (env, info, rng) in list(running.items()):
                observation, _, terminated, truncated, info = env.step(rng.choice(info["admissible"]))
                told[slot].append(observation)
                running[slot] = (env, info, rng)
                if terminated or truncated:
                    del running[slot]
        return told

    together = run(list(range(8)))
    assert together == {slot: run([slot])[slot] for slot in range(8)}


def test_another_build_of_the_world_gives_the_same(house: AlfWorldWorld, alfworld_cache: Path) -> None:
    spec = WorldSpec(
        "alfworld",
        {"games": 24, "heldout": 12, "task_types": TASK_TYPES, "rooms": ROOMS, "cache_dir": alfworld_cache},
        {"mine": Variant("placement", severity=0.5, stream=9)},
    )
    other = spec.build()
    assert list(other.tasks("train")) == list(house.tasks("train"))
    house.define(spec.variants)
    assert other.probe("mine") == house.probe("mine")
    assert other.probe("mine") != house.probe()
    assert other.oracle(first(house), "mine") == house.oracle(first(house), "mine")


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("default+name", "You are in house {made up}."),
        ("appliance:heat_at_stove+name", "You are in house {made up}."),
        ("appliance:heat_at_stove+cue", "+"),
        ("default+cue", "~"),
        ("appliance:heat_at_stove+hint", "Here things are heated with the stoveburner, not with the microwave."),
        ("default+hint", "Here all is as usual."),
        ("words:swapped@0+hint", "Here all is as usual."),
    ],
)
def test_reveal_adds_its_mark_as_a_last_line_and_nothing_else(house: AlfWorldWorld, text: str, mark: str) -> None:
    variant = house.variant(text)
    shown = sign(variant)
    if "{" in mark:
        assert shown.startswith(mark.partition("{")[0])
        assert shown.endswith(".")
    elif text.endswith("+hint"):
        assert shown == mark
    assert "\n" not in shown
    plain, marked = house.make(text.partition("+")[0]), house.make(text)
    task = first(house)
    (seen, info), (told, other) = plain.reset(options={"task": task}), marked.reset(options={"task": task})
    assert told == f"{seen}\n{shown}"
    assert other == info
    for command in ["go to microwave 1", "dance"]:
        before, after = plain.step(command), marked.step(command)
        assert after[0] == f"{before[0]}\n{shown}"
        assert after[1:] == before[1:]


def test_labels_are_what_a_name_shows() -> None:
    assert sign(Variant("words", "swapped", reveal="name", label="7")) == "You are in house 7."
    assert sign(Variant("words", "swapped")) == ""


def test_a_variant_with_a_typo_is_refused_with_the_nearest_name(house: AlfWorldWorld) -> None:
    with pytest.raises(ValueError, match="did you mean 'appliance'"):
        house.make("aplliance:must_open")
    with pytest.raises(ValueError, match="did you mean 'must_open'"):
        house.make("appliance:must_opne")
    assert "appliance:must_open" in house.variants
    assert "placement" in house.variants


def test_an_unreachable_limit_leaves_the_oracle_without_a_plan(alfworld_cache: Path, engine_packages: None) -> None:
    short = AlfWorldWorld(games=24, heldout=12, task_types=TASK_TYPES, rooms=ROOMS, cache_dir=alfworld_cache, max_steps=2)
    assert {len(short.oracle(task)) for task in short.tasks("train")} == {0}
    assert short.oracle(first(short), "doors:start_open") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heldout_split": "test"}, "both, seen, unseen"),
        ({"task_types": ["pick"]}, "task_types = 'pick': unknown"),
        ({"rooms": ["attic"]}, "kitchen"),
        ({"games": 0}, "at least one train"),
        ({"train_use": 0}, "would have no task"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, object], message: str, alfworld_cache: Path, engine_packages: None
) -> None:
    given = {"games": 24, "heldout": 12, "task_types": TASK_TYPES, "rooms": ROOMS, "cache_dir": alfworld_cache, **options}
    with pytest.raises(ValueError, match=message):
        make_world("alfworld", **given)


def test_prompts_of_the_world_say_where_the_agent_is(house: AlfWorldWorld) -> None:
    task = first(house)
    env = house.make()
    observation, info = env.reset(options={"task": task})
    after, *_, later = env.step("go to fridge 1")
    text = render(PromptSpec(world="alfworld"), task.instruction, [(observation, "go to fridge 1")], after, later["admissible"])
    assert text.startswith("You are an expert agent operating in the ALFRED Embodied Environment.")
    assert f"Your task is to: {task.instruction}" in text
    assert "'open fridge 1'," in text
    assert "go to fridge 1" in info["admissible"]


@pytest.mark.data("alfworld")
def test_public_games_have_their_splits_limits_and_filters(alfworld_data: Path, alfworld_cache: Path, engine_packages: None) -> None:
    world = AlfWorldWorld(alfworld_data, cache_dir=alfworld_cache)
    assert world.max_steps == 50
    assert len(world.tasks("train")) == 3553
    assert len(world.tasks("heldout")) == 274
    looks = AlfWorldWorld(
        alfworld_data, task_types=["look_at_obj_in_light"], heldout_split="unseen", heldout=5, train_use=7, cache_dir=alfworld_cache
    )
    assert {task.category for task in looks.tasks("train")} == {"look_at_obj_in_light"}
    assert [len(looks.tasks("train")), len(looks.tasks("heldout"))] == [7, 5]
    assert {task.payload["scene"] for task in looks.tasks("heldout")} <= {308, 219}
    task = looks.tasks("heldout")[0]
    env = looks.make()
    env.reset(options={"task": task})
    assert [env.step(command)[2] for command in looks.oracle(task)][-1]


@pytest.mark.data("alfworld")
@pytest.mark.parametrize("text", ["appliance:heat_at_stove", "placement", "doors:shut_behind", "words:renamed"])
def test_variants_of_a_public_game_can_be_won(alfworld_data: Path, alfworld_cache: Path, engine_packages: None, text: str) -> None:
    world = AlfWorldWorld(alfworld_data, heldout_split="unseen", task_types=["pick_heat_then_place_in_recep"], cache_dir=alfworld_cache)
    task = world.tasks("heldout")[0]
    plain, changed = world.make().reset(options={"task": task}), world.make(text).reset(options={"task": task})
    assert changed[0] == plain[0]
    assert world.oracle(task, text)


def test_a_folder_that_cannot_be_played_says_why(tmp_path: Path, engine_packages: None) -> None:
    def world(*records: dict[str, object], **options: object) -> World:
        folder = rooms.write(tmp_path / str(len(list(tmp_path.iterdir()))), *records)
        return make_world("alfworld", data_dir=folder, cache_dir=tmp_path / "cache", **options)

    train = rooms.record("a")
    kept = {**rooms.record("b"), "id": "valid_seen/kitchen/b", "split": "valid_seen"}
    assert len(world(train, kept).tasks("heldout")) == 1
    with pytest.raises(ValueError, match=r"heldout = 2: .* has 1 games to hold out \(heldout_split = both\); allowed: 1 to 1"):
        world(train, kept, heldout=2)
    with pytest.raises(ValueError, match=r"split 'train' .*splits with games: valid_seen.*; 1 games are marked as unsolvable"):
        world({**train, "solvable": False}, kept)
    with pytest.raises(AlfWorldDataError, match=r"games\.jsonl: line 2 \(game train/kitchen/c\): its PDDL problem is cut short"):
        world(train, rooms.record("c", pddl_problem=rooms.problem()[:-30]), kept)
