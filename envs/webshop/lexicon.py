"""The words of the generated catalogue: categories, nouns, attributes, brands, colours, and the pieces of product ids.

All names are made up for this project. Owns words only; how they become products is ``envs.webshop.generate``.

Rules that the reward and the tokenizer rely on (tested):

- no attribute is part of another attribute, nor of any other word here (WebShop also accepts an attribute as a plain substring);
- nouns of different products share no word (title nouns decide the type part of the reward);
- colours are WebShop colour words and no colour is part of another; sizes avoid "x-large", which "large" would match.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Category:
    """One of the five WebShop categories. ``department`` and ``aisle`` make up the product category path."""

    name: str
    department: str
    aisle: str
    nouns: tuple[str, ...]
    suffixes: tuple[str, ...]
    has_colour: bool
    has_size: bool


CATEGORIES: tuple[Category, ...] = (
    Category(
        "beauty",
        "Beauty & Care",
        "Daily Care",
        ("Shampoo", "Lipstick", "Serum", "Perfume", "Face Mask", "Lotion", "Soap", "Mascara", "Conditioner", "Toner"),
        ("for Women", "for Men", "Gift Set"),
        has_colour=True,
        has_size=False,
    ),
    Category(
        "electronics",
        "Electronics",
        "Devices",
        ("Headphones", "Charger", "Speaker", "Keyboard", "Phone Case", "Tripod", "Monitor", "Router", "Webcam", "Microphone"),
        ("Gift Set",),
        has_colour=True,
        has_size=False,
    ),
    Category(
        "fashion",
        "Clothing",
        "Apparel",
        ("Jacket", "Sneakers", "Backpack", "Scarf", "Rain Boots", "Sweater", "Gloves", "Dress", "Belt", "Hat"),
        ("for Women", "for Men"),
        has_colour=True,
        has_size=True,
    ),
    Category(
        "garden",
        "Home & Garden",
        "Living",
        ("Lantern", "Planter", "Bench", "Curtain", "Area Rug", "Pillow", "Stool", "Vase", "Blanket", "Hammock"),
        ("Gift Set",),
        has_colour=True,
        has_size=True,
    ),
    Category(
        "grocery",
        "Grocery",
        "Pantry",
        ("Granola", "Cookies", "Tea", "Popcorn", "Trail Mix", "Pasta", "Crackers", "Syrup", "Chocolate", "Cereal"),
        ("Gift Set",),
        has_colour=False,
        has_size=True,
    ),
)

FIRST_NOUNS = 5
"""Nouns per category in a small catalogue; larger ones use more."""

ATTRIBUTES: tuple[str, ...] = (
    "Portable",
    "Organic",
    "Handmade",
    "Vintage",
    "Compact",
    "Durable",
    "Premium",
    "Gentle",
    "Modern",
    "Washable",
    "Scented",
    "Sturdy",
)

BRANDS: tuple[str, ...] = (
    "Tavero",
    "Quillam",
    "Norvik",
    "Zemlo",
    "Hadrin",
    "Ostrel",
    "Pellow",
    "Varnik",
    "Solbry",
    "Mirzan",
    "Kethra",
    "Dunmer",
    "Fabrel",
    "Juxon",
    "Wendro",
    "Yorlin",
)

COLOURS: tuple[str, ...] = ("Red", "Blue", "Green", "Black", "White", "Gold", "Pink", "Purple")

SIZES: tuple[str, ...] = ("Small", "Medium", "Large")

PRICES: tuple[int, ...] = (15, 35, 55)
"""Price levels in dollars, far enough apart for WebShop's 10-dollar limits to decide."""

_CONSONANTS = "bdklmnprstvz"
_VOWELS = "aeiou"


def id_heads() -> list[str]:
    """First halves of product ids, ``B0`` and three letters, in a fixed mixed order (720 of them)."""
    return _mixed([f"B0{a}{v}{b}".upper() for v in _VOWELS for a in _CONSONANTS for b in _CONSONANTS])


def id_tails() -> list[str]:
    """Second halves of product ids, five letters, in a fixed mixed order (43,200 of them)."""
    return _mixed(
        [f"{a}{v}{b}{w}{c}".upper() for v in _VOWELS for w in _VOWELS for a in _CONSONANTS for b in _CONSONANTS for c in _CONSONANTS]
    )


def _mixed(words: list[str]) -> list[str]:
    random.Random("product ids").shuffle(words)
    return words
