"""The Porter stemmer with Martin Porter's own later departures, as Lucene's ``PorterStemFilter`` applies it.

Algorithm: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980, and the departures listed on his page
(words of one or two letters stay; ``-bli`` -> ``-ble``; ``-logi`` -> ``-log``). The Snowball variants differ from it and
change search results. Knows nothing of tokens, stop words or documents.
"""

from __future__ import annotations

from collections.abc import Callable

_VOWELS = frozenset("aeiou")

_STEP_2 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("logi", "log"),
)
_STEP_3 = (("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""))
_STEP_4 = (
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ion",
    "ou",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
)


def _shape(word: str) -> str:
    """One letter per character: ``v`` for a vowel, ``c`` for anything else (``y`` is a vowel after a consonant)."""
    out: list[str] = []
    for index, char in enumerate(word):
        if char in _VOWELS or (char == "y" and index > 0 and out[-1] == "c"):
            out.append("v")
        else:
            out.append("c")
    return "".join(out)


def _measure(stem: str) -> int:
    """Porter's m: how often a vowel run is followed by a consonant."""
    return _shape(stem).count("vc")


def _ends_cvc(stem: str) -> bool:
    return len(stem) >= 3 and _shape(stem).endswith("cvc") and stem[-1] not in "wxy"


def _ends_double_consonant(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _plural(word: str) -> str:
    if word.endswith("sses") or word.endswith("ies"):
        return word[:-2]
    if word.endswith("ss"):
        return word
    return word[:-1] if word.endswith("s") else word


def _past_and_gerund(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        stem = word[: -len(suffix)]
        if word.endswith(suffix) and "v" in _shape(stem):
            break
    else:
        return word
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _ends_double_consonant(stem):
        return stem if stem[-1] in "lsz" else stem[:-1]
    return stem + "e" if _measure(stem) == 1 and _ends_cvc(stem) else stem


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and "v" in _shape(word[:-1]) else word


def _replace_first(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Apply the first rule whose suffix fits, if the stem before it has m > 0."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            return stem + replacement if _measure(stem) > 0 else word
    return word


def _long_suffixes(word: str) -> str:
    for suffix in _STEP_4:
        if word.endswith(suffix):
            stem = word[: -len(suffix)]
            if suffix == "ion" and not stem.endswith(("s", "t")):
                return word
            return stem if _measure(stem) > 1 else word
    return word


def _final_e(word: str) -> str:
    if not word.endswith("e"):
        return word
    stem = word[:-1]
    measure = _measure(stem)
    return stem if measure > 1 or (measure == 1 and not _ends_cvc(stem)) else word


def _double_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


_STEPS: tuple[Callable[[str], str], ...] = (
    _plural,
    _past_and_gerund,
    _final_y,
    lambda word: _replace_first(word, _STEP_2),
    lambda word: _replace_first(word, _STEP_3),
    _long_suffixes,
    _final_e,
    _double_l,
)


def stem(word: str) -> str:
    """The stem of a lower-case word. Words of one or two characters stay as they are."""
    if len(word) <= 2:
        return word
    for step in _STEPS:
        word = step(word)
    return word
