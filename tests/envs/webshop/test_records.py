"""From raw records to products, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop import WebShopDataError
from envs.webshop.records import find_files, iter_records
from tests.envs.webshop.conftest import ITEMS, Opener, Writer, product


def test_the_example_of_the_file_format(open_shop: Opener) -> None:
    tee = open_shop().product("B0EXAMPLE1")
    assert tee.options == {"color": ["navy | white", "pine forest green"], "size": ['large "l"', "größe 5", "small"]}
    assert (tee.pricing, tee.price_tag) == ([9.99, 14.5], "$9.99 to $14.5")
    assert tee.query == "tees"
    assert tee.bullets == ["100% Cotton ", "Machine wash "]
    assert tee.attributes == ["machine wash", "slim fit"]
    assert tee.index_text() == (
        'acme cotton tee soft tee. 100% cotton  color: navy | white, pine forest green, and size: large "l", größe 5, small'
    )


def test_prices_bullets_and_attributes_that_are_absent(open_shop: Opener) -> None:
    shop = open_shop()
    assert [shop.product(asin).price_tag for asin in ("B0EXAMPLE2", "B0EXAMPLE3", "B0EXAMPLE4", "B0EXAMPLE5")] == [
        "$100.0",
        "$100.0",
        "$1000.5",
        "$500.0",
    ]
    assert shop.product("B0EXAMPLE4").bullets == ["one plain text"]
    assert shop.product("LK_LONGER_THAN_TEN").attributes == ["DUMMY_ATTR"]


def test_three_prices_keep_two(open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]]) -> None:
    items[1]["pricing"] = "from $3 to $1.50 or $2"
    shop = open_shop(write_folder(items))
    assert (shop.product("B0EXAMPLE3").pricing, shop.product("B0EXAMPLE3").price_tag) == ([3.0, 1.5], "$3.0 to $1.5")


def test_which_records_are_loaded(open_shop: Opener) -> None:
    fed = open_shop().catalogue
    asins = [fed.product(position).asin for position in range(len(fed))]
    assert asins == ["B0EXAMPLE1", "B0EXAMPLE3", "B0EXAMPLE2", "B0EXAMPLE4", "LK_LONGER_THAN_TEN", "B0EXAMPLE5"]
    assert fed.product(0).title == "Acme Cotton Tee"
    up = open_shop(profile="up").catalogue
    assert len(up) == 5
    with pytest.raises(KeyError):
        up.position("LK_LONGER_THAN_TEN")


def test_num_products_counts_records(open_shop: Opener) -> None:
    assert len(open_shop(num_products=6).catalogue) == 4


def test_option_names_that_become_equal(open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]]) -> None:
    items[1]["customization_options"] = {"Size": [{"value": "S"}], "SIZE": [{"value": "M"}, {"value": "M"}]}
    assert open_shop(write_folder(items)).product("B0EXAMPLE3").options == {"size": ["m", "m"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pricing": "12.00"}, "no '$'"),
        ({"pricing": "$"}, "no number"),
        ({"pricing": 12}, "'pricing' should be a text"),
        ({"name": None}, "'name' should be a text, found NoneType"),
        ({"images": []}, "'images'"),
        ({"small_description": [1]}, "'small_description'"),
        ({"customization_options": {"Size": ["S"]}}, "option 'Size'"),
        ({"customization_options": ["Size"]}, "'customization_options'"),
    ],
)
def test_bad_fields_name_file_and_record(
    open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]], changes: dict[str, Any], words: str
) -> None:
    items[2].update(changes)
    with pytest.raises(WebShopDataError, match=r"items_shuffle\.json: record 2 \(asin B0EXAMPLE2\)") as raised:
        open_shop(write_folder(items))
    assert words in str(raised.value)
    assert (raised.value.record, raised.value.asin) == (2, "B0EXAMPLE2")


@pytest.mark.parametrize("field", ["asin", "name", "full_description", "category", "query", "product_category", "customization_options"])
def test_missing_fields(open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]], field: str) -> None:
    del items[3][field]
    with pytest.raises(WebShopDataError, match=f"record 3.*{field!r} is missing"):
        open_shop(write_folder(items))


def test_an_instruction_needs_attributes(open_shop: Opener, write_folder: Writer) -> None:
    folder = write_folder(attributes={"B0EXAMPLE1": {"attributes": [], "instruction": "x", "instruction_attributes": []}})
    with pytest.raises(WebShopDataError, match=r"items_ins_v2\.json: asin B0EXAMPLE1"):
        open_shop(folder)


def test_missing_files(tmp_path: Path, write_folder: Writer) -> None:
    with pytest.raises(WebShopDataError, match="does not exist"):
        find_files(tmp_path / "nowhere")
    with pytest.raises(WebShopDataError, match="no catalogue here"):
        find_files(write_folder(items=None))
    with pytest.raises(WebShopDataError, match="no attribute file"):
        find_files(write_folder(attributes=None, name="other"))


def test_a_small_catalogue_goes_before_a_full_one(write_folder: Writer) -> None:
    folder = write_folder()
    assert find_files(folder).products.name == "items_shuffle.json"
    (folder / "items_shuffle_1000.json").write_text("[]")
    (folder / "items_ins_v2_1000.json").write_text("{}")
    files = find_files(folder)
    assert (files.products.name, files.attributes.name) == ("items_shuffle_1000.json", "items_ins_v2_1000.json")


@pytest.mark.parametrize("text", ['[{"a": 1}, {"b"', '[{"a": 1}', '[{"a": 1} 7x]', "", "{}", '[{"a": 1}, ,]x'])
def test_truncated_and_malformed_arrays(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(WebShopDataError, match=r"x\.json"):
        list(iter_records(path))


def test_arrays_are_streamed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.webshop.records._CHUNK", 7)
    path = tmp_path / "x.json"
    values = [{"asin": "é" * number, "list": [1.5, None, "],["]} for number in range(40)] + [12345678, "tail"]
    for indent in (None, 2):
        path.write_text(json.dumps(values, indent=indent, ensure_ascii=indent is None), encoding="utf-8")
        assert list(iter_records(path)) == list(enumerate(values))
    path.write_text(" [ ] ")
    assert list(iter_records(path)) == []


def test_an_empty_catalogue_is_refused(open_shop: Opener, write_folder: Writer) -> None:
    with pytest.raises(WebShopDataError, match="holds no product"):
        open_shop(write_folder([product("nan", "x")]))


def test_bytes_that_are_no_text(open_shop: Opener, write_folder: Writer) -> None:
    folder = write_folder(ITEMS)
    (folder / "items_ins_v2.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(WebShopDataError, match=r"items_ins_v2\.json"):
        open_shop(folder)
