"""The published search engine of the varied shops: BM25 Okapi over plain lower-case words, held in memory.

Owns the published formula with its floor for common words, and the published order of hits (also those that match nothing). Used for the
published forms only; knows nothing of variants.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"\b\w+\b")
EPSILON = 0.25
"""Words in more than half of the documents count this share of the mean inverse document frequency."""


def words(text: str) -> list[str]:
    """Lower-case words, without stemming or stop words."""
    return _WORD.findall(text.lower())


class Okapi:
    """An index over documents given as texts, numbered in the order given."""

    def __init__(self, texts: Sequence[str], k1: float = 1.2, b: float = 0.75) -> None:
        self._k1 = k1
        lengths: list[int] = []
        postings: dict[str, tuple[list[int], list[int]]] = {}
        for number, text in enumerate(texts):
            tally = Counter(words(text))
            lengths.append(sum(tally.values()))
            for word, count in tally.items():
                documents, counts = postings.setdefault(word, ([], []))
                documents.append(number)
                counts.append(count)
        size = np.array(lengths, dtype=np.float64)
        self._norm = k1 * (1 - b + b * size / size.mean())
        total = len(texts)
        idf = {word: float(np.log(total - len(found) + 0.5) - np.log(len(found) + 0.5)) for word, (found, _) in postings.items()}
        floor = EPSILON * sum(idf.values()) / len(idf)
        self._idf = {word: floor if value < 0 else value for word, value in idf.items()}
        self._postings: dict[str, tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]] = {
            word: (np.array(found, dtype=np.int32), np.array(counts, dtype=np.float64)) for word, (found, counts) in postings.items()
        }

    def search(self, text: str, k: int) -> list[int]:
        """The ``k`` best documents, best first, filled up with documents that match nothing; the order of equal scores is numpy's."""
        scores = np.zeros(len(self._norm))
        for word in words(text):
            if word in self._postings:
                documents, counts = self._postings[word]
                scores[documents] += self._idf[word] * (counts * (self._k1 + 1) / (counts + self._norm[documents]))
        return [int(number) for number in np.argsort(-scores)[:k]]
