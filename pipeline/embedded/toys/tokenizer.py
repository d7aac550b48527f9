"""The tokenizer of the embedded toy model: one token per word of the toy worlds and per small number.

Owns how text is cut. Lower-cases, drops punctuation, and spells words and numbers that it does not know character by character, so that any
text can be read. Knows nothing of models or of what the worlds do.
"""

from __future__ import annotations

from typing import Any

PAD, STOP, UNKNOWN = "<pad>", "<stop>", "<unk>"
SPECIAL = (PAD, STOP, UNKNOWN)

WORDS = tuple(
    (
        # The bandit: tasks, replies, marks.
        "machine stands in the hall red blue green white play arm arms that pays most often of no such played paid did not pay best here "
        "game is over "
        # Guessing: tasks, replies, marks.
        "find number i think it one to guess from guesses left right wrong too low high go up down means and get direction replies are "
        "what they say where world "
        # The prompt.
        "action"
    ).split()
)

SIGNS = "~*+=^%&#>"
"""Marks with which worlds give themselves away, and the sign before a past action; all other punctuation is dropped."""

NUMBERS = 131
"""0 and the numbers that can occur in a guessing task: the last range ends at 121."""

PIECE = "##"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Passes the content through: the prompt's text is the prompt."""


def vocabulary() -> list[str]:
    """All tokens, by id."""
    pieces = [*_LETTERS, *(f"{PIECE}{letter}" for letter in _LETTERS)]
    return list(dict.fromkeys((*SPECIAL, *WORDS, *(str(number) for number in range(NUMBERS)), *SIGNS, *pieces)))


def make_tokenizer() -> Any:
    """A ``PreTrainedTokenizerFast`` over ``vocabulary()``."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = {token: number for number, token in enumerate(vocabulary())}
    core = Tokenizer(models.WordPiece(vocab=tokens, unk_token=UNKNOWN, continuing_subword_prefix=PIECE, max_input_chars_per_word=40))
    core.normalizer = normalizers.Lowercase()
    # What the pattern leaves out (blanks and punctuation) is dropped.
    pattern = Regex("[a-z]+|[0-9]+|[" + "".join(f"\\{sign}" for sign in SIGNS) + "]")
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
