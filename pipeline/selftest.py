"""The agreement test between engine and learner: what is compared, and when a run must not go on.

Fixed prompts from the world's own train tasks, the oracle's answers as responses, an adapter whose B is not zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from actors.engines.base import check_agreement
from actors.prompting import ChatPrompter
from envs.base import World
from envs.partition.streams import stream
from pipeline.config import Config
from pipeline.episodes import State
from pipeline.errors import EngineError, SelfTestError

NOISE = 0.02
"""Deviation of what is added to the probe's weights: large enough that a forgotten adapter shows, small enough to stay a language model."""


@dataclass(frozen=True)
class Probe:
    """Token ids of prompts and responses to score."""

    prompts: tuple[tuple[int, ...], ...]
    responses: tuple[tuple[int, ...], ...]


def make_probe(world: World, prompter: ChatPrompter, count: int = 4) -> Probe:
    """Opening prompts of the first train tasks, each with the oracle's first action."""
    env = world.make()
    prompts, responses = [], []
    for task in world.tasks("train")[:count]:
        observation, info = env.reset(options={"task": task})
        prompts.append(tuple(prompter.encode(task.instruction, [], observation, info["admissible"])))
        action = next(iter(world.oracle(task) or info["admissible"]), "")
        responses.append(tuple(prompter.tokenizer.encode(action, add_special_tokens=False)))
    return Probe(tuple(prompts), tuple(responses))


def disturbed(state: State, seed: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """``state`` with noise: on every B of an adapter (which starts at zero), or on all weights in proportion to their size."""
    lora = any("lora_B" in name for name in state)
    found = {}
    for name, value in sorted(state.items()):
        rng = stream(seed, "probe", name)
        if lora and "lora_B" not in name:
            found[name] = np.array(value)
            continue
        scale = NOISE if lora else NOISE * float(np.sqrt(np.mean(np.square(value, dtype=np.float64))))
        found[name] = (value + rng.normal(0.0, scale, value.shape)).astype(np.float32)
    return found


def tolerance(config: Config) -> float:
    """The accepted gap of a resolved configuration."""
    assert config.rollout.self_test_tolerance is not None
    return config.rollout.self_test_tolerance


def require_agreement(engine: Sequence[Sequence[float]], learner: Sequence[Sequence[float]], accepted: float, when: str) -> float:
    """The largest gap. Raises ``SelfTestError`` when it is too large."""
    try:
        return check_agreement(engine, learner, accepted)
    except EngineError as error:
        raise SelfTestError(f"self-test {when}: {error}") from error
