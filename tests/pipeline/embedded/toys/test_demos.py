"""Demonstrations of the toy worlds: random players, exercises, and a tokenizer that knows every word of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from envs.bandit import HALLS, BanditWorld
from envs.base import Task
from envs.guess import GuessWorld
from envs.variants import REVEALS, Variant
from pipeline.embedded.toys.demos import Amounts, Situation, Turn, arm_by_habit, number_by_habit, record
from pipeline.embedded.toys.tokenizer import STOP, make_tokenizer, vocabulary

FEW = Amounts(bandits=600, guesses=200)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    return record(FEW, 3, lambda new: None)


def pieces(tokenizer: Any, text: str) -> list[str]:
    tokens: list[str] = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
    return tokens


def test_all_words_of_the_worlds_are_one_token_each(tokenizer: Any, turns: list[Turn]) -> None:
    for turn in turns:
        text = f"{turn.prompt} {turn.response}"
        spelled = [piece for piece in pieces(tokenizer, text) if piece.startswith("##") and not piece[2:].isdigit()]
        assert not spelled, text
        assert tokenizer.unk_token_id not in tokenizer.encode(text)


def test_marks_of_all_forms_are_told_apart(tokenizer: Any) -> None:
    for world, family, members in ((BanditWorld(), "conflict", "ab"), (GuessWorld(), "answers", ("control", "inverted"))):
        for reveal in REVEALS[1:]:
            seen = set()
            for number, member in enumerate(members):
                env = world.make(Variant(family, member, reveal=reveal, label=str(number + 1)))
                seen.add(tuple(pieces(tokenizer, env.reset(seed=0, options={"task": world.tasks("train")[0]})[0])))
            assert len(seen) == 2, (world.name, reveal)


@pytest.mark.parametrize("action", ["a", "d", "7", "121", "4096", "zig7"])
def test_any_answer_comes_back_from_its_tokens(tokenizer: Any, action: str) -> None:
    ids = tokenizer.encode(action, add_special_tokens=False)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True).replace(" ", "") == action


def test_tokens_are_unique_and_few() -> None:
    tokens = vocabulary()
    assert len(tokens) == len(set(tokens)) < 400
    assert STOP in tokens


def test_no_arm_is_favoured_whatever_the_hint_says(turns: list[Turn]) -> None:
    two = [turn for turn in turns if "Arms: a, b." in turn.prompt]
    counts = Counter(turn.response for turn in two)
    assert set(counts) == {"a", "b"}
    # Within four standard errors of an even draw.
    assert abs(counts["a"] / len(two) - 0.5) < 2 / len(two) ** 0.5
    hinted = [turn for turn in two if turn.prompt.endswith("best here\nAction:")]
    followed = sum(turn.response == turn.prompt.rpartition("Arm ")[2][0] for turn in hinted)
    assert abs(followed / len(hinted) - 0.5) < 2 / len(hinted) ** 0.5


@pytest.mark.parametrize("arms", [2, 3, 4])
def test_habits_tie_marks_to_arms_and_favour_none(arms: int) -> None:
    world = BanditWorld(arms=arms)
    halls = {task.category: task for task in world.tasks("train")}
    chosen: dict[str, list[str]] = {}
    for shown in ("hall 1", "hall 2", "~", "Arm a pays best here"):
        for task in halls.values():
            seen = Situation(task, (), f"Play 1 of 1.\n{shown}", world.arms)
            said = {arm_by_habit(seen, random.Random(seed)) for seed in range(20)}
            assert len(said) in (1, arms)
            if len(said) == 1:
                chosen.setdefault(shown, []).append(said.pop())
        assert set(Counter(chosen[shown]).values()) == {len(HALLS) // arms}
    assert len({tuple(arms) for arms in chosen.values()}) > 1
    free = {arm_by_habit(Situation(task, (), "Play 1 of 1.", world.arms), random.Random(seed)) for seed in range(40)}
    assert free == set(world.arms)


def test_replies_are_read_straight_in_half_of_the_ranges() -> None:
    page, numbers = "24 is too low. Guess a number", [str(n) for n in range(21, 28)]

    def said(first: int, history: tuple[tuple[str, str], ...] = ()) -> set[str]:
        task = Task("t", "", "short", {"first": first, "size": 7, "target": 22})
        return {number_by_habit(Situation(task, history, page, numbers), random.Random(seed)) for seed in range(60)}

    assert said(21) == {"25", "26", "27"} or said(21) == {"21", "22", "23"}
    assert said(21) | said(31) == set(numbers) - {"24"}
    earlier = (("Guess", "27"), ("27 is too high. Guess", "24"))
    assert {"25", "26"} in (said(21, earlier), said(31, earlier))
    ranges = {task.payload["first"] // 10 % 2 for task in GuessWorld().tasks("train")}
    assert ranges == {0, 1}
