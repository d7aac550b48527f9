"""A generated catalogue in the official WebShop file formats, so that the ordinary loader reads it.

Owns how made-up words become products, instructions and files, and where they are cached. Knows nothing of search, pages or goals:
those follow from the files by the WebShop rules.

A product is ``Brand Attribute Attribute Noun [suffix]`` with a price level, colours and/or sizes by category. At most one product per
(noun, attribute) pair carries an instruction, so no two goals read the same, and a pair is shared by at most four products while the
catalogue is small (up to 500 products), so the product that is asked for is among the first four hits of ``attribute noun``.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.webshop import lexicon
from envs.webshop.catalogue import cache_root
from envs.webshop.lexicon import ATTRIBUTES, BRANDS, CATEGORIES, COLOURS, PRICES, SIZES, Category

GENERATOR_VERSION = 1
"""Raised whenever the same ``(n, seed)`` would give other files."""

ITEMS_FILE = "items_shuffle.json"
ATTRIBUTES_FILE = "items_ins_v2.json"
HUMAN_FILE = "items_human_ins.json"
NOUNS_FILE = "title_nouns.json"
MANIFEST_FILE = "generated.json"

COLOURS_PER_NOUN = 5
_PRODUCTS_PER_NOUN = 20
_SUFFIX_SHARE = 0.5


@dataclass(frozen=True)
class Records:
    """The contents of the four files: ``items`` in file order, the others keyed by product id."""

    items: list[dict[str, Any]]
    attributes: dict[str, dict[str, Any]]
    human: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    title_nouns: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kind:
    """A noun with what all its products have in common."""

    category: Category
    noun: str
    colours: tuple[str, ...]
    sizes: tuple[str, ...]
    order: tuple[str, ...]
    """The attributes in this noun's own order."""


def generate(n: int, seed: int) -> Records:
    """``n`` products, the same for the same ``(n, seed)`` on every machine. Raises ``ValueError`` for ``n`` out of range."""
    most = len(lexicon.id_heads()) * len(lexicon.id_tails()) // 4
    if not 1 <= n <= most:
        raise ValueError(f"cannot generate {n} products: the product ids allow 1 to {most}")
    rng = random.Random(f"webshop-{GENERATOR_VERSION}-{n}-{seed}")
    ids = rng.sample(id_pool(n), n)
    kinds = _kinds(n, rng)
    items: list[dict[str, Any]] = []
    attributes: dict[str, dict[str, Any]] = {}
    title_nouns: dict[str, list[str]] = {}
    for i, asin in enumerate(ids):
        kind, place = kinds[i % len(kinds)], i // len(kinds)
        pair, asked = _attribute_pair(kind, place)
        items.append(_product(asin, kind, pair, rng))
        attributes[asin] = {"attributes": [a.lower() for a in pair]}
        if asked is not None:
            attributes[asin]["instruction"] = f"Find me {asked.lower()} {kind.noun.lower()}"
            attributes[asin]["instruction_attributes"] = [asked.lower()]
        title_nouns[asin] = kind.noun.lower().split()
    rng.shuffle(items)
    return Records(items=items, attributes=attributes, title_nouns=title_nouns)


def id_pool(n: int) -> list[str]:
    """The ids that ``n`` products may have: at least twice as many, each a first and a second half joined.

    Few halves are used, and the same ones for every seed (32 of each up to 512 products), so that a small tokenizer sees each often
    and knows them in any small catalogue.
    """
    heads, tails = lexicon.id_heads(), lexicon.id_tails()
    width = 32
    while width * width < 2 * n:
        width *= 2
    heads = heads[:width]
    tails = tails[: max(width, -(-2 * n // len(heads)))]
    return [head + tail for head in heads for tail in tails]


def write(out_dir: Path | str, n: int, seed: int) -> Path:
    """Write the catalogue of ``(n, seed)`` into ``out_dir`` (made if absent) and return it. Files are byte-identical per seed."""
    out = Path(out_dir)
    write_records(out, generate(n, seed), {"generator": GENERATOR_VERSION, "products": n, "seed": seed})
    return out


def write_records(out_dir: Path, records: Records, origin: Mapping[str, Any]) -> None:
    """Write records in the official formats, and beside them a manifest with ``origin`` and the files' SHA-256."""
    out_dir.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {
        ITEMS_FILE: records.items,
        ATTRIBUTES_FILE: records.attributes,
        HUMAN_FILE: records.human,
        NOUNS_FILE: records.title_nouns,
    }
    digests = {}
    for name, content in contents.items():
        raw = json.dumps(content, ensure_ascii=True).encode("ascii")
        (out_dir / name).write_bytes(raw)
        digests[name] = hashlib.sha256(raw).hexdigest()
    (out_dir / MANIFEST_FILE).write_text(json.dumps({**origin, "files": digests}, indent=1) + "\n", encoding="utf-8")


def catalogue_key(n: int, seed: int) -> str:
    """Twelve hex digits that name the catalogue of ``(n, seed)``: they change with the generator's version or its words."""
    words = repr((GENERATOR_VERSION, CATEGORIES, ATTRIBUTES, BRANDS, COLOURS, SIZES, PRICES, COLOURS_PER_NOUN, n, seed))
    return hashlib.sha256(words.encode("utf-8")).hexdigest()[:12]


def ensure_generated(cache_dir: Path | str | None, n: int, seed: int) -> Path:
    """The folder of a generated catalogue under the cache (``cache_root`` of ``envs.webshop.catalogue``), written on first use.

    Safe to call from many processes at once: each writes aside and renames, the first one wins. A folder with a missing or
    changed file is written anew.
    """
    target = cache_root(cache_dir) / f"generated-{n}-{seed}-{catalogue_key(n, seed)}"
    if _intact(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        write(aside, n, seed)
        aside.chmod(0o755)
        _publish(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def _publish(aside: Path, target: Path) -> None:
    """Rename ``aside`` to ``target``, unless another process has put an intact folder there meanwhile."""
    for _ in range(3):
        try:
            aside.rename(target)
            return
        except OSError:
            if _intact(target):
                return
            shutil.rmtree(target, ignore_errors=True)
    raise OSError(f"cannot place the generated catalogue at {target}: remove that folder and try again")


def _intact(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        files = manifest["files"]
        return bool(files) and all(hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest for name, digest in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _kinds(n: int, rng: random.Random) -> list[_Kind]:
    """The nouns in use, categories interleaved. Larger catalogues use more nouns."""
    most = min(len(c.nouns) for c in CATEGORIES)
    per_category = min(most, max(lexicon.FIRST_NOUNS, -(-n // (_PRODUCTS_PER_NOUN * len(CATEGORIES)))))
    kinds = []
    for k in range(per_category):
        for category in CATEGORIES:
            colours = tuple(rng.sample(COLOURS, COLOURS_PER_NOUN)) if category.has_colour else ()
            order = tuple(rng.sample(ATTRIBUTES, len(ATTRIBUTES)))
            kinds.append(_Kind(category, category.nouns[k], colours, SIZES if category.has_size else (), order))
    return kinds


def _attribute_pair(kind: _Kind, place: int) -> tuple[tuple[str, str], str | None]:
    """The two attributes of a noun's product number ``place``, and the one that its instruction asks for (None: no instruction).

    The first lap over the attributes uses each exactly twice and asks for each once; later laps pair them otherwise.
    """
    size = len(kind.order)
    lap, step = divmod(place, size)
    first = kind.order[step]
    if lap == 0:
        return (first, kind.order[(step + 5) % size]), first
    return (first, kind.order[(step + size // 2 + lap) % size if lap % size != size // 2 else (step + 1) % size]), None


def _product(asin: str, kind: _Kind, pair: tuple[str, str], rng: random.Random) -> dict[str, Any]:
    category, noun = kind.category, kind.noun
    brand = rng.choice(BRANDS)
    shown = list(pair)
    rng.shuffle(shown)
    suffix = rng.choice(category.suffixes) if rng.random() < _SUFFIX_SHARE else ""
    options: dict[str, list[dict[str, str]]] = {}
    if kind.colours:
        options["Color"] = [{"value": c, "image": f"images/{asin}-{c.lower()}.jpg"} for c in rng.sample(kind.colours, len(kind.colours))]
    if kind.sizes:
        options["Size"] = [{"value": s} for s in kind.sizes]
    return {
        "asin": asin,
        "name": " ".join(filter(None, [brand, *shown, noun, suffix])),
        "full_description": f"{brand} makes this {noun.lower()} for everyday use. Packed with care and shipped within two days.",
        "small_description": [f"{shown[0]} and {shown[1].lower()} {noun.lower()} ", f"Made by {brand} ", "One year warranty "],
        "pricing": f"${rng.choice(PRICES)}.00",
        "customization_options": options,
        "category": category.name,
        "query": f"{noun.lower()} ",
        "product_category": f"{category.department} › {category.aisle} › {noun}",
        "images": [f"images/{asin}.jpg"],
    }
