"""Demonstrations of the toy worlds: random players, exercises, and a tokenizer that knows every word of them."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from envs.bandit import BanditWorld
from envs.guess import GuessWorld
from envs.variants import REVEALS, Variant
from pipeline.embedded.toys.demos import READING, RULES, Amounts, Turn, any_side, record
from pipeline.embedded.toys.tokenizer import STOP, make_tokenizer, vocabulary

FEW = Amounts(bandits=300, guesses=200, readings=200)


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
    played = [turn for turn in turns if READING not in turn.prompt]
    two = [turn for turn in played if "Arms: a, b." in turn.prompt]
    counts = Counter(turn.response for turn in two)
    assert set(counts) == {"a", "b"}
    # Within four standard errors of an even draw.
    assert abs(counts["a"] / len(two) - 0.5) < 2 / len(two) ** 0.5
    hinted = [turn for turn in two if turn.prompt.endswith("best here\nAction:")]
    followed = sum(turn.response == turn.prompt.rpartition("Arm ")[2][0] for turn in hinted)
    assert abs(followed / len(hinted) - 0.5) < 2 / len(hinted) ** 0.5


def test_reading_exercises_read_the_mark(turns: list[Turn]) -> None:
    read = [turn for turn in turns if turn.prompt.startswith(READING)]
    assert len(read) == FEW.readings
    for turn in read:
        mark = turn.prompt.removesuffix("\nAction:").rpartition("\n")[2].lower()
        assert turn.response in mark.split()
    assert {turn.response for turn in read} >= {"a", "b", "1", "~", "low"}


def test_numbers_are_guessed_on_the_side_that_the_rule_says(turns: list[Turn]) -> None:
    sides: dict[str, list[bool]] = {rule: [] for rule in RULES}
    for turn in turns:
        if turn.prompt.startswith(RULES) and turn.prompt.count("\n>") == 1 and " is too low" in turn.prompt:
            rule = next(rule for rule in RULES if turn.prompt.startswith(rule))
            sides[rule].append(int(turn.response) > int(turn.prompt.rpartition("\n> ")[2].split()[0]))
    # Only where the rule leaves no number (nothing is above the largest) any one may be said.
    up, down = (sum(sides[rule]) / len(sides[rule]) for rule in RULES)
    assert up > 0.9
    assert down < 0.1


@pytest.mark.parametrize(("turn", "allowed"), [(0.0, {"5", "6"}), (1.0, {"1", "2", "3"})])
def test_a_rule_reads_all_replies(turn: float, allowed: set[str]) -> None:
    guess, numbers = any_side(0.0, turn), [str(n) for n in range(1, 8)]
    history = [("Guess a number", "7")]
    page = "4 is too low. Guess a number"
    said = {guess([("Guess", "4")], page, numbers, random.Random(seed)) for seed in range(60)}
    assert said == ({"5", "6", "7"} if turn == 0.0 else {"1", "2", "3"})
    later = {guess([*history, ("7 is too high. Guess", "4")], page, numbers, random.Random(seed)) for seed in range(60)}
    assert later == (allowed if turn == 0.0 else set(numbers))
