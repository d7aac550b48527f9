"""Generated games: all task types, provably solvable, never solved already, the same everywhere."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envs.alfworld import TASK_TYPES, AlfWorld
from envs.alfworld.generate import GAMES_FILE, GenerationError, Settings, ensure_generated, prove, records, wins, write
from envs.alfworld.oracle import plans
from envs.alfworld.placement import ROOMS, placement
from envs.alfworld.problem import goal_of, read_facts, shown_names, with_facts
from envs.alfworld.scenes import FIRST_SCENE, SUITS, feasible, make_record, make_scene, room_kind
from envs.alfworld.world import AlfWorldWorld
from tests.conftest import ROOT
from tests.envs.alfworld.unmodified import Unmodified

ALL = Settings(games=24, seen=6, unseen=6, rooms=ROOMS, task_types=TASK_TYPES)


@pytest.fixture(scope="session")
def generated(house: AlfWorldWorld) -> AlfWorld:
    return house.alfworld


def test_every_generated_game_is_won_by_its_stored_plan_at_its_last_command(generated: AlfWorld) -> None:
    engine = generated.engine()
    seen: Counter[str] = Counter()
    for split in generated.splits:
        for info in generated.infos(split):
            seen[info.task_type] += 1
            assert wins(engine, info.id, info.walkthrough), info.id
    assert generated.splits == ("train", "valid_seen", "valid_unseen")
    assert seen == dict.fromkeys(TASK_TYPES, 6)


def test_a_plan_proves_nothing_when_the_game_is_won_before_its_end(generated: AlfWorld) -> None:
    info = generated.infos("train")[0]
    engine = generated.engine()
    assert not wins(engine, info.id, [*info.walkthrough, "look"])
    assert not wins(engine, info.id, info.walkthrough[:-1])
    assert not wins(engine, info.id, ["dance", *info.walkthrough])
    assert not wins(engine, info.id, [])


def test_a_game_that_no_plan_wins_is_named(generated: AlfWorld) -> None:
    info = generated.infos("train")[0]
    with pytest.raises(GenerationError, match=info.id):
        prove(generated, {info.id: [["look"], list(info.walkthrough[:-1])]})
    assert prove(generated, {info.id: [["look"], list(info.walkthrough)]}) == {info.id: list(info.walkthrough)}


def test_the_unmodified_engine_agrees_that_a_generated_game_is_won(generated: AlfWorld, unmodified: Unmodified) -> None:
    for info in generated.infos("valid_unseen"):
        observation, admissible = unmodified.reset(generated.game(info.id))
        assert info.task in observation
        for place, command in enumerate(info.walkthrough):
            assert command in admissible
            _, _, won, admissible = unmodified.step(command)
            assert won == (place == len(info.walkthrough) - 1)


def test_no_goal_object_lies_at_the_goal_at_the_start(generated: AlfWorld) -> None:
    for split in generated.splits:
        for game_id in generated.games(split):
            game = generated.game(game_id)
            facts, goal = read_facts(game.problem), goal_of(game)
            for thing in facts.objects_of(goal.wanted):
                assert goal.target not in [facts.receptacles[place] for place in facts.inside[thing]]


def test_everything_lies_where_it_can_and_every_room_has_its_size(generated: AlfWorld) -> None:
    for game_id in generated.games("train"):
        facts = read_facts(generated.game(game_id).problem)
        assert 4 <= len(facts.receptacles) <= 10
        assert len({facts.objects[thing] for thing in facts.traits["pickupable"]}) <= 8
        for thing in facts.traits["pickupable"]:
            assert [(facts.receptacles[place], facts.objects[thing]) in facts.holds for place in facts.inside[thing]] == [True]


def test_unseen_rooms_are_others_than_those_of_training() -> None:
    scenes = {
        split: {record["scene"] for record in records(ALL) if record["split"] == split} for split in ("train", "valid_seen", "valid_unseen")
    }
    assert scenes["valid_seen"] <= {scene for scene in range(500) if scene % 100 <= ALL.scenes}
    assert not scenes["valid_unseen"] & (scenes["train"] | scenes["valid_seen"])
    assert len({record["id"] for record in records(ALL)}) == 36


def test_a_set_for_one_task_type_repeats_the_games_of_a_larger_set() -> None:
    four = records(Settings(games=40, seen=4, unseen=4))
    heat = records(Settings(games=10, seen=1, unseen=1, task_types=("pick_heat_then_place_in_recep",)))
    assert heat == [record for record in four if record["task_type"] == "pick_heat_then_place_in_recep"]


def test_games_are_the_same_in_every_process() -> None:
    """The hash is of the generator's version 1; when it changes, raise ``GENERATOR_VERSION``."""
    code = (
        "import hashlib, json\nfrom envs.alfworld.generate import Settings, records\nfrom envs.alfworld.placement import ROOMS\n"
        "from envs.alfworld import TASK_TYPES\n"
        "r = [records(Settings(games=60, seen=6, unseen=6, size=s, rooms=ROOMS, task_types=TASK_TYPES)) for s in ('small', 'full')]\n"
        "print(hashlib.sha256(json.dumps(r, sort_keys=True).encode()).hexdigest()[:16])"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("0", "1")
    }
    assert len(found) == 1
    assert found == {"32a8406d425701cc"}


def test_files_are_byte_identical_and_a_damaged_one_is_written_anew(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    settings = Settings(games=4, seen=1, unseen=1)
    folder = ensure_generated(tmp_path, settings)
    digest = hashlib.sha256((folder / GAMES_FILE).read_bytes()).hexdigest()
    assert hashlib.sha256((write(tmp_path / "again", settings, alfworld_cache) / GAMES_FILE).read_bytes()).hexdigest() == digest
    (folder / GAMES_FILE).write_text("{}\n")
    assert ensure_generated(tmp_path, settings) == folder
    assert hashlib.sha256((folder / GAMES_FILE).read_bytes()).hexdigest() == digest


def test_full_rooms_have_the_receptacles_of_real_ones(alfworld_cache: Path, engine_packages: None) -> None:
    kitchens = [make_scene(number, "full") for number in range(1, 28)]
    cabinets = [dict(scene.receptacles)["Cabinet"] for scene in kitchens]
    assert 8 < sum(cabinets) / 27 < 20
    assert all(scene.has("Fridge") and scene.has("Microwave") for scene in kitchens)
    record = make_record("pick_heat_then_place_in_recep", kitchens[0], 0, 0, "train")
    facts = read_facts(record["pddl_problem"])
    assert len(facts.traits["pickupable"]) > 25


def test_objects_lie_where_the_table_says_about_as_often_as_it_says() -> None:
    """Breads over many games: the shares of counter, fridge and the rest among the types that the room has."""
    found: Counter[str] = Counter()
    for number in range(1, 28):
        scene = make_scene(number, "small")
        if "Bread" not in scene.kinds:
            continue
        for index in range(20):
            record = make_record("pick_and_place_simple", scene, index, 0, "train")
            if record["object"] == "Bread":
                continue
            facts = read_facts(record["pddl_problem"])
            found.update(facts.receptacles[facts.inside[thing][0]] for thing in facts.objects_of("Bread"))
    weights = placement().rooms["kitchen"].placed["Bread"]
    assert set(found) <= set(weights)
    expected = weights["CounterTop"] / (weights["CounterTop"] + weights["Fridge"])
    assert found["CounterTop"] / (found["CounterTop"] + found["Fridge"]) == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize("task_type", TASK_TYPES)
def test_a_task_is_set_only_where_it_makes_sense(task_type: str) -> None:
    for kind in ROOMS:
        scene = make_scene(FIRST_SCENE[kind] + 1, "full")
        assert room_kind(scene.number) == kind
        assert bool(feasible(task_type, scene)) == (kind in SUITS[task_type])
        if kind not in SUITS[task_type]:
            with pytest.raises(ValueError, match="cannot be set"):
                make_record(task_type, scene, 0, 0, "train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": "huge"}, "small, full"),
        ({"rooms": ("cellar",)}, "kitchen"),
        ({"rooms": ()}, "name each once"),
        ({"task_types": ("pick_heat_then_place_in_recep",), "rooms": ("bedroom",)}, "needs one of the rooms kitchen"),
        ({"games": 0}, "at least one train"),
        ({"seen": 0, "unseen": 0}, "held-out"),
        ({"scenes": 98}, "99 together"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**change)  # type: ignore[arg-type]


def test_names_count_downwards_and_basins_say_so() -> None:
    ids = ["cabinet_bar_1", "cabinet_bar_2", "sink_bar_1_bar_sinkbasin", "sink_bar_1", "loc_1"]
    assert shown_names(ids) == {
        "cabinet_bar_1": "cabinet 2",
        "cabinet_bar_2": "cabinet 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "sink_bar_1": "sink 1",
        "loc_1": "loc_1",
    }


def test_facts_are_added_and_dropped_or_an_error_says_which_is_missing() -> None:
    problem = "(define (problem p)\n (:init\n  (openable A_bar_1)\n  (inReceptacle  O_bar_1  A_bar_1)\n )\n (:goal (and)))"
    changed = with_facts(problem, ["opened A_bar_1"], ["inReceptacle O_bar_1 A_bar_1"])
    facts = read_facts(changed)
    assert facts.opened == {"a_bar_1"}
    assert facts.inside == {}
    with pytest.raises(ValueError, match="openable B_bar_1"):
        with_facts(problem, drop=["openable B_bar_1"])


@pytest.mark.data("alfworld")
def test_plans_made_from_facts_win_public_games_of_every_type(public: AlfWorld) -> None:
    engine = public.engine()
    done: set[str] = set()
    for info in public.infos("valid_unseen"):
        if info.task_type not in done:
            done.add(info.task_type)
            game = public.game(info.id)
            assert any(
                wins(engine, info.id, plan) for plan, _ in zip(plans(read_facts(game.problem), goal_of(game)), range(8), strict=False)
            )
    assert done == set(TASK_TYPES)


def test_the_table_ships_as_valid_json() -> None:
    table = placement()
    assert set(table.rooms) == set(ROOMS)
    for room in table.rooms.values():
        for name, weights in room.placed.items():
            assert all(name in table.holds[receptacle] for receptacle in weights)
    json.dumps({name: dict(counts) for name, counts in table.copies.items()})
