"""The generated catalogue: deterministic, read by the ordinary loader, and fit for the reward's matching rules."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
from collections import Counter
from pathlib import Path

import pytest
from rapidfuzz import fuzz

from envs.webshop import WebShop, generate, lexicon
from envs.webshop.check import check_folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> WebShop:
    folder = generate.write(tmp_path_factory.mktemp("generated"), 400, 0)
    return WebShop(folder, results_per_page=4, cache_dir=tmp_path_factory.mktemp("cache"))


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path: Path) -> None:
    first, again, other = (generate.write(tmp_path / name, 60, seed) for name, seed in (("a", 3), ("b", 3), ("c", 4)))
    names = sorted(path.name for path in first.iterdir())
    assert names == ["generated.json", "items_human_ins.json", "items_ins_v2.json", "items_shuffle.json", "title_nouns.json"]
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    assert (first / "items_shuffle.json").read_bytes() != (other / "items_shuffle.json").read_bytes()


def test_this_version_of_the_generator_is_pinned() -> None:
    # The shipped model's manifest names this catalogue: when it changes, raise GENERATOR_VERSION and build the model anew.
    items = generate.generate(400, 0).items
    assert [(item["asin"], item["name"], item["pricing"]) for item in items[:2]] == [
        ("B0PUZTIZUB", "Norvik Sturdy Modern Charger Gift Set", "$55.00"),
        ("B0MODNALON", "Zemlo Organic Vintage Serum", "$55.00"),
    ]


def test_the_check_of_data_folders_finds_nothing(tmp_path: Path) -> None:
    report = check_folder(generate.write(tmp_path, 100, 1))
    assert report.ok, report.problems
    assert not report.warnings
    assert set(report.categories) == {"beauty", "electronics", "fashion", "garden", "grocery"}


def test_goals_are_many_distinct_and_of_all_categories(shop: WebShop) -> None:
    assert len(shop.goals) == 2580
    assert len({goal["instruction_text"] for goal in shop.goals}) == 2580
    assert Counter(goal["category"] for goal in shop.goals) == {
        "fashion": 900,
        "garden": 900,
        "electronics": 300,
        "beauty": 300,
        "grocery": 180,
    }


def test_every_goal_is_among_the_first_four_hits_and_can_be_bought_for_the_full_score(shop: WebShop) -> None:
    for index, goal in enumerate(shop.goals):
        attribute, noun = goal["attributes"][0], goal["query"]
        assert goal["instruction_text"].startswith(f"Find me {attribute} {noun}")
        assert goal["asin"] in shop.search(f"{attribute} {noun}")[:4]
        assert shop.reward(goal["asin"], goal["goal_options"], index)["reward"] == 1.0


def test_wrong_noun_attribute_colour_size_or_price_lose_score(shop: WebShop) -> None:
    index, goal = next((i, g) for i, g in enumerate(shop.goals) if g["category"] == "garden" and g["price_upper"] < 55)
    options = goal["goal_options"]
    for name in ("color", "size"):
        others = [value for value in shop.product(goal["asin"]).options[name] if value != options[name]]
        assert all(shop.reward(goal["asin"], {**options, name: value}, index)["reward"] == 0.75 for value in others)
    products = [shop.product(item["asin"]) for item in generate.generate(400, 0).items]
    same_noun = [p for p in products if p.query == goal["query"]]
    for product in products:
        if product.query != goal["query"]:
            assert shop.reward(product.asin, options, index)["reward"] < 0.6
    assert any(shop.reward(p.asin, options, index)["reward"] == 0.75 for p in same_noun if goal["attributes"][0] not in p.title.lower())
    dear = [p for p in same_noun if shop.price(p.asin) > goal["price_upper"]]
    assert dear
    assert all(shop.reward(p.asin, options, index)["reward"] <= 0.75 for p in dear)


def test_no_two_words_of_the_lexicon_match_each_other() -> None:
    attributes = [a.lower() for a in lexicon.ATTRIBUTES]
    colours, sizes = [c.lower() for c in lexicon.COLOURS], [s.lower() for s in lexicon.SIZES]
    nouns = [noun.lower() for category in lexicon.CATEGORIES for noun in category.nouns]
    brands = [b.lower() for b in lexicon.BRANDS]
    for group in (attributes, colours + sizes):
        assert all(fuzz.token_set_ratio(a, b) <= 85 for a, b in itertools.combinations(group, 2))
    words = [word for noun in nouns for word in noun.split()]
    assert len(words) == len(set(words))
    sentences = "makes this for everyday use. packed with care and shipped within two days. made by one year warranty"
    described = " ".join([*nouns, *brands, *colours, *sizes, sentences])
    suffixes = " ".join(suffix.lower() for category in lexicon.CATEGORIES for suffix in category.suffixes)
    for attribute in attributes:
        assert attribute not in described + suffixes
        assert all(attribute not in other for other in attributes if other != attribute)


def test_colours_are_webshop_colour_words_that_name_only_themselves() -> None:
    from envs.webshop.reward import normalize_color

    assert all(normalize_color(colour.lower()) == colour.lower() for colour in lexicon.COLOURS)


@pytest.mark.parametrize("n", [20, 100, 500, 512, 513, 3000])
def test_any_size_has_distinct_ids_and_at_most_four_products_per_pair_while_small(n: int) -> None:
    records = generate.generate(n, 5)
    ids = [item["asin"] for item in records.items]
    assert len(set(ids)) == n
    assert all(len(asin) == 10 and asin.startswith("B0") for asin in ids)
    pairs = Counter((tuple(records.title_nouns[a]), attribute) for a in ids for attribute in records.attributes[a]["attributes"])
    assert n > 500 or max(pairs.values()) <= 4
    asked = [(tuple(records.title_nouns[a]), entry["instruction"]) for a, entry in records.attributes.items() if "instruction" in entry]
    assert len(asked) == len(set(asked)) > 0
    assert all(len(set(records.attributes[a]["attributes"])) == 2 for a in ids)


def test_small_catalogues_share_their_id_halves_whatever_the_seed() -> None:
    halves = {(item["asin"][:5], item["asin"][5:]) for seed in range(3) for item in generate.generate(300, seed).items}
    assert len({head for head, _ in halves}) <= 32
    assert len({tail for _, tail in halves}) <= 32


def test_sizes_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot generate 0 products"):
        generate.generate(0, 0)
    with pytest.raises(ValueError, match="1 to"):
        generate.generate(10**9, 0)


def test_the_cache_is_used_and_a_damaged_folder_is_written_anew(tmp_path: Path) -> None:
    folder = generate.ensure_generated(tmp_path, 40, 7)
    manifest = json.loads((folder / "generated.json").read_text())
    assert (manifest["products"], manifest["seed"]) == (40, 7)
    before = (folder / "items_shuffle.json").stat().st_ino
    assert generate.ensure_generated(tmp_path, 40, 7) == folder
    assert (folder / "items_shuffle.json").stat().st_ino == before
    original = (folder / "items_shuffle.json").read_bytes()
    (folder / "items_shuffle.json").write_bytes(original[:-20])
    assert generate.ensure_generated(tmp_path, 40, 7) == folder
    assert (folder / "items_shuffle.json").read_bytes() == original
    assert generate.ensure_generated(tmp_path, 41, 7) != folder
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_the_environment_variable_names_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAGENT_CACHE", str(tmp_path))
    assert generate.ensure_generated(None, 20, 0).is_relative_to(tmp_path)


def test_many_processes_may_ask_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        folders = pool.starmap(generate.ensure_generated, [(tmp_path, 200, 1)] * 6)
    assert len(set(folders)) == 1
    assert os.listdir(folders[0].parent) == [folders[0].name]
    assert check_folder(folders[0]).ok
