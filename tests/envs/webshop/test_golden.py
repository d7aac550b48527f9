"""Everything recorded from the original programs on the public 1000 products is reproduced, without tolerance."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop import WebShop
from envs.webshop.analyzer import analyze
from envs.webshop.check import goals_hash
from envs.webshop.reward import COLORS
from envs.webshop.token_table import token_ranges
from envs.webshop.world import WebShopWorld, goal_label

pytestmark = pytest.mark.data


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_goals_have_the_published_texts_limits_and_order(real_shop: WebShop, webshop_data: Path) -> None:
    golden = read(webshop_data, "goals_golden.json")
    goals = real_shop.goals
    assert len(goals) == golden["n"]
    assert goals_hash(goals) == golden["sha256"]
    assert goals[:8] == golden["first"]
    assert goals[500:504] == golden["at500"]
    assert sum(goal["weight"] for goal in goals) == pytest.approx(golden["weight_sum"], rel=1e-12)
    assert {goal["asin"]: goal["price_upper"] for goal in goals} == golden["price_upper"]


def test_prices_are_the_drawn_ones(real_shop: WebShop, webshop_data: Path) -> None:
    golden = read(webshop_data, "goals_golden.json")["prices"]
    assert {asin: real_shop.price(asin) for asin in golden} == golden


def test_every_part_of_every_recorded_reward(real_shop: WebShop, webshop_data: Path) -> None:
    golden = read(webshop_data, "reward_cases.json")
    for row in golden["rows"]:
        case = dict(zip(golden["columns"], row, strict=True))
        parts = real_shop.reward(case["bought_asin"], case["options"], case["goal_idx"])
        assert {name: parts[name] for name in golden["columns"][3:]} == {name: case[name] for name in golden["columns"][3:]}, case


def test_searches_rank_as_lucene_does(real_shop: WebShop, webshop_data: Path) -> None:
    for case in read(webshop_data, "bm25_cases.json"):
        assert analyze(case["query"]) == case["tokens"]
        assert real_shop.search(case["query"]) == case["asins"], case["query"]
        scores = [score for _, score in real_shop.catalogue.engine.search(case["query"], 5)]
        assert [round(score, 4) for score in scores] == pytest.approx(case["top5_scores"], abs=1.01e-4)


def test_documents_get_the_tokens_of_lucene(real_shop: WebShop, webshop_data: Path) -> None:
    for asin, tokens in read(webshop_data, "analyzer_cases.json").items():
        assert analyze(real_shop.product(asin).index_text()) == tokens, asin


def test_the_token_table_is_the_recorded_one(webshop_data: Path) -> None:
    recorded = [tuple(pair) for pair in read(webshop_data, "lucene_token_codepoints.json")["ranges"]]
    assert [pair for pair in token_ranges() if pair[0] < 0x20000] == recorded


def test_the_colour_words_are_the_published_ones(webshop_data: Path) -> None:
    assert list(COLORS) == read(webshop_data, "color_words.json")


def test_train_goals_are_the_tasks_of_the_published_hardness_labels(webshop_data: Path, shared_cache: Path) -> None:
    world = WebShopWorld(webshop_data, cache_dir=shared_cache)
    published = {row[0] for row in read(webshop_data, "hardness_qwen2.5-1.5b_webshop.json")["rows"]}
    assert len(published) == 6402
    assert {goal_label(goal) for goal in world.shop.goals[500:]} == published
    assert {task.id.partition("#")[0] for task in world.tasks("train")} == published


def test_recorded_episodes_replay_character_for_character(real_shop: WebShop, webshop_data: Path, shared_cache: Path) -> None:
    original = WebShop(webshop_data, human_goals=True, profile="up", seed=42, cache_dir=shared_cache)
    cases = read(webshop_data, "replay_cases.json")["cases"]
    assert len(cases) == 45
    for case in cases:
        shop = real_shop if case["env"] == "fed" else original
        options = {name: case[name] for name in ("show_attrs", "num_prev_obs", "num_prev_actions") if name in case}
        env = shop.text_env(mode=case["mode"], **options)
        goal = shop.goals[case["goal_idx"]]
        assert {name: goal[name] for name in case["goal"]} == case["goal"]
        for number, step in enumerate(case["steps"]):
            label = f"case {case['id']} ({case['name']}), step {number}: {step['action']}"
            if step["action"] is None:
                observation = env.reset(session=case["goal_idx"])
            elif "raises" in step:
                with pytest.raises(Exception) as raised:  # noqa: PT011
                    env.step(step["action"])
                assert type(raised.value).__name__ == step["raises"], label
                continue
            else:
                observation, reward, done, info = env.step(step["action"])
                assert (reward, done, info) == (step["reward"], step["done"], None), label
            assert observation == step["observation"], label
            if "available" in step:
                assert env.available_actions() == step["available"], label
        if "reward" in case:
            assert env.purchase == {
                "asin": case["final_asin"],
                "options": case["final_options"],
                "price": case["final_price"],
                "reward": case["reward"],
                "info": case["reward_info"],
            }, case["id"]
            parts = shop.reward(case["final_asin"], case["final_options"], case["goal_idx"])
            assert parts == {**case["reward_info"], "reward": case["reward"]}


def test_recorded_rewards_of_others_follow_from_their_parts(webshop_data: Path) -> None:
    checked = 0
    for episode in read(webshop_data, "external_cases.json")["agentgym_human"]:
        last, goal = episode["pages"][-1], episode["goal"]
        if last["page"] != "done":
            continue
        info = last["reward_info"]
        n_attributes, n_options = len(goal["attributes"]), len(goal["goal_options"])
        matches = info["r_att"] * n_attributes + (info.get("r_option") or 0) * n_options + info["r_price"]
        assert matches / (n_attributes + n_options + 1) * info["r_type"] == pytest.approx(last["reward"])
        checked += 1
    assert checked > 0


def test_pages_are_laid_out_as_in_recorded_sessions_of_others(real_shop: WebShop, webshop_data: Path) -> None:
    """Sessions on a larger catalogue: the parts that do not depend on products come in the same order."""
    heads = set()
    for session in read(webshop_data, "external_cases.json")["adk_text_mode"]:
        for step in session["steps"]:
            parts = step["observation"].split(" [SEP] ")
            heads.add(
                tuple(part for part in parts[:3] if part in ("Back to Search", "< Prev", "Next >", "Thank you for shopping with us!"))
            )
    env = real_shop.text_env()
    env.reset(session=0)
    own = []
    for action in ("search[dress]", "click[b08zrr3dzt]", "click[features]", "click[< prev]", "click[buy now]"):
        parts = env.step(action)[0].split(" [SEP] ")
        parts = parts[2:] if parts[0] == "Instruction:" else parts
        own.append(tuple(part for part in parts[:3] if part in ("Back to Search", "< Prev", "Next >", "Thank you for shopping with us!")))
    assert set(own) <= heads | {("Back to Search", "< Prev")}


def test_the_catalogue_hash_does_not_depend_on_who_built_it(webshop_data: Path, shared_cache: Path, tmp_path: Path) -> None:
    first = WebShop(webshop_data, cache_dir=shared_cache).catalogue.folder
    second = WebShop(webshop_data, cache_dir=tmp_path).catalogue.folder
    assert first.name == second.name
    for file in sorted(first.iterdir()):
        assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256((second / file.name).read_bytes()).digest(), file.name
