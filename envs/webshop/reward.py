"""The score of a purchase: attributes, options, price and product type, as WebShop computes them after its fuzzy-matching change.

Pure functions of two products and a goal. Knows nothing of sessions, pages or how prices are drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rapidfuzz.fuzz import token_set_ratio
from rapidfuzz.utils import default_process

from envs.webshop.records import Product

COLORS = tuple(
    """
    alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
    caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
    dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
    ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
    mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
    sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
    wheat white wine yellow
    """.split()
)
"""Colour words in the order in which they are tried."""

MATCH = 85
_LATIN_1 = {code: None for code in range(0x80, 0x100)}


class RewardParts(dict[str, Any]):
    """``reward`` and its parts by name. A part that does not apply (``r_option`` without wanted options) is no key and reads as None."""

    def __missing__(self, key: str) -> None:
        return None


@lru_cache(maxsize=1 << 15)
def _plain(text: str) -> str:
    return default_process(text.translate(_LATIN_1))


@lru_cache(maxsize=1 << 17)
def similarity(first: str, second: str) -> int:
    """Token-set similarity of two texts, 0 to 100: 100 when the words of one are among the words of the other, 0 when a side is empty."""
    return round(token_set_ratio(_plain(first), _plain(second)))


def normalize_color(value: Any) -> Any:
    """The first colour word contained in ``value``, else ``value``. For a tuple "contained" means being one of its elements."""
    return next((color for color in COLORS if color in value), value)


def attribute_matches(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has: among its attributes, or literally in its title, bullets or description."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(any(similarity(own, wish) > MATCH for own in product.attributes) or any(wish in text for text in texts) for wish in wanted)


def option_matches(bought: Iterable[str], wanted: Mapping[str, str] | Sequence[str]) -> int:
    """How many wanted options some bought value satisfies. Wanted options of synthetic goals are compared as (name, value) pairs."""
    values = [str(normalize_color(value)) for value in bought]
    wishes = [str(normalize_color(wish)) for wish in (wanted.items() if isinstance(wanted, Mapping) else wanted)]
    return sum(any(similarity(value, wish) > MATCH for value in values) for wish in wishes)


def type_parts(product: Product, goal: Mapping[str, Any], own_nouns: Sequence[str], goal_nouns: Sequence[str]) -> dict[str, Any]:
    """``r_type`` and what it is made of: equal query, two common category parts, share of the goal title's nouns that are met."""
    query_match = product.query == goal["query"]
    own = {part.strip() for part in product.product_category.split("\u203a")}
    category_match = len(own & {part.strip() for part in goal["product_category"].split("\u203a")}) >= 2
    title_score = len(set(own_nouns) & set(goal_nouns)) / len(goal_nouns) if goal_nouns else 0.2
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1
    if title_score == 0.0:
        r_type = 0.0
    return {"r_type": r_type, "query_match": query_match, "category_match": category_match, "title_score": title_score}


def score(
    product: Product, goal: Mapping[str, Any], price: float, options: Mapping[str, str], own_nouns: Sequence[str], goal_nouns: Sequence[str]
) -> RewardParts:
    """Score of buying ``product`` at ``price`` (dollars) with the chosen ``options`` (name -> value) for ``goal``.

    ``reward`` in [0, 1] = (attribute matches + option matches + price kept) / (attributes + options + 1) * r_type.
    """
    kinds = type_parts(product, goal, own_nouns, goal_nouns)
    wanted, wishes = goal["attributes"], goal["goal_options"]
    n_attributes = attribute_matches(product, wanted)
    n_options = option_matches(options.values(), wishes)
    r_price = price <= goal["price_upper"]
    parts = len(wanted) + len(wishes) + 1
    out = RewardParts(reward=(n_attributes + n_options + r_price) / parts * kinds["r_type"], r_type=kinds["r_type"])
    out["r_att"] = n_attributes / len(wanted)
    out["w_att"] = len(wanted) / parts
    out.update({name: kinds[name] for name in ("query_match", "category_match", "title_score")})
    if wishes:
        out["r_option"] = n_options / len(wishes)
        out["w_option"] = len(wishes) / parts
    out["r_price"] = r_price
    out["w_price"] = 1 / parts
    return out
