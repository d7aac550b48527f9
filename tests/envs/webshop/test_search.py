"""BM25: hand-worked scores, quantised lengths, order of equal scores."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from envs.webshop.analyzer import analyze
from envs.webshop.search import BM25, IndexBuilder, quantised_length


def engine(texts: list[str]) -> BM25:
    builder = IndexBuilder()
    for text in texts:
        builder.add(text)
    return BM25(builder.arrays(np.arange(len(texts), dtype=np.int32)))


def lucene_length(n: int) -> int:
    """The length coding as Lucene's SmallFloat writes it, in two steps."""
    if n < 24:
        return n
    i = n - 24
    if i < 8:
        code = i
    else:
        shift = i.bit_length() - 4
        code = ((i >> shift) & 7) | ((shift + 1) << 3)
    return 24 + (code if code >> 3 == 0 else ((code & 7) | 8) << ((code >> 3) - 1))


def test_lengths_are_quantised_as_in_lucene() -> None:
    assert [quantised_length(n) for n in (0, 23, 24, 39, 40, 41, 42, 56, 58, 60)] == [0, 23, 24, 39, 40, 40, 42, 56, 56, 60]
    assert all(quantised_length(n) == lucene_length(n) for n in range(20_000))


def test_score_by_hand() -> None:
    found = engine(["red red hat", "red shoe", "blue bag pen"]).search("red red hat")
    average = 8 / 3

    def idf(n: int) -> float:
        return math.log(1 + (3 - n + 0.5) / (n + 0.5))

    def part(weight: float, tf: int, length: int) -> float:
        return weight - weight / (1 + tf / (0.9 * (0.6 + 0.4 * length / average)))

    first = part(2 * idf(2), 2, 3) + part(idf(1), 1, 3)
    second = part(2 * idf(2), 1, 2)
    assert [document for document, _ in found] == [0, 1]
    assert [score for _, score in found] == pytest.approx([first, second], rel=1e-6)


def test_scores_match_a_scalar_computation_in_single_precision() -> None:
    rng = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    texts = [" ".join(rng.choices(words, k=rng.randint(1, 120))) for _ in range(60)]
    bm25 = engine(texts)
    documents = [analyze(text) for text in texts]
    lengths = [len(tokens) for tokens in documents]
    one, k1, b, average = np.float32(1), np.float32(0.9), np.float32(0.4), np.float32(sum(lengths) / len(lengths))
    for _ in range(30):
        query = rng.choices(words, k=rng.randint(1, 5))
        expected = {}
        for number, tokens in enumerate(documents):
            total = 0.0
            for word in dict.fromkeys(query):
                if word not in tokens:
                    continue
                n = sum(word in other for other in documents)
                weight = np.float32(query.count(word)) * np.float32(math.log(1 + (len(texts) - n + 0.5) / (n + 0.5)))
                inverse = one / (k1 * ((one - b) + b * np.float32(quantised_length(lengths[number])) / average))
                total += float(weight - weight / (one + np.float32(tokens.count(word)) * inverse))
            if total:
                expected[number] = float(np.float32(total))
        ranking = sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))
        assert bm25.search(" ".join(query), 10) == ranking[:10]
        assert bm25.search(" ".join(query), 1000) == ranking


def test_equal_scores_go_by_document_number_also_at_the_cut() -> None:
    assert [document for document, _ in engine(["same words"] * 7).search("same", 3)] == [0, 1, 2]


def test_no_match_no_hit() -> None:
    assert engine(["red hat"]).search("zzz of the") == []
    assert engine(["", "of the"]).search("red") == []
