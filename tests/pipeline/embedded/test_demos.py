"""Demonstrations: recorded on the real engine, repeatable, never from held-out tasks, in the stated mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.base import World
from envs.webshop import WebShop, generate, lexicon
from pipeline.embedded import shopper
from pipeline.embedded.build import embedded_world
from pipeline.embedded.demos import Amounts, Shop, lookalike_records, record, write_lookalike
from pipeline.embedded.shopper import Skill

OPTIONS = {f"click[{value.lower()}]" for value in (*lexicon.COLOURS, *lexicon.SIZES)}
AMOUNTS = Amounts(episodes=600, results=300, leaving=120, buying=60)


@pytest.fixture(scope="module")
def shops(shop_world: World, tmp_path_factory: pytest.TempPathFactory) -> list[Shop]:
    scratch = tmp_path_factory.mktemp("shops")
    sister = embedded_world(generate.write(scratch / "sister", 400, 1001), scratch)
    fake = embedded_world(write_lookalike(scratch / "fake", 400, 1006), scratch)
    return [
        Shop(shop_world, shop_world.tasks("train")),
        Shop(sister, sister.tasks("train")),
        Shop(fake, fake.tasks("train"), lookalike=True),
    ]


def test_the_amounts_are_exact_and_the_recording_repeats(shops: list[Shop]) -> None:
    turns = record(shops, AMOUNTS, Skill(), seed=1)
    assert len(turns) == 1080
    assert turns == record(shops, AMOUNTS, Skill(), seed=1)
    assert turns != record(shops, AMOUNTS, Skill(), seed=2)


def test_scaling_keeps_the_mixture() -> None:
    scaled = AMOUNTS.scaled(0.1)
    assert (scaled.episodes, scaled.results, scaled.leaving, scaled.buying) == (60, 30, 12, 6)
    assert scaled.price_share == AMOUNTS.price_share


def test_kinds_come_in_order_with_clean_targets(shops: list[Shop]) -> None:
    turns = record(shops, AMOUNTS, Skill(), seed=1)
    episodes, results, leaving, buying = turns[:600], turns[600:900], turns[900:1020], turns[1020:]
    assert sum("Last: none" in turn.prompt for turn in episodes) > 100
    price_decides = 0
    for turn in results:
        text, page = turn.prompt.split("\nLast: ")[0], turn.prompt.split("\nPage: ")[1].removesuffix("\nAction: ")
        rows = shopper.read_page(page).rows
        wish = shopper.read_task(text)
        fitting = [row for row in rows if shopper.fits(wish, row.title, row.price)]
        assert turn.response == f"click[{fitting[0].asin}]"
        words = [row for row in rows if shopper.has_words(wish.query, row.title)]
        price_decides += words[0] is not fitting[0]
    assert price_decides >= AMOUNTS.price_share * 300 * 0.99
    assert {turn.response for turn in leaving if "[SEP] Buy Now" in turn.prompt} == {"click[< prev]"}
    said = [(turn.prompt.split("\nPage: Buy with: ")[1].split(" [SEP] ")[0], turn.response) for turn in buying]
    assert all(answer in (f"click[{told}]", *OPTIONS) for told, answer in said)
    assert {answer for _, answer in said} >= {f"click[{control}]" for control in shopper.CONTROLS}


def test_heldout_tasks_of_the_embedded_catalogue_are_never_shown(shops: list[Shop]) -> None:
    home = [shops[0], shops[1], shops[2]]
    train = {task.instruction for task in shops[0].tasks}
    sisters = {task.instruction for shop in shops[1:] for task in shop.tasks}
    shown = {turn.prompt.split("\nLast: ")[0] for turn in record(home, AMOUNTS, Skill(), seed=3)}
    assert shown <= train | sisters
    assert len(shown & train) > 50


def test_a_lookalike_shares_title_and_price_but_lacks_options(tmp_path: Path) -> None:
    records = lookalike_records(100, 4)
    plain = {item["asin"]: item for item in generate.generate(100, 4).items}
    fakes = [item for item in records.items if item["asin"] not in plain]
    asked = [a for a in plain if "instruction" in records.attributes[a]]
    assert len(fakes) == len(asked) > 50
    for fake in fakes:
        originals = [item for item in plain.values() if item["name"] == fake["name"] and item["pricing"] == fake["pricing"]]
        assert originals
        lacking = [
            {v["value"] for v in values} - {v["value"] for v in fake["customization_options"][name]}
            for item in originals
            for name, values in item["customization_options"].items()
        ]
        assert any(lacking)
        assert "instruction" not in records.attributes[fake["asin"]]
    shop = WebShop(write_lookalike(tmp_path / "fake", 100, 4), cache_dir=tmp_path / "cache")
    assert len({goal["asin"] for goal in shop.goals}) == len(asked)


def test_shops_that_do_not_suffice_are_refused(shops: list[Shop]) -> None:
    with pytest.raises(ValueError, match="one with lookalikes"):
        record(shops[:2], AMOUNTS, Skill(), seed=0)
