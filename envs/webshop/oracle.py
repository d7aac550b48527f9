"""A scripted shopper that knows the rules of its shop: which words find the product, which row is the good one, which control buys.

Owns the choice of queries, of options and of the controls to click. Plans on the shop itself and never acts in an environment.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from envs.webshop import pages
from envs.webshop.goals import Goal
from envs.webshop.records import Product
from envs.webshop.reward import MATCH, normalize_color, similarity
from envs.webshop.shop import WebShop
from envs.webshop.variants.clicks import BUY, NEXT, PlainClicks
from envs.webshop.variants.view import VariantShop

_PLAIN = PlainClicks()
_FIRST_WORDS = 12
BUTTONS = frozenset(text.lower() for text in (*pages.SUB_PAGES, pages.BACK, pages.PREVIOUS, pages.BUY))


@dataclass(frozen=True)
class Purchase:
    """A row that solves the task, and the clicks from its item page to the end."""

    asin: str
    position: int
    clicks: tuple[str, ...]


def solution(shop: WebShop | VariantShop, goal: Goal, max_steps: int, noise: random.Random | None = None) -> list[str]:
    """The shortest list of actions found that ends with a score of 1; empty where none is found within ``max_steps``.

    ``noise`` is the stream of the browser that will act, needed where equal queries give other pages; a copy of it is used.
    """
    wanted = list(purchases(shop, goal))
    if not wanted:
        return []
    best: list[str] = []
    fewest = 2 + min(len(purchase.clicks) for purchase in wanted)
    for query in _queries(shop.product(goal["asin"]), goal):
        if noise is not None:
            walk = _walk(shop, query, wanted, max_steps, _copy(noise))
        else:
            walk = _shortest(shop, query, wanted)
        if walk and len(walk) <= max_steps and (not best or len(walk) < len(best)):
            best = walk
            if len(best) == fewest:
                break
    return best


def purchases(shop: WebShop | VariantShop, goal: Goal) -> Iterator[Purchase]:
    """The good ones among the wanted product and its look-alike."""
    rule = _rule(shop)
    base = shop.base if isinstance(shop, VariantShop) else shop
    position = base.catalogue.position(goal["asin"])
    places = [position]
    if isinstance(shop, VariantShop) and shop.stages.lookalikes is not None:
        beside = shop.stages.lookalikes.beside(position)
        places += [] if beside is None else [beside]
    for place in places:
        product = shop.product_at(place)
        page = pages.item_page("", "", product, show_attributes=False)
        clicks = dict.fromkeys(rule.to_choose(product, name, value) for name, value in choices(product, goal["goal_options"]))
        buy = rule.to_land_on(page, BUY, product.asin)
        if buy is None or None in clicks:
            continue
        named = [click for click in clicks if click is not None]
        # of equal texts a click takes the last on the page, and the text of a button is that button's
        if any(click in BUTTONS for click in named):
            continue
        targets = [page.targets[click] for click in named]
        bought = {target.name: rule.chosen(product, target.name, click) for target, click in zip(targets, named, strict=True)}
        if shop.score(product, bought, goal)["reward"] == 1.0:
            yield Purchase(product.asin, place, (*named, buy))


def _shortest(shop: WebShop | VariantShop, query: str, wanted: Sequence[Purchase]) -> list[str]:
    """The walk to the purchase that a query shows earliest."""
    hits = list(shop.find(query.lower().split(" "), shop.session_rng()))
    ranked = sorted((hits.index(purchase.position), len(purchase.clicks), purchase) for purchase in wanted if purchase.position in hits)
    if not ranked:
        return []
    place, _, purchase = ranked[0]
    turns: list[str] = []
    for number in range(1, 1 + place // shop.results_per_page):
        turn = _turn(shop, hits, number)
        if turn is None:
            return []
        turns.append(turn)
    return _actions(query, turns, purchase)


def _walk(shop: WebShop | VariantShop, query: str, wanted: Sequence[Purchase], max_steps: int, noise: random.Random) -> list[str]:
    """Searching again and again until a good row is on the first page, where every look draws anew."""
    for looks in range(1, max_steps):
        shown = list(shop.find(query.lower().split(" "), noise))[: shop.results_per_page]
        for purchase in wanted:
            if purchase.position in shown:
                return [f"search[{query}]"] * (looks - 1) + _actions(query, [], purchase)
    return []


def _turn(shop: WebShop | VariantShop, hits: Sequence[int], number: int) -> str | None:
    """What to click on result page ``number`` to see the next one."""
    size = shop.results_per_page
    shown = [shop.product_at(position) for position in hits[(number - 1) * size : number * size]]
    page = pages.results_page("", "", number, len(hits), shown)
    return _rule(shop).to_land_on(page, NEXT, None)


def _actions(query: str, turns: Sequence[str], purchase: Purchase) -> list[str]:
    return [f"search[{query}]", *(f"click[{target}]" for target in (*turns, purchase.asin.lower(), *purchase.clicks))]


def _rule(shop: WebShop | VariantShop) -> PlainClicks:
    return shop.clicks if isinstance(shop, VariantShop) and shop.clicks is not None else _PLAIN


def _copy(rng: random.Random) -> random.Random:
    twin = random.Random(0)
    twin.setstate(rng.getstate())
    return twin


def _queries(product: Product, goal: Goal) -> Iterator[str]:
    """Things to search for, the most telling first."""
    wishes = goal["goal_options"]
    words = " ".join(wishes.values() if isinstance(wishes, Mapping) else wishes)
    kind = product.product_category.rpartition("\u203a")[2]
    bullets = " ".join(" ".join(product.bullets).split()[: 2 * _FIRST_WORDS])
    candidates = (
        product.title,
        f"{product.title} {words}",
        goal["instruction_text"],
        f"{' '.join(goal['attributes'])} {product.query}",
        f"{' '.join(product.attributes)} {product.query} {kind}",
        bullets,
        " ".join(product.description.split()[: 2 * _FIRST_WORDS]),
        f"{product.title} {' '.join(product.attributes)} {kind}",
        f"{product.title} {bullets}",
    )
    return (query for query in dict.fromkeys(map(typeable, candidates)) if query)


def typeable(query: str) -> str:
    """A query that survives the action syntax: no brackets, no line breaks, no operator in front."""
    for char in "[]\n<>":
        query = query.replace(char, " ")
    return " ".join(query.split())


def choices(product: Product, wishes: Mapping[str, str] | Sequence[str]) -> list[tuple[str, str]]:
    """Option names and values to choose, at most one per name, that meet as many wishes as can be met.

    Choosing what a synthetic goal names does not always count: the bought value is reduced to a colour word that the wish may not hold
    ("rectangular" holds "tan"), so other values of the product are tried as well.
    """
    wanted = [str(normalize_color(wish)) for wish in (wishes.items() if isinstance(wishes, Mapping) else wishes)]
    named = set(wishes.values() if isinstance(wishes, Mapping) else wishes)
    per_name: list[list[tuple[frozenset[int], str, str]]] = []
    for name, values in product.options.items():
        kept: dict[frozenset[int], str] = {}
        for value in sorted(values, key=lambda value: value not in named):
            met = frozenset(place for place, wish in enumerate(wanted) if similarity(str(normalize_color(value)), wish) > MATCH)
            kept.setdefault(met, value)
        per_name.append([(frozenset(), name, ""), *((met, name, value) for met, value in kept.items())])
    best = max(
        itertools.product(*per_name),
        key=lambda picks: (len(frozenset().union(*(met for met, _, _ in picks))), sum(value in named for _, _, value in picks)),
    )
    return [(name, value) for _, name, value in best if value]
