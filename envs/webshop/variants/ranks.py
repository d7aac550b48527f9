"""Stage rendering, family ``rank_wrapper``: hits are found as ever and shown in another order.

Owns the orders and how deep they reach. Knows nothing of products or pages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.variants import Variant
from envs.webshop.variants.draws import unit

RANDOM_SHARE = 0.5
"""Share of queries that ``partial`` answers with products drawn at random."""
_BESIDES_PAGING = 3
"""Actions of a purchase besides turning pages and choosing options: search, open, buy."""


def reachable_depth(results_per_page: int, max_steps: int, most_options: int, top_n: int) -> int:
    """How many first hits may be permuted so that each stays in reach, and half of the spare actions remain for other things.

    Whole pages; at most ``top_n``. With 10 a page and 15 actions it is 50, with 4 a page and 8 actions 8.
    """
    spare = max(0, max_steps - _BESIDES_PAGING - most_options)
    return min(top_n, results_per_page * (1 + spare // 2))


class Order:
    """The order of one variant. ``severity`` is the share of queries that are affected, by a draw per query."""

    def __init__(self, variant: Variant, depth: int, catalogue_size: int, stochastic: bool) -> None:
        self._variant, self._depth, self._size = variant, depth, catalogue_size
        self.stochastic = stochastic
        self._member, self._severity = variant.member, variant.severity

    def rearranged(self, query: str, hits: Sequence[int], noise: random.Random) -> Sequence[int]:
        """The hits of a query in this order. ``noise`` is drawn from by a stochastic order only; else equal queries give equal pages."""
        if self._member == "control" or unit("affected", self._variant.stream, query) >= self._severity:
            return hits
        rng = noise if self.stochastic else self._variant.rng("order", query)
        head, tail = list(hits[: self._depth]), list(hits[self._depth :])
        if self._member == "invert":
            head.reverse()
        elif self._member == "shuffle":
            rng.shuffle(head)
        elif rng.random() < RANDOM_SHARE:
            return rng.sample(range(self._size), min(len(hits), self._size))
        return head + tail
