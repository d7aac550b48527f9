"""The tokenizer of the embedded ALFWorld model: one token per numbered thing or place, one per fixed phrase, one per word.

Owns how text is cut. Lower-cases, drops articles, commas and full stops, and spells words that it does not know letter by letter, so that
any command can be read and written. Says which tokens are of a kind (``cabinet``, ``cabinet 1``, ``cabinet 2``), for related start vectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

PAD, STOP, UNKNOWN = "<pad>", "<stop>", "<unk>"
SPECIAL = (PAD, STOP, UNKNOWN)

HEADS = ("left:", "done:", "named:", "placed:", "seen:", "failed:", "now:", "holding:", "here:", "view:", "action:")
"""What the lines of the prompt begin with."""

PHRASES = (
    "you arrive at",
    "you pick up",
    "you move",
    "you open",
    "you close",
    "you turn on",
    "you see",
    "is closed",
    "is open",
    "in it",
    "go to",
)

WORDS = tuple(
    (
        "none nothing happens take move open close examine use heat cool clean slice look inventory help from to with at in on under and "
        "put some two them find it hot closed you using carrying are not anything facing next room this is normal special about of there "
        "turn off sliced cold named failed "
        # What worlds may say of themselves, and other words for commands.
        "house here all as usual things heated cooled by being put into must stand before many lie other places than containers shut when "
        "go away start means one says for can carry more do see what until answer only that done walk unlatch grab place switch warm wash "
        "chill"
    ).split()
)
"""Words of ALFWorld's sentences and of the tasks, besides kinds of things."""

SIGNS = "~*+=^%&#"
"""Marks with which worlds give themselves away; all other punctuation is dropped."""

HOUSE, MOST_HOUSES = "house", 20
"""What a world calls itself where it gives its name."""

PIECE = "##"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_DROPPED = r"(?<![a-z])(?:an?|the|and)(?![a-z])|'s"

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Passes the content through: the prompt's text is the prompt."""


def vocabulary(things: Mapping[str, int]) -> list[str]:
    """All tokens, by id. ``things`` has the kinds of things and places, and up to which number each occurs."""
    things = {**things, HOUSE: MOST_HOUSES}
    named = [name for kind, most in sorted(things.items()) for name in (kind, *(f"{kind} {number}" for number in range(1, most + 1)))]
    letters = [*_LETTERS, *(f"{PIECE}{letter}" for letter in _LETTERS), f"{PIECE} "]
    return list(dict.fromkeys((*SPECIAL, *HEADS, *PHRASES, *WORDS, *named, *SIGNS, *letters)))


def make_tokenizer(things: Mapping[str, int]) -> Any:
    """A ``PreTrainedTokenizerFast`` over ``vocabulary(things)``."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = {token: number for number, token in enumerate(vocabulary(things))}
    core = Tokenizer(models.WordPiece(vocab=tokens, unk_token=UNKNOWN, continuing_subword_prefix=PIECE, max_input_chars_per_word=40))
    core.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex(_DROPPED), "")])
    phrases = "|".join(re.escape(phrase) for phrase in sorted((*HEADS, *PHRASES), key=len, reverse=True))
    # What the pattern leaves out (blanks and punctuation) is dropped.
    pattern = Regex(rf"{phrases}|[a-z]+ [0-9]+|[a-z]+|[0-9]+|[{re.escape(SIGNS)}]")
    core.pre_tokenizer = pre_tokenizers.Split(pattern, behavior="removed", invert=True)
    core.decoder = decoders.WordPiece(prefix=PIECE, cleanup=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=STOP,
        pad_token=PAD,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def relatives(tokens: Iterable[str]) -> dict[str, tuple[str, str]]:
    """For every numbered thing among ``tokens`` its kind and its number: what its start vector is made of."""
    found = {}
    for token in tokens:
        kind, _, number = token.rpartition(" ")
        if kind and number.isdigit():
            found[token] = (kind, number)
    return found
