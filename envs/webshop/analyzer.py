"""From text to index terms, exactly as Lucene's default English analysis of the WebShop index does it.

Word segmentation (UAX #29, at most 255 characters) -> strip a final possessive ``'s`` -> lower-case -> drop 33 stop words
-> Porter stemmer. Knows nothing of documents, postings or scores.
"""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from envs.webshop.stemmer import stem
from envs.webshop.token_table import token_ranges

STOP_WORDS = frozenset(
    (
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was will with"
    ).split()
)
MAX_TOKEN = 255
"""Longest token in UTF-16 code units; what follows is a token of its own."""

_APOSTROPHES = frozenset("'\u2019\uff07")
# In ASCII text UAX #29 comes down to this: runs of letters, digits and "_", joined by ":.'" between letters and by ".,;'" between digits.
_ASCII_WORD = re.compile(r"\w+(?:(?:(?<=[A-Za-z])[:.'](?=[A-Za-z])|(?<=[0-9])[.,;'](?=[0-9]))\w+)*", re.ASCII)
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]")
_BREAK = regex.compile(r"(?w)\b")
_TOKEN_CHAR = re.compile("[" + "".join(f"{re.escape(chr(a))}-{re.escape(chr(b))}" for a, b in token_ranges()) + "]")
# Lucene keeps a run of these scripts (Thai, Lao, Khmer, Myanmar, ...) in one token, where UAX #29 breaks at every letter.
_RUN_SCRIPTS = regex.compile(r"[\p{Line_Break=Complex_Context}][\p{Line_Break=Complex_Context}\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*")


def _segments(text: str) -> list[str]:
    """Word segments that hold a token character, in order."""
    if text.isascii():
        return [word for word in _ASCII_WORD.findall(text) if _ASCII_TOKEN.search(word)]
    out: list[str] = []
    open_run = False
    for piece in _BREAK.split(text):
        runs = bool(piece) and _RUN_SCRIPTS.fullmatch(piece) is not None
        if runs and open_run:
            out[-1] += piece
        elif piece and _TOKEN_CHAR.search(piece):
            out.append(piece)
        if piece:
            open_run = runs
    return out


def _units(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)


def _cut(segment: str) -> list[str]:
    """A segment longer than ``MAX_TOKEN`` code units is cut at the limit and scanned again from there."""
    out: list[str] = []
    while _units(segment) > MAX_TOKEN:
        head = segment[:MAX_TOKEN]
        while _units(head) > MAX_TOKEN:
            head = head[:-1]
        found = _segments(head)
        if not found:
            return out
        end = segment.index(found[0]) + len(found[0])
        out.append(found[0])
        segment = segment[end:]
    return out + _segments(segment)


def _lower(token: str) -> str:
    """Lower-case character by character (no context rules, one character stays one character)."""
    if token.isascii():
        return token.lower()
    return "".join("i" if char == "\u0130" else char.lower() for char in token)


@lru_cache(maxsize=1 << 16)
def _term(token: str) -> str | None:
    """The index term of a raw token, or None for a stop word."""
    if len(token) >= 2 and token[-1] in "sS" and token[-2] in _APOSTROPHES:
        token = token[:-2]
    token = _lower(token)
    return None if token in STOP_WORDS else stem(token)


def analyze(text: str) -> list[str]:
    """The index terms of ``text``, in order, with repetitions."""
    terms: list[str] = []
    for segment in _segments(text):
        if len(segment) > MAX_TOKEN // 2:
            terms += [term for token in _cut(segment) if (term := _term(token)) is not None]
        elif (term := _term(segment)) is not None:
            terms.append(term)
    return terms
