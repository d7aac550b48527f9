"""A shop small enough to work out by hand."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envs.webshop import WebShop
from envs.webshop.generate import ensure_generated
from envs.webshop.world import WebShopWorld


def product(asin: str, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "asin": asin,
        "name": name,
        "full_description": "",
        "small_description": [""],
        "pricing": "$12.00",
        "customization_options": "",
        "category": "fashion",
        "query": "Tees ",
        "product_category": "Clothing › Men › Tees",
        "images": ["u"],
        **changes,
    }


ITEMS: list[dict[str, Any]] = [
    product(
        "B0EXAMPLE1",
        "Acme Cotton Tee",
        full_description="Soft tee.",
        small_description=["100% Cotton ", "Machine wash "],
        pricing="$9.99$14.50",
        customization_options={
            "Color": [{"value": "Navy/White", "image": "u"}, {"value": " Pine Forest Green "}],
            "Size": [{"value": 'Large "L"', "asin": "X"}, {"value": "Größe 5"}, {"value": "Small"}],
            "Gift": None,
        },
    ),
    product("B0EXAMPLE3", "Cotton Socks", category="grocery", query="socks", pricing="", product_category="Food › Socks"),
    product("B0EXAMPLE2", "Cotton Socks", category="beauty", query="socks", pricing=None, product_category="Clothing › Men › Socks"),
    product("B0EXAMPLE4", "Wool Hat <b>&amp; Scarf", small_description="one plain text", full_description=" \n ", pricing="$1,000.50"),
    product("B0EXAMPLE1", "A repeated id"),
    product("nan", "No id"),
    product("LK_LONGER_THAN_TEN", "Lookalike Tee", query="Tees"),
    product("B0TOOLONG11", "Never loaded"),
    product(
        "B0EXAMPLE5",
        "Twin Option Lamp",
        category="garden",
        query="lamps",
        pricing="$500",
        product_category="Home › Lamps",
        customization_options={"Shade": [{"value": "Red"}, {"value": "Description"}], "Base": [{"value": "red"}, {"value": "blue"}]},
    ),
]
ATTRIBUTES: dict[str, Any] = {
    "B0EXAMPLE1": {
        "attributes": ["machine wash", "slim fit"],
        "instruction": "Find me slim fit men's tees",
        "instruction_attributes": ["slim fit", "machine wash"],
    },
    "B0EXAMPLE2": {"attributes": ["soft"], "instruction": "Find me soft socks", "instruction_attributes": ["slim fit"]},
    "B0EXAMPLE3": {"attributes": []},
    "B0EXAMPLE4": {"attributes": ["wool"]},
    "B0EXAMPLE5": {"attributes": ["bright"], "instruction": "Find me bright lamps", "instruction_attributes": ["bright"]},
}
HUMAN: dict[str, Any] = {
    "B0EXAMPLE1": [
        {"instruction": "i want a navy tee.", "instruction_attributes": ["slim fit"], "instruction_options": ["navy | white"]},
        {"instruction": "nothing asked", "instruction_attributes": [], "instruction_options": []},
    ],
    "B0EXAMPLE4": [{"instruction": "..a hat..", "instruction_attributes": ["wool"], "instruction_options": []}],
}
NOUNS: dict[str, Any] = {
    "B0EXAMPLE1": ["acme", "cotton", "tee"],
    "B0EXAMPLE2": ["cotton", "socks"],
    "B0EXAMPLE3": ["cotton", "socks"],
    "B0EXAMPLE4": ["wool", "hat", "hat", "scarf"],
    "B0EXAMPLE5": ["lamp"],
    "LK_LONGER_THAN_TEN": [],
}

Writer = Callable[..., Path]
Opener = Callable[..., WebShop]


@pytest.fixture
def items() -> list[dict[str, Any]]:
    """A copy of the catalogue that a test may change."""
    return copy.deepcopy(ITEMS)


@pytest.fixture
def write_folder(tmp_path: Path) -> Writer:
    """Write a data folder; each file may be replaced, or left out with ``None``."""

    def write(items: Any = ITEMS, attributes: Any = ATTRIBUTES, human: Any = HUMAN, nouns: Any = NOUNS, name: str = "data") -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        contents = {"items_shuffle.json": items, "items_ins_v2.json": attributes, "items_human_ins.json": human, "title_nouns.json": nouns}
        for file, value in contents.items():
            if value is not None:
                (folder / file).write_text(json.dumps(value), encoding="utf-8")
        return folder

    return write


@pytest.fixture
def open_shop(write_folder: Writer, tmp_path: Path) -> Opener:
    """A shop on the small catalogue."""

    def open_(folder: Path | None = None, **options: Any) -> WebShop:
        return WebShop(write_folder() if folder is None else folder, cache_dir=tmp_path / "cache", **options)

    return open_


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("webshop-cache")


@pytest.fixture(scope="session")
def real_shop(webshop_data: Path, shared_cache: Path) -> WebShop:
    return WebShop(webshop_data, cache_dir=shared_cache)


@pytest.fixture(scope="session")
def generated_world(shared_cache: Path) -> WebShopWorld:
    """The embedded default: 400 generated products, four rows a page, eight actions."""
    folder = ensure_generated(shared_cache, 400, 0)
    return WebShopWorld(folder, results_per_page=4, max_steps=8, heldout=400, cache_dir=shared_cache)


@pytest.fixture(scope="session")
def real_world(webshop_data: Path, shared_cache: Path) -> WebShopWorld:
    return WebShopWorld(webshop_data, cache_dir=shared_cache)
