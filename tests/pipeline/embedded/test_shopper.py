"""The scripted shopper: what it reads, what it thinks right, and how it errs."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from envs.base import World
from pipeline.embedded import shopper
from pipeline.embedded.shopper import Page, ResultRow, Skill, Wish, read_page, read_task, rearranged, right_action
from pipeline.embedded.visit import Visit

ROWS = "B0A [SEP] Acme Organic Tea [SEP] $55.0 [SEP] B0B [SEP] Acme Organic Tea [SEP] $15.0"
RESULTS = f"Back to Search [SEP] Page 1 (Total results: 9) [SEP] Next > [SEP] {ROWS}"
ITEM = "Back to Search [SEP] < Prev [SEP] size [SEP] small [SEP] large [SEP] Acme Organic Tea [SEP] Price: $15.0 [SEP] Buy Now"
WISH = Wish("organic", "tea", (("size", "small"),), 40.0)


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("Find me organic tea with size: small, and price lower than 40.00 dollars", WISH),
        (
            "Find me washable rain boots with color: red, and size: large, and price lower than 90.00 dollars",
            Wish("washable", "rain boots", (("color", "red"), ("size", "large")), 90.0),
        ),
        ("Find me portable charger", Wish("portable", "charger", (), float("inf"))),
    ],
)
def test_reading_a_task(text: str, wish: Wish) -> None:
    assert read_task(text) == wish


@pytest.mark.parametrize("text", ["", "find me tea", "Buy organic tea", "Find me slim fit tea with size: small"])
def test_other_texts_are_no_tasks(text: str) -> None:
    with pytest.raises(ValueError, match="not a task of the generated catalogue"):
        read_task(text)


def test_reading_pages() -> None:
    assert read_page("Search").kind == "search"
    rows = (ResultRow("b0a", "acme organic tea", 55.0), ResultRow("b0b", "acme organic tea", 15.0))
    assert read_page(RESULTS) == Page("results", rows=rows)
    item = read_page(ITEM)
    assert (item.kind, item.title, item.price) == ("item", "acme organic tea", 15.0)
    assert read_page("Back to Search [SEP] < Prev [SEP] Some text").kind == "sub"
    with pytest.raises(ValueError, match="not a multiple of 3"):
        read_page(RESULTS + " [SEP] B0C")


def test_right_actions_follow_the_page_and_the_window() -> None:
    page = read_page(RESULTS)
    assert right_action(WISH, read_page("Search"), []) == ("search", "search[organic tea]")
    assert right_action(WISH, page, []) == ("row", "click[b0b]")
    left = [(RESULTS, "click[b0b]"), (ITEM, "click[< prev]")]
    assert right_action(WISH, page, left) == ("back", "click[back to search]")
    item = read_page(ITEM)
    assert right_action(WISH, item, [(RESULTS, "click[b0b]")]) == ("option", "click[small]")
    assert right_action(WISH, item, [(ITEM, "click[large]")]) == ("option", "click[small]")
    assert right_action(WISH, item, [(ITEM, "click[small]")]) == ("buy", "click[buy now]")
    assert right_action(Wish("organic", "tea", (("size", "medium"),), 40.0), item, []) == ("back", "click[< prev]")
    assert right_action(Wish("organic", "tea", (), 10.0), item, []) == ("back", "click[< prev]")
    assert right_action(Wish("scented", "tea", (), 40.0), item, []) == ("back", "click[< prev]")


def test_rearranging_moves_whole_rows_and_leaves_other_pages_alone() -> None:
    assert [row.asin for row in read_page(rearranged(RESULTS, "inverted", random.Random(0))).rows] == ["b0b", "b0a"]
    assert rearranged(ITEM, "inverted", random.Random(0)) == ITEM
    shuffled = {rearranged(RESULTS, "shuffled", random.Random(seed)) for seed in range(20)}
    assert shuffled == {RESULTS, rearranged(RESULTS, "inverted", random.Random(0))}


def test_the_right_path_solves_every_heldout_task(shop_world: World) -> None:
    for task in shop_world.tasks("heldout"):
        env = shop_world.make()
        visit = Visit(shop_world, task, "page", random.Random(0))
        env.reset(options={"task": task})
        success = False
        for _ in range(shop_world.max_steps):
            _, action = right_action(visit.wish, visit.page, visit.history)
            success = bool(env.step(action)[4]["success"])
            if visit.step(action):
                break
        assert success, task.instruction


def test_mistakes_come_at_the_stated_rates() -> None:
    rng, skill = random.Random(0), Skill(search=0.75, row=0.9, option=0.6, skip=0.3, buy=0.7, back=0.8)
    wish = Wish("organic", "tea", (("size", "small"),), 60.0)

    def rates(observation: str, history: list[tuple[str, str]], wish: Wish = wish) -> Counter[str]:
        page = read_page(observation)
        return Counter(shopper.clumsy_action(wish, page, history, skill, rng) for _ in range(4000))

    assert rates("Search", [])["search[organic tea]"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert rates(RESULTS, [])["click[b0a]"] / 4000 == pytest.approx(0.9 + 0.1 / 2, abs=0.03)
    option = rates(ITEM, [])
    assert option["click[small]"] / 4000 == pytest.approx(0.6, abs=0.03)
    assert option["click[buy now]"] / 4000 == pytest.approx(0.3, abs=0.03)
    assert option["click[large]"] / 4000 == pytest.approx(0.1, abs=0.03)
    assert rates(ITEM, [(ITEM, "click[large]")])["click[buy now]"] / 4000 == pytest.approx(0.7, abs=0.03)
    assert rates(ITEM, [], Wish("scented", "tea", (), 60.0))["click[< prev]"] / 4000 == pytest.approx(0.8, abs=0.08)
