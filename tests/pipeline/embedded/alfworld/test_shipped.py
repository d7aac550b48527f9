"""The shipped ALFWorld weights: intact, small, with this version's tokenizer and prompt, and as good as their manifest says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import AlfWorld
from pipeline.embedded import MANIFEST, embedded_path, model_key, read_manifest
from pipeline.embedded.alfworld.build import DEMONSTRATION_SEED, Plan, build
from pipeline.embedded.alfworld.demos import Amounts, things
from pipeline.embedded.alfworld.gates import Gates, Measured, check, decisions, play
from pipeline.embedded.alfworld.tokenizer import vocabulary
from pipeline.embedded.gates import GateError, Sampler
from pipeline.models import load_model, resolve_model


def heldout(world: AlfWorld) -> list[str]:
    return [*world.games("valid_seen"), *world.games("valid_unseen")]


def test_the_folder_is_complete_small_and_described() -> None:
    folder = embedded_path("alfworld")
    manifest = read_manifest(folder)
    assert {path.name for path in folder.iterdir()} == {*manifest["files"], MANIFEST}
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    assert manifest["key"] == model_key("alfworld") != model_key()
    assert manifest["games"]["seed"] == DEMONSTRATION_SEED != manifest["games"]["heldout_seed"]
    assert manifest["games"]["count"] >= 1200
    check(Measured(**manifest["measured"]), Gates())


def test_the_name_embedded_means_the_model_of_the_world() -> None:
    assert resolve_model("embedded", "alfworld").path == embedded_path("alfworld").resolve()
    assert resolve_model("embedded", "webshop").path == resolve_model("embedded").path == embedded_path().resolve()
    # A world without a model of its own gets the shop's.
    assert resolve_model("embedded", "another").path == embedded_path().resolve()


def test_model_and_tokenizer_fit_this_version(housekeeper_model: Any, housekeeper_tokenizer: Any) -> None:
    assert housekeeper_model.config.model_type == "llama"
    assert housekeeper_model.config.head_dim >= 32
    assert not housekeeper_model.config.tie_word_embeddings
    tokens = vocabulary(things())
    assert housekeeper_tokenizer.convert_ids_to_tokens(list(range(len(tokens)))) == tokens
    assert len(housekeeper_tokenizer) == housekeeper_model.config.vocab_size == len(tokens)


def test_the_weights_decide_as_well_as_the_manifest_says(housekeeper_model: Any, housekeeper_tokenizer: Any, kitchens: AlfWorld) -> None:
    measured = read_manifest(embedded_path("alfworld"))["measured"]
    sampler = Sampler(housekeeper_model, housekeeper_tokenizer, seed=11)
    games = heldout(kitchens)
    shares = decisions(sampler, kitchens, games, 24)
    assert shares["take"] > 0.95
    assert shares["search"] == pytest.approx(measured["decisions"]["search"], abs=0.08)
    # 100 games: a standard error of 5 points.
    assert play(sampler, kitchens, games, 1.0, 24).success == pytest.approx(measured["success"], abs=0.15)
    assert play(sampler, kitchens, games, 0.0, 24).success == pytest.approx(measured["greedy_success"], abs=0.1)


def test_a_build_that_misses_the_gates_fails_and_writes_nothing(house_cache: Path, tmp_path: Path) -> None:
    steps = []
    plan = Plan(games=12, passes=1, gate_games=8, wide_games=6)
    with pytest.raises(GateError, match="greedy success"):
        build(tmp_path / "model", plan=plan, progress=lambda step, done, total: steps.append((step, done, total)))
    assert list(tmp_path.iterdir()) == []
    assert list(dict.fromkeys(step for step, _, _ in steps)) == ["games", "demonstrations", "encoding", "warm start", "gates"]
    assert ("demonstrations", 12, 12) in steps


def test_a_small_build_is_repeatable_and_loads(house_cache: Path, tmp_path: Path) -> None:
    anything = Gates(success=(0.0, 1.0), greedy_success=0.0, inadmissible=1.0, stove=0.0, take=0.0, decision=0.0)
    plan = Plan(games=12, passes=2, gates=anything, gate_games=8, wide_games=6, amounts=Amounts(rare=1))
    for name in ("one", "two"):
        build(tmp_path / name, plan=plan, progress=lambda step, done, total: None)
    one, two = read_manifest(tmp_path / "one"), read_manifest(tmp_path / "two")
    assert one["key"] == two["key"]
    assert one["games"]["count"] == 12
    assert load_model(tmp_path / "one").config.vocab_size == one["vocabulary"]
