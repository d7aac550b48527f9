"""What every engine promises, checked on the transformers reference; adapter names; the agreement test; grouped LoRA products."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from actors.engines.base import (
    AdapterNames,
    Engine,
    EngineSpec,
    Generation,
    check_agreement,
    check_fit,
    checkpoint_shapes,
    model_limit,
    stop_token_ids,
)
from actors.engines.transformers_engine import TransformersEngine
from pipeline.config.model import LoraConfig
from pipeline.episodes import Sampling
from pipeline.errors import EngineError
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

LORA = LoraConfig(rank=4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(tiny: Path) -> Iterator[TransformersEngine]:
    engine = TransformersEngine(EngineSpec("transformers", tiny, lora=LORA, max_context=200))
    for i in range(3):
        engine.publish(f"a{i}", random_adapter(tiny, LORA, i))
    yield engine
    engine.close()


def prompts(count: int, longest: int = 100) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(3, 250, rng.integers(3, longest)).tolist() for _ in range(count)]


def generate(engine: Engine, requests: list[tuple[str, list[int], Sampling, str, int]]) -> dict[str, Generation]:
    found: dict[str, Generation] = {}
    for request in requests:
        engine.add(*request)
    while engine.pending:
        found |= {g.request_id: g for g in engine.step()}
    return found


def requests(count: int, sampling: Sampling) -> list[tuple[str, list[int], Sampling, str, int]]:
    return [(f"r{i}", prompt, sampling, f"a{i % 3}", 1000 + i) for i, prompt in enumerate(prompts(count))]


# --- names and agreement -------------------------------------------------------------------------------------------------------


def state(value: float) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    return {"w": np.full((2, 2), value, dtype=np.float32)}


def test_a_name_never_means_two_contents() -> None:
    names = AdapterNames()
    assert names.publish("a", state(1)) is True
    assert names.publish("a", state(1)) is False
    with pytest.raises(EngineError, match="'a' was published before with other content"):
        names.publish("a", state(2))
    assert names.drop("a") is True
    with pytest.raises(EngineError, match="'a' was published before with other content"):
        names.publish("a", state(2))
    assert names.publish("a", state(1)) is True


def test_a_dropped_name_is_freed_when_its_last_request_ends() -> None:
    names = AdapterNames()
    names.publish("a", state(1))
    names.start("a")
    names.start("a")
    assert names.drop("a") is False
    with pytest.raises(EngineError, match="'a' was dropped; live adapters: none"):
        names.start("a")
    assert [names.finish("a"), names.finish("a")] == [False, True]


def test_a_name_published_again_while_it_leaves_stays() -> None:
    names = AdapterNames()
    names.publish("a", state(1))
    names.start("a")
    names.drop("a")
    assert names.publish("a", state(1)) is False
    assert names.finish("a") is False
    names.require("a")


def test_agreement_returns_the_largest_gap_and_refuses_more_than_the_tolerance() -> None:
    assert check_agreement([[-1.0, -2.0], [-3.0]], [[-1.0, -2.25], [-3.125]], 0.5) == 0.25
    with pytest.raises(EngineError, match=r"token 1 of response 0 is -2\.000000 in the engine and -2\.250000 in the learner, gap 0\.25"):
        check_agreement([[-1.0, -2.0], [-3.0]], [[-1.0, -2.25], [-3.125]], 0.2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_disagreement(bad: float) -> None:
    with pytest.raises(EngineError, match="disagree"):
        check_agreement([[-1.0, bad, -1.0]], [[-1.0, -1.0, -9.0]], 100.0)


def test_agreement_needs_equal_shapes_and_something_to_compare() -> None:
    for ours, theirs in ([[1.0]], [[1.0], [1.0]]), ([[1.0, 1.0]], [[1.0]]), ([], []):
        with pytest.raises(EngineError, match="agreement test"):
            check_agreement(ours, theirs, 1.0)


def test_states_that_do_not_fit_the_checkpoint_are_named(tiny: Path) -> None:
    shapes = checkpoint_shapes(tiny)
    adapter, weights = random_adapter(tiny, LORA, 0), random_weights(tiny, 0)
    check_fit("a", adapter, shapes, LORA)
    check_fit("w", weights, shapes, None)
    with pytest.raises(EngineError, match=r"q_proj.lora_A.weight has shape \(4, 64\), the model asks for \(2, 64\)"):
        check_fit("a", {k: v for k, v in adapter.items() if "q_proj" in k}, shapes, LoraConfig(rank=2))
    with pytest.raises(EngineError, match=r"no weight for 'base_model.model.model.layers.0.self_attn.qq.lora_A.weight'"):
        check_fit("a", {"base_model.model.model.layers.0.self_attn.qq.lora_A.weight": np.zeros((4, 64), np.float32)}, shapes, LORA)
    with pytest.raises(EngineError, match=r"weights 'w' lack 1 of the model's tensors, first 'model.norm.weight'"):
        check_fit("w", {k: v for k, v in weights.items() if k != "model.norm.weight"}, shapes, None)


# --- the reference engine ------------------------------------------------------------------------------------------------------


def test_model_facts_come_from_its_folder(tiny: Path) -> None:
    from transformers import AutoTokenizer

    assert stop_token_ids(tiny) == [AutoTokenizer.from_pretrained(str(tiny)).convert_tokens_to_ids("]")]
    assert model_limit(tiny) == 512


def test_answers_are_bitwise_independent_of_batch_and_order(engine: TransformersEngine) -> None:
    work = requests(40, Sampling(max_new_tokens=6))
    together = generate(engine, work)
    for seed in (1, 2):
        shuffled = random.Random(seed).sample(work, len(work))
        portions = [shuffled[i : i + 7] for i in range(0, len(shuffled), 7)]
        assert {k: v for portion in portions for k, v in generate(engine, portion).items()} == together
    assert generate(engine, work[3:4])["r3"] == together["r3"]


def test_another_seed_gives_another_answer_and_the_same_seed_the_same(engine: TransformersEngine) -> None:
    prompt = prompts(1)[0]
    many = generate(engine, [(f"s{i}", prompt, Sampling(max_new_tokens=8), "a0", i) for i in range(8)])
    assert len({g.token_ids for g in many.values()}) > 4
    again = generate(engine, [("again", prompt, Sampling(max_new_tokens=8), "a0", 3)])["again"]
    assert again.token_ids == many["s3"].token_ids


@pytest.mark.parametrize("sampling", [Sampling(0.0, 1.0, 6), Sampling(1.0, 1.0, 6), Sampling(0.5, 0.9, 6)])
def test_logprobs_are_at_temperature_one_over_the_full_vocabulary(engine: TransformersEngine, tiny: Path, sampling: Sampling) -> None:
    from pipeline.models import attach_lora, load_model, set_state

    found = generate(engine, requests(6, sampling))
    for i, (name, prompt, _, adapter, _) in enumerate(requests(6, sampling)):
        model = attach_lora(load_model(tiny), LORA, seed=0)
        set_state(model, random_adapter(tiny, LORA, int(adapter[1])))
        expected = hf_logprobs(model, prompt, found[name].token_ids)
        np.testing.assert_allclose(found[name].logprobs, expected, atol=2e-5, err_msg=str(i))
        np.testing.assert_allclose(engine.score(prompt, found[name].token_ids, adapter), expected, atol=2e-5)


def hf_logprobs(model: object, prompt: list[int], response: tuple[int, ...]) -> list[float]:
    """Log-probabilities of a response by the plainest use of a Hugging Face model."""
    import torch

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0]  # type: ignore[operator]
    table = torch.log_softmax(logits, -1)
    return [float(table[len(prompt) - 1 + i, token]) for i, token in enumerate(response)]


def test_greedy_takes_the_most_likely_token_and_small_nuclei_do_too(engine: TransformersEngine) -> None:
    greedy = generate(engine, requests(9, Sampling(0.0, 1.0, 5)))
    assert {k: g.token_ids for k, g in generate(engine, requests(9, Sampling(1.0, 1e-6, 5))).items()} == {
        k: g.token_ids for k, g in greedy.items()
    }


def test_samples_follow_the_tempered_distribution(engine: TransformersEngine) -> None:
    prompt, n, temperature = [5, 6, 7], 3000, 2.0
    found = generate(engine, [(str(i), prompt, Sampling(temperature, 1.0, 1), "a1", i) for i in range(n)])
    counts: dict[int, int] = {}
    logprob: dict[int, float] = {}
    for g in found.values():
        counts[g.token_ids[0]] = counts.get(g.token_ids[0], 0) + 1
        logprob[g.token_ids[0]] = g.logprobs[0]
    every = np.array([engine.score(prompt, [token], "a1")[0] for token in range(320)])
    expected = np.exp(every / temperature) / np.exp(every / temperature).sum()
    observed = np.array([counts.get(token, 0) / n for token in range(320)])
    assert np.abs(observed - expected).max() < 4 * np.sqrt(0.25 / n)
    assert all(abs(every[token] - value) < 2e-5 for token, value in logprob.items())


def test_stop_token_ends_a_response_and_is_part_of_it(engine: TransformersEngine, tiny: Path) -> None:
    (stop,) = stop_token_ids(tiny)
    found = generate(engine, [(str(i), [5, 6, i % 200 + 3], Sampling(3.0, 1.0, 40), "a0", i) for i in range(100)])
    stopped = [g.token_ids for g in found.values() if stop in g.token_ids]
    assert stopped
    assert all(ids.index(stop) == len(ids) - 1 for ids in stopped)
    assert all(len(g.token_ids) == 40 for g in found.values() if stop not in g.token_ids)


def test_too_long_prompts_and_unknown_adapters_are_refused(engine: TransformersEngine) -> None:
    with pytest.raises(EngineError, match="195 prompt tokens and 6 new ones exceed the engine's context of 200"):
        engine.add("x", [5] * 195, Sampling(max_new_tokens=6), "a0", 0)
    with pytest.raises(EngineError, match="'b' was never published; live adapters: a0, a1, a2"):
        engine.add("x", [5], Sampling(max_new_tokens=6), "b", 0)
    assert engine.pending == 0


def test_whole_weights_take_turns(tiny: Path) -> None:
    from pipeline.models import load_model, set_state

    engine = TransformersEngine(EngineSpec("transformers", tiny))
    assert engine.adapters_at_once == 1
    for i in range(3):
        engine.publish(f"a{i}", random_weights(tiny, i))
    work = requests(9, Sampling(max_new_tokens=4))
    found = generate(engine, work)
    for name, prompt, _, adapter, _ in work:
        model = load_model(tiny)
        set_state(model, random_weights(tiny, int(adapter[1])))
        np.testing.assert_allclose(found[name].logprobs, hf_logprobs(model, prompt, found[name].token_ids), atol=2e-5)
    engine.drop("a1")
    with pytest.raises(EngineError, match="'a1' was dropped"):
        engine.score([5], [6], "a1")


def test_statistics_count_tokens(tiny: Path) -> None:
    engine = TransformersEngine(replace(EngineSpec("transformers", tiny, lora=LORA), max_num_seqs=4))
    engine.publish("a0", random_adapter(tiny, LORA, 0))
    found = generate(engine, [("x", [5, 6, 7], Sampling(max_new_tokens=3), "a0", 0), ("y", [5], Sampling(max_new_tokens=2), "a0", 0)])
    assert (engine.capacity, engine.stats.requests, engine.stats.prompt_tokens) == (4, 2, 4)
    assert engine.stats.response_tokens == sum(len(g.token_ids) for g in found.values())
    assert engine.stats.tokens_per_second > 0


# --- grouped LoRA products (no vLLM needed) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_grouped_products_equal_one_product_per_row(seed: int) -> None:
    import torch

    from actors.engines.lora_grouping import apply_plan, make_plan, stack_factors

    rng = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)
    n_slots, rank, width, slices = int(rng.integers(1, 6)), 4, 12, ((7,), (8, 3, 3))[seed % 2]
    runs = [(int(rng.integers(-1, n_slots)), int(rng.choice([1, 1, 2, 5, 40]))) for _ in range(int(rng.integers(1, 30)))]
    slots = torch.tensor([slot for slot, length in runs for _ in range(length)])
    a = tuple(torch.randn(n_slots, 1, rank, width, generator=generator) for _ in slices)
    b = tuple(torch.randn(n_slots, 1, out, rank, generator=generator) for out in slices)
    x = torch.randn(len(slots), width, generator=generator)
    y = torch.randn(len(slots), sum(slices), generator=generator)
    expected = y.clone()
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[row] += 0.5 * torch.cat([x[row] @ a_i[slot, 0].T @ b_i[slot, 0].T for a_i, b_i in zip(a, b, strict=True)])
    plan = make_plan(slots)
    if plan is not None:
        apply_plan(plan, y, x, *stack_factors(a, b, slices), 0.5)
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=1e-5)


def test_plans_of_typical_batches() -> None:
    import torch

    from actors.engines.lora_grouping import make_plan

    assert make_plan(torch.tensor([-1, -1])) is None
    alone = make_plan(torch.tensor([2, 2, 2]))
    assert alone is not None
    assert (alone.runs, alone.tiles) == (((0, 3, 2),), None)
    prefill = make_plan(torch.tensor([0] * 30 + [1] * 40))
    assert prefill is not None
    assert (prefill.runs, prefill.tiles) == (((0, 30, 0), (30, 70, 1)), None)
    decode = make_plan(torch.tensor([1, 0, 1, 0, -1]))
    assert decode is not None
    assert decode.tiles is not None
    assert decode.runs == ()
    assert decode.tiles.slots.tolist() == [0, 1]
    assert decode.tiles.gather.tolist() == [1, 3, 0, 2]
    assert decode.tiles.places.tolist() == [2, 0, 3, 1]
    assert decode.tiles.covers == 4
    skewed = make_plan(torch.tensor([0, 1] * 2 + [2, 3] + [0, 4] * 9))
    assert skewed is not None
    assert skewed.tiles is not None
    assert len(skewed.tiles.gather) <= 24 + 5 * skewed.tiles.height


def test_half_precision_rows_get_the_float32_product() -> None:
    import torch

    from actors.engines.lora_grouping import apply_plan, make_plan

    slots = torch.tensor([0, 1, 0, 1] + [0] * 30)
    plan = make_plan(slots)
    assert plan is not None
    x = torch.randn(34, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    a, b = torch.ones(2, 8, 2), torch.stack([torch.ones(2, 3), 2 * torch.ones(2, 3)])
    y = torch.zeros(34, 3, dtype=torch.bfloat16)
    apply_plan(plan, y, x, a, b, 1.0)
    expected = (x.float().sum(-1, keepdim=True) * 2 * (1 + slots[:, None])).expand(-1, 3).bfloat16()
    torch.testing.assert_close(y, expected, atol=0.05, rtol=0.02)
