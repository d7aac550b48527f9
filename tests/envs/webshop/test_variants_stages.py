"""What each family does to the shop, stage by stage, on the generated catalogue."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from envs.base import Task
from envs.reachability import distances, reachability, require_distinct
from envs.variants import Variant
from envs.webshop.oracle import choices
from envs.webshop.reward import RewardParts
from envs.webshop.variants import VariantShop
from envs.webshop.variants.draws import affected, unit
from envs.webshop.variants.families import CORNERS, FIELDS
from envs.webshop.variants.okapi import Okapi
from envs.webshop.variants.ranks import reachable_depth
from envs.webshop.world import WebShopTextEnv, WebShopWorld


def shop_of(world: WebShopWorld, variant: str | Variant) -> VariantShop:
    shop = world._variants.shop(world.variant(variant))
    assert isinstance(shop, VariantShop)
    return shop


def found(world: WebShopWorld, variant: str | Variant, query: str) -> list[int]:
    shop = shop_of(world, variant)
    return list(shop.find(query.split(" "), shop.session_rng()))


def play(env: WebShopTextEnv, task: Task, actions: list[str]) -> list[str]:
    """Observations; the last ``info`` is kept on the environment for a look."""
    pages, info = [], {}
    observation, info = env.reset(options={"task": task})
    for action in actions:
        observation, _, terminated, truncated, info = env.step(action)
        pages.append(observation)
        if terminated or truncated:
            break
    env.last = info  # type: ignore[attr-defined]
    return pages


# --- draws and the published engine -------------------------------------------------------------------------------------------


def test_draws_are_uniform_nested_and_fixed() -> None:
    numbers = [unit("x", i) for i in range(4000)]
    assert np.mean(numbers) == pytest.approx(0.5, abs=0.02)
    assert unit("look-alike", "B0EXAMPLE1") == pytest.approx(unit("look-alike", "B0EXAMPLE1"), abs=0)
    few, many = ({i for i in range(4000) if affected(share, "x", i)} for share in (0.2, 0.7))
    assert few < many
    assert len(few) == pytest.approx(800, abs=80)
    assert not any(affected(0.0, i) for i in range(100))
    assert all(affected(1.0, i) for i in range(100))


def test_the_published_engine_by_hand() -> None:
    index = Okapi(["Red hat", "red red shoe", "blue coat, warm"], k1=1.2, b=0.75)
    # idf = ln((N - n + .5) / (n + .5)): red in 2 of 3 is negative and becomes a quarter of the mean idf
    rare, common = math.log(2.5 / 1.5), math.log(1.5 / 2.5)
    floor = 0.25 * (common + 5 * rare) / 6
    norm = [1.2 * (0.25 + 0.75 * length / (8 / 3)) for length in (2, 3, 3)]
    assert index._idf["red"] == pytest.approx(floor)
    first = floor * 2.2 / (1 + norm[0]) + rare * 2.2 / (1 + norm[0])
    second = floor * 2 * 2.2 / (2 + norm[1])
    assert first > second > 0
    assert index.search("red HAT", 3) == [0, 1, 2]
    assert index.search("warm", 1) == [2]


# --- content ------------------------------------------------------------------------------------------------------------------


def on_sale(world: WebShopWorld, **changes: object) -> set[int]:
    flags = shop_of(world, Variant("catalog_split", **changes)).stages.on_sale  # type: ignore[arg-type]
    assert flags is not None
    return set(np.flatnonzero(flags).tolist())


def test_catalog_split_keeps_the_share_and_the_clients_own(generated_world: WebShopWorld) -> None:
    tasks = list(generated_world.tasks("train"))[:100]
    targets = {task.payload["asin"] for task in tasks}
    catalogue = generated_world.shop.catalogue
    places = {catalogue.id_rank(catalogue.position(asin)) for asin in targets}
    protected = tuple(task.id for task in tasks)
    kept = on_sale(generated_world, stream=1, protected=protected)
    assert places <= kept
    assert len(kept) == len(places) + round(0.7 * (400 - len(places)))
    mild = on_sale(generated_world, stream=1, protected=protected, severity=0.4)
    assert kept < mild
    assert len(mild) == len(places) + round((1 - 0.4 * 0.3) * (400 - len(places)))
    bare = on_sale(generated_world, stream=1, protected=protected, options=(("keep_ratio", 0.0),))
    assert bare == places


def test_catalog_split_divergence_is_the_distance_between_clients(generated_world: WebShopWorld) -> None:
    means = []
    for divergence in (0.0, 0.3, 0.7, 1.0):
        kept = [on_sale(generated_world, stream=stream, options=(("divergence", divergence),)) for stream in range(6)]
        means.append(np.mean([len(a & b) / len(a | b) for a, b in combinations(kept, 2)]))
    assert means[0] == 1.0
    assert means == sorted(means, reverse=True)
    # two independent halves of keep ratio q overlap in q / (2 - q)
    assert means[-1] == pytest.approx(0.7 / 1.3, abs=0.03)


def test_what_is_not_on_sale_is_not_found_and_the_rest_moves_up(generated_world: WebShopWorld) -> None:
    variant = Variant("catalog_split", stream=3)
    catalogue, kept = generated_world.shop.catalogue, on_sale(generated_world, stream=3)
    everything = catalogue.ranked("portable jacket", 400)
    hits = found(generated_world, variant, "portable jacket")
    assert hits == [position for position in everything if catalogue.id_rank(position) in kept][:50]
    category = found(generated_world, variant, "<c> fashion")
    assert category == [position for position in catalogue.in_category("fashion") if catalogue.id_rank(position) in kept]


@pytest.mark.parametrize(
    ("member", "fails"),
    [("price", {"price"}), ("color", {"color"}), ("size", {"size"}), ("price_color", {"price", "color"}), ("hidden_last", {"price"})],
)
def test_a_lookalike_fails_exactly_its_part_of_the_score(generated_world: WebShopWorld, member: str, fails: set[str]) -> None:
    check_faults(generated_world, member, fails, range(0, 2500, 17), at_least=60)


def check_faults(world: WebShopWorld, member: str, fails: set[str], goals: range, at_least: int) -> None:
    shop = shop_of(world, f"lookalike:{member}")
    copies = shop.stages.lookalikes
    assert copies is not None
    checked = 0
    for index in goals:
        goal = world.shop.goals[index]
        position = world.shop.catalogue.position(goal["asin"])
        beside = copies.beside(position)
        if beside is None:
            continue
        original, copy = shop.product_at(position), shop.product_at(beside)
        assert copy.asin not in (original.asin, "")
        assert (copy.title, copy.description, copy.bullets) == (original.title, original.description, original.bullets)

        def parts(product: object, goal: dict[str, object] = goal) -> RewardParts:
            return shop.score(product, dict(choices(product, goal["goal_options"])), goal)  # type: ignore[arg-type]

        right, wrong = parts(original), parts(copy)
        if right["reward"] != 1.0:
            continue
        checked += 1
        wishes = goal["goal_options"]
        lost = sum(any(part in name for part in fails) for name in wishes)
        assert (wrong["r_type"], wrong["r_att"]) == (1.0, 1.0)
        assert wrong["r_price"] is ("price" not in fails)
        assert (wrong["r_option"] or 0) * len(wishes) == pytest.approx(len(wishes) - lost)
        assert wrong["reward"] == pytest.approx(1 - (lost + ("price" in fails)) / (len(goal["attributes"]) + len(wishes) + 1))
    assert checked >= at_least


def test_a_lookalike_stands_beside_its_product_and_its_id_looks_like_one(generated_world: WebShopWorld) -> None:
    world, shop = generated_world, shop_of(generated_world, "lookalike:price")
    base = world.shop.find("portable jacket".split(), world.shop.session_rng())
    hits = shop.find("portable jacket".split(), shop.session_rng())
    assert len(hits) == len(base)
    assert [position for position in hits if position < 400] == list(base[: sum(position < 400 for position in hits)])
    for a, b in zip(hits[0::2], hits[1::2], strict=True):
        assert a % 400 == b % 400
    firsts = [position < 400 for position in hits[0::2]]
    assert 0 < sum(firsts) < len(firsts)
    ids = [shop.product_at(400 + position).asin for position in range(400)]
    own = [world.shop.catalogue.asin(position) for position in range(400)]
    assert len(set(ids) | set(own)) == 800
    assert {asin[:5] for asin in ids} <= {asin[:5] for asin in own}
    assert {asin[5:] for asin in ids} <= {asin[5:] for asin in own}
    assert all(shop.product(asin).asin == asin for asin in ids)


def test_rate_and_severity_are_the_share_that_has_a_lookalike(generated_world: WebShopWorld) -> None:
    def pairs(variant: Variant) -> set[int]:
        copies = shop_of(generated_world, variant).stages.lookalikes
        assert copies is not None
        return {position for position in range(400) if copies.beside(position) is not None}

    every = pairs(Variant("lookalike", "price"))
    half = pairs(Variant("lookalike", "price", 0.5))
    assert half == pairs(Variant("lookalike", "price", options=(("rate", 0.5),)))
    assert half < every
    assert len(half) == pytest.approx(len(every) / 2, abs=40)
    assert not pairs(Variant("lookalike", "price", options=(("rate", 0.0),)))
    assert len(pairs(Variant("lookalike", "size"))) < len(every)


@pytest.mark.parametrize("kind", ["hidden", "recoverable"])
def test_a_pair_reads_alike_and_only_one_of_it_is_good(generated_world: WebShopWorld, kind: str) -> None:
    world = generated_world
    for task in world.tasks("heldout")[:12]:
        goal = world.shop.goals[task.payload["goal"]]
        product = world.shop.product(goal["asin"])
        options = [f"click[{value}]" for _, value in choices(product, goal["goal_options"])]
        search = f"search[{product.title}]"
        outcome, pages = {}, {}
        for wrong in ("first", "last"):
            env = world.make(f"lookalike:{kind}_{wrong}")
            play(env, task, [search])
            rows = [action for action in env.last["admissible"] if action.startswith("click[b0")]  # type: ignore[attr-defined]
            for row in (0, 1):
                pages[wrong, row] = play(env, task, [search, rows[row], *options, "click[buy now]"])
                outcome[wrong, row] = env.last["success"]  # type: ignore[attr-defined]
        assert [outcome[key] for key in (("first", 0), ("first", 1), ("last", 0), ("last", 1))] == [False, True, True, False]
        # results are the same in both worlds; so are item pages where the fault is hidden
        for row in (0, 1):
            assert pages["first", row][0] == pages["last", row][0]
            assert (pages["first", row][1] == pages["last", row][1]) is (kind == "hidden")
        if kind == "hidden":
            assert pages["first", 0][1] == pages["first", 1][1]
        else:
            good, bad = pages["first", 1][1], pages["first", 0][1]
            assert all(f" [SEP] {value} [SEP] " in good for _, value in choices(product, goal["goal_options"]))
            assert any(f" [SEP] {value} [SEP] " not in bad for _, value in choices(product, goal["goal_options"]))


def test_lookalikes_from_a_file(generated_world: WebShopWorld, tmp_path: Path) -> None:
    catalogue = generated_world.shop.catalogue
    product = catalogue.product(5)
    raw = {
        "asin": f"LK_COLOR_{product.asin}",
        "name": product.title,
        "full_description": product.description,
        "small_description": product.bullets,
        "pricing": "$9999.0",
        "customization_options": {"Color": [{"value": "Neon Fuchsia"}]},
        "category": product.category,
        "query": product.query,
        "product_category": product.product_category,
        "images": ["u"],
    }
    other = {**raw, "asin": "LK_COLOR_B0NOWHERE1"}
    path = tmp_path / "lookalike_v_color.json"
    path.write_text(json.dumps([raw, other]))
    variant = Variant("lookalike", "color", options=(("file", str(tmp_path)),))
    shop = shop_of(generated_world, variant)
    hits = list(shop.find(product.title.lower().split(), shop.session_rng()))
    assert abs(hits.index(405) - hits.index(5)) == 1
    copy = shop.product(raw["asin"])
    assert (copy.options, copy.price_tag, shop.price(copy.asin)) == ({"color": ["neon fuchsia"]}, "$9999.0", 9999.0)
    env = generated_world.make(variant)
    task = generated_world.tasks("train")[0]
    pages = play(env, task, [f"search[{product.title}]", f"click[{raw['asin'].lower()}]"])
    assert "neon fuchsia" in pages[1]
    with pytest.raises(ValueError, match="no look-alikes for member 'size'"):
        generated_world.make(replace(variant, member="size"))
    path.write_text(json.dumps([other]))
    with pytest.raises(ValueError, match="none of its 1 look-alikes"):
        generated_world.make(Variant("lookalike", "color", options=(("file", str(path)),)))
    path.write_text("[{")
    with pytest.raises(ValueError, match="not readable as look-alikes"):
        generated_world.make(Variant("lookalike", "color", 0.5, options=(("file", str(path)),)))


# --- encoding and matching -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "names"), [("field_subset", FIELDS), ("bm25_reweight", CORNERS)])
def test_the_eight_rank_otherwise(generated_world: WebShopWorld, family: str, names: dict[str, object]) -> None:
    pairs = distances(generated_world, {name: f"{family}:{name}" for name in names})
    require_distinct(pairs)
    assert len(pairs) == 28
    assert all(pair.replies > 0 for pair in pairs)


def test_a_pool_finds_only_what_it_reads(generated_world: WebShopWorld) -> None:
    assert found(generated_world, "field_subset:desc", "everyday") != []
    assert found(generated_world, "field_subset:name", "everyday") == []
    assert found(generated_world, "field_subset:bullets", "warranty") != []
    assert found(generated_world, "field_subset:desc_features", "warranty") == []
    assert found(generated_world, "field_subset:features", "clothing") != []
    assert found(generated_world, "field_subset:no_name", "purple") != []
    assert found(generated_world, "field_subset:name_bullets", "purple") == []
    assert generated_world.probe("field_subset:full") == generated_world.probe()


def test_indexes_are_shared_and_lie_on_disk(generated_world: WebShopWorld) -> None:
    folder = generated_world.shop.catalogue.folder
    shop_of(generated_world, "field_subset:name")
    kept = {path.name for path in folder.parent.glob(f"{folder.name}-*") if path.is_dir()}
    for stream in range(4):
        shop_of(generated_world, Variant("field_subset", "name", stream=stream))
    assert {path.name for path in folder.parent.glob(f"{folder.name}-*") if path.is_dir()} == kept
    corner = generated_world.shop.catalogue.engine.with_corner(2.0, 0.5)
    assert corner._documents is generated_world.shop.catalogue.engine._documents


def test_the_published_pools_collapse(generated_world: WebShopWorld) -> None:
    published = {name: Variant("field_subset", name, options=(("reference", True),)) for name in FIELDS}
    found_pairs = {(pair.first, pair.second): pair.same for pair in distances(generated_world, published)}
    same = {pair for pair, equal in found_pairs.items() if equal}
    # keys that no product has leave the title: eight pools are four indexes
    title = {("desc", "features"), ("desc", "desc_features"), ("features", "desc_features")}
    assert {*title, ("bullets", "no_name")} <= same
    assert ("name", "bullets") not in same


# --- rendering -----------------------------------------------------------------------------------------------------------------


def test_how_deep_an_order_reaches() -> None:
    assert reachable_depth(10, 15, 3, 50) == 50
    assert reachable_depth(4, 8, 2, 50) == 8
    assert reachable_depth(10, 6, 3, 50) == 10
    assert reachable_depth(10, 3, 3, 50) == 10


def test_orders(generated_world: WebShopWorld) -> None:
    base = generated_world.shop.find("portable jacket".split(), generated_world.shop.session_rng())
    inverted = found(generated_world, "rank_wrapper:invert", "portable jacket")
    assert inverted == [*reversed(base[:8]), *base[8:]]
    shuffled = found(generated_world, Variant("rank_wrapper", "shuffle", stream=1), "portable jacket")
    assert sorted(shuffled[:8]) == sorted(base[:8])
    assert shuffled[8:] == list(base[8:])
    assert shuffled == found(generated_world, Variant("rank_wrapper", "shuffle", stream=1), "portable jacket")
    others = [found(generated_world, Variant("rank_wrapper", "shuffle", stream=stream), "portable jacket") for stream in range(2, 8)]
    assert sum(other != shuffled for other in others) >= 5
    deep = found(generated_world, Variant("rank_wrapper", "invert", options=(("depth", 30),)), "portable jacket")
    assert deep == [*reversed(base[:30]), *base[30:]]
    assert found(generated_world, "rank_wrapper:control", "portable jacket") == list(base)


def test_partial_answers_some_queries_at_random(generated_world: WebShopWorld) -> None:
    words = [f"{a} {b}" for a in ("portable", "organic", "vintage", "compact", "modern") for b in ("jacket", "tea", "vase", "belt", "soap")]
    kept = 0
    for query in words:
        hits = found(generated_world, "rank_wrapper:partial", query)
        base = list(generated_world.shop.find(query.split(), generated_world.shop.session_rng()))
        assert len(hits) == len(base) == len(set(hits))
        kept += hits == base
    assert 5 <= kept <= 20


def test_severity_is_the_share_of_queries(generated_world: WebShopWorld) -> None:
    words = [f"{a} {b}" for a in ("portable", "organic", "vintage", "compact") for b in ("jacket", "tea", "vase", "belt", "soap")]

    def touched(severity: float) -> set[str]:
        variant = Variant("rank_wrapper", "invert", severity, stream=2)
        base = generated_world.shop
        return {query for query in words if found(generated_world, variant, query) != base.find(query.split(), base.session_rng())}

    assert touched(0.3) < touched(0.8) < touched(1.0) == set(words)


def test_stochastic_pages_are_drawn_at_every_view_and_follow_the_seed(generated_world: WebShopWorld) -> None:
    variant = Variant("rank_wrapper", "shuffle", options=(("stochastic", True),), stream=9)
    task = generated_world.tasks("train")[0]
    env = generated_world.make(variant)

    def views(seed: int | None) -> list[str]:
        env.reset(seed=seed, options={"task": task})
        return [env.step("search[portable jacket]")[0] for _ in range(4)]

    first = views(1)
    assert len(set(first)) > 1
    assert views(1) == first
    assert views(2) != first
    assert views(None) != views(None)
    # a page shows half of the permuted hits, and there are four looks: about 15 of 16
    reach = reachability(generated_world, variant, list(generated_world.tasks("train"))[:60])
    assert 0.85 < reach.share <= 1.0


def test_the_published_order_cannot_be_walked(generated_world: WebShopWorld) -> None:
    variant = Variant("rank_wrapper", "invert", options=(("reference", True),))
    assert len(found(generated_world, variant, "portable jacket")) == 200
    assert reachability(generated_world, variant, list(generated_world.tasks("train"))[:20]).share == 0.0


# --- dynamics ------------------------------------------------------------------------------------------------------------------


def to_item(world: WebShopWorld, task: Task) -> list[str]:
    return world.oracle(task)[:-1]


@pytest.mark.parametrize("control", ["buy now", "description", "features", "reviews"])
def test_checkout_with_a_fee(generated_world: WebShopWorld, control: str) -> None:
    world, name = generated_world, control.replace(" ", "_")
    for task in world.tasks("train")[:6]:
        plain = play(world.make(), task, to_item(world, task))
        env = world.make(f"checkout:{name}")
        for click in ("buy now", "description", "features", "reviews"):
            pages = play(env, task, [*to_item(world, task), f"click[{click}]"])
            info = env.last  # type: ignore[attr-defined]
            assert pages[:-1] == plain
            assert pages[-1].startswith("Thank you for shopping")
            assert info["success"] is (click == control)
            assert info["parts"]["r_price"] is (click == control)
    assert world.oracle(task, f"checkout:{name}")[-1] == f"click[{control}]"


def test_checkout_without_a_fee_exchanges_two_controls(generated_world: WebShopWorld) -> None:
    world = generated_world
    task = world.tasks("train")[0]
    neutral = (("others", "neutral"),)
    env = world.make(Variant("checkout", "features", options=neutral))
    item = to_item(world, task)
    shown = play(world.make(), task, [*item, "click[features]", "click[< prev]", "click[reviews]"])
    assert play(env, task, [*item, "click[buy now]", "click[< prev]", "click[reviews]"]) == shown
    play(env, task, [*item, "click[features]"])
    assert env.last["success"]  # type: ignore[attr-defined]
    assert world.probe(Variant("checkout", "buy_now", options=neutral)) == world.probe()


def test_checkout_severity_is_the_share_of_products(generated_world: WebShopWorld) -> None:
    world = generated_world
    solved = []
    for severity in (0.25, 0.75):
        env = world.make(Variant("checkout", "reviews", severity))
        done = set()
        for task in world.tasks("train")[:120]:
            play(env, task, world.oracle(task))
            if env.last["success"]:  # type: ignore[attr-defined]
                done.add(task.id)
        solved.append(done)
    assert solved[1] < solved[0]
    assert [len(done) / 120 for done in solved] == pytest.approx([0.75, 0.25], abs=0.15)


def test_navigation(generated_world: WebShopWorld) -> None:
    world = generated_world
    task = world.tasks("train")[0]
    search = ["search[portable]"]
    plain = play(world.make(), task, [*search, "click[next >]"])
    home = play(world.make(), task, [*search, "click[back to search]"])[-1]
    env = world.make("navigation:next_back")
    assert play(env, task, [*search, "click[back to search]"]) == plain
    assert play(env, task, [*search, "click[next >]"])[-1] == home
    item = to_item(world, task)[:2]
    env = world.make("navigation:prev_back")
    results = play(world.make(), task, item)[0]
    assert play(env, task, [*item, "click[back to search]"])[-1] == results
    assert play(env, task, [*item, "click[< prev]"])[-1] == home
    # from a sub page Back to Search leads to the item page, as Prev did
    assert play(env, task, [*item, "click[features]", "click[back to search]"])[-1] == play(world.make(), task, item)[-1]


def test_selection(generated_world: WebShopWorld) -> None:
    world = generated_world
    task = next(t for t in world.tasks("train") if t.category == "electronics")
    goal = world.shop.goals[task.payload["goal"]]
    values = world.shop.product(goal["asin"]).options["color"]
    wanted = goal["goal_options"]["color"]
    before = values[values.index(wanted) - 1]
    env = world.make("selection:next")
    assert f"click[{before}]" in world.oracle(task, "selection:next")
    for click, success in ((wanted, False), (before, True)):
        actions = [action if action != f"click[{wanted}]" else f"click[{click}]" for action in world.oracle(task)]
        pages = play(env, task, actions)
        assert env.last["success"] is success  # type: ignore[attr-defined]
        assert pages[1] == pages[2]


def test_both_at_once(generated_world: WebShopWorld) -> None:
    world = generated_world
    for variant, row, control in (("first_features", 1, "features"), ("last_buy_now", 0, "buy now")):
        task = world.tasks("train")[3]
        env = world.make(f"checkout_lookalike:{variant}")
        item = to_item(world, task)
        play(env, task, item[:1])
        rows = [action for action in env.last["admissible"] if action.startswith("click[b0")]  # type: ignore[attr-defined]
        plan = world.oracle(task, f"checkout_lookalike:{variant}")
        assert plan[1] == rows[row]
        assert plan[-1] == f"click[{control}]"
        for click in ("buy now", "features"):
            for place in (0, 1):
                play(env, task, [item[0], rows[place], *item[2:], f"click[{click}]"])
                assert env.last["success"] is (place == row and click == control)  # type: ignore[attr-defined]
