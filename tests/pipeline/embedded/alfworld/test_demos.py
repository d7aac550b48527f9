"""Demonstrations in ALFWorld's games, and the exchange of names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from envs.alfworld import AlfWorld
from pipeline.embedded.alfworld.demos import Amounts, Turn, object_kinds, place_kinds, record, renamed, things
from pipeline.embedded.alfworld.housekeeper import Skill
from pipeline.embedded.alfworld.tokenizer import make_tokenizer
from pipeline.embedded.folder import encode
from pipeline.embedded.warmstart import Row

SURE = Skill(stray=0.0, fumble=0.0)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer(things())


def test_every_game_is_shown_once_and_ends_with_its_goal(houses: AlfWorld) -> None:
    counted: list[int] = []
    games = houses.games("train")
    turns = record(houses, games, SURE, Amounts(elsewhere=0.0, rare=1), 0, counted.append)
    assert sum(counted) == len(games)
    starts = [turn for turn in turns if "\nNow: none" in turn.prompt]
    assert len(starts) == len(games)
    assert Counter(turn.decision for turn in turns).keys() >= {"search", "open", "take", "bring", "put", "treat", "lamp"}


def test_the_same_seed_shows_the_same_and_another_one_something_else(houses: AlfWorld) -> None:
    games = houses.games("train")[:8]
    first, same, other = (record(houses, games, Skill(), Amounts(), seed, lambda new: None) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_in_the_other_world_a_failed_try_is_followed_by_another_appliance(houses: AlfWorld) -> None:
    games = [game for game in houses.games("train") if houses.info(game).task_type == "pick_heat_then_place_in_recep"]
    turns = record(houses, games, SURE, Amounts(elsewhere=1.0, rare=1), 0, lambda new: None)
    after = [turn.response for turn in turns if "\nFailed: heat" in turn.prompt and "with microwave 1" in turn.prompt]
    assert after
    assert all(response.startswith(("go to stoveburner", "heat")) for response in after)
    heated = [turn.response for turn in turns if turn.decision == "treat" and "stoveburner" in turn.response]
    assert len(heated) == len(games)


def test_turns_that_need_the_notebook_are_used_more_often(houses: AlfWorld) -> None:
    once, twice = (record(houses, houses.games("train"), Skill(), Amounts(rare=n), 0, lambda new: None) for n in (1, 2))
    rare = [turn for turn in once if turn.rare]
    assert 0.02 < len(rare) / len(once) < 0.3
    assert len(twice) == len(once) + len(rare)
    assert not Turn("put\nSeen: apple 1 at shelf 1\nHolding: cup 1\n", "look", "search").rare


def test_renaming_exchanges_things_consistently_and_leaves_places(tokenizer: Any) -> None:
    prompt = "put two apple in fridge.\nNow: On the fridge 1, you see a apple 2, and a desklamp 1.\nAction:"
    (row,) = encode(tokenizer, [Turn(prompt, "take apple 2 from fridge 1", "take")], lambda *_: None, (tokenizer.eos_token_id,))
    seen = set()
    for new in renamed([row], tokenizer, 1.0, 40, seed=0):
        tokens = tokenizer.convert_ids_to_tokens(list(new.prompt))
        answer = tokenizer.convert_ids_to_tokens(list(new.response))
        kind, thing = tokens[2], answer[1]
        assert thing.startswith(f"{kind} ")
        assert tokens == ["put", "two", kind, "in", "fridge", "now:", "on", "fridge 1", "you see", thing, "desklamp 1", "action:"]
        assert answer == ["take", thing, "from", "fridge 1", "<stop>"]
        seen.add(thing)
    assert len({thing.split()[0] for thing in seen}) > 20
    assert {thing.split()[1] for thing in seen} == {"1", "2", "3"}


def test_every_pass_uses_every_row_once_and_the_share_decides_how_many_change(tokenizer: Any) -> None:
    apple = tokenizer.get_vocab()["apple 1"]
    rows = [Row((apple,), (apple, n)) for n in range(3, 203)]
    assert Counter(renamed(rows, tokenizer, 0.0, 2, 0)) == Counter([*rows, *rows])
    changed = sum(row.prompt != (apple,) for row in renamed(rows, tokenizer, 0.5, 5, 0))
    assert changed / 1000 == pytest.approx(0.5, abs=0.06)


def test_kinds_have_tokens_and_lamps_and_places_are_no_things_to_exchange() -> None:
    assert {"apple", "box", "desklamp", "remotecontrol"} <= set(object_kinds())
    assert {"fridge", "sinkbasin", "stoveburner", "armchair"} <= set(place_kinds())
    assert set(things()) == {*object_kinds(), *place_kinds()}
