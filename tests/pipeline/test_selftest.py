"""The agreement test between engine and learner: its probe bites, and a gap stops the run."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from actors.prompting import ChatPrompter
from pipeline.config.load import load_config, resolve
from pipeline.errors import SelfTestError
from pipeline.selftest import disturbed, make_probe, require_agreement, tolerance
from tests.worlds import GuessWorld

LORA = {
    "base_model.model.m.lora_A.weight": np.full((2, 3), 0.5, np.float32),
    "base_model.model.m.lora_B.weight": np.zeros((4, 2), np.float32),
}


def test_a_fresh_adapter_is_disturbed_where_it_is_zero() -> None:
    probe = disturbed(LORA, seed=0)
    assert np.array_equal(probe["base_model.model.m.lora_A.weight"], LORA["base_model.model.m.lora_A.weight"])
    assert np.abs(probe["base_model.model.m.lora_B.weight"]).min() > 0, "an engine that ignores the adapter must be found out"
    assert not LORA["base_model.model.m.lora_B.weight"].any(), "the state itself is left alone"
    assert all(value.dtype == np.float32 for value in probe.values())


def test_whole_weights_move_in_proportion_to_their_size() -> None:
    state = {"small": np.full(1000, 0.01, np.float32), "large": np.full(1000, 10.0, np.float32), "zero": np.zeros(3, np.float32)}
    probe = disturbed(state, seed=0)
    for name, size in (("small", 0.01), ("large", 10.0)):
        assert float(np.std(probe[name] - state[name])) == pytest.approx(0.02 * size, rel=0.1)
    assert not probe["zero"].any()


def test_the_same_seed_gives_the_same_probe() -> None:
    first, again, other = disturbed(LORA, 0), disturbed(LORA, 0), disturbed(LORA, 1)
    b = "base_model.model.m.lora_B.weight"
    assert np.array_equal(first[b], again[b])
    assert not np.array_equal(first[b], other[b])


def test_agreement_is_measured_against_the_tolerance() -> None:
    engine = [[-1.0, -2.0], [-0.5]]
    assert require_agreement(engine, [[-1.0, -2.001], [-0.5]], 0.002, "at the start") == pytest.approx(0.001)
    with pytest.raises(SelfTestError, match=r"self-test after the first update: .*token 1 of response 0.*gap 0\.01"):
        require_agreement(engine, [[-1.0, -2.01], [-0.5]], 0.002, "after the first update")


@pytest.mark.parametrize("learner", [[[-1.0, math.nan]], [[-1.0]], [], [[-1.0, -2.0], [-1.0]]])
def test_what_cannot_be_compared_does_not_pass(learner: list[list[float]]) -> None:
    with pytest.raises(SelfTestError):
        require_agreement([[-1.0, -2.0]], learner, 0.1, "at the start")


def test_the_tolerance_follows_the_precision() -> None:
    assert tolerance(resolve(load_config(None, []))) == 0.002
    assert tolerance(resolve(load_config(None, ["--model.dtype=bfloat16"]))) == 0.1
    assert tolerance(resolve(load_config(None, ["--rollout.self_test_tolerance=0.5"]))) == 0.5


def test_the_probe_asks_for_the_oracles_first_actions() -> None:
    world = GuessWorld()
    prompts: list[str] = []

    def encode(instruction: str, history: object, observation: str, admissible: object) -> list[int]:
        prompts.append(observation)
        assert history == []
        return [1, 2, len(prompts)]

    prompter = SimpleNamespace(encode=encode, tokenizer=SimpleNamespace(encode=lambda text, add_special_tokens: [len(text)]))
    probe = make_probe(world, cast(ChatPrompter, prompter), count=2)
    assert probe.prompts == ((1, 2, 1), (1, 2, 2))
    assert probe.responses == tuple((len(world.oracle(task)[0]),) for task in world.tasks("train")[:2])
