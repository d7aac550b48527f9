"""Variants of the house: each does what it promises, in the promised share, and nothing at severity 0."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations

import pytest

from envs.alfworld import Game
from envs.alfworld.engine import Play
from envs.alfworld.problem import COOL, HEAT, TWO, facts_in, goal_of, read_facts
from envs.alfworld.variants import CONTROL, FAMILIES, LEVERS, Dynamics, dynamics, hint
from envs.alfworld.world import AlfWorldWorld
from envs.base import Task
from envs.variants import Variant, distinctness
from tests.conftest import ROOT
from tests.envs.alfworld.unmodified import Unmodified

ALL = [f"{family}:{member}" if member else family for family, members in LEVERS.items() for member in members]


def edit_of(world: AlfWorldWorld, text: str) -> Dynamics:
    edit = dynamics(world.variant(text))
    assert edit is not None
    return edit


def play_of(world: AlfWorldWorld, text: str, task: Task) -> Play:
    return world.alfworld.engine(dynamics(world.variant(text))).play(task.id)


def task_of(world: AlfWorldWorld, task_type: str, fits: Callable[[Game], bool] = lambda game: True) -> Task:
    return next(
        task
        for split in ("train", "heldout")
        for task in world.tasks(split)  # type: ignore[arg-type]
        if task.category == task_type and fits(world.alfworld.game(task.id))
    )


def told(play: Play, commands: list[str]) -> list[str]:
    return [play.step(command)[0] for command in commands]


def probed_tasks(world: AlfWorldWorld) -> list[Task]:
    world.probe()
    games = {game_id for game_id, _ in world._scripts}
    return [task for task in world.tasks("train") if task.id in games]


# --- all of them ---------------------------------------------------------------------------------------------------------------


def test_the_twelve_levers_of_the_specification_are_there() -> None:
    assert len(ALL) == 12
    assert {family for family, members in LEVERS.items() if "" in members} == {"placement"}
    for name, family in FAMILIES.items():
        assert family.per_client == (name == "placement")
        assert family.per_client or family.members[0] == CONTROL


@pytest.mark.parametrize("text", [f"{text}@0" for text in ALL] + [f"{name}:control" for name in FAMILIES if name != "placement"])
def test_severity_0_and_control_are_the_unperturbed_world_byte_for_byte(house: AlfWorldWorld, text: str) -> None:
    assert dynamics(house.variant(text)) is None
    assert house.probe(text) == house.probe()


@pytest.mark.parametrize("text", ALL)
def test_the_first_observation_is_unchanged_and_so_are_the_first_commands(house: AlfWorldWorld, text: str) -> None:
    for task in probed_tasks(house):
        plain, other = play_of(house, "default", task), play_of(house, text, task)
        assert other.observation == plain.observation
        assert (other.admissible == plain.admissible) == (text != "words:renamed")


@pytest.mark.parametrize("text", ALL)
def test_the_oracle_that_knows_the_variant_solves_every_game(house: AlfWorldWorld, text: str) -> None:
    for task in probed_tasks(house):
        plan = house.oracle(task, text)
        assert plan
        play = play_of(house, text, task)
        assert [play.step(command)[2] for command in plan] == [False] * (len(plan) - 1) + [True]


@pytest.mark.parametrize("text", ALL)
def test_a_half_severity_is_solved_too(house: AlfWorldWorld, text: str) -> None:
    for task in probed_tasks(house)[:3]:
        assert house.oracle(task, f"{text}@0.5")


def test_every_two_variants_differ(house: AlfWorldWorld) -> None:
    probes = {text: house.probe(text) for text in ["default", *ALL]}
    for first, second in combinations(probes, 2):
        measured = distinctness(probes[first], probes[second])
        assert not measured.same, (first, second)
        assert measured.replies > 0


@pytest.mark.parametrize("text", ALL)
def test_a_higher_severity_touches_the_same_and_more(house: AlfWorldWorld, text: str) -> None:
    """Marked things, changed facts and changed lines of the grammar are nested, and there are more of them."""

    def touched(severity: float) -> set[str]:
        edit = edit_of(house, f"{text}@{severity}")
        found: set[str] = set()
        for task in house.tasks("train"):
            game = house.alfworld.game(task.id)
            changed = edit.edit(game)
            before = {" ".join([name, *arguments]) for name, arguments in facts_in(game.problem)}
            after = {" ".join([name, *arguments]) for name, arguments in facts_in(changed.problem)}
            found |= {f"{task.id}|{fact}" for fact in after - before}
            # That a rule for odd things exists at all is no measure; the words of commands and answers are.
            if text in ("words:renamed", "feedback:terse"):
                lines = zip(game.grammar.splitlines(), changed.grammar.splitlines(), strict=True)
                found |= {f"{task.id}|{number}" for number, (old, new) in enumerate(lines) if old != new}
        return found

    # A renamed line of the help text counts once however many words changed in it, hence <= below.
    low, middle, high = touched(0.25), touched(0.5), touched(1.0)
    assert low <= middle <= high
    assert 0 < len(low) < len(high)


@pytest.mark.parametrize("text", ALL)
def test_the_engine_answers_as_the_unmodified_one_does(house: AlfWorldWorld, unmodified: Unmodified, text: str) -> None:
    task = task_of(house, TWO, lambda game: "FridgeType" in game.problem and "Fridge_bar_01" in game.problem)
    edit, rng = edit_of(house, text), random.Random(text)
    observation, admissible = unmodified.reset(edit.edit(house.alfworld.game(task.id)))
    play = play_of(house, text, task)
    assert (play.observation, play.admissible) == (observation, admissible)
    for _ in range(8):
        command = rng.choice(admissible)
        observation, reward, won, admissible = unmodified.step(command)
        assert play.step(command) == (observation, reward, won, admissible)


def test_edits_are_the_same_in_every_process(house: AlfWorldWorld) -> None:
    code = (
        "import hashlib, json\nfrom envs.alfworld.variants import LEVERS, dynamics\nfrom envs.alfworld.games import Game\n"
        "from envs.alfworld.sources import base_text\nfrom envs.alfworld.generate import Settings, records\n"
        "from envs.variants import Variant\n"
        "digest = hashlib.sha256()\n"
        "for r in records(Settings(games=8, seen=1, unseen=1)):\n"
        "    game = Game(r['id'], r['split'], r['task_type'], r['task'], base_text('alfred.pddl'), r['pddl_problem'], "
        "base_text('alfred.twl2'), scene=r['scene'])\n"
        "    for family, members in LEVERS.items():\n"
        "        for member in members:\n"
        "            g = dynamics(Variant(family, member, 0.6, stream=7)).edit(game)\n"
        "            digest.update((g.domain + g.problem + g.grammar).encode())\n"
        "print(digest.hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1")
    }
    assert len(found) == 1
    assert len(found.pop().strip()) == 64


def test_equal_variants_share_an_engine_and_other_streams_do_not(house: AlfWorldWorld) -> None:
    keys = {dynamics(Variant("placement", stream=stream)).key for stream in (1, 1, 2)}  # type: ignore[union-attr]
    assert len(keys) == 2


@pytest.mark.parametrize("text", ALL)
def test_a_hint_says_in_a_sentence_what_differs(house: AlfWorldWorld, text: str) -> None:
    sentences = {hint(house.variant(given)) for given in ("default", text)}
    assert len(sentences) == 2
    for sentence in sentences:
        assert sentence.startswith("Here ")
        assert sentence.endswith(".")


def test_a_hint_names_the_things_where_only_some_are_meant(house: AlfWorldWorld) -> None:
    assert hint(house.variant("appliance:heat_at_stove")) == "Here things are heated with the stoveburner, not with the microwave."
    some = hint(house.variant("appliance:heat_at_stove@0.25"))
    assert some.count(",") == 2
    assert "things" not in some


@pytest.mark.parametrize("broken", ["(define (domain x) (:predicates) (:action HeatObject :parameters () ))", "(define (domain x))"])
def test_a_text_of_another_form_is_refused(house: AlfWorldWorld, broken: str) -> None:
    task = task_of(house, HEAT)
    game = house.alfworld.game(task.id)
    changed = Game(game.id, game.split, game.task_type, game.task, broken, game.problem, game.grammar)
    with pytest.raises(ValueError, match=r"expected once|no \(:predicates"):
        edit_of(house, "appliance:heat_at_stove").edit(changed)
    other = Game(game.id, game.split, game.task_type, game.task, game.domain, game.problem, "")
    with pytest.raises(ValueError, match=game.id):
        edit_of(house, "feedback:terse").edit(other)


# --- one by one ----------------------------------------------------------------------------------------------------------------


def split_at(plan: list[str], word: str) -> tuple[list[str], str]:
    place = next(i for i, command in enumerate(plan) if command.startswith(word))
    return plan[:place], plan[place]


def wins(world: AlfWorldWorld, text: str, task: Task, plan: list[str]) -> bool:
    play = play_of(world, text, task)
    told(play, plan)
    return play.won


@pytest.mark.parametrize(
    ("text", "task_type", "word", "usual", "other"),
    [
        ("appliance:heat_at_stove", HEAT, "heat", "microwave 1", "stoveburner 1"),
        ("appliance:cool_at_sink", COOL, "cool", "fridge 1", "sinkbasin 1"),
    ],
)
def test_another_appliance_does_it(house: AlfWorldWorld, text: str, task_type: str, word: str, usual: str, other: str) -> None:
    task = task_of(house, task_type)
    plan = house.oracle(task)
    before, command = split_at(plan, word)
    play = play_of(house, text, task)
    assert told(play, [*before, command])[-1] == "Nothing happens."
    answer = told(play, [f"go to {other}", command.replace(usual, other)])[-1]
    assert answer.startswith(f"You {word} the ")
    assert answer.endswith(f"using the {other}.")
    assert not wins(house, text, task, plan)


@pytest.mark.parametrize(("task_type", "word"), [(HEAT, "heat"), (COOL, "cool")])
def test_an_appliance_must_be_open(house: AlfWorldWorld, task_type: str, word: str) -> None:
    appliance = {"heat": "microwave 1", "cool": "fridge 1"}[word]

    def still_shut(game: Game) -> bool:
        return f"open {appliance}" not in split_at(list(game.walkthrough), word)[0]

    task = task_of(house, task_type, still_shut)
    before, command = split_at(house.oracle(task), word)
    play = play_of(house, "appliance:must_open", task)
    answers = told(play, [*before, command, f"open {appliance}", command])
    assert answers[-3] == "Nothing happens."
    assert answers[-1].startswith(f"You {word} the ")


def test_a_fridge_cools_what_is_put_in_except_where_the_task_wants_it_hot_there(house: AlfWorldWorld) -> None:
    task = task_of(house, HEAT, lambda game: goal_of(game).target != "Fridge" and goal_of(game).wanted in ("Apple", "Bread", "Egg"))
    before, command = split_at(house.oracle(task), "heat")
    thing = command.removeprefix("heat ").partition(" with ")[0]
    script = [
        *before,
        command,
        "go to fridge 1",
        "open fridge 1",
        f"move {thing} to fridge 1",
        f"take {thing} from fridge 1",
        f"examine {thing}",
    ]
    assert told(play_of(house, "default", task), script)[-1] == f"This is a hot {thing}."
    play = play_of(house, "appliance:fridge_cools", task)
    assert told(play, script)[-1] == f"This is a cold {thing}."
    told(play, house.oracle(task)[-2:])
    assert not play.won
    game = house.alfworld.game(task.id)
    wanted = goal_of(game)
    hot = Game(f"train/{HEAT}-{wanted.wanted}-None-Fridge-1/trial_x", "train", HEAT, game.task, game.domain, game.problem, game.grammar)
    assert edit_of(house, "appliance:fridge_cools").edit(hot) is hot


def test_things_lie_elsewhere_but_never_at_the_goal(house: AlfWorldWorld) -> None:
    moved = 0
    for task in house.tasks("train"):
        game = house.alfworld.game(task.id)
        before, after = read_facts(game.problem), read_facts(edit_of(house, "placement").edit(game).problem)
        goal = goal_of(game)
        assert before.names == after.names
        for thing in before.traits["pickupable"]:
            (place,) = after.inside[thing]
            assert (after.receptacles[place], after.objects[thing]) in after.holds
            assert not (after.objects[thing] == goal.wanted and after.receptacles[place] == goal.target)
            moved += place not in before.inside[thing]
    assert moved > 50


def test_a_client_s_things_have_homes_of_their_own(house: AlfWorldWorld) -> None:
    """In one world all objects of a type lie in one kind of receptacle of a scene; in another client's world in another."""
    homes: dict[int, dict[str, set[str]]] = {}
    for stream in (1, 2):
        edit = dynamics(Variant("placement", stream=stream))
        assert edit is not None
        for task in house.tasks("train"):
            game = house.alfworld.game(task.id)
            facts = read_facts(edit.edit(game).problem)
            for thing in facts.traits["pickupable"]:
                goal, kind = goal_of(game), facts.objects[thing]
                key = f"{game.scene}|{kind}|{goal.target if kind == goal.wanted else ''}"
                homes.setdefault(stream, {}).setdefault(key, set()).add(facts.receptacles[facts.inside[thing][0]])
    assert all(len(kinds) == 1 for kinds in homes[1].values())
    assert sum(homes[1][key] != homes[2][key] for key in homes[1]) > 0.3 * len(homes[1])


def test_doors_shut_behind_and_doors_stand_open(house: AlfWorldWorld) -> None:
    task = task_of(house, HEAT)
    script = ["go to microwave 1", "open microwave 1", "go to fridge 1", "go to microwave 1"]
    assert "The microwave 1 is open." in told(play_of(house, "default", task), script)[-1]
    assert told(play_of(house, "doors:shut_behind", task), script)[-1].endswith("The microwave 1 is closed.")
    arrival, opening = told(play_of(house, "doors:start_open", task), script[:2])
    assert "The microwave 1 is open. In it, you see" in arrival
    assert opening == "Nothing happens."
    assert wins(house, "doors:start_open", task, house.oracle(task))


@pytest.mark.parametrize(("task_type", "word", "other"), [(HEAT, "heat", "cool"), (COOL, "cool", "heat")])
def test_words_are_swapped(house: AlfWorldWorld, task_type: str, word: str, other: str) -> None:
    task = task_of(house, task_type)
    plan = house.oracle(task)
    before, command = split_at(plan, word)
    play = play_of(house, "words:swapped", task)
    told(play, before)
    assert command not in play.admissible
    assert told(play, [command.replace(word, other, 1)])[0].startswith(f"You {word} the ")
    assert not wins(house, "words:swapped", task, plan)


def test_words_are_renamed_and_help_says_so(house: AlfWorldWorld) -> None:
    task = task_of(house, HEAT)
    play = play_of(house, "words:renamed", task)
    assert any(command.startswith("walk to ") for command in play.admissible)
    assert not any(command.startswith("go to ") for command in play.admissible)
    known = told(play, ["go to microwave 1", "help", "walk to microwave 1"])
    assert known[0] == "Nothing happens."
    assert "walk to (receptacle)" in known[1]
    assert "go to (receptacle)" not in known[1]
    assert known[2].startswith("You arrive at microwave 1.")
    assert [command.split()[0] for command in house.oracle(task, "words:renamed")].count("warm") == 1


def test_two_things_are_carried_and_the_inventory_lists_both(house: AlfWorldWorld) -> None:
    task = task_of(house, TWO)
    takes = [command for command in house.oracle(task) if command.startswith(("go to", "open", "take"))]
    plain = told(play_of(house, "default", task), [*takes, "inventory"])[-1]
    play = play_of(house, "carry:many", task)
    both = told(play, [*takes, "inventory"])[-1]
    assert both.count(" a ") == 2 * plain.count(" a ") == 2
    thing = takes[-1].removeprefix("take ").partition(" from ")[0]
    target = house.oracle(task)[-1].partition(" to ")[2]
    left = told(play, [f"go to {target}", f"open {target}", f"move {thing} to {target}", "inventory"])[-1]
    assert left.startswith("You are carrying: a ")


def test_arriving_shows_nothing_until_one_looks(house: AlfWorldWorld) -> None:
    task = task_of(house, HEAT)
    answers = told(play_of(house, "feedback:silent_arrival", task), ["go to countertop 1", "examine countertop 1"])
    assert answers[0] == "You arrive at countertop 1."
    assert answers[1] == told(play_of(house, "default", task), ["go to countertop 1", "examine countertop 1"])[1]
    assert wins(house, "feedback:silent_arrival", task, house.oracle(task))


def test_answers_are_cut_short(house: AlfWorldWorld) -> None:
    for task_type in (HEAT, TWO):
        task = task_of(house, task_type)
        plan = house.oracle(task)
        plain, terse = told(play_of(house, "default", task), plan), told(play_of(house, "feedback:terse", task), plan)
        for command, before, after in zip(plan, plain, terse, strict=True):
            assert after == ("Done." if command.startswith(("take", "move", "heat")) else before)
        assert wins(house, "feedback:terse", task, plan)


def test_probe_replies_are_pinned(house: AlfWorldWorld) -> None:
    """Probes are what worlds are compared by: fixed commands, the same in every world."""
    assert len({len(house.probe(text).replies) for text in ("default", *ALL)}) == 1
    assert hashlib.sha256(repr(house.probe()).encode()).hexdigest() == hashlib.sha256(repr(house.probe()).encode()).hexdigest()
    assert house.probe("appliance:must_open+name") == house.probe("appliance:must_open")
