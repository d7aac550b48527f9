"""Shopping goals: how prices are drawn, how goals are made of products, and in which order they come.

All random draws follow Python's ``random`` in the order in which the two published programs make them ("up": princeton-nlp/WebShop,
"fed": the federated copy), so that goals have the published texts, price limits and order. Knows nothing of sessions or pages.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from envs.webshop.catalogue import Catalogue
from envs.webshop.errors import WebShopDataError
from envs.webshop.records import Product, Profile

PRICE_STEPS = [10.0 * step for step in range(1, 100)]
NO_LIMIT = 1000000

Goal = dict[str, Any]
"""Keys: asin, category, query, name, product_category, instruction_text, attributes, price_upper, goal_options, weight.

``goal_options`` is a dict name -> value for synthetic goals and a list of values for human ones.
"""


def draw_prices(catalogue: Catalogue, rng: random.Random) -> npt.NDArray[np.float64]:
    """The price at which each product is sold (dollars), in catalogue order: its price, or a uniform draw between its two prices."""
    prices = np.array(catalogue.price_low, dtype=np.float64)
    for position in np.flatnonzero(~np.isnan(catalogue.price_high)):
        prices[position] = rng.uniform(float(catalogue.price_low[position]), float(catalogue.price_high[position]))
    return prices


def draw_limit(price: float, rng: random.Random) -> float:
    """A price limit above ``price``, or ``NO_LIMIT`` (without a draw) when fewer than two steps lie above it."""
    first = bisect.bisect_right(PRICE_STEPS, price)
    steps = PRICE_STEPS[first : first + 4]
    return max(rng.sample(steps, 2)) if len(steps) >= 2 else NO_LIMIT


def goal_of(product: Product, part: int, limit: float, human: bool, weight: float) -> Goal:
    """One goal. ``part`` is the index of the human instruction, or of the option combination (last option name fastest)."""
    suffix = f", and price lower than {limit:.2f} dollars" if limit != NO_LIMIT else ""
    goal: Goal = {
        "asin": product.asin,
        "category": product.category,
        "query": product.query,
        "name": product.title,
        "product_category": product.product_category,
    }
    options: dict[str, str] | list[str]
    if human:
        item = product.human[part]
        text, attributes, options = item.text.strip(".") + suffix, list(item.attributes), list(item.options)
    else:
        names = sorted(product.options)
        chosen: dict[str, str] = {}
        for name in reversed(names):
            part, place = divmod(part, len(product.options[name]))
            chosen[name] = product.options[name][place]
        options = {name: chosen[name] for name in names}
        wishes = ", and ".join(f"{name}: {value}" for name, value in options.items())
        text = f"{product.instruction}{' with ' + wishes if wishes else ''}{suffix}"
        attributes = list(product.instruction_attributes)
    return {
        **goal,
        "instruction_text": text,
        "attributes": attributes,
        "price_upper": limit,
        "goal_options": options,
        "weight": weight,
    }


class Goals(Sequence[Goal]):
    """All goals of a shop in order. A goal is made when it is asked for; what is held are three numbers per goal."""

    def __init__(
        self, catalogue: Catalogue, human: bool, positions: npt.NDArray[Any], parts: npt.NDArray[Any], limits: npt.NDArray[Any]
    ) -> None:
        self.catalogue, self._human = catalogue, human
        self._positions, self._parts, self._limits = positions, parts, limits
        self._cumulative: list[float] | None = None

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Goal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Goal]: ...
    def __getitem__(self, index: int | slice) -> Goal | list[Goal]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        position = int(self._positions[index])
        limit = float(self._limits[index])
        product = self.catalogue.product(position)
        return goal_of(product, int(self._parts[index]), NO_LIMIT if limit == NO_LIMIT else limit, self._human, self._weight(position))

    def __iter__(self) -> Iterator[Goal]:
        return (self[index] for index in range(len(self)))

    def _weight(self, position: int) -> float:
        return 1 if self._human else float(self.catalogue.wanted_weight[position])

    def product_position(self, index: int) -> int:
        """The catalogue position of the product that goal ``index`` asks for."""
        return int(self._positions[index])

    def limits(self) -> npt.NDArray[np.float64]:
        """The highest price limit (dollars) that any goal has on a product, in catalogue order; 0 for products without a goal."""
        highest = np.zeros(len(self.catalogue))
        np.maximum.at(highest, self._positions, self._limits)
        return highest

    def select(self, indices: Sequence[int]) -> Goals:
        """The goals at ``indices``, in that order."""
        rows = np.asarray(indices, dtype=np.int64)
        return Goals(self.catalogue, self._human, self._positions[rows], self._parts[rows], self._limits[rows])

    def draw(self, rng: random.Random) -> int:
        """The index of a goal drawn by weight: one uniform draw. As published, index 0 is never drawn when there are others."""
        if self._cumulative is None:
            weights = np.ones(len(self)) if self._human else self.catalogue.wanted_weight[self._positions]
            self._cumulative = [0.0, *np.cumsum(weights).tolist()]
        place = bisect.bisect_right(self._cumulative, rng.uniform(0, self._cumulative[-1]))
        return min(place, len(self) - 1)


def _all_goals(catalogue: Catalogue, prices: npt.NDArray[np.float64], human: bool, rng: random.Random) -> Goals:
    if human:
        positions, parts = catalogue.human_position, catalogue.human_index
        limits = np.array([draw_limit(float(prices[position]), rng) for position in positions], dtype=np.float64)
        return Goals(catalogue, True, np.array(positions), np.array(parts), limits)
    asked = np.flatnonzero(catalogue.combinations >= 0)
    counts = np.asarray(catalogue.combinations[asked], dtype=np.int64)
    limits = np.array([draw_limit(float(prices[position]), rng) for position in asked], dtype=np.float64)
    parts = np.arange(int(counts.sum()), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    return Goals(catalogue, False, np.repeat(asked, counts), parts, np.repeat(limits, counts))


def make_goals(
    catalogue: Catalogue,
    *,
    human: bool,
    profile: Profile,
    seed: int | None,
    shuffle_seed: int | None = None,
    filter_goals: Callable[[int, Goal], bool] | None = None,
    limit_goals: int = -1,
) -> tuple[Goals, npt.NDArray[np.float64], random.Random]:
    """Goals in their final order, the drawn prices, and the random stream with which sessions go on.

    ``seed`` stands for the seed set before construction; ``None`` means an unseeded start. In profile "fed" prices, goals and their order
    come from fixed seeds and ``seed`` only feeds the sessions. Raises ``WebShopDataError`` when there is no goal.
    """
    if profile == "up":
        if not human and catalogue.without_attributes is not None:
            raise WebShopDataError(
                "this product is missing from the attribute file, which profile 'up' does not accept",
                asin=catalogue.without_attributes,
                hint="Use profile 'fed', or add the product to items_ins_v2*.json",
            )
        rng = random.Random(seed)
        prices = draw_prices(catalogue, rng)
        goals = _all_goals(catalogue, prices, human, rng)
        rng = random.Random(233)
        order = list(range(len(goals)))
        rng.shuffle(order)
    else:
        rng = random.Random(42)
        prices = draw_prices(catalogue, rng)
        rng = rng if human else random.Random(42)
        goals = _all_goals(catalogue, prices, human, rng)
        order = list(range(len(goals)))
        rng.shuffle(order)
        if shuffle_seed is not None and shuffle_seed != 42:
            rng = random.Random(shuffle_seed)
            tail = order[500:]
            rng.shuffle(tail)
            order[500:] = tail
    goals = goals.select(order)
    if filter_goals is not None:
        goals = goals.select([index for index, goal in enumerate(goals) if filter_goals(index, goal)])
    if limit_goals != -1 and limit_goals < len(goals):
        chosen: list[int] = []
        while len(chosen) < limit_goals:
            index = goals.draw(rng)
            if index not in chosen:
                chosen.append(index)
        goals = goals.select(chosen)
    if not len(goals):
        kind = "human" if human else "synthetic"
        raise WebShopDataError(
            f"this catalogue has no {kind} goal", path=catalogue.folder, hint="Check the instruction files of the data folder"
        )
    return goals, prices, rng if profile == "up" else random.Random(seed)
