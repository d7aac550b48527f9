"""What is wrong with a look-alike: another price, other colours, other sizes, each missing exactly one part of the score.

Pure functions of a product and what its goals ask for; owns the words that stand in. Knows nothing of where a look-alike is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from envs.webshop.goals import NO_LIMIT
from envs.webshop.records import Product
from envs.webshop.reward import COLORS, option_matches
from envs.webshop.variants.draws import unit

COLOUR_WORDS = tuple(
    dict.fromkeys(("red", "blue", "green", "black", "white", "gold", "pink", "purple", "yellow", "orange", "brown", "silver", *COLORS))
)
SIZE_WORDS = tuple("small medium large king queen twin junior petite toddler 3 7 11 15 38 46 wide narrow".split())
_FIRST_WORDS = 12


@dataclass(frozen=True)
class Offer:
    """A product as one row sells it, at ``price`` dollars, which need not be the price that is shown."""

    product: Product
    price: float


Fault = Callable[[Product, float, float], Offer | None]
"""From a product, its price and the highest limit that a goal sets on it, to the faulty offer; None where the fault is not possible."""


def dearer(product: Product, price: float, limit: float) -> Offer | None:
    """Sold and shown at a price above every goal's limit; not possible where a goal has none."""
    if limit >= NO_LIMIT:
        return None
    raised = above(price, limit)
    return Offer(replace(product, pricing=[raised], price_tag=f"${raised}"), raised)


def secretly_dearer(product: Product, price: float, limit: float) -> Offer:
    """Shown at its price, but charged more than every goal's limit."""
    return Offer(product, math.inf if limit >= NO_LIMIT else above(price, limit))


def above(price: float, limit: float) -> float:
    """A round price (dollars) well above both."""
    return 10.0 * math.ceil(max(price, limit) / 10.0) + 20.0


def without(option: str) -> Fault:
    """Offered with other values of the option whose name holds ``option`` ("color" or "size"), none of which a goal would accept; not
    possible for products without such an option."""
    words = COLOUR_WORDS if option == "color" else SIZE_WORDS

    def fault(product: Product, price: float, limit: float) -> Offer | None:
        options = _replaced(product, option, words)
        return None if options is None else Offer(replace(product, options=options), price)

    return fault


def any_option(product: Product, price: float, limit: float) -> Offer | None:
    """Without the colours, or else without the sizes."""
    return without("color")(product, price, limit) or without("size")(product, price, limit)


def both(first: Fault, second: Fault) -> Fault:
    """Two faults at once; not possible where one of them is not."""

    def fault(product: Product, price: float, limit: float) -> Offer | None:
        offer = first(product, price, limit)
        return None if offer is None else second(offer.product, offer.price, limit)

    return fault


FAULTS: dict[str, Fault] = {
    "price": dearer,
    "color": without("color"),
    "size": without("size"),
    "price_color": both(without("color"), dearer),
    "hidden": secretly_dearer,
    "recoverable": any_option,
}


def _replaced(product: Product, option: str, words: Sequence[str]) -> dict[str, list[str]] | None:
    """The options with new values under the names that hold ``option``; None where there is no such name with values, or where a wish
    for one of its values would be met by another option."""
    names = [name for name, values in product.options.items() if option in name and values]
    if not names:
        return None
    kept = [value for name, values in product.options.items() if name not in names for value in values]
    wishes: list[Mapping[str, str] | list[str]] = [{name: value} for name in names for value in dict.fromkeys(product.options[name])]
    own = [value for name in names for value in product.options[name]]
    wishes += [[wish] for item in product.human for wish in item.options if option_matches(own, [wish])]

    def accepted(value: str) -> bool:
        return any(option_matches([value], wish) for wish in wishes)

    if any(map(accepted, kept)):
        return None
    start = int(unit("words", option, product.asin) * _FIRST_WORDS)
    order = [*words[start:_FIRST_WORDS], *words[:start], *words[_FIRST_WORDS:]]
    options: dict[str, list[str]] = {}
    for name, values in product.options.items():
        if name not in names:
            options[name] = values
            continue
        taken: list[str] = []
        for word in order:
            if len(taken) == len(values):
                break
            if word not in taken and word not in kept and not accepted(word):
                taken.append(word)
        if not taken:
            return None
        options[name] = taken
    return options
