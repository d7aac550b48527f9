"""Fixed questions to a shop: queries made of goals, and scripts of actions made of goals. The same for all variants of one shop.

Owns the questions only; whoever asks them is told what to type.
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.webshop.goals import Goal
from envs.webshop.oracle import choices, typeable
from envs.webshop.shop import WebShop

QUERIES = 48
SCRIPTED_GOALS = 12
SECOND_ROW = "click the second row"
RANKED = 10
"""Fewest hits of a query that are compared."""


def spaced(count: int, limit: int) -> list[int]:
    """``count`` indices below ``limit``, evenly spaced; all of them where there are fewer."""
    return sorted({index * limit // count for index in range(count)}) if count < limit else list(range(limit))


def queries(base: WebShop, goals: Sequence[Goal]) -> list[str]:
    """What shoppers with these goals might type, in three manners by turns: what is wanted, the title, the whole instruction."""
    manners = (
        lambda goal: f"{' '.join(goal['attributes'])} {goal['query']}",
        lambda goal: base.product(goal["asin"]).title,
        lambda goal: goal["instruction_text"],
    )
    return [query for number, goal in enumerate(goals) if (query := typeable(manners[number % 3](goal)).lower())]


def scripts(base: WebShop, goal: Goal) -> list[list[str]]:
    """Walks that meet every control on the wanted product and on the row below the first: look at every sub page, buy with the wanted
    options, turn pages, go back. ``SECOND_ROW`` stands for a click on that row, whatever it shows."""
    product = base.product(goal["asin"])
    search, wanted = f"search[{typeable(product.title)}]", f"click[{product.asin.lower()}]"
    options = [f"click[{value}]" for _, value in choices(product, goal["goal_options"])]
    back, previous, following = "click[back to search]", "click[< prev]", "click[next >]"
    controls = [f"click[{name}]" for name in ("buy now", "description", "features", "reviews")]
    return [
        *([search, wanted, *options, control, previous] for control in controls),
        *([search, SECOND_ROW, *options, control] for control in controls),
        [search, following, previous, following, back],
        [search, wanted, previous, wanted, back],
    ]
