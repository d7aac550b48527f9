"""The embedded model's tokenizer: a small byte-level BPE made for WebShop pages and action texts.

Owns how text is cut. Lower-cases (WebShop does the same to every action argument), keeps the site's constant phrases as single
tokens, cuts product ids into two halves and prices into one piece, and falls back to bytes, so that any text can be encoded.
The closing bracket of an action is the stop token. Knows nothing of models or worlds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

VOCABULARY = 768
PAD = "<pad>"
STOP = "]"

SEPARATOR = " [SEP] "

PHRASES: tuple[str, ...] = (
    "click[",
    "search[",
    "\nlast: ",
    "\npage: ",
    "\naction: ",
    "find me ",
    " with color: ",
    " with size: ",
    ", and size: ",
    ", and price lower than ",
    " dollars",
    "back to search",
    "page 1 (total results: ",
    "next >",
    "< prev",
    "price: ",
    "rating: n.a.",
    "description",
    "features",
    "reviews",
    "buy now",
    "buy with: ",
    "invalid",
    "none",
)
"""Constant texts of prompts and pages, one token each. BPE is trained on what stands between them: trained across them, words that
always follow a phrase would be learned with a leading space that they never have."""

CUT = r"b0[a-z]{3}| ?\$?[0-9]+(?:\.[0-9]+)?| ?[a-z]+| ?[^\sa-z0-9]|\s"
"""Pieces that BPE merges inside of: half a product id, a number with its decimals and sign, a word or mark with its leading space."""

CHAT_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""Passes the content through: the prompt's text is the prompt."""


def train_tokenizer(texts: Iterable[str]) -> Any:
    """A ``PreTrainedTokenizerFast`` trained on ``texts`` (prompts and responses), with at most ``VOCABULARY`` entries."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.normalizer = normalizers.Lowercase()
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(CUT), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(PHRASES) - 1,
        special_tokens=[PAD, STOP],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(segments(texts), trainer)
    # The separator holds the stop token, which is matched in the raw text: only a raw match of the separator comes before it.
    core.add_tokens([AddedToken(SEPARATOR, normalized=False), *(AddedToken(phrase, normalized=True) for phrase in PHRASES)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=STOP, pad_token=PAD, clean_up_tokenization_spaces=False, padding_side="left"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def segments(texts: Iterable[str]) -> Iterator[str]:
    """What stands between phrases and stop tokens in lower-cased texts."""
    cut = re.compile("|".join(re.escape(phrase) for phrase in sorted((SEPARATOR.lower(), *PHRASES, STOP), key=len, reverse=True)))
    for text in texts:
        yield from filter(None, cut.split(text.lower()))
