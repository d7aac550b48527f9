"""A shop as one variant shows it: a view over the unperturbed shop, which keeps goals, prices, products and its search index.

Owns the order in which the stages act: search (``rank``), look-alikes, order of the hits, clicks. Knows no family by name.
"""

from __future__ import annotations

import random
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from envs.webshop.env import Mode, ShopEnv
from envs.webshop.goals import Goal
from envs.webshop.records import Product
from envs.webshop.reward import RewardParts
from envs.webshop.shop import WebShop
from envs.webshop.variants.clicks import PlainClicks
from envs.webshop.variants.lookalike import Lookalikes
from envs.webshop.variants.ranks import Order

_CACHED_QUERIES = 256


@dataclass(frozen=True)
class Stages:
    """What differs from the unperturbed shop; ``None`` and ``top_n`` 0 stand for no difference.

    ``rank`` gives positions for a free-text query (``ranks_copies``: those of look-alikes as well), ``on_sale`` a flag per product in
    order of ids.
    """

    rank: Callable[[str], Sequence[int]] | None = None
    ranks_copies: bool = False
    on_sale: npt.NDArray[np.bool_] | None = None
    lookalikes: Lookalikes | None = None
    order: Order | None = None
    clicks: PlainClicks | None = None
    top_n: int = 0


class VariantShop:
    """The shop of one variant, with what a browser needs of a shop (``envs.webshop.env.Shop``)."""

    def __init__(self, base: WebShop, stages: Stages) -> None:
        self.base, self.stages = base, stages
        self.profile, self.results_per_page, self.goals = base.profile, base.results_per_page, base.goals
        self.clicks = stages.clicks
        self._found: OrderedDict[str, Sequence[int]] = OrderedDict()

    def find(self, keywords: Sequence[str], rng: random.Random) -> Sequence[int]:
        """Positions of the hits for a split query, best first. Operators are answered from what is on sale, in catalogue order."""
        text = " ".join(keywords)
        operator = keywords[0] in ("<r>", "<c>", "<q>", "<a>")
        hits = self._sold(self.base.find(keywords, rng)) if operator else self._ranked(text, rng)
        stages = self.stages
        if stages.lookalikes is not None and (operator or not stages.ranks_copies):
            hits = stages.lookalikes.spread(hits, 2 * len(hits) if operator else self._top_n)
        if stages.order is not None and not operator:
            hits = stages.order.rearranged(text, hits, rng)
        return hits

    def product_at(self, position: int) -> Product:
        """The product at a position, look-alikes included."""
        copies = self.stages.lookalikes
        return self.base.product_at(position) if copies is None else copies.offer(position).product

    def position(self, asin: str) -> int:
        """The position of a product or look-alike. Raises ``KeyError``."""
        try:
            return self.base.catalogue.position(asin)
        except KeyError:
            if self.stages.lookalikes is None:
                raise
            return self.stages.lookalikes.position(asin)

    def product(self, asin: str) -> Product:
        """The product with this id. Raises ``KeyError``."""
        return self.product_at(self.position(asin))

    def price(self, asin: str) -> float:
        """The price (dollars) at which the product is sold."""
        copies = self.stages.lookalikes
        return self.base.price(asin) if copies is None else copies.offer(self.position(asin)).price

    def score(self, product: Product, options: Mapping[str, str], goal: Goal, price: float | None = None) -> RewardParts:
        """``reward`` and its parts, at another ``price`` than the shop's where one is given."""
        return self.base.score(product, options, goal, self.price(product.asin) if price is None else price)

    def session_rng(self) -> random.Random:
        """The random stream of a new browser."""
        return self.base.session_rng()

    def text_env(self, mode: Mode = "text", show_attrs: bool = False, rng: random.Random | None = None) -> ShopEnv:
        """A new browser in this shop, drawing from ``rng`` where one is given."""
        return ShopEnv(self, mode, show_attrs, rng=rng)

    @property
    def stochastic(self) -> bool:
        """Whether equal queries may give other pages."""
        return self.stages.order is not None and self.stages.order.stochastic

    @property
    def _top_n(self) -> int:
        return self.stages.top_n or self.base.top_n

    def _sold(self, hits: Sequence[int]) -> Sequence[int]:
        allowed = self.stages.on_sale
        if allowed is None:
            return hits
        return [position for position in hits if allowed[self.base.catalogue.id_rank(position)]]

    def _ranked(self, text: str, rng: random.Random) -> Sequence[int]:
        if self.stages.rank is None:
            return self.base.find(text.split(" "), rng)
        hits: Sequence[int] | None = self._found.get(text)
        if hits is None:
            hits = self._found[text] = array("i", self.stages.rank(text))
            if len(self._found) > _CACHED_QUERIES:
                self._found.popitem(last=False)
        return hits
