"""The nouns of product titles, which the type part of the score compares.

Sources in this order: the list that comes with the data (``title_nouns.json``), spaCy with an English model where both are installed,
else a plain rule. Part-of-speech models differ by version, so only the first source is exactly reproducible everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from envs.webshop.records import Product

SPACY_MODEL = "en_core_web_sm"
_TOKEN = re.compile(r"[^\W_]+(?:['.\u2019-][^\W_]+)*")
_NOT_NOUNS = frozenset(
    """
    a about above after all also an and any are as at be been before below best between both but by can each easy every
    extra for from full great had has have high in into is it its large long low made many may more most much new no non
    not of off old on one only or our out over perfect plus short small so some super such than that the their them then
    these they this those through to ultra under up use very was we well were what when which while who will with within
    without you your two three four five six ten
    """.split()
)


def rule_nouns(title: str) -> list[str]:
    """The fallback rule: lower-cased words, in order, that begin with a letter and are no common function word or adjective."""
    return [word for word in (match.lower() for match in _TOKEN.findall(title)) if word[0].isalpha() and word not in _NOT_NOUNS]


def _spacy_nouns() -> Callable[[str], list[str]] | None:
    try:
        import spacy

        tagger = spacy.load(SPACY_MODEL, disable=["ner", "lemmatizer"])
    except (ImportError, OSError):
        return None
    return lambda title: [token.text.lower() for token in tagger(title) if token.pos_ in ("NOUN", "PROPN")]


class TitleNouns:
    """Nouns of a product's title: its own list, else ``tag`` (chosen on first need when not given)."""

    def __init__(self, tag: Callable[[str], list[str]] | None = None) -> None:
        self._tag = None if tag is None else lru_cache(maxsize=8192)(tag)

    def __call__(self, product: Product) -> list[str]:
        """The nouns of the title of ``product``."""
        if product.nouns is not None:
            return product.nouns
        if self._tag is None:
            self._tag = lru_cache(maxsize=8192)(_spacy_nouns() or rule_nouns)
        return self._tag(product.title)
