"""``fedagent play``: what is chosen, what a person may type, what is shown, and two worlds under the same actions."""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from envs import base
from envs.base import Split, Task, TextEnv, World, make_world, register_world
from envs.variants import DEFAULT, Family, Variant
from envs.webshop import generate
from pipeline.errors import ConfigError, DataError
from pipeline.play import Choice, Clients, Game, add_play_parser, choose, meant_action, play, run_play
from pipeline.play_screen import Screen, differing, page_lines
from tests.worlds import GuessWorld


class DoorEnv(TextEnv):
    """A door that is opened by turning it left; in the mirrored world by turning it right."""

    def __init__(self, way: str) -> None:
        self._way = way

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "A door.\nIt has a key.", {"admissible": ["turn left", "turn right", "look"], "score": 0.0, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if action == f"turn {self._way}":
            info = {"admissible": [], "score": 1.0, "success": True, "parts": {"turned": True, "speed": 0.25}}
            return "A door.\nIt is open.", 10.0, True, False, info
        offered = ["turn left", "turn right", *([f"push {self._way}"] if action != "look" else [])]
        return f"A door.\nNothing happens. [{action}]", 0.0, False, False, {"admissible": offered, "score": 0.0, "success": False}


class DoorWorld(World):
    name: ClassVar[str] = "doors"
    families: ClassVar[Mapping[str, Family]] = {"mirror": Family("mirror", "dynamics", ("mirrored",), "turns the other way")}

    def __init__(self, **options: Any) -> None:
        self.max_steps = 3

    def tasks(self, split: Split) -> Sequence[Task]:
        return [Task(f"{split}-{i}", f"open door {i}", "doors") for i in range(4)]

    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        self.made = self.variant(variant)
        return DoorEnv("left" if self.made.unperturbed else "right")

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        return ["turn left" if self.variant(variant).unperturbed else "turn right"]


@pytest.fixture(scope="module", autouse=True)
def _doors() -> Iterator[None]:
    register_world("doors", DoorWorld)
    yield
    base.WORLDS.remove("doors")


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_play_parser(parser.add_subparsers())
    return parser.parse_args(["play", *words])


def both() -> Choice:
    world = DoorWorld()
    return Choice(world, (("default", Variant()), ("mirror", Variant("mirror"))), world.tasks("heldout"))


def shown(choice: Choice, *lines: str, width: int = 120) -> str:
    """What the screen says when these lines are typed and the input ends."""
    typed = iter(lines)
    out = io.StringIO()
    play(choice, Screen(Console(file=out, width=width, force_terminal=False)), lambda: next(typed, None))
    return out.getvalue()


# --- what is chosen ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["dors"], r"world.name = 'dors': unknown \(known: .*; did you mean 'doors'"),
        ([], "name a world"),
        (["doors", "--variant", "miror"], r"variant 'miror' of world 'doors': unknown .*; did you mean 'mirror'"),
        (["doors", "--variant", "mirror:flat"], "member 'flat'"),
        (["doors", "--variant", "mirror@2"], "allowed: 0 to 1"),
        (["doors", "--variant", "mirror", "--side-by-side", "default", "mirror"], "--variant cannot matter with --side-by-side"),
        (["doors", "--task", "heldout-7"], "did you mean 'heldout-3'|did you mean 'heldout-"),
        (["doors", "--task", "4"], "there are 4 tasks; allowed 0 to 3"),
        (["doors", "--client", "c001"], "need a federation's configuration"),
    ],
)
def test_what_is_not_there_is_refused_with_the_nearest(words: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        choose(parsed(*words))


def test_a_missing_data_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        choose(parsed("webshop", "--data", str(tmp_path / "nowhere")))


def test_task_by_place_or_id_and_held_out_tasks_by_default() -> None:
    by_place, by_id = choose(parsed("doors", "--task", "2")), choose(parsed("doors", "--task", "train-3", "--split", "train"))
    assert by_place.tasks[by_place.first].id == "heldout-2"
    assert by_id.tasks[by_id.first].id == "train-3"


def test_reveal_is_put_on_the_variant_and_each_side_has_its_label() -> None:
    chosen = choose(parsed("doors", "--side-by-side", "mirror", "default", "--reveal", "name"))
    assert [(v.family, v.reveal, v.label) for _, v in chosen.variants] == [("mirror", "name", "1"), ("default", "name", "2")]


def federation() -> Clients:
    world = DoorWorld()
    world.define({"mirror:c001": Variant("mirror", label="7")})
    tasks = {"c000": world.tasks("train")[:1], "c001": world.tasks("train")[2:]}
    return Clients(world, {"c000": DEFAULT, "c001": "mirror:c001"}, tasks)


def test_a_client_brings_its_world_and_its_train_tasks() -> None:
    asked: list[argparse.Namespace] = []

    def setup(args: argparse.Namespace) -> Clients:
        asked.append(args)
        return federation()

    chosen = choose(parsed("--client", "c001", "--config", "f.toml"), setup)
    assert asked[0].config == Path("f.toml")
    ((name, variant),) = chosen.variants
    assert (name, variant.family, variant.label) == ("c001", "mirror", "7")
    assert [task.id for task in chosen.tasks] == ["train-2", "train-3"]


def test_two_clients_side_by_side_or_a_client_and_a_variant() -> None:
    chosen = choose(parsed("--config", "f.toml", "--side-by-side", "c000", "c001"), lambda _: federation())
    assert [(name, variant.family) for name, variant in chosen.variants] == [("c000", "default"), ("c001", "mirror")]
    mixed = choose(parsed("--config", "f.toml", "--side-by-side", "c001", "default"), lambda _: federation())
    assert [variant.family for _, variant in mixed.variants] == ["mirror", "default"]


def test_an_unknown_client_or_another_world_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--client c01: no such client .*did you mean 'c001'"):
        choose(parsed("--client", "c01"), lambda _: federation())
    with pytest.raises(ConfigError, match="the configuration's world is 'doors'"):
        choose(parsed("webshop", "--client", "c001"), lambda _: federation())


# --- what may be typed ---------------------------------------------------------------------------------------------------------

SHOP = ["search[<your query>]", "click[search]", "click[b0abc]"]


@pytest.mark.parametrize(
    ("text", "actions", "world", "action", "problem"),
    [
        ("2", ["go a", "go b"], "alfworld", "go b", ""),
        ("go a", ["go a", "go b"], "alfworld", "go a", ""),
        ("3", ["go a", "go b"], "alfworld", "", "from 1 to 2"),
        ("0", ["go a", "go b"], "alfworld", "", "from 1 to 2"),
        ("go bb", ["go a", "go b"], "alfworld", "", "did you mean 'go b'"),
        ("!go bb", ["go a", "go b"], "alfworld", "go bb", ""),
        ("7", [], "guess", "7", ""),
        ("3", ["3", "5"], "guess", "3", ""),
        ("1", ["3", "5"], "guess", "", "not on offer"),
        ("!7", ["3", "5"], "guess", "7", ""),
        ("red shoes", SHOP, "webshop", "search[red shoes]", ""),
        ("1", SHOP, "webshop", "", "what to search for"),
        ("B0ABC", SHOP, "webshop", "click[b0abc]", ""),
        ("click[b0xyz]", SHOP, "webshop", "", "did you mean 'click[b0abc]'"),
        ("search[x y]", SHOP, "webshop", "search[x y]", ""),
        ("red shoes", ["click[back to search]"], "webshop", "", "no search bar"),
        ("search", ["click[back to search]", "click[next >]"], "webshop", "click[back to search]", ""),
    ],
)
def test_what_a_person_means(text: str, actions: list[str], world: str, action: str, problem: str) -> None:
    found, said = meant_action(text, actions, world)
    assert found == action
    assert problem in said
    assert bool(said) == bool(problem)


# --- the conversation ----------------------------------------------------------------------------------------------------------


def test_a_won_episode_ends_with_its_reward_parts() -> None:
    world = DoorWorld()
    text = shown(Choice(world, (("default", Variant()),), world.tasks("heldout")), "l", "2", "turn left", "turn right")
    assert "3 turns at most" in text
    assert "Nothing happens. [turn right]" in text
    assert "success in default: the episode is complete" in text
    assert "score 1, reward 10, 2 steps" in text
    assert "speed" in text
    assert "0.25" in text
    assert "This task is over" in text


def test_an_action_that_the_world_offers_comes_before_a_word_of_the_program() -> None:
    world = DoorWorld()
    choice = Choice(world, (("default", Variant()),), world.tasks("heldout"), note="Mind the step.")
    text = shown(choice, "look", "turn left")
    assert "Nothing happens. [look]" in text
    assert "score 1, reward 10, 2 steps" in text
    assert "Mind the step." in text


def test_the_step_limit_ends_an_episode_and_the_next_task_starts_afresh() -> None:
    world = DoorWorld()
    text = shown(Choice(world, (("default", Variant()),), world.tasks("heldout"), 3), "2", "2", "2", "n", "1")
    assert "no success in default: the limit of 3 steps is reached" in text
    assert text.index("open door 3") < text.index("open door 0") < text.index("score 1, reward 10, 1 step\n".strip())


def test_back_takes_one_action_back_and_again_all() -> None:
    game = Game(both())
    assert not game.back()
    for action in ("turn up", "look"):
        game.act(action)
    before = [seat.observation for seat in game.seats]
    game.act("turn left")
    assert game.seats[0].over
    assert game.back()
    assert [seat.observation for seat in game.seats] == before
    assert [seat.steps for seat in game.seats] == [2, 2]
    assert game.taken == ["turn up", "look"]
    game.start()
    assert game.taken == []


def test_quit_stops_reading() -> None:
    world = DoorWorld()
    text = shown(Choice(world, (("default", Variant()),), world.tasks("heldout")), "quit", "turn left")
    assert "success" not in text


def test_solve_shows_the_oracle_of_each_side() -> None:
    text = shown(both(), "s")
    assert "default: turn left" in text
    assert "mirror: turn right" in text


# --- side by side --------------------------------------------------------------------------------------------------------------


def test_both_sides_get_the_action_and_an_ended_one_rests() -> None:
    game = Game(both())
    game.act("turn left")
    assert [bool(seat.over) for seat in game.seats] == [True, False]
    game.act("turn right")
    assert game.over
    assert [seat.steps for seat in game.seats] == [1, 2]
    assert [seat.info["success"] for seat in game.seats] == [True, True]


def test_actions_of_one_side_only_say_so() -> None:
    game = Game(both())
    assert game.only == {}
    game.act("push")
    assert game.only == {"push left": "default", "push right": "mirror"}
    assert game.actions == ["turn left", "turn right", "push left", "push right"]


def test_the_line_that_differs_is_marked_on_both_sides() -> None:
    one = [("A door.",), ("It is open.",)]
    assert differing(one, [("A door.",), ("Nothing happens.",)]) == ({1}, {1})
    assert differing(one, one) == (set(), set())
    # A row that moved differs where it stood and where it stands.
    assert differing([("a",), ("b",), ("c",)], [("b",), ("c",), ("a",)]) == ({0}, {2})


def test_wide_screens_put_pages_beside_each_other_and_narrow_ones_above() -> None:
    wide, narrow = shown(both(), "look!", "2", width=140), shown(both(), "2", width=60)
    assert any("default" in line and "mirror" in line for line in wide.splitlines() if line.startswith("╭"))
    assert not any("default" in line and "mirror" in line for line in narrow.splitlines() if line.startswith("╭"))
    assert "Both worlds answer the same." in wide
    assert all(len(line) <= 60 for line in narrow.splitlines())


def test_the_same_variant_twice_is_told_apart_by_its_side() -> None:
    world = DoorWorld()
    game = Game(Choice(world, (("default", Variant()), ("default", Variant())), world.tasks("heldout")))
    game.seats[0].info = {"admissible": ["x"]}
    assert game.only["x"] == "left"


def test_texts_are_never_read_as_markup() -> None:
    assert "Nothing happens. [[bold]x]" in shown(both(), "![bold]x")


# --- in a shop -----------------------------------------------------------------------------------------------------------------


def test_a_shop_is_played_to_its_reward_parts(tmp_path: Path) -> None:
    world = make_world("webshop", data_dir=generate.write(tmp_path / "shop", 60, 0), cache_dir=tmp_path, results_per_page=4, heldout=10)
    task = world.tasks("heldout")[0]
    solution = world.oracle(task)
    text = shown(Choice(world, (("default", Variant()),), [task]), *solution)
    assert "success in default" in text
    assert "r_price" in text
    assert "w_att" in text


def test_results_are_rows_of_id_title_and_price() -> None:
    page = (
        "Back to Search [SEP] Page 1 (Total results: 2) [SEP] B0BELPIKAV [SEP] Keyboard [SEP] $55.0 [SEP] B0BELTIZUB [SEP] Soap [SEP] $15.0"
    )
    assert page_lines(page) == [
        ("Back to Search",),
        ("Page 1 (Total results: 2)",),
        ("B0BELPIKAV", "Keyboard", "$55.0"),
        ("B0BELTIZUB", "Soap", "$15.0"),
    ]
    assert page_lines("asin [SEP] B0BELPIKAV [SEP] options [SEP] {}")[1] == ("B0BELPIKAV",)
    assert page_lines("One.\n\nTwo.") == [("One.",), ("Two.",)]


def test_lines_from_a_pipe_are_played_and_echoed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("2\nturn left\n"))
    assert run_play(parsed("doors")) == 0
    out = capsys.readouterr().out
    assert "> 2" in out
    assert "score 1, reward 10, 2 steps" in out


def test_worlds_with_free_answers_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    world = GuessWorld()
    text = shown(Choice(world, (("default", Variant()),), world.tasks("heldout"), 3), "!1", "!3")
    assert "low after 1" in text
    assert "success in default" in text
