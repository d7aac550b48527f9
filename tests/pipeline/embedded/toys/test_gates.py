"""The gates of the toy model on hand-made policies, and the shipped weights against their manifest."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from envs.variants import Variant
from pipeline.embedded import MANIFEST, embedded_path, model_key, read_manifest
from pipeline.embedded.gates import GateError, Policy, Sampler
from pipeline.embedded.toys.gates import Gates, Measured, answer, arms, check, guesses, measure
from pipeline.models import load_model, load_tokenizer

GOOD = Measured(admissible=1.0, arm=0.5, in_range=1.0, guess=0.4, inverted=0.35, tasks=100)


def halves(prompts: Sequence[str], temperature: float) -> list[str]:
    """Always the number in the middle that true replies leave; the first arm."""
    said = []
    for prompt in prompts:
        if "Arms:" in prompt:
            said.append("a<stop>")
            continue
        low, high = map(int, re.findall(r"from (\d+) to (\d+)\.", prompt)[-1])
        low = max([low, *(int(n) + 1 for n in re.findall(r"(\d+) is too low", prompt))])
        high = min([high, *(int(n) - 1 for n in re.findall(r"(\d+) is too high", prompt))])
        said.append(f"{(low + high) // 2}<stop>")
    return said


def chance(seed: int) -> Policy:
    rng = random.Random(seed)
    return lambda prompts, _: [rng.choice("ab") if "Arms:" in prompt else "7" for prompt in prompts]


def test_a_fair_player_finds_every_number_and_none_where_replies_lie() -> None:
    assert guesses(halves, 40, Variant()) == (1.0, 1.0)
    assert guesses(halves, 40, Variant("answers", "inverted"))[0] < 0.3


def test_arms_are_counted_and_all_numbers_measured() -> None:
    assert arms(halves, 30, Variant()) == {"a": 30}
    measured = measure(halves, 20)
    assert (measured.admissible, measured.arm, measured.guess, measured.in_range) == (1.0, 1.0, 1.0, 1.0)
    even = measure(chance(0), 100)
    assert even.admissible == 1.0
    assert 0.5 <= even.arm < 0.7
    assert 0 < even.in_range < 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"admissible": 0.5}, r"arms played: 50.0% of the answers, at least"),
        ({"arm": 0.9}, r"the most played arm of two: 90.0%, at most"),
        ({"in_range": 0.1}, r"guesses in the range: 10.0%"),
        ({"guess": 0.9, "inverted": 0.9}, r"numbers found: 90.0%, accepted"),
        ({"inverted": 0.1}, r"where replies say the opposite: 10.0%"),
        ({"arm": 1.0, "guess": 0.0, "inverted": 0.0}, r"misses 2 gate\(s\) on 100 held-out tasks"),
        ({"guess": float("nan")}, r"numbers found"),
    ],
)
def test_every_missed_gate_is_named(change: dict[str, float], message: str) -> None:
    check(GOOD, Gates())
    with pytest.raises(GateError, match=message):
        check(replace(GOOD, **change), Gates())  # type: ignore[arg-type]


@pytest.mark.parametrize(("text", "expected"), [("a<stop>", "a"), ("12 <stop>", "12"), ("<stop>", ""), ("A", "a")])
def test_an_answer_ends_at_the_stop_token(text: str, expected: str) -> None:
    assert answer(text, "bandit") == expected


def test_the_shipped_folder_is_intact_small_and_serves_both_toy_worlds() -> None:
    folder = embedded_path("bandit")
    manifest = read_manifest(folder)
    assert embedded_path("guess") == folder != embedded_path()
    assert {path.name for path in folder.iterdir()} == {*manifest["files"], MANIFEST}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
    assert manifest["key"] == model_key("bandit")
    check(Measured(**manifest["measured"]), Gates())


def test_the_shipped_weights_know_the_form_of_an_answer_and_nothing_of_what_pays() -> None:
    folder = embedded_path("bandit")
    sampler = Sampler(load_model(folder), load_tokenizer(folder), seed=7)
    for member in ("a", "b"):
        counts = arms(sampler, 100, Variant("conflict", member, reveal="hint"))
        assert counts["a"] + counts["b"] >= 94
        # Four standard errors of an even draw.
        assert abs(counts["a"] / counts.total() - 0.5) < 0.2
    assert guesses(sampler, 60, Variant())[0] == pytest.approx(read_manifest(folder)["measured"]["guess"], abs=0.2)
