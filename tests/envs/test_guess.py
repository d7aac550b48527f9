from __future__ import annotations

import pytest

from envs.base import Task, make_world
from envs.guess import SIZES, GuessWorld
from envs.variants import Variant, distinctness


def play(world: GuessWorld, variant: str | Variant, task: Task, guesses: list[str]) -> list[tuple[str, float, bool, bool]]:
    env = world.make(variant)
    env.reset(seed=0, options={"task": task})
    out: list[tuple[str, float, bool, bool]] = []
    for guess in guesses:
        if out and (out[-1][2] or out[-1][3]):
            break
        out.append(env.step(guess)[:4])
    return out


@pytest.fixture(scope="module")
def world() -> GuessWorld:
    return GuessWorld()


@pytest.fixture(scope="module")
def task() -> Task:
    return Task("t", "Find the number that I think of. It is one of 1 to 7.", "short", {"first": 1, "size": 7, "target": 3})


def test_a_game_by_hand(world: GuessWorld, task: Task) -> None:
    env = world.make()
    observation, info = env.reset(options={"task": task})
    assert observation == "Guess a number from 1 to 7. Guesses left: 6."
    assert info["admissible"] == ["1", "2", "3", "4", "5", "6", "7"]
    assert env.step("4")[0] == "4 is too high. Guess a number from 1 to 7. Guesses left: 5."
    assert env.step("2")[0] == "2 is too low. Guess a number from 1 to 7. Guesses left: 4."
    assert env.step("twelve")[0] == "That is no number from 1 to 7. Guess a number from 1 to 7. Guesses left: 3."
    observation, reward, terminated, truncated, info = env.step("3")
    assert (observation, reward, terminated, truncated) == ("3 is right. The game is over.", 10.0, True, False)
    assert (info["score"], info["success"], info["admissible"]) == (1.0, True, [])
    with pytest.raises(ValueError, match="call reset first"):
        env.step("3")


def test_the_last_guess_ends_the_game(task: Task) -> None:
    rounds = play(GuessWorld(max_steps=2), "default", task, ["1", "2"])
    assert rounds[-1] == ("2 is too low. The game is over.", 0.0, False, True)


@pytest.mark.parametrize("category", sorted(SIZES))
def test_the_oracle_never_needs_more_than_the_optimum(world: GuessWorld, category: str) -> None:
    size = SIZES[category]
    needed = []
    for target in range(1, size + 1):
        task = Task("t", "", category, {"first": 1, "size": size, "target": target})
        guesses = world.oracle(task)
        assert play(world, "default", task, guesses)[-1][1] == 10.0
        needed.append(len(guesses))
    assert max(needed) == GuessWorld.optimum(task) == {"short": 3, "middle": 4, "long": 5}[category]


@pytest.mark.parametrize("variant", ["answers:inverted", "answers:inverted@0.5", "wording:directions", "wording:directions@0.4"])
def test_the_oracle_solves_all_tasks_where_replies_say_enough(world: GuessWorld, variant: str) -> None:
    for task in world.tasks("train")[:60]:
        guesses = world.oracle(task, variant)
        assert len(guesses) <= GuessWorld.optimum(task)
        assert play(world, variant, task, guesses)[-1][1] == 10.0


def test_silence_leaves_a_share_of_tasks_out_of_reach(world: GuessWorld) -> None:
    solved = [bool(world.oracle(task, "answers:silent")) for task in world.tasks("train")]
    assert 0.2 < sum(solved) / len(solved) < 0.6


def test_inverted_and_silent_replies(world: GuessWorld, task: Task) -> None:
    assert play(world, "answers:inverted", task, ["4"])[0][0].startswith("4 is too low.")
    assert play(world, "answers:silent", task, ["4"])[0][0].startswith("4 is wrong.")
    assert play(world, "wording:directions", task, ["4"])[0][0].startswith("Go down from 4.")
    assert play(world, "answers:inverted", task, ["3"])[0][1] == 10.0


def test_severity_is_the_share_of_changed_replies_and_grows_by_subsets(world: GuessWorld) -> None:
    def changed(severity: float) -> set[tuple[str, int]]:
        variant = world.variant(Variant("answers", "inverted", severity))
        plain = world.variant("default")
        pairs = [(task, int(task.payload["first"]) + k) for task in world.tasks("train") for k in range(7)]
        return {(task.id, guess) for task, guess in pairs if world.reply(task, guess, variant) != world.reply(task, guess, plain)}

    some, more, all_ = changed(0.3), changed(0.6), changed(1.0)
    assert changed(0.0) == set()
    assert some < more < all_
    assert len(some) / len(all_) == pytest.approx(0.3, abs=0.03)
    assert len(more) / len(all_) == pytest.approx(0.6, abs=0.03)


@pytest.mark.parametrize("variant", ["answers:inverted@0", "answers:silent@0", "answers:control", "wording:directions@0"])
def test_severity_zero_is_the_unperturbed_world(world: GuessWorld, variant: str) -> None:
    for task in world.tasks("train")[:20]:
        numbers = [str(int(task.payload["first"]) + k) for k in (0, 3, 6)]
        assert play(world, variant, task, numbers) == play(world, "default", task, numbers)
        assert world.oracle(task, variant) == world.oracle(task)
    assert distinctness(world.probe(variant), world.probe()).same


def test_marks_differ_and_stand_after_the_text(world: GuessWorld, task: Task) -> None:
    plain = world.make().reset(options={"task": task})[0]
    for reveal in ("name", "cue", "hint"):
        seen = [world.make(f"{v}+{reveal}").reset(options={"task": task})[0] for v in ("default", "answers:inverted", "answers:silent")]
        assert len(set(seen)) == 3
        assert all(text.startswith(plain + "\n") for text in seen)


def test_splits_are_disjoint_with_equally_frequent_categories() -> None:
    world = make_world("guess", max_steps=8, heldout=90, seed=1)
    train, heldout = world.tasks("train"), world.tasks("heldout")
    assert not {task.id for task in train} & {task.id for task in heldout}
    counts = [sum(task.category == category for task in heldout) for category in SIZES]
    assert counts == [30, 30, 30]
    for task in train:
        first, size = int(task.payload["first"]), int(task.payload["size"])
        assert f"{first} to {first + size - 1}" in task.instruction
        assert task.payload["target"] in range(first, first + size)


def test_more_tasks_than_there_are() -> None:
    with pytest.raises(ValueError, match="there are 530 tasks in all"):
        GuessWorld(train=600)


def test_a_small_game_with_many_tasks() -> None:
    small = GuessWorld(size=3, places=1, copies=100, max_steps=2)
    tasks = [*small.tasks("train"), *small.tasks("heldout")]
    assert (len(small.tasks("train")), len(small.tasks("heldout"))) == (240, 60)
    assert len({task.id for task in tasks}) == 300
    assert {task.instruction for task in tasks} == {"Find the number that I think of. It is one of 1 to 3."}
    assert sorted({int(task.payload["target"]) for task in tasks}) == [1, 2, 3]
    # The fair player needs no more than two guesses for three numbers.
    assert all(play(small, "default", task, small.oracle(task))[-1][2] for task in tasks)
    assert {task.category for task in GuessWorld(size=8).tasks("train")} == {"middle"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 1}, "size is 1; allowed: 2 to 31"),
        ({"size": 32}, "allowed: 2 to 31"),
        ({"places": 11}, "places is 11"),
        ({"copies": 0}, "copies 0"),
        ({"size": 3, "places": 1}, "heldout and train need"),
    ],
)
def test_small_games_out_of_range(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GuessWorld(**options)
