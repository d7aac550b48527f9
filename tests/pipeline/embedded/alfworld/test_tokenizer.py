"""The ALFWorld tokenizer: what is one token, what is dropped, and that any command survives."""

from __future__ import annotations

from typing import Any

import pytest

from envs.alfworld import AlfWorld
from pipeline.embedded.alfworld.demos import Amounts, record, things
from pipeline.embedded.alfworld.housekeeper import Skill
from pipeline.embedded.alfworld.tokenizer import STOP, UNKNOWN, make_tokenizer, relatives, vocabulary


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(things())


def pieces(tokenizer: Any, text: str) -> list[str]:
    tokens: list[str] = tokenizer.convert_ids_to_tokens(tokenizer.encode(text, add_special_tokens=False))
    return tokens


def test_things_phrases_and_words_are_one_token_each(tokenizer: Any) -> None:
    text = "You arrive at countertop 1. On the countertop 1, you see a apple 2, and a knife 1."
    assert pieces(tokenizer, text) == ["you arrive at", "countertop 1", "on", "countertop 1", "you see", "apple 2", "knife 1"]
    assert pieces(tokenizer, "Here: fridge 1 closed (named)\nView: none") == ["here:", "fridge 1", "closed", "named", "view:", "none"]


@pytest.mark.parametrize(
    "command",
    [
        "go to countertop 1",
        "take apple 2 from fridge 1",
        "move soapbar 3 to toilet 1",
        "heat egg 1 with microwave 1",
        "use desklamp 1",
        "look",
        "walk to cabinet 27",
        "grab xylophone 4 from shelf 12",
        "zig42zag",
    ],
)
def test_any_command_comes_back_from_its_tokens(tokenizer: Any, command: str) -> None:
    ids = tokenizer.encode(command, add_special_tokens=False)
    assert tokenizer.decode([*ids, tokenizer.eos_token_id], skip_special_tokens=True).replace("zig 42 zag", "zig42zag") == command
    assert tokenizer.unk_token_id not in ids


def test_signs_with_which_worlds_show_themselves_are_tokens(tokenizer: Any) -> None:
    assert pieces(tokenizer, "~*") == ["~", "*"]
    assert pieces(tokenizer, "You are in house 3.")[-1] == "house 3"


def test_a_numbered_thing_is_related_to_its_kind_and_number() -> None:
    found = relatives(vocabulary({"apple": 2, "cabinet": 1}))
    assert found.pop("house 20") == ("house", "20")
    assert {token: relative for token, relative in found.items() if relative[0] != "house"} == {
        "apple 1": ("apple", "1"),
        "apple 2": ("apple", "2"),
        "cabinet 1": ("cabinet", "1"),
    }


def test_tokens_are_unique_and_the_stop_token_is_not_a_word() -> None:
    tokens = vocabulary(things())
    assert len(tokens) == len(set(tokens)) < 600
    assert STOP in tokens
    assert UNKNOWN in tokens


def test_nothing_in_demonstrations_is_unknown(tokenizer: Any, houses: AlfWorld) -> None:
    turns = record(houses, houses.games("train")[::4], Skill(), Amounts(), 0, lambda new: None)
    for turn in turns:
        for text in (turn.prompt, turn.response):
            tokens = pieces(tokenizer, text)
            assert UNKNOWN not in tokens
            assert not any(token.startswith("##") for token in tokens), text
    assert max(len(pieces(tokenizer, turn.prompt)) for turn in turns) < 90
