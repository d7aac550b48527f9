"""Index terms: segmentation, possessives, stop words, stems."""

from __future__ import annotations

import random

import pytest
import regex

from envs.webshop import analyzer
from envs.webshop.analyzer import MAX_TOKEN, analyze
from envs.webshop.stemmer import stem


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The Dogs' running shoes", ["dog", "run", "shoe"]),
        ("women's MEN\u2019S kids\uff07s", ["women", "men", "kid"]),
        ("don't 3.5 1,000 a.b x:y 5'6", ["don't", "3.5", "1,000", "a.b", "x:y", "5'6"]),
        ("foo_bar __ -- 1/2 x-large", ["foo_bar", "1", "2", "x", "larg"]),
        ("the of and", []),
        ("", []),
        ("caf\u00e9 cr\u00e8me \u00bd \u2460", ["caf\u00e9", "cr\u00e8me"]),
        ("\u2605 new\u2605", ["\u2605", "new", "\u2605"]),
        ("\u65e5\u672c tv", ["\u65e5", "\u672c", "tv"]),
        ("\u0e01\u0e02\u0e03 \u0e04", ["\u0e01\u0e02\u0e03", "\u0e04"]),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_lower_case_goes_character_by_character() -> None:
    assert analyze("\u0130X \u039f\u03a3") == ["ix", "\u03bf\u03c3"]


def test_long_words_are_cut() -> None:
    assert analyze("q" * (MAX_TOKEN + 3)) == ["q" * MAX_TOKEN, "qqq"]
    assert analyze("\U00010400" * 200) == ["\U00010428" * 127, "\U00010428" * 73]


def test_ascii_words_are_the_unicode_words() -> None:
    rng = random.Random(1)
    for _ in range(20_000):
        text = "".join(rng.choice("aB3_.:,;' \n-/\"x7") for _ in range(rng.randint(1, 14)))
        expected = [part for part in regex.split(r"(?w)\b", text) if regex.search("[A-Za-z0-9]", part)]
        assert analyzer._segments(text) == expected, text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"),
        ("ponies", "poni"),
        ("agreed", "agre"),
        ("feed", "feed"),
        ("plastered", "plaster"),
        ("hopping", "hop"),
        ("falling", "fall"),
        ("filing", "file"),
        ("happy", "happi"),
        ("sky", "sky"),
        ("relational", "relat"),
        ("possibly", "possibl"),
        ("archaeology", "archaeolog"),
        ("assembly", "assembl"),
        ("adoption", "adopt"),
        ("controlling", "control"),
        ("us", "us"),
        ("as", "as"),
        ("", ""),
    ],
)
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_stems_are_those_of_another_implementation() -> None:
    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer(mode="MARTIN_EXTENSIONS")
    rng = random.Random(0)
    endings = ["ational", "logi", "bli", "iveness", "ing", "ed", "eed", "sses", "ies", "ement", "ion", "ness", "e", "ll", "y", "", "s"]
    for _ in range(20_000):
        word = "".join(rng.choice("abeilostyzwx") for _ in range(rng.randint(0, 5))) + rng.choice(endings) + rng.choice(endings)
        assert stem(word) == porter.stem(word, to_lowercase=False), word
