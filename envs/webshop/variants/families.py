"""What the shop's families are called, which members and options they have, and what each says in words.

Owns names and texts only; what a family does is in the module of its stage.
"""

from __future__ import annotations

from collections.abc import Mapping

from envs.variants import Family, Variant

CORNERS: dict[str, tuple[float, float]] = {
    "usual": (1.2, 0.75),
    "no_length": (1.2, 0.0),
    "flat": (0.3, 0.75),
    "steep": (5.0, 0.75),
    "binary": (0.1, 0.75),
    "full_length": (1.2, 1.0),
    "middle": (2.0, 0.5),
    "flat_no_length": (0.3, 0.0),
}
"""The published eight (k1, b), in the published order."""

FIELDS: dict[str, tuple[str, ...]] = {
    "full": ("title", "description", "bullet", "options"),
    "name": ("title",),
    "desc": ("description",),
    "bullets": ("bullets",),
    "features": ("attributes", "category"),
    "name_bullets": ("title", "bullets"),
    "desc_features": ("description", "attributes", "category"),
    "no_name": ("description", "bullets", "options"),
}
"""Which texts of a product are indexed. ``full`` is the shop's own index; ``bullet`` the first bullet alone, ``attributes`` its list of
attributes, ``category`` its scrape query and category path."""

PUBLISHED_FIELDS: dict[str, tuple[str, ...]] = {
    "full": ("name", "Title", "description", "features", "BulletPoints"),
    "name": ("name", "Title"),
    "desc": ("description",),
    "bullets": ("BulletPoints",),
    "features": ("features",),
    "name_bullets": ("name", "Title", "BulletPoints"),
    "desc_features": ("description", "features"),
    "no_name": ("description", "features", "BulletPoints"),
}
"""Keys of the published pools. Loaded products have no keys ``description`` and ``features``, so these say nothing."""

FAILING: dict[str, tuple[str, ...]] = {
    "price": ("price",),
    "color": ("color",),
    "size": ("size",),
    "price_color": ("price", "color"),
}
"""Parts of the score that a look-alike beside the real product fails, by member."""

PAIRS: tuple[str, ...] = ("recoverable", "hidden")
"""Look-alikes that come as a pair of rows of which the world says by feel alone which is the good one."""

CONTROLS: tuple[str, ...] = ("buy_now", "description", "features", "reviews")
"""Controls of an item page that may complete the purchase."""

_TWINS = tuple(f"{kind}_{row}" for kind in PAIRS for row in ("first", "last"))

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "catalog_split",
            "content",
            (),
            "other products are on sale, always those of the client's own tasks",
            {"divergence": 0.7, "keep_ratio": 0.7, "reference": False, "clients": 100, "min_tasks": 100},
            per_client=True,
        ),
        Family(
            "field_subset",
            "encoding",
            tuple(FIELDS),
            "search reads other texts of the products",
            {"reference": False},
            default_members=4,
        ),
        Family(
            "bm25_reweight",
            "matching",
            tuple(CORNERS),
            "search weighs repeated words and long texts otherwise",
            {"reference": False},
            default_members=4,
        ),
        Family(
            "lookalike",
            "content",
            (*FAILING, *_TWINS),
            "products have look-alikes that miss a part of the score",
            {"rate": 1.0, "file": "", "reference": False},
            default_members=4,
        ),
        Family(
            "rank_wrapper",
            "rendering",
            ("control", "shuffle", "invert", "partial"),
            "hits come in another order",
            {"depth": 0, "stochastic": False, "reference": False},
        ),
        Family("checkout", "dynamics", CONTROLS, "another control completes the purchase", {"others": "fee"}),
        Family(
            "checkout_lookalike",
            "dynamics",
            tuple(f"{row}_{control}" for row in ("first", "last") for control in CONTROLS),
            "look-alikes that cannot be told apart, and another control completes the purchase",
            {"others": "fee", "rate": 1.0},
        ),
        Family("navigation", "dynamics", ("control", "next_back", "prev_back"), "the controls for moving about are swapped"),
        Family("selection", "dynamics", ("control", "next", "previous"), "a click on an option chooses its neighbour"),
    )
}

_HINTS: dict[str, str] = {
    "catalog_split": "Not every product is on sale here",
    "field_subset:full": "Search reads all texts",
    "field_subset:name": "Search reads titles",
    "field_subset:desc": "Search reads descriptions",
    "field_subset:bullets": "Search reads features",
    "field_subset:features": "Search reads kinds of products",
    "field_subset:name_bullets": "Search reads titles and features",
    "field_subset:desc_features": "Search reads descriptions and kinds",
    "field_subset:no_name": "Search does not read titles",
    "lookalike:price": "Look-alikes cost more",
    "lookalike:color": "Look-alikes lack the color",
    "lookalike:size": "Look-alikes lack the size",
    "lookalike:price_color": "Look-alikes cost more and lack the color",
    "lookalike:recoverable_first": "Of two alike take the last",
    "lookalike:recoverable_last": "Of two alike take the first",
    "lookalike:hidden_first": "Of two alike take the last",
    "lookalike:hidden_last": "Of two alike take the first",
    "rank_wrapper:control": "Best hit first",
    "rank_wrapper:shuffle": "Hits in no order",
    "rank_wrapper:invert": "Best hit last",
    "rank_wrapper:partial": "Some searches fail: try other words",
    "navigation:control": "All controls work",
    "navigation:next_back": "Next > and Back to Search are swapped",
    "navigation:prev_back": "< Prev and Back to Search are swapped",
    "selection:control": "Options are what they say",
    "selection:next": "A click takes the next option",
    "selection:previous": "A click takes the option before",
}


def pair_of(member: str) -> tuple[str, str]:
    """``recoverable_first`` as (``recoverable``, ``first``): the kind of a pair and the row that is the wrong one."""
    kind, _, row = member.rpartition("_")
    return kind, row


def bought_with(member: str) -> tuple[str, str]:
    """Row and control of a member of ``checkout_lookalike``: ``first_buy_now`` as (``first``, ``buy_now``)."""
    row, _, control = member.partition("_")
    return row, control


def hint(variant: Variant) -> str:
    """What is different in a variant of the shop, in a few words, for ``reveal = "hint"``."""
    if variant.unperturbed:
        return "An ordinary shop"
    if variant.family == "bm25_reweight":
        k1, b = CORNERS[variant.member]
        return f"Search weights {k1:g} {b:g}"
    if variant.family == "checkout":
        return f"Buy with: {_spoken(variant.member)}"
    if variant.family == "checkout_lookalike":
        row, control = bought_with(variant.member)
        return f"Of two alike take the {'last' if row == 'first' else 'first'}. Buy with: {_spoken(control)}"
    return _HINTS.get(f"{variant.family}:{variant.member}", _HINTS.get(variant.family, ""))


def _spoken(control: str) -> str:
    return control.replace("_", " ")


def options_of(variant: Variant) -> Mapping[str, bool | int | float | str]:
    """The family's options with the variant's own values."""
    return {**FAMILIES[variant.family].options, **dict(variant.options)}
