"""What an agent did, as token ids: turns, episodes, and what a client sends to the server.

Token ids and the sampler's log-probabilities are kept from the engine to the loss; text is never tokenized a second time.
Knows nothing of engines, losses or Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from envs.base import Task

FloatArray = npt.NDArray[np.float32]
State = Mapping[str, FloatArray]
"""Parameters by name, float32. Full weights use the model's state-dict names, LoRA uses peft's
(``base_model.model.<module>.lora_A.weight`` [r, in] and ``.lora_B.weight`` [out, r])."""

Stop = Literal["done", "steps", "length", "failed"]
"""Why an episode ended: the world said so, step limit, prompt too long for the engine, or the environment kept failing."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_new_tokens: int = 16


@dataclass(frozen=True)
class EpisodeSpec:
    """One episode to run. ``seed`` fixes its random choices; ``group`` gathers the rollouts of one task draw."""

    client: str
    task: Task
    variant: str = "default"
    group: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Turn:
    """One prompt and one response. ``logprobs[i]`` belongs to ``response_ids[i]`` under the sampler's distribution at
    temperature 1 over the full vocabulary (natural log). ``reward`` is the world's reward for this turn."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    action: str
    valid: bool
    reward: float


@dataclass(frozen=True)
class Episode:
    """A finished episode. ``ret`` is the sum of rewards, ``score`` the world's own measure in [0, 1]."""

    task_id: str
    client: str
    variant: str
    adapter: str
    turns: tuple[Turn, ...]
    ret: float
    score: float
    success: bool
    stop: Stop
    group: int = 0
    seed: int = 0
    retries: int = 0
    observations: tuple[str, ...] = ()
    """What the agent saw before each turn, and after the last: kept on the client's side for ``fedagent view`` only."""

    @property
    def n_tokens(self) -> int:
        """Tokens read and written."""
        return sum(len(t.prompt_ids) + len(t.response_ids) for t in self.turns)


@dataclass(frozen=True)
class ClientUpdate:
    """All that leaves a client: parameters and allow-listed scalars (``pipeline.privacy_boundary``).

    ``delta`` is after minus before, float32, keyed as the global state. ``policy`` are log-probabilities [positions, vocabulary] of the
    client's policy on prompts that everybody may see, where the federation measures how far policies drift apart.
    """

    client: str
    round: int
    base_version: str
    delta: State
    n_tasks: int
    n_episodes: int
    n_tokens: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    policy: FloatArray | None = None


@dataclass(frozen=True)
class GlobalState:
    """The shared agent after a round. ``version`` is ``global-<round>-<content hash>``."""

    version: str
    round: int
    state: State
    metrics: Mapping[str, float] = field(default_factory=dict)
