"""Stages content and matching, families ``lookalike`` and ``checkout_lookalike``: products that look like others and miss a part of the
score.

A look-alike reads like its product, so it ranks like it: it is shown in the row beside it. Owns which products have one, its id, its place
and which of the two rows is the wrong one; also reads the published files of look-alikes. What is wrong with it is in ``faults``.

A copy of the product at position ``p`` of a catalogue of ``n`` has position ``n + p``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from envs.webshop.catalogue import Catalogue
from envs.webshop.errors import WebShopDataError
from envs.webshop.records import DataFiles, Product, parse_product
from envs.webshop.shop import WebShop
from envs.webshop.variants.draws import affected, unit
from envs.webshop.variants.families import PAIRS, pair_of
from envs.webshop.variants.faults import FAULTS, Offer

_KEPT = 4096
_ID_HALF = 5
_FILE_TAG = "lookalike_v_"


@dataclass(frozen=True)
class _Pair:
    """Two rows that look alike. ``copy_first`` says which is shown above the other."""

    original: Offer
    copy: Offer
    copy_first: bool


def _around(items: Sequence[str], first: int) -> Iterator[str]:
    return (items[(first + step) % len(items)] for step in range(len(items)))


class CopyIds:
    """Ids for copies of all products of a catalogue: halves of its own ids joined anew, so that they look and read like the others."""

    def __init__(self, catalogue: Catalogue) -> None:
        ids = [catalogue.asin(position) for position in range(len(catalogue))]
        heads, tails = sorted({asin[:_ID_HALF] for asin in ids}), sorted({asin[_ID_HALF:] for asin in ids})
        taken = set(ids)
        self._ids: list[str] = []
        for asin in ids:
            start = int(unit("copy id", asin) * len(tails))
            first = bisect_left(heads, asin[:_ID_HALF])
            joined = (head + tails[(start + step) % len(tails)] for head in _around(heads, first) for step in range(len(tails)))
            name = next((name for name in joined if name not in taken), f"{asin}2")
            taken.add(name)
            self._ids.append(name)
        self._positions = {name: position for position, name in enumerate(self._ids)}

    def of(self, position: int) -> str:
        """The id of the copy of the product at ``position``."""
        return self._ids[position]

    def original(self, asin: str) -> int:
        """The position of the product whose copy has this id. Raises ``KeyError``."""
        return self._positions[asin]


class Lookalikes:
    """The look-alikes of one variant. ``share`` of the products that can have one do; those of a smaller share are among those of a larger.

    ``limits`` holds the highest price limit of each product's goals. With ``records`` (products read from a file, by the position of
    their original) these are the copies, with the ids that the file gives them.
    """

    def __init__(
        self,
        base: WebShop,
        member: str,
        share: float,
        ids: CopyIds | None,
        limits: npt.NDArray[np.float64],
        records: Mapping[int, Product] | None = None,
    ) -> None:
        self._base, self._member, self._share = base, member, share
        self._ids, self._limits, self._records = ids, limits, records
        self._file_ids = {product.asin: position for position, product in (records or {}).items()}
        self._made: OrderedDict[int, _Pair | None] = OrderedDict()

    def copies(self) -> list[Product]:
        """All copies, in catalogue order."""
        found = (self._pair(position) for position in range(len(self._base.catalogue)))
        return [pair.copy.product for pair in found if pair is not None]

    def spread(self, hits: Iterable[int], most: int) -> list[int]:
        """Ranked positions with every copy beside its original, at most ``most`` of them."""
        n = len(self._base.catalogue)
        out: list[int] = []
        for position in hits:
            pair = self._pair(position)
            if pair is None:
                out.append(position)
            else:
                out += [n + position, position] if pair.copy_first else [position, n + position]
            if len(out) >= most:
                break
        return out[:most]

    def position(self, asin: str) -> int:
        """The position of a copy by its id. Raises ``KeyError``."""
        position = self._file_ids[asin] if self._records is not None or self._ids is None else self._ids.original(asin)
        if self._pair(position) is None:
            raise KeyError(asin)
        return len(self._base.catalogue) + position

    def beside(self, position: int) -> int | None:
        """The position of the copy of the product at a catalogue position; None where it has none."""
        return None if self._pair(position) is None else len(self._base.catalogue) + position

    def offer(self, position: int) -> Offer:
        """What the row of a position sells, and for how much."""
        n = len(self._base.catalogue)
        pair = self._pair(position % n)
        if pair is None:
            product = self._base.catalogue.product(position)
            return Offer(product, self._base.price(product.asin))
        return pair.original if position < n else pair.copy

    def _pair(self, position: int) -> _Pair | None:
        if position in self._made:
            self._made.move_to_end(position)
            return self._made[position]
        pair = self._made[position] = self._make(position)
        if len(self._made) > _KEPT:
            self._made.popitem(last=False)
        return pair

    def _make(self, position: int) -> _Pair | None:
        catalogue = self._base.catalogue
        asin = catalogue.asin(position)
        if not affected(self._share, "look-alike", asin):
            return None
        product = catalogue.product(position)
        price = self._base.price(asin)
        sound = Offer(product, price)
        copy_first = unit("look-alike first", asin) < 0.5
        if self._records is not None:
            record = self._records.get(position)
            paid = price if record is not None and record.pricing == product.pricing else record.pricing[0] if record is not None else 0.0
            return None if record is None else _Pair(sound, Offer(replace(record, nouns=product.nouns), paid), copy_first)
        kind, row = pair_of(self._member)
        paired = kind in PAIRS
        faulty = FAULTS[kind if paired else self._member](product, price, float(self._limits[position]))
        if faulty is None or self._ids is None:
            return None
        if not paired:
            return _Pair(sound, self._copied(position, faulty), copy_first)
        # the page is the same in both worlds of a pair: only what the two rows sell is exchanged
        wrong, right = (faulty, sound) if row == "first" else (sound, faulty)
        return _Pair(wrong, self._copied(position, right), copy_first=False)

    def _copied(self, position: int, offer: Offer) -> Offer:
        assert self._ids is not None
        return Offer(replace(offer.product, asin=self._ids.of(position), instruction=None, human=[]), offer.price)


def read_lookalikes(path: Path | str, member: str, catalogue: Catalogue) -> dict[int, Product]:
    """The published look-alikes of a file, or of the file of ``member`` in a folder, by the position of their original.

    The last ten characters of an id name the original; those of products that are not in the catalogue are left out. Raises
    ``WebShopDataError`` for a file that cannot be read or that has none for this catalogue.
    """
    path = Path(path).expanduser()
    if not path.exists():
        hint = "Correct option file of variant 'lookalike', or leave it out to have look-alikes made"
        raise WebShopDataError("no such file or folder", path=path, hint=hint)
    if path.is_dir():
        names = [f"{_FILE_TAG}{member}.json.gz", f"{_FILE_TAG}{member}.json"]
        found = next((path / name for name in names if (path / name).is_file()), None)
        if found is None:
            raise WebShopDataError(
                f"no look-alikes for member {member!r} here (looked for {', '.join(names)})",
                path=path,
                hint="Name the members whose files are there in world.variant.members",
            )
        path = found
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            rows: Any = json.load(file)
    except (OSError, EOFError, ValueError, zlib.error, RecursionError) as error:
        raise WebShopDataError(f"not readable as look-alikes ({error})", path=path, hint="It may be truncated: fetch it again") from error
    if not isinstance(rows, list):
        raise WebShopDataError(
            f"expected a list of products, found {type(rows).__name__}",
            path=path,
            hint="Name a published file lookalike_v_<member>.json.gz",
        )
    files = DataFiles(path, path, None, None)
    out: dict[int, Product] = {}
    for number, raw in enumerate(rows):
        product = parse_product(raw, number, files, {}, {}, {})
        try:
            out.setdefault(catalogue.position(product.asin[-10:]), product)
        except KeyError:
            continue
    if not out:
        raise WebShopDataError(
            f"none of its {len(rows)} look-alikes has its product in this catalogue",
            path=path,
            hint="It belongs to the public release; name that folder in world.data",
        )
    return out
