"""Goals, price draws and their order, worked out with Python's own random numbers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from envs.webshop import WebShop, WebShopDataError
from envs.webshop.goals import NO_LIMIT, draw_limit
from tests.envs.webshop.conftest import ATTRIBUTES, Opener, Writer


def limit_after(rng: random.Random, price: float) -> float:
    return max(rng.sample([step for step in (10.0 * number for number in range(1, 100)) if step > price][:4], 2))


def test_limits() -> None:
    first, second = random.Random(5), random.Random(5)
    assert [draw_limit(price, first) for price in (0.5, 10.0, 979.99)] == [limit_after(second, price) for price in (0.5, 10.0, 979.99)]
    state = first.getstate()
    assert draw_limit(980.0, first) == NO_LIMIT
    assert draw_limit(5000.0, first) == NO_LIMIT
    assert first.getstate() == state


def test_synthetic_goals_of_the_fed_profile(open_shop: Opener) -> None:
    shop = open_shop(seed=7)
    assert shop.price("B0EXAMPLE1") == random.Random(42).uniform(9.99, 14.5)
    rng = random.Random(42)
    tee, socks, lamp = (limit_after(rng, price) for price in (shop.price("B0EXAMPLE1"), 100.0, 500.0))
    lines = [
        f"Find me slim fit men's tees with color: {color}, and size: {size}, and price lower than {tee:.2f} dollars"
        for color in ("navy | white", "pine forest green")
        for size in ('large "l"', "größe 5", "small")
    ]
    lines.append(f"Find me soft socks, and price lower than {socks:.2f} dollars")
    lines += [
        f"Find me bright lamps with base: {base}, and shade: {shade}, and price lower than {lamp:.2f} dollars"
        for base in ("red", "blue")
        for shade in ("red", "description")
    ]
    order = list(range(len(lines)))
    rng.shuffle(order)
    assert [goal["instruction_text"] for goal in shop.goals] == [lines[place] for place in order]
    goal = next(goal for goal in shop.goals if goal["asin"] == "B0EXAMPLE1")
    assert goal["query"] == "tees"
    assert goal["price_upper"] == tee
    assert set(goal["goal_options"]) == {"color", "size"}
    # slim fit: 6 tee goals and 1 sock goal; machine wash: 6; bright: 4
    assert goal["weight"] == pytest.approx((1 / 7 + 1 / 6) / 2)
    assert sum(goal["weight"] for goal in shop.goals) == pytest.approx(6 * (1 / 7 + 1 / 6) / 2 + 1 / 7 + 1)


def test_fed_goals_do_not_depend_on_the_seed_and_up_goals_do(open_shop: Opener) -> None:
    assert list(open_shop(seed=1).goals) == list(open_shop(seed=2).goals)
    folder_goals = [tuple(goal["price_upper"] for goal in open_shop(seed=seed, profile="up", human_goals=True).goals) for seed in range(6)]
    assert len(set(folder_goals)) > 1


def test_human_goals_of_both_profiles(open_shop: Opener) -> None:
    for profile in ("fed", "up"):
        shop = open_shop(profile=profile, human_goals=True, seed=11)
        rng = random.Random(42 if profile == "fed" else 11)
        price = rng.uniform(9.99, 14.5)
        goals: list[dict[str, Any]] = [
            {"text": f"i want a navy tee, and price lower than {limit_after(rng, price):.2f} dollars", "options": ["navy | white"]},
            {"text": "a hat", "options": []},
        ]
        rng = rng if profile == "fed" else random.Random(233)
        order = [0, 1]
        rng.shuffle(order)
        assert shop.price("B0EXAMPLE1") == price
        assert [goal["instruction_text"] for goal in shop.goals] == [goals[place]["text"] for place in order]
        assert [goal["goal_options"] for goal in shop.goals] == [goals[place]["options"] for place in order]
        assert {goal["weight"] for goal in shop.goals} == {1}
        assert {goal["price_upper"] for goal in shop.goals if goal["asin"] == "B0EXAMPLE4"} == {NO_LIMIT}


def test_the_original_refuses_products_without_attributes(open_shop: Opener, write_folder: Writer) -> None:
    attributes = {asin: entry for asin, entry in ATTRIBUTES.items() if asin != "B0EXAMPLE3"}
    folder = write_folder(attributes=attributes)
    with pytest.raises(WebShopDataError, match="B0EXAMPLE3"):
        open_shop(folder, profile="up")
    assert len(open_shop(folder, profile="up", human_goals=True).goals) == 2
    assert len(open_shop(folder).goals) == 11


def test_a_catalogue_without_goals(open_shop: Opener, write_folder: Writer) -> None:
    with pytest.raises(WebShopDataError, match="no human goal"):
        open_shop(write_folder(human={}), human_goals=True)
    with pytest.raises(WebShopDataError, match="no synthetic goal"):
        open_shop(write_folder(attributes={}))


def test_filter_limit_and_second_shuffle(open_shop: Opener) -> None:
    goals = list(open_shop().goals)
    kept = open_shop(filter_goals=lambda index, goal: index % 2 == 1 and goal["asin"] == "B0EXAMPLE1").goals
    assert list(kept) == [goal for index, goal in enumerate(goals) if index % 2 == 1 and goal["asin"] == "B0EXAMPLE1"]
    assert len({goal["instruction_text"] for goal in open_shop(limit_goals=4).goals}) == 4
    assert len(open_shop(limit_goals=99).goals) == len(goals)
    assert list(open_shop(shuffle_seed=3).goals) == goals


@pytest.mark.data
def test_the_second_shuffle_leaves_the_first_500(real_shop: WebShop, webshop_data: Any, shared_cache: Any) -> None:
    other = WebShop(webshop_data, shuffle_seed=3, cache_dir=shared_cache).goals
    assert other[:500] == real_shop.goals[:500]
    tail = real_shop.goals[500:]
    random.Random(3).shuffle(tail)
    assert other[500:] == tail


def test_drawing_by_weight_never_gives_the_first(open_shop: Opener) -> None:
    goals = open_shop().goals
    rng, other = random.Random(0), random.Random(0)
    cumulative = [0.0]
    for goal in goals:
        cumulative.append(cumulative[-1] + goal["weight"])
    for _ in range(500):
        position = other.uniform(0, cumulative[-1])
        expected = min(sum(edge <= position for edge in cumulative), len(goals) - 1)
        assert goals.draw(rng) == expected > 0


def test_indexing_is_that_of_a_list(open_shop: Opener) -> None:
    goals = open_shop().goals
    assert goals[-1] == list(goals)[-1]
    assert goals[2:7:2] == list(goals)[2:7:2]
    with pytest.raises(IndexError):
        goals[len(goals)]


def test_the_global_random_state_is_left_alone(open_shop: Opener) -> None:
    random.seed(9)
    state = random.getstate()
    for profile in ("fed", "up"):
        env = open_shop(profile=profile, human_goals=True).text_env()
        env.reset()
        env.step("search[cotton]")
    assert random.getstate() == state
