"""The engine against the unmodified one and against hand-written transcripts; plays, memory, limits and errors."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from envs.alfworld import AlfWorld, AlfWorldDataError, AlfWorldTimeout
from envs.alfworld.engine import Engine, Games, Play
from tests.envs.alfworld import rooms
from tests.envs.alfworld.unmodified import Unmodified

ROOT = Path(__file__).resolve().parents[3]
KITCHEN = "train/kitchen/a"
ODD = ("", "fly", "go to nowhere", "Look", "go to fridge 1 ", "examine  fridge 1", "go to fridge 1\nlook")


def choose(rng: random.Random, admissible: list[str], plan: list[str]) -> str:
    """A random command that changes things more often than a uniform draw would."""
    draw = rng.random()
    if draw < 0.06:
        return rng.choice(ODD)
    if draw < 0.2 and plan:
        return plan.pop(0)
    idle = ("go", "help", "look", "inventory", "examine")
    busy = [command for command in admissible if command.split()[0] not in idle]
    return rng.choice(busy if busy and draw < 0.6 else admissible)


def assert_same_walk(engine: Engine, unmodified: Unmodified, game_id: str, steps: int, seed: int) -> None:
    game = engine.game(game_id)
    assert engine.reset(game_id) == unmodified.reset(game)
    rng, plan, done = random.Random(f"{game_id}/{seed}"), list(game.walkthrough), []
    admissible = engine.reset(game_id)[1]
    for _ in range(steps):
        done.append(choose(rng, admissible, plan))
        ours = engine.step(done[-1])
        assert ours == unmodified.step(done[-1]), done
        admissible = ours[3]


def test_transcript_written_by_hand(kitchen: AlfWorld) -> None:
    engine = kitchen.engine()
    observation, admissible = engine.reset(KITCHEN)
    assert observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a countertop 1, "
        "a fridge 1, a microwave 1, a sinkbasin 1, and a stoveburner 1.\n\nYour task is to: put a hot apple in countertop."
    )
    assert admissible == [
        "go to countertop 1", "go to fridge 1", "go to microwave 1", "go to sinkbasin 1", "go to stoveburner 1", "help",
        "inventory", "look",
    ]  # fmt: skip
    assert engine.step("look")[0] == "You are in the middle of a room. Looking quickly around you, you see nothing."
    assert engine.step("go to fridge 1")[0] == "You arrive at fridge 1. The fridge 1 is closed."
    assert engine.step("go to fridge 1")[0] == "Nothing happens."
    assert engine.step("open fridge 1")[0] == "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2."
    observation, reward, won, admissible = engine.step("take apple 2 from fridge 1")
    assert (observation, reward, won) == ("You pick up the apple 2 from the fridge 1.", 0, False)
    assert "cool apple 2 with fridge 1" in admissible
    assert "take apple 2 from fridge 1" not in admissible
    assert engine.step("inventory")[0] == "You are carrying: a apple 2."
    assert engine.step("go to microwave 1")[0] == "You arrive at microwave 1. The microwave 1 is closed."
    assert engine.step("look")[0] == "You are facing the microwave 1, and stoveburner 1. Next to it, you see nothing."
    assert engine.step("heat apple 2 with microwave 1")[0] == "You heat the apple 2 using the microwave 1."
    assert engine.step("examine apple 2")[0] == "This is a hot apple 2."
    assert (
        engine.step("go to countertop 1")[0]
        == "You arrive at countertop 1. On the countertop 1, you see a apple 1, a desklamp 1, and a knife 1."
    )
    assert engine.step("move apple 2 to countertop 1")[:3] == ("You move the apple 2 to the countertop 1.", 1, True)
    assert engine.step("fly")[:3] == ("Nothing happens.", 1, True)
    assert engine.step("take apple 2 from countertop 1")[1:3] == (0, False)


@pytest.mark.parametrize("edit", [None, *rooms.EDITS])
def test_random_walks_equal_those_of_the_unmodified_engine(kitchen: AlfWorld, unmodified: Unmodified, edit: str | None) -> None:
    engine = kitchen.engine(None if edit is None else rooms.EDITS[edit])
    assert_same_walk(engine, unmodified, KITCHEN, 50, 0)


@pytest.mark.data("alfworld")
@pytest.mark.parametrize("edit", [None, "containers start open"])
def test_random_walks_of_public_games_equal_those_of_the_unmodified_engine(
    public: AlfWorld, unmodified: Unmodified, edit: str | None
) -> None:
    engine = public.engine(None if edit is None else rooms.EDITS[edit])
    game_id = random.Random(f"public {edit}").choice(public.games("valid_unseen"))
    assert_same_walk(engine, unmodified, game_id, 25, 0)


@pytest.mark.data("alfworld")
@pytest.mark.slow
@pytest.mark.parametrize("edit", [None, *rooms.EDITS])
def test_many_random_walks_of_public_games(public: AlfWorld, unmodified: Unmodified, edit: str | None) -> None:
    engine = public.engine(None if edit is None else rooms.EDITS[edit])
    rng = random.Random(f"many {edit}")
    ids = [rng.choice(public.games("valid_unseen", [kind])) for kind in ("pick_heat_then_place_in_recep", "look_at_obj_in_light")]
    for game_id in [*ids, rng.choice(public.games("train"))]:
        assert_same_walk(engine, unmodified, game_id, 35, 1)


def test_plays_side_by_side_equal_plays_one_by_one(kitchen: AlfWorld, tmp_path: Path, alfworld_cache: Path) -> None:
    def walk(play: Play, rng: random.Random) -> tuple[str, tuple[str, int, bool, list[str]]]:
        command = choose(rng, play.admissible, [])
        return command, play.step(command)

    edits = [None, rooms.EDITS["containers start open"], rooms.EDITS["clean wears off"]]
    alone = []
    for place, edit in enumerate(edits):
        play, rng = kitchen.engine(edit).play(KITCHEN), random.Random(place)
        alone.append([walk(play, rng) for _ in range(80)])
    fresh = AlfWorld(kitchen.path, alfworld_cache)
    plays = [(fresh.engine(edit).play(KITCHEN), random.Random(place)) for place, edit in enumerate(edits)]
    together = [[walk(play, rng) for play, rng in plays] for _ in range(80)]
    assert [list(steps) for steps in zip(*together, strict=True)] == alone


def test_a_known_way_is_not_asked_again(kitchen: AlfWorld) -> None:
    engine = kitchen.engine()
    for _ in range(3):
        engine.reset(KITCHEN)
        for command in ("go to fridge 1", "look", "examine fridge 1", "open fridge 1", "close fridge 1"):
            engine.step(command)
    graph = next(iter(engine._games._graphs.values()))
    assert graph.misses == 5
    # At the start, at the fridge, at the open fridge: what was looked at makes no difference. Closed again, it is as before.
    assert len(graph) == 3


def test_a_graph_that_is_full_starts_anew(kitchen: AlfWorld, alfworld_cache: Path, unmodified: Unmodified) -> None:
    engine = Engine(kitchen, None, Games(alfworld_cache, games=1, situations=5))
    assert_same_walk(engine, unmodified, KITCHEN, 40, 3)
    assert engine.memory().situations <= 5


def test_the_least_recently_used_game_gives_way(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    folder = rooms.write(tmp_path / "three", *(rooms.record(trial) for trial in "abc"))
    world = AlfWorld(folder, alfworld_cache, keep_games=2)
    engine = world.engine()
    held = engine.play("train/kitchen/a")
    held.step("go to fridge 1")
    for trial in "bca":
        engine.reset(f"train/kitchen/{trial}")
        assert engine.memory().games <= 2
    assert held.step("open fridge 1")[0].startswith("You open the fridge 1.")
    assert engine.memory().resident_bytes > 0


def episodes(engine: Engine, ids: list[str], number: int) -> None:
    rng = random.Random(0)
    for _ in range(number):
        play = engine.play(rng.choice(ids))
        for _ in range(50):
            play.step(choose(rng, play.admissible, []))


def test_memory_stays_bounded(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    folder = rooms.write(tmp_path / "six", *(rooms.record(trial) for trial in "abcdef"))
    engine = AlfWorld(folder, alfworld_cache, keep_games=2).engine()
    ids = [f"train/kitchen/{trial}" for trial in "abcdef"]
    episodes(engine, ids, 20)
    before = engine.memory()
    episodes(engine, ids, 60)
    after = engine.memory()
    assert after.games == 2
    assert after.resident_bytes - before.resident_bytes < 20 * 2**20


GROWTH = """
import sys
from pathlib import Path
from envs.alfworld import AlfWorld
from tests.envs.alfworld.test_engine import episodes

world = AlfWorld(Path(sys.argv[1]), Path(sys.argv[2]), keep_games=8)
engine, ids = world.engine(), world.games("valid_unseen")[::4]
episodes(engine, ids, 100)
before = engine.memory().resident_bytes
episodes(engine, ids, 900)
print(engine.memory().resident_bytes - before)
"""


@pytest.mark.data("alfworld")
@pytest.mark.slow
def test_memory_stays_bounded_over_a_thousand_episodes(alfworld_data: Path, alfworld_cache: Path, engine_packages: None) -> None:
    # In a process of its own: what else a test run holds comes and goes by more than the bound.
    done = subprocess.run(
        [sys.executable, "-c", GROWTH, str(alfworld_data), str(alfworld_cache)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout.split()[-1]) < 60 * 2**20


def test_loading_leaves_arguments_and_output_alone(kitchen: AlfWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, output = sys.argv, sys.stdout
    stop = threading.Event()
    lines = 0

    def talk() -> None:
        nonlocal lines
        while not stop.is_set():
            print("another thread's words")
            lines += 1
            time.sleep(0.001)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        AlfWorld(kitchen.path, tmp_path / "cold").engine().reset(KITCHEN)
    finally:
        stop.set()
        thread.join()
    assert sys.argv is arguments
    assert sys.stdout is output
    assert capsys.readouterr().out == "another thread's words\n" * lines
    assert lines > 3


def test_a_load_that_hangs_is_broken_off_and_the_engine_plays_on(
    kitchen: AlfWorld, alfworld_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(kitchen, None, Games(alfworld_cache, 4, 1000), limit_s=0.3)

    def hang(*_: object) -> None:
        while True:
            try:
                sum(range(100))
            except Exception:
                continue

    with monkeypatch.context() as patch:
        patch.setattr("envs.alfworld.engine.translation", hang)
        begin = time.monotonic()
        with pytest.raises(AlfWorldTimeout, match=r"game train/kitchen/a: not loaded within 0\.3 s"):
            engine.reset(KITCHEN)
        assert time.monotonic() - begin < 5
    play = engine.play(KITCHEN)
    with monkeypatch.context() as patch:
        patch.setattr("envs.alfworld.graph.Words.answer", hang)
        with pytest.raises(AlfWorldTimeout, match=r"no answer to 'go to fridge 1' within 0\.3 s"):
            play.step("go to fridge 1")
    assert play.step("go to countertop 1")[0].startswith("You arrive at countertop 1. On the countertop 1, you see a apple 1, a desk")
    assert engine.play(KITCHEN).step("go to fridge 1")[0] == "You arrive at fridge 1. The fridge 1 is closed."


def test_games_that_cannot_be_played_are_refused(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    broken = rooms.record("cut", pddl_problem=rooms.problem()[:-30])
    unknown = rooms.record("unknown", pddl_problem=rooms.problem().replace("(openable Fridge_bar_1)", "(opennable Fridge_bar_1)"))
    silent = rooms.record("silent", grammar='grammar :: """ {"intro": [{"rhs": "#nowhere#"}]} """;')
    garbled = rooms.record("garbled", grammar="grammar :: nothing")
    folder = rooms.write(tmp_path / "bad", broken, unknown, silent, garbled)
    engine = AlfWorld(folder, alfworld_cache).engine()
    with pytest.raises(AlfWorldDataError, match="game train/kitchen/cut: its PDDL cannot be translated"):
        engine.reset("train/kitchen/cut")
    with pytest.raises(AlfWorldDataError, match=r"game train/kitchen/silent: the domain's action .* is not in the grammar"):
        engine.reset("train/kitchen/silent")
    with pytest.raises(AlfWorldDataError, match="game train/kitchen/garbled: its grammar cannot be parsed"):
        engine.reset("train/kitchen/garbled")
    with pytest.raises(AlfWorldDataError, match="did you mean 'train/kitchen/cut'"):
        engine.reset("train/kitchen/cutt")
    with pytest.raises(ValueError, match="reset the engine"):
        AlfWorld(folder, alfworld_cache).engine().step("look")


def test_a_game_that_cannot_be_won_is_refused(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    folder = rooms.write(tmp_path / "never", rooms.record("never", pddl_problem=rooms.problem("never")))
    with pytest.raises(AlfWorldDataError, match="game train/kitchen/never: it cannot be won"):
        AlfWorld(folder, alfworld_cache).engine().reset("train/kitchen/never")


def test_a_damaged_cache_is_made_again(kitchen: AlfWorld, tmp_path: Path) -> None:
    expected = AlfWorld(kitchen.path, tmp_path / "cache").engine().reset(KITCHEN)
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.parent.parent.name in ("translated", "alfworld")]
    assert len(files) >= 3
    for file in files:
        if file.parent.name != "packed" and file.suffix != ".bin" and file.name != "index.json":
            file.write_bytes(file.read_bytes()[:-7] + b"garbage")
    assert AlfWorld(kitchen.path, tmp_path / "cache").engine().reset(KITCHEN) == expected


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from envs.alfworld.library import Library

    monkeypatch.setitem(sys.modules, "fast_downward", None)
    with pytest.raises(AlfWorldDataError, match=r'pip install "fedagent-ray\[alfworld\]"'):
        Library()


def test_plans(kitchen: AlfWorld) -> None:
    engine = kitchen.engine(rooms.EDITS["heat at the stove"])
    plan = engine.plan(KITCHEN, limit_s=60)
    play = engine.play(KITCHEN)
    results = [play.step(command) for command in plan]
    assert results[-1][1:3] == (1, True)
    assert any("with stoveburner 1" in command for command in plan)
    renamed = kitchen.engine(rooms.EDITS["other words"]).plan(KITCHEN, limit_s=60)
    assert any(command.startswith("grab apple") for command in renamed)
    with pytest.raises(AlfWorldTimeout, match=r"game train/kitchen/a: no plan within 0\.01 s"):
        engine.plan(KITCHEN, limit_s=0.01)
