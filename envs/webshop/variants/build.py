"""From a variant to the shop that shows it, built once per process and kept while in use.

Owns what variants share (indexes, ids of look-alikes, price limits) and how families become stages. Knows nothing of tasks' texts or
prompts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from envs.variants import Variant
from envs.webshop.search import Blend
from envs.webshop.shop import WebShop
from envs.webshop.variants import fields, split
from envs.webshop.variants.clicks import Checkout, Navigation, Selection
from envs.webshop.variants.families import CONTROLS, bought_with, options_of
from envs.webshop.variants.lookalike import CopyIds, Lookalikes, read_lookalikes
from envs.webshop.variants.okapi import Okapi
from envs.webshop.variants.ranks import Order, reachable_depth
from envs.webshop.variants.view import Stages, VariantShop

KEPT_SHOPS = 256
"""Shops of variants that are held at most; what they share is held beside them."""
KEPT_SHARED = 64
PUBLISHED_HITS = 200
_OPTIONS_SAMPLE = 2000
"""Goals looked at for the most options that a product has."""
T = TypeVar("T")


class Variants:
    """The variants of one shop. ``max_steps`` is the length of an episode, ``heldout`` the number of goals that are not for training."""

    def __init__(self, base: WebShop, max_steps: int, heldout: int) -> None:
        self._base, self._max_steps, self._heldout = base, max_steps, heldout
        self._shops: OrderedDict[Variant, WebShop | VariantShop] = OrderedDict()
        self._kept: OrderedDict[object, Any] = OrderedDict()
        self._lock = threading.RLock()
        self._makers: dict[str, Callable[[Variant, dict[str, Any]], Stages]] = {
            "catalog_split": self._catalog_split,
            "field_subset": self._field_subset,
            "bm25_reweight": self._bm25_reweight,
            "lookalike": self._lookalike,
            "rank_wrapper": self._rank_wrapper,
            "checkout": self._checkout,
            "checkout_lookalike": self._checkout_lookalike,
            "navigation": self._navigation,
            "selection": self._selection,
        }

    def shop(self, variant: Variant) -> WebShop | VariantShop:
        """The shop of a checked variant: the unperturbed one itself where nothing differs. Raises ``ValueError`` for options or protected
        tasks that do not fit the shop."""
        key = replace(variant, reveal="none", label="")
        if key.unperturbed:
            return self._base
        with self._lock:
            found = self._shops.get(key)
            if found is None:
                found = self._shops[key] = VariantShop(self._base, self._stages(key))
                while len(self._shops) > KEPT_SHOPS:
                    self._shops.popitem(last=False)
            self._shops.move_to_end(key)
            return found

    def _stages(self, variant: Variant) -> Stages:
        return self._makers[variant.family](variant, dict(options_of(variant)))

    def _catalog_split(self, variant: Variant, options: dict[str, Any]) -> Stages:
        base, catalogue = self._base, self._base.catalogue
        divergence, keep = options["divergence"], options["keep_ratio"]
        if 0.0 <= keep <= 1.0:
            keep = 1.0 - variant.severity * (1.0 - keep)
        if options["reference"]:
            if options["clients"] < 1:
                raise ValueError(f"option clients = {options['clients']} of variant 'catalog_split'; allowed: 1 or more")
            client = variant.stream % int(options["clients"])
            targets = split.published_targets(base.goals, self._heldout, client, int(options["clients"]), int(options["min_tasks"]))
            flags = split.published_on_sale(len(catalogue), self._places(targets), divergence, keep, client)
            # as published: what is not on sale is dropped from the hits, so that fewer remain
            return Stages(
                rank=lambda text: [hit for hit in catalogue.ranked(text, base.top_n) if flags[catalogue.id_rank(hit)]], on_sale=flags
            )
        own = np.random.Generator(np.random.PCG64(variant.rng("split").getrandbits(64)))
        flags = split.on_sale(len(catalogue), self._places(map(self._target, variant.protected)), divergence, keep, own)
        return Stages(rank=lambda text: catalogue.ranked(text, base.top_n, allowed=flags), on_sale=flags)

    def _field_subset(self, variant: Variant, options: dict[str, Any]) -> Stages:
        catalogue, top_n = self._base.catalogue, self._base.top_n
        if options["reference"]:
            return self._published(member=variant.member)
        if variant.member == "full":
            return Stages()
        pool = self._shared(("fields", variant.member), lambda: fields.pool_index(catalogue, variant.member))
        engine = pool if variant.severity == 1.0 else Blend(catalogue.engine, pool, variant.severity)
        return Stages(rank=lambda text: catalogue.ranked(text, top_n, engine))

    def _bm25_reweight(self, variant: Variant, options: dict[str, Any]) -> Stages:
        catalogue, top_n = self._base.catalogue, self._base.top_n
        if options["reference"]:
            return self._published(corner=variant.member)
        index = self._shared(
            ("corner", variant.member, variant.severity), lambda: fields.corner_index(catalogue.engine, variant.member, variant.severity)
        )
        return Stages(rank=lambda text: catalogue.ranked(text, top_n, index))

    def _lookalike(self, variant: Variant, options: dict[str, Any]) -> Stages:
        path, share = str(options["file"]), variant.severity * _share(options["rate"])
        if options["reference"] and not path:
            raise ValueError(
                "option reference of variant 'lookalike' needs the published look-alikes: name their file or folder in option file"
            )
        if not path:
            return Stages(lookalikes=self._copies(variant.member, share))
        catalogue = self._base.catalogue
        records = self._shared(("file", path, variant.member), lambda: read_lookalikes(path, variant.member, catalogue))
        copies = self._shared(
            ("file copies", path, variant.member, share),
            lambda: Lookalikes(self._base, variant.member, share, None, self._limits, records),
        )
        if not options["reference"]:
            return Stages(lookalikes=copies)
        extra = copies.copies()
        places = [*range(len(catalogue)), *(copies.position(product.asin) for product in extra)]
        index = fields.published_index([*map(catalogue.product, range(len(catalogue))), *extra])
        return Stages(
            rank=lambda text: [places[number] for number in index.search(text, PUBLISHED_HITS)],
            ranks_copies=True,
            lookalikes=copies,
            top_n=PUBLISHED_HITS,
        )

    def _rank_wrapper(self, variant: Variant, options: dict[str, Any]) -> Stages:
        base, size = self._base, len(self._base.catalogue)
        if options["reference"]:
            published = self._published()
            return replace(published, order=Order(variant, PUBLISHED_HITS, size, stochastic=True))
        asked = int(options["depth"])
        if not 0 <= asked <= base.top_n:
            raise ValueError(
                f"option depth = {asked} of variant 'rank_wrapper'; allowed: 0 (as deep as stays in reach) to {base.top_n} hits"
            )
        depth = asked or reachable_depth(base.results_per_page, self._max_steps, self._most_options, base.top_n)
        return Stages(order=Order(variant, depth, size, bool(options["stochastic"])))

    def _checkout(self, variant: Variant, options: dict[str, Any]) -> Stages:
        return Stages(clicks=Checkout(variant.member, variant.severity, str(options["others"])))

    def _checkout_lookalike(self, variant: Variant, options: dict[str, Any]) -> Stages:
        row, control = bought_with(variant.member)
        assert control in CONTROLS
        return Stages(
            lookalikes=self._copies(f"hidden_{row}", variant.severity * _share(options["rate"])),
            clicks=Checkout(control, variant.severity, str(options["others"])),
        )

    def _navigation(self, variant: Variant, options: dict[str, Any]) -> Stages:
        return Stages(clicks=Navigation(variant.member, variant.severity))

    def _selection(self, variant: Variant, options: dict[str, Any]) -> Stages:
        return Stages(clicks=Selection(variant.member, variant.severity))

    def _copies(self, member: str, share: float) -> Lookalikes:
        return self._shared(("copies", member, share), lambda: Lookalikes(self._base, member, share, self._copy_ids, self._limits))

    def _published(self, member: str = "full", corner: str = "usual") -> Stages:
        catalogue = self._base.catalogue
        index: Okapi = self._shared(
            ("published", member, corner),
            lambda: fields.published_index(list(map(catalogue.product, range(len(catalogue)))), member, corner),
        )
        return Stages(rank=lambda text: index.search(text, PUBLISHED_HITS), top_n=PUBLISHED_HITS)

    def _shared(self, key: object, make: Callable[[], T]) -> T:
        found: T | None = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
            while len(self._kept) > KEPT_SHARED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found

    def _target(self, task: str) -> str:
        """The product that a task id names. Raises ``ValueError`` for an id that names none."""
        asin = task.partition("#")[0].rpartition("_")[0]
        try:
            self._base.catalogue.position(asin)
        except KeyError:
            raise ValueError(f"protected task {task!r}: this catalogue has no product {asin!r}") from None
        return asin

    def _places(self, asins: Iterable[str]) -> list[int]:
        """Places in the order of ids."""
        catalogue = self._base.catalogue
        return sorted({catalogue.id_rank(catalogue.position(asin)) for asin in asins})

    @cached_property
    def _copy_ids(self) -> CopyIds:
        return CopyIds(self._base.catalogue)

    @cached_property
    def _limits(self) -> npt.NDArray[np.float64]:
        return self._base.goals.limits()

    @cached_property
    def _most_options(self) -> int:
        goals, step = self._base.goals, max(1, len(self._base.goals) // _OPTIONS_SAMPLE)
        wanted = {goals.product_position(index) for index in range(0, len(goals), step)}
        return max(len(self._base.catalogue.product(position).options) for position in wanted)


def _share(rate: float) -> float:
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"option rate = {rate:g} of variant 'lookalike'; allowed: 0 to 1")
    return float(rate)
