"""The real vLLM on this machine: many adapters in a batch, whole weights after updates (tied heads too), turns of versions, seeds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from actors.engines.base import Engine, EngineSpec
from actors.engines.transformers_engine import TransformersEngine
from pipeline.config.model import LoraConfig
from pipeline.episodes import Sampling
from pipeline.errors import EngineError
from pipeline.models import attach_lora, load_model, set_state
from tests.actors.test_engines import generate, hf_logprobs, prompts, requests
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

pytestmark = pytest.mark.slow
pytest.importorskip("vllm", reason="vLLM is not installed")
LORA = LoraConfig(rank=4)


def make(model: Path, lora: LoraConfig | None, **changes: object) -> Engine:
    from actors.engines.vllm_engine import VllmEngine

    group = bool(changes.pop("group_lora", True))
    settings: dict[str, object] = {
        "max_num_seqs": 32,
        "max_batched_tokens": 512,
        "kv_cache_gb": 0.1,
        "max_context": 200,
        "adapter_slots": 4,
    }
    return VllmEngine(EngineSpec("vllm", model, lora=lora, **{**settings, **changes}), group_lora=group)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[Engine]:
    engine = make(tiny, LORA)
    for i in range(3):
        engine.publish(f"a{i}", random_adapter(tiny, LORA, i))
    yield engine
    engine.close()
    gc.collect()


def test_adapters_mixed_in_a_batch_agree_with_peft(engine: Engine, tiny: Path) -> None:
    assert engine.grouped  # type: ignore[attr-defined]
    work = requests(24, Sampling(max_new_tokens=6))
    found = generate(engine, work)
    for name, prompt, _, adapter, _ in work:
        model = attach_lora(load_model(tiny), LORA, seed=0)
        set_state(model, random_adapter(tiny, LORA, int(adapter[1])))
        expected = hf_logprobs(model, prompt, found[name].token_ids)
        np.testing.assert_allclose(found[name].logprobs, expected, atol=3e-5)
        np.testing.assert_allclose(engine.score(prompt, found[name].token_ids, adapter), expected, atol=3e-5)


def test_equal_prompts_share_cached_blocks_within_an_adapter_and_never_across(engine: Engine, tiny: Path) -> None:
    # 90 tokens are two whole blocks of 32, so the second request for an adapter can reuse the first one's.
    prompt = np.random.default_rng(9).integers(3, 250, 90).tolist()
    work = [(f"p{i}", prompt, Sampling(max_new_tokens=4), f"a{i % 3}", i) for i in range(24)]
    for found in (generate(engine, work), generate(engine, work)):
        for name, _, _, adapter, _ in work:
            model = attach_lora(load_model(tiny), LORA, seed=0)
            set_state(model, random_adapter(tiny, LORA, int(adapter[1])))
            np.testing.assert_allclose(found[name].logprobs, hf_logprobs(model, prompt, found[name].token_ids), atol=3e-5)


@pytest.mark.parametrize("sampling", [Sampling(0.0, 1.0, 6), Sampling(0.5, 0.9, 6)])
def test_logprobs_do_not_follow_the_sampling_temperature(engine: Engine, tiny: Path, sampling: Sampling) -> None:
    work = requests(6, sampling)
    found = generate(engine, work)
    for name, prompt, _, adapter, _ in work:
        np.testing.assert_allclose(found[name].logprobs, engine.score(prompt, found[name].token_ids, adapter), atol=3e-5)


def test_greedy_answers_equal_those_of_the_reference_backend(engine: Engine, tiny: Path) -> None:
    reference = TransformersEngine(EngineSpec("transformers", tiny, lora=LORA, max_context=200))
    for i in range(3):
        reference.publish(f"a{i}", random_adapter(tiny, LORA, i))
    work = requests(30, Sampling(0.0, 1.0, 8))
    ours, theirs = generate(engine, work), generate(reference, work)
    assert {k: g.token_ids for k, g in ours.items()} == {k: g.token_ids for k, g in theirs.items()}


def test_seeds_fix_answers_whatever_else_is_in_the_batch(engine: Engine) -> None:
    # 24 prompts of up to 100 tokens exceed the 512 tokens of a step: without whole-prompt prefill this crashes on CPU.
    work = requests(24, Sampling(max_new_tokens=6))
    together = {k: g.token_ids for k, g in generate(engine, work).items()}
    apart = {k: g.token_ids for half in (work[::2], work[1::2]) for k, g in generate(engine, half).items()}
    assert together == apart
    prompt = prompts(1)[0]
    assert (
        len({g.token_ids for g in generate(engine, [(str(i), prompt, Sampling(max_new_tokens=6), "a0", i) for i in range(8)]).values()}) > 4
    )


def test_scores_while_other_requests_run_do_not_lose_them(engine: Engine) -> None:
    work = requests(5, Sampling(max_new_tokens=6))
    alone = generate(engine, work)
    for request in work:
        engine.add(*request)
    engine.score([5, 6, 7], [8, 9], "a1")
    found = {}
    while engine.pending:
        found |= {g.request_id: g.token_ids for g in engine.step()}
    assert found == {k: g.token_ids for k, g in alone.items()}


def test_sequences_up_to_the_context_limit_are_served_and_scored(engine: Engine) -> None:
    found = generate(engine, [("long", [7] * 194, Sampling(0.0, 1.0, 6), "a0", 0)])["long"]
    assert len(engine.score([7] * 194, found.token_ids, "a0")) == len(found.token_ids)
    with pytest.raises(EngineError, match="exceed the engine's context of 200"):
        engine.add("x", [7] * 195, Sampling(0.0, 1.0, 6), "a0", 0)


def test_more_adapters_than_slots_and_dropped_ones(engine: Engine, tiny: Path) -> None:
    states = {f"n{i}": random_adapter(tiny, LORA, 10 + i) for i in range(7)}
    for name, value in states.items():
        engine.publish(name, value)
    engine.publish("n0", states["n0"])
    with pytest.raises(EngineError, match="'n0' was published before with other content"):
        engine.publish("n0", states["n1"])
    work = [(f"q{i}", prompt, Sampling(0.0, 1.0, 4), f"n{i % 7}", i) for i, prompt in enumerate(prompts(21))]
    found = generate(engine, work)
    for name, prompt, _, adapter, _ in work:
        model = attach_lora(load_model(tiny), LORA, seed=0)
        set_state(model, states[adapter])
        np.testing.assert_allclose(found[name].logprobs, hf_logprobs(model, prompt, found[name].token_ids), atol=3e-5)
    folder: Path = engine._folder  # type: ignore[attr-defined]
    before = len(list(folder.iterdir()))
    for name in states:
        engine.drop(name)
    assert before - len(list(folder.iterdir())) == 7
    with pytest.raises(EngineError, match="'n3' was dropped; live adapters: a0, a1, a2"):
        engine.add("x", [5], Sampling(), "n3", 0)


def test_an_adapter_that_does_not_fit_is_refused_and_the_engine_goes_on(engine: Engine, tiny: Path) -> None:
    broken = {k: v[:, :-1] if "lora_A" in k else v for k, v in random_adapter(tiny, LORA, 0).items()}
    with pytest.raises(EngineError, match=r"adapter 'broken': .*lora_A.weight has shape \(4, \d+\), the model asks for"):
        engine.publish("broken", broken)
    assert generate(engine, requests(3, Sampling(max_new_tokens=2)))


@pytest.mark.parametrize(("tied", "family"), [(False, "qwen2"), (True, "qwen2"), (True, "llama")])
def test_whole_weights_after_updates_agree_with_the_model_and_take_turns(tmp_path: Path, tied: bool, family: str) -> None:
    folder = make_tiny_model(tmp_path / "model", tied=tied, family=family)
    engine = make(folder, None)
    states = {f"a{i}": random_weights(folder, i) for i in range(3)}
    for name, value in states.items():
        engine.publish(name, value)
    # Versions alternate from request to request; the engine has to sort them into turns.
    work = requests(18, Sampling(max_new_tokens=5))
    found = generate(engine, work)
    for name, prompt, _, adapter, _ in work:
        model = load_model(folder)
        set_state(model, states[adapter])
        expected = hf_logprobs(model, prompt, found[name].token_ids)
        np.testing.assert_allclose(found[name].logprobs, expected, atol=5e-5)
        np.testing.assert_allclose(engine.score(prompt, found[name].token_ids, adapter), expected, atol=5e-5)
    engine.drop("a0")
    with pytest.raises(EngineError, match="'a0' was dropped; live adapters: a1, a2"):
        engine.add("x", [5], Sampling(), "a0", 0)
    # The same prompt under a new version must not meet cached blocks of the old one.
    prompt = [9] * 150
    scores = {name: engine.score(prompt, [5, 6], name) for name in ("a1", "a2", "a1")}
    assert abs(scores["a1"][0] - scores["a2"][0]) > 1e-3
    engine.close()
    gc.collect()


def test_grouped_and_stock_operators_agree(tiny: Path) -> None:
    from actors.engines.lora_grouping import uninstall

    work = requests(24, Sampling(0.0, 1.0, 6))
    results = []
    for grouped in (True, False):
        uninstall()
        engine = make(tiny, LORA, group_lora=grouped)
        assert engine.grouped is grouped  # type: ignore[attr-defined]
        for i in range(3):
            engine.publish(f"a{i}", random_adapter(tiny, LORA, i))
        results.append(generate(engine, work))
        engine.close()
        gc.collect()
    for name, ours in results[0].items():
        assert ours.token_ids == results[1][name].token_ids
        np.testing.assert_allclose(ours.logprobs, results[1][name].logprobs, atol=1e-5)


def test_grouping_steps_aside_when_vllm_looks_different(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    from actors.engines import lora_grouping

    lora_grouping.uninstall()
    monkeypatch.setattr(PunicaWrapperCPU, "add_lora_linear", lambda self, y, x: None)
    assert lora_grouping.install() is False
    assert "using vLLM's own, slower" in caplog.text
    from vllm.platforms.cpu import CpuPlatform

    assert CpuPlatform.get_punica_wrapper().endswith("PunicaWrapperCPU")
