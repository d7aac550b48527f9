"""Settings against the model and the world: refused before anything is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.config import Config, FederationConfig, ModelConfig, WorldConfig
from pipeline.config.load import load_config
from pipeline.errors import ConfigError, DataError
from pipeline.models import ModelSource
from pipeline.planning import (
    EMBEDDED_CATALOGUE,
    check_prompts,
    check_targets,
    context_limit,
    federation_words,
    notices,
    partition_words,
    shared_words,
)


@pytest.fixture
def model(tmp_path: Path) -> ModelSource:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1024}))
    names = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight")
    save_file({name: np.zeros((2, 2), np.float32) for name in names} | {"norm.weight": np.zeros(2, np.float32)}, tmp_path / "m.safetensors")
    return ModelSource("tiny", tmp_path, "key")


def config(*words: str) -> Config:
    return load_config(None, words)


def test_knobs_in_words_say_what_chance_allows() -> None:
    line = {"knob": "preference", "asked": 0.95, "got": 1.03, "chance": (0.54, 1.0)}
    told = partition_words({"asked": [line], "chi2": 4.4, "union": 0.4, "overlap": 0.01, "violations": [], "kind": "preference"})
    assert told.startswith("preference 0.95 (got 1.00; by chance 0.54 to 1.00): category mixes differ from the pool's")


def test_what_heldout_tasks_share_is_counted_by_kind() -> None:
    assert shared_words({}) == "none is trained on"
    counts = {"heldout_tasks": 300, "train_tasks": 2000, "products": 205, "tasks_on_shared_products": 250}
    assert shared_words(counts) == "none is trained on; in common with train tasks: 205 products, 250 tasks on shared products"


def test_the_context_is_the_smallest_of_model_setting_and_default(model: ModelSource) -> None:
    assert context_limit(config(), model) == 1024
    assert context_limit(config("--rollout.max_context=512"), model) == 512
    (model.path / "config.json").write_text("{}")
    assert context_limit(config(), model) == 4096


def test_a_context_beyond_the_model_is_refused(model: ModelSource) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.max_context = 1025: model 'tiny' takes 1024 tokens; allowed: 32 to 1024"):
        context_limit(config("--rollout.max_context=1025"), model)
    with pytest.raises(ConfigError, match=r"rollout\.max_new_tokens = 1024: no room .*allowed: 1 to 1023"):
        context_limit(config("--rollout.max_new_tokens=1024"), model)


@pytest.mark.parametrize("text", ["", "[]", '{"max_position_embeddings": "many"}', '{"max_position_embeddings": null}'])
def test_a_damaged_model_configuration_is_named(model: ModelSource, text: str) -> None:
    (model.path / "config.json").write_text(text)
    with pytest.raises(DataError, match=r"config\.json cannot be read"):
        context_limit(config(), model)


def test_targets_are_modules_of_the_model(model: ModelSource) -> None:
    check_targets(config("--model.lora.targets=q_proj,up_proj"), model)
    check_targets(config(), model)
    with pytest.raises(ConfigError, match="w_proj not in model 'tiny'; allowed: q_proj, up_proj"):
        check_targets(config("--model.lora.targets=w_proj,q_proj"), model)


def test_damaged_weights_are_named(model: ModelSource) -> None:
    (model.path / "m.safetensors").write_bytes(b"short")
    with pytest.raises(DataError, match=r"m\.safetensors cannot be read"):
        check_targets(config(), model)


def test_prompts_need_room_for_a_response() -> None:
    check_prompts(config(), (), 64)
    check_prompts(config(), (20, 40, 52, 60), 64)
    with pytest.raises(ConfigError, match=r"3 of 4 measured prompts do not fit beside rollout\.max_new_tokens = 12 .*choose 72 or more"):
        check_prompts(config(), (20, 53, 55, 60), 64)


def test_the_embedded_model_on_data_it_does_not_know_is_announced(tmp_path: Path) -> None:
    assert notices(Config()) == []
    (found,) = notices(Config(world=WorldConfig(data=tmp_path)))
    assert "--model.name" in found
    assert notices(Config(world=WorldConfig(data_seed=5)))
    assert not notices(Config(world=WorldConfig(data=tmp_path), model=ModelConfig(name="smollm2-135m")))


def test_the_catalogue_that_the_embedded_model_knows_is_the_default_one() -> None:
    from pipeline.embedded import embedded_path, read_manifest

    catalogue = read_manifest(embedded_path())["catalogue"]
    assert (catalogue["products"], catalogue["seed"]) == EMBEDDED_CATALOGUE == (WorldConfig().products, WorldConfig().data_seed)


@pytest.mark.parametrize(
    ("mode", "words"), [("centralized", "8 clients pooled"), ("local", "client 0 of 8 alone"), ("federated", "4 per round")]
)
def test_modes_in_words(mode: str, words: str) -> None:
    assert words in federation_words(Config(federation=FederationConfig.model_validate({"mode": mode})))
