"""Stages encoding and matching, families ``field_subset`` and ``bm25_reweight``: which texts search reads, and how it weighs words.

Owns the texts of a pool and the indexes over them, sound and published. Knows nothing of sessions or pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.webshop.catalogue import Catalogue
from envs.webshop.records import Product
from envs.webshop.search import BM25, K1, B
from envs.webshop.variants.families import CORNERS, FIELDS, PUBLISHED_FIELDS
from envs.webshop.variants.okapi import Okapi

_TEXTS: dict[str, Callable[[Product], str]] = {
    "title": lambda product: product.title,
    "description": lambda product: product.description,
    "bullet": lambda product: product.bullets[0] if product.bullets else "",
    "bullets": lambda product: " ".join(product.bullets),
    "options": lambda product: " ".join(f"{name} {' '.join(values)}" for name, values in product.options.items()),
    "attributes": lambda product: " ".join(product.attributes),
    "category": lambda product: f"{product.query} {product.product_category}",
}


def pool_text(product: Product, member: str) -> str:
    """What a pool indexes of a product: its fields, or the title where they are all blank; lower-case."""
    if member == "full":
        return product.index_text()
    text = " ".join(filter(str.strip, (_TEXTS[name](product) for name in FIELDS[member])))
    return (text or product.title).lower()


def pool_index(catalogue: Catalogue, member: str) -> BM25:
    """An index of the pool alone, kept on disk beside the catalogue's own."""
    return catalogue.index(f"field_subset-1|{member}|{FIELDS[member]}", lambda product: pool_text(product, member))


def corner_index(engine: BM25, member: str, severity: float) -> BM25:
    """The shop's own index at the corner of ``member``, or on the way there from the shop's (k1, b)."""
    k1, b = CORNERS[member]
    return engine.with_corner(K1 + severity * (k1 - K1), B + severity * (b - B))


def published_text(product: Product, fields: Sequence[str]) -> str:
    """The document of the published in-memory search for these keys of a loaded product."""
    known = {"name": product.title, "Title": product.title, "BulletPoints": " ".join(product.bullets)}
    return " ".join(known[name] for name in fields if known.get(name)) or product.title


def published_index(products: Sequence[Product], member: str = "full", corner: str = "usual") -> Okapi:
    """The published in-memory search over ``products``, which are numbered in this order."""
    k1, b = CORNERS[corner]
    return Okapi([published_text(product, PUBLISHED_FIELDS[member]) for product in products], k1, b)
