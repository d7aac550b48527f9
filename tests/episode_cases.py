"""Episodes made of random token ids, for tests of algorithms and learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.episodes import Episode, Turn


def turn(
    prompt: Sequence[int], response: Sequence[int], *, logprobs: Sequence[float] | None = None, valid: bool = True, reward: float = 0.0
) -> Turn:
    return Turn(tuple(prompt), tuple(response), tuple(logprobs or [-1.0] * len(response)), "act", valid, reward)


def episode(turns: Sequence[Turn], ret: float, *, task: str = "t0", group: int = 0, stop: str = "done") -> Episode:
    """The whole return is the last turn's reward, unless turns bring rewards of their own."""
    if turns and not any(t.reward for t in turns):
        turns = [*turns[:-1], replace(turns[-1], reward=ret)]
    return Episode(task, "client-0", "default", "a", tuple(turns), ret, ret / 10, ret == 10, stop, group=group)  # type: ignore[arg-type]


def random_episodes(groups: int = 4, size: int = 4, *, seed: int = 0, vocab: int = 300, gap: float = 0.2) -> list[Episode]:
    """Episodes of 1-5 turns with prompts of 10-40 and responses of 1-5 tokens; sampler log-probabilities near uniform, off by ``gap``."""
    rng = np.random.default_rng(seed)
    made = []
    for group in range(groups):
        for _ in range(size):
            turns = []
            for _ in range(int(rng.integers(1, 6))):
                prompt = rng.integers(3, vocab, int(rng.integers(10, 41))).tolist()
                response = rng.integers(3, vocab, int(rng.integers(1, 6))).tolist()
                logprobs = (-np.log(vocab) + gap * rng.standard_normal(len(response))).tolist()
                turns.append(turn(prompt, response, logprobs=logprobs, valid=bool(rng.random() < 0.9)))
            made.append(episode(turns, 10.0 * bool(rng.random() < 0.5), task=f"t{group}", group=group))
    return made
