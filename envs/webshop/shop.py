"""The shop: what all sessions on one catalogue share and only read, with the interface of the published simulator.

Owns goals, drawn prices, searching with the query operators, and scoring. No global random state is touched: a shop has a random stream
of its own. Knows nothing of what a shopper does on the pages.
"""

from __future__ import annotations

import os
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from envs.webshop.catalogue import Catalogue
from envs.webshop.env import Clicks, Mode, ShopEnv
from envs.webshop.goals import Goal, Goals, make_goals
from envs.webshop.nouns import TitleNouns
from envs.webshop.records import Product, Profile
from envs.webshop.reward import RewardParts, score

_CACHED_QUERIES = 8192


class WebShop:
    """A catalogue with goals, prices, search and scores.

    ``profile`` is "fed" (the federated copy: fixed goals and prices, a finished session is replaced at once) or "up" (the original:
    goals and prices depend on ``seed``, the seed set just before construction; None means unseeded). ``results_per_page`` is 10 in the
    original. ``num_products`` keeps only the first records of the file; ``filter_goals``, ``limit_goals`` and ``shuffle_seed`` are the
    original's. ``top_n`` bounds the hits of a search (default 50; profile "fed" reads ``WEBSHOP_SEARCH_RETURN_N``). Raises
    ``WebShopDataError`` for data that cannot be used.
    """

    def __init__(
        self,
        data_dir: Path | str,
        human_goals: bool = False,
        profile: Profile = "fed",
        seed: int | None = 42,
        results_per_page: int = 10,
        *,
        num_products: int | None = None,
        shuffle_seed: int | None = None,
        filter_goals: Callable[[int, Goal], bool] | None = None,
        limit_goals: int = -1,
        top_n: int | None = None,
        title_nouns: Callable[[Product], Sequence[str]] | None = None,
        cache_dir: Path | str | None = None,
    ) -> None:
        if profile not in ("fed", "up"):
            raise ValueError(f"unknown profile {profile!r}: choose 'fed' or 'up'")
        if results_per_page < 1:
            raise ValueError(f"results_per_page is {results_per_page}: at least 1 is needed")
        self.profile: Profile = profile
        self.clicks: Clicks | None = None
        self.results_per_page = results_per_page
        default = os.environ.get("WEBSHOP_SEARCH_RETURN_N", "50") if profile == "fed" else "50"
        self.top_n = int(default) if top_n is None else top_n
        self.catalogue = Catalogue.open(data_dir, profile, num_products, cache_dir)
        self.goals: Goals
        self.goals, self._prices, self._rng = make_goals(
            self.catalogue,
            human=human_goals,
            profile=profile,
            seed=seed,
            shuffle_seed=shuffle_seed,
            filter_goals=filter_goals,
            limit_goals=limit_goals,
        )
        self._title_nouns = title_nouns or TitleNouns()
        self._found: OrderedDict[str, list[int]] = OrderedDict()

    def product_at(self, position: int) -> Product:
        """The product at a catalogue position."""
        return self.catalogue.product(position)

    def product(self, asin: str) -> Product:
        """The product with this id. Raises ``KeyError``."""
        return self.catalogue.product(self.catalogue.position(asin))

    def price(self, asin: str) -> float:
        """The price (dollars) at which the product is sold; drawn once per shop for products with two prices."""
        return float(self._prices[self.catalogue.position(asin)])

    def find(self, keywords: Sequence[str], rng: random.Random) -> list[int]:
        """Catalogue positions of the hits for a split query, best first.

        A first word ``<r>`` (random products), ``<c>`` (category), ``<q>`` (scrape query) or ``<a>`` (always fails, as published) is an
        operator.
        """
        first = keywords[0]
        if first == "<r>":
            return rng.sample(range(len(self.catalogue)), k=self.top_n)
        if first == "<c>":
            return self.catalogue.in_category(keywords[1].strip())
        text = " ".join(keywords)
        if first == "<q>":
            return self.catalogue.with_query(" ".join(keywords[1:]).strip())
        if first == "<a>":
            raise TypeError("the '<a>' search operator is not available in the text environment")
        hits = self._found.get(text)
        if hits is None:
            hits = self._found[text] = self.catalogue.ranked(text, self.top_n)
            if len(self._found) > _CACHED_QUERIES:
                self._found.popitem(last=False)
        return hits

    def search(self, text: str) -> list[str]:
        """Ids of the hits for a query, best first. The operators of ``find`` apply; ``<r>`` draws the same products at every call."""
        hits = self.find(text.split(" "), self.session_rng())
        return [self.catalogue.product(position).asin for position in hits]

    def reward(self, asin: str, options: Mapping[str, str], goal_index: int) -> RewardParts:
        """``reward`` in [0, 1], and its parts, of buying ``asin`` with ``options`` (name -> value as on the page) for a goal."""
        goal = self.goals[goal_index]
        return self.score(self.product(asin), options, goal)

    def score(self, product: Product, options: Mapping[str, str], goal: Goal, price: float | None = None) -> RewardParts:
        """As ``reward``, for a product and a goal at hand, at another ``price`` (dollars) than the shop's where one is given."""
        paid = self.price(product.asin) if price is None else price
        return score(product, goal, paid, options, self._title_nouns(product), self._title_nouns(self.product(goal["asin"])))

    def session_rng(self) -> random.Random:
        """A fresh copy of the random stream as it stands after construction."""
        rng = random.Random(0)
        rng.setstate(self._rng.getstate())
        return rng

    def text_env(
        self,
        mode: Mode = "text",
        show_attrs: bool = False,
        num_prev_obs: int = 0,
        num_prev_actions: int = 0,
        session_prefix: str | None = None,
        rng: random.Random | None = None,
    ) -> ShopEnv:
        """A new environment on this shop, drawing from ``rng`` or from a stream of its own. ``num_prev_*`` earlier observations and
        actions are put before what ``step`` returns."""
        return ShopEnv(self, mode, show_attrs, num_prev_obs, num_prev_actions, session_prefix, rng)
