"""BM25 as Lucene computes it, over an inverted index in flat arrays that may be memory-mapped.

Owns the scoring formula, the quantised document lengths, the order of hits, and how an index is laid out. Documents are numbered
in ascending order of their id, so that equal scores are ordered by id. Knows nothing of products or pages.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from envs.webshop.analyzer import analyze

Ints: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float32]

K1 = 0.9
B = 0.4


def quantised_length(length: int) -> int:
    """A document length as Lucene's one-byte norm keeps it: exact below 40, above it 24 plus the top four bits of the rest."""
    if length < 24:
        return length
    rest = length - 24
    shift = rest.bit_length() - 4
    return 24 + (rest if shift <= 0 else (rest >> shift) << shift)


@dataclass
class IndexBuilder:
    """Collects the terms of documents and lays them out as arrays. Documents are given in any order and numbered at the end."""

    terms: dict[str, int] = field(default_factory=dict)
    term_ids: array[int] = field(default_factory=lambda: array("i"))
    counts: array[int] = field(default_factory=lambda: array("i"))
    distinct: array[int] = field(default_factory=lambda: array("i"))
    lengths: array[int] = field(default_factory=lambda: array("i"))

    def add(self, text: str) -> None:
        """Add one document."""
        tokens = analyze(text)
        tally: dict[str, int] = {}
        for token in tokens:
            tally[token] = tally.get(token, 0) + 1
        for token, count in tally.items():
            self.term_ids.append(self.terms.setdefault(token, len(self.terms)))
            self.counts.append(count)
        self.distinct.append(len(tally))
        self.lengths.append(len(tokens))

    def arrays(self, rank: npt.NDArray[np.int32]) -> dict[str, npt.NDArray[Any]]:
        """The index as named arrays; ``rank[i]`` is the number of the i-th added document."""
        words = sorted(self.terms, key=lambda term: term.encode("utf-8", "surrogatepass"))
        encoded = [word.encode("utf-8", "surrogatepass") for word in words]
        place = np.empty(len(words), dtype=np.int64)
        place[[self.terms[word] for word in words]] = np.arange(len(words))
        terms = place[np.asarray(self.term_ids, dtype=np.int64)] if words else np.empty(0, dtype=np.int64)
        documents = np.repeat(rank, np.asarray(self.distinct, dtype=np.int64))
        order = np.lexsort((documents, terms))
        lengths = np.empty(len(rank), dtype=np.int64)
        lengths[rank] = np.asarray(self.lengths, dtype=np.int64)
        used = int((lengths > 0).sum())
        average = float(np.float32(lengths.sum() / used)) if used else 1.0
        quantised = np.array([quantised_length(int(length)) for length in lengths], dtype=np.float32)
        return {
            "words": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "word_ends": np.cumsum([len(word) for word in encoded], dtype=np.int64),
            "starts": np.concatenate(([0], np.cumsum(np.bincount(terms, minlength=len(words))))).astype(np.int64),
            "documents": documents[order].astype(np.int32),
            "frequencies": np.asarray(self.counts, dtype=np.float32)[order],
            "lengths": quantised,
            "statistics": np.array([used, average], dtype=np.float64),
        }


class BM25:
    """Ranked retrieval over an index made by ``IndexBuilder``. The arrays are only read."""

    def __init__(self, arrays: Mapping[str, npt.NDArray[Any]], k1: float = K1, b: float = B) -> None:
        self._arrays = arrays
        self._words = arrays["words"]
        self._word_ends = arrays["word_ends"]
        self._starts = arrays["starts"]
        self._documents: Ints = arrays["documents"]
        self._frequencies: Floats = arrays["frequencies"]
        self.n_documents = len(arrays["lengths"])
        self._used = float(arrays["statistics"][0])
        average = np.float32(arrays["statistics"][1])
        one, k1_, b_ = np.float32(1), np.float32(k1), np.float32(b)
        lengths: Floats = np.asarray(arrays["lengths"])
        self._inverse: Floats = one / (k1_ * ((one - b_) + b_ * lengths / average))

    def with_corner(self, k1: float, b: float) -> BM25:
        """The same index ranked with other parameters; only the length norms are held anew."""
        return BM25(self._arrays, k1, b)

    def _word(self, index: int) -> bytes:
        start = int(self._word_ends[index - 1]) if index else 0
        return self._words[start : int(self._word_ends[index])].tobytes()

    def _find(self, term: str) -> int | None:
        """The number of a term, by binary search, so that a process holds no dictionary of its own."""
        wanted = term.encode("utf-8", "surrogatepass")
        low, high = 0, len(self._word_ends)
        while low < high:
            middle = (low + high) // 2
            if self._word(middle) < wanted:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self._word_ends) and self._word(low) == wanted else None

    def search(self, text: str, k: int = 50, allowed: npt.NDArray[np.bool_] | None = None) -> list[tuple[int, float]]:
        """The best ``k`` documents that hold a term of ``text``: ``(document number, float32 score)``, best first.

        Of ``allowed`` (a flag per document number) only those; the scores do not depend on it.
        """
        return best(self.totals(text), k, allowed)

    def totals(self, text: str) -> npt.NDArray[np.float64]:
        """The score of every document for ``text``, by document number; 0 for those that hold none of its terms."""
        tally: dict[str, int] = {}
        for term in analyze(text):
            tally[term] = tally.get(term, 0) + 1
        total = np.zeros(self.n_documents, dtype=np.float64)
        for term, boost in tally.items():
            number = self._find(term)
            if number is None:
                continue
            part = slice(int(self._starts[number]), int(self._starts[number + 1]))
            documents, frequencies = self._documents[part], self._frequencies[part]
            found = len(documents)
            idf = np.float32(math.log(1 + (self._used - found + 0.5) / (found + 0.5)))
            weight = np.float32(boost) * idf
            total[documents] += weight - weight / (np.float32(1) + frequencies * self._inverse[documents])
        return total


def best(totals: npt.NDArray[np.float64], k: int, allowed: npt.NDArray[np.bool_] | None = None) -> list[tuple[int, float]]:
    """The ``k`` documents with the largest totals above 0, of the ``allowed`` ones: ``(number, float32 score)``, equal ones by number."""
    matching = np.flatnonzero(totals > 0 if allowed is None else (totals > 0) & allowed)
    scores = totals[matching].astype(np.float32)
    if len(matching) > k > 0:
        bar = np.partition(scores, len(scores) - k)[len(scores) - k]
        keep = scores >= bar
        matching, scores = matching[keep], scores[keep]
    order = np.argsort(-scores, kind="stable")[:k]
    return [(int(document), float(score)) for document, score in zip(matching[order], scores[order], strict=True)]


class Blend:
    """Two engines over the same documents, ranked by a weighted mean of their scores; ``weight`` in [0, 1] is that of the second."""

    def __init__(self, first: BM25, second: BM25, weight: float) -> None:
        self._first, self._second, self._weight = first, second, weight

    def search(self, text: str, k: int = 50, allowed: npt.NDArray[np.bool_] | None = None) -> list[tuple[int, float]]:
        """As ``BM25.search``."""
        return best((1 - self._weight) * self._first.totals(text) + self._weight * self._second.totals(text), k, allowed)
