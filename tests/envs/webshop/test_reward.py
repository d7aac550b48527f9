"""Each rule of the score, by hand."""

from __future__ import annotations

import pytest

from envs.webshop.nouns import TitleNouns, rule_nouns
from envs.webshop.records import Product
from envs.webshop.reward import attribute_matches, normalize_color, option_matches, score, similarity, type_parts
from tests.envs.webshop.conftest import Opener


def make(**changes: object) -> Product:
    fields: dict[str, object] = {
        "asin": "B0",
        "title": "Wool HAT",
        "description": "Soft and Warm",
        "bullets": ["Hand wash", "Made in Italy"],
        "pricing": [10.0],
        "price_tag": "$10.0",
        "options": {},
        "attributes": ["machine washable"],
        "category": "fashion",
        "query": "hats",
        "product_category": "Clothing › Men › Hats",
        "instruction": None,
        "instruction_attributes": [],
        "human": [],
        "nouns": ["wool", "hat"],
    }
    return Product(**{**fields, **changes})  # type: ignore[arg-type]


GOAL = {
    "query": "hats",
    "product_category": "Clothing › Men › Hats",
    "attributes": ["hand wash"],
    "goal_options": {},
    "price_upper": 20.0,
}


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        ("large", "x-large", 100),
        ("red", "('color', 'dark red')", 100),
        ("", "red", 0),
        ("Caf\u00e9", "caf", 100),
        ("\u00bd", "\u00bd", 0),
        ("abc", "xyz", 0),
        ("a b", "b a", 100),
    ],
)
def test_similarity(first: str, second: str, value: int) -> None:
    assert similarity(first, second) == value


def test_colour_words_are_substrings_of_texts_and_elements_of_pairs() -> None:
    assert normalize_color("infrared") == "red"
    assert normalize_color("titanium") == "tan"
    assert normalize_color("pine forest green") == "green"
    assert normalize_color("dark blue") == "blue"
    assert normalize_color("xl") == "xl"
    assert normalize_color(("color", "red")) == "red"
    assert normalize_color(("color", "dark red")) == ("color", "dark red")


def test_attributes_match_fuzzily_or_literally() -> None:
    product = make()
    assert attribute_matches(product, ["washable"]) == 1
    assert attribute_matches(product, ["wool", "hand wash", "and warm", "silk"]) == 3
    assert attribute_matches(product, ["Italy"]) == 0
    assert attribute_matches(product, ["wash made"]) == 1


def test_options_match_by_value_only() -> None:
    assert option_matches(["navy"], {"color": "navy"}) == 1
    assert option_matches(["pine forest green"], {"color": "moss green"}) == 1
    assert option_matches(["large"], {"size": "x-large", "width": "large"}) == 2
    assert option_matches(["size"], {"size": "9"}) == 1
    assert option_matches(["rectangular"], {"shape": "rectangular"}) == 0
    assert option_matches(["rectangular"], ["rectangular"]) == 1
    assert option_matches([], ["red"]) == 0


@pytest.mark.parametrize(
    ("query", "category", "own", "wanted", "r_type", "title_score"),
    [
        ("hats", "A › B", ["hat"], ["hat"], 1.0, 1.0),
        ("x", "Clothing › Men › Other", ["hat"], ["hat"], 1.0, 1.0),
        ("x", "Clothing", ["a"], ["a", "b", "c", "d", "e"], 0.5, 0.2),
        ("x", "Clothing", ["a", "b"], ["a", "b", "c", "d", "e"], 1.0, 0.4),
        ("hats", "A", ["a"], [*"abcdefghijk"], 0.1, 1 / 11),
        ("hats", "A", ["z"], ["a"], 0.0, 0.0),
        ("x", "A", ["z"], [], 0.5, 0.2),
        ("hats", "A", ["hat"], ["hat", "hat"], 1.0, 0.5),
    ],
)
def test_type(query: str, category: str, own: list[str], wanted: list[str], r_type: float, title_score: float) -> None:
    parts = type_parts(make(query=query, product_category=category), GOAL, own, wanted)
    assert (parts["r_type"], parts["title_score"]) == (r_type, pytest.approx(title_score))


def test_category_parts_are_stripped_and_distinct() -> None:
    goal = {**GOAL, "query": "x", "product_category": "Men› Clothing ›Men"}
    assert type_parts(make(query="y"), goal, [], ["a"])["category_match"]
    assert not type_parts(make(query="y"), {**goal, "product_category": "Men › Men"}, [], ["a"])["category_match"]


def test_the_whole_score() -> None:
    goal = {**GOAL, "attributes": ["hand wash", "silk"], "goal_options": {"size": "9"}}
    parts = score(make(), goal, 20.01, {"size": "9"}, ["hat"], ["hat"])
    assert parts == {
        "reward": 0.5,
        "r_type": 1.0,
        "r_att": 0.5,
        "w_att": 0.5,
        "query_match": True,
        "category_match": True,
        "title_score": 1.0,
        "r_option": 1.0,
        "w_option": 0.25,
        "r_price": False,
        "w_price": 0.25,
    }
    plain = score(make(), GOAL, 20.0, {}, ["hat"], ["hat"])
    assert plain["reward"] == 1.0
    assert plain["r_price"] is True
    assert "r_option" not in plain
    assert plain["r_option"] is None


def test_the_shop_scores_with_its_own_prices(open_shop: Opener) -> None:
    shop = open_shop()
    index = next(place for place, goal in enumerate(shop.goals) if goal["asin"] == "B0EXAMPLE2")
    # the same title twice: attribute "slim fit" is not met by any pair of socks
    assert shop.reward("B0EXAMPLE2", {}, index)["reward"] == 0.5
    other = shop.reward("B0EXAMPLE3", {}, index)
    assert (other["query_match"], other["category_match"], other["title_score"]) == (True, False, 1.0)
    with pytest.raises(KeyError):
        shop.reward("B0NOWHERE0", {}, index)


def test_nouns_come_from_the_list_or_from_the_tagger() -> None:
    asked: list[str] = []

    def tag(title: str) -> list[str]:
        asked.append(title)
        return ["tagged"]

    nouns = TitleNouns(tag)
    assert nouns(make()) == ["wool", "hat"]
    assert nouns(make(nouns=[])) == []
    assert nouns(make(nouns=None)) == nouns(make(nouns=None)) == ["tagged"]
    assert asked == ["Wool HAT"]


def test_the_fallback_rule() -> None:
    assert rule_nouns("Men's 2-Pack T-Shirt for the Home, 500ml & more!") == ["men's", "t-shirt", "home"]
