"""One walk through the WebShop world as the embedded model sees it: the window of past turns, the prompt, and the page read by the shopper.

Owns the prompt specification of the embedded model. Knows nothing of models or tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Literal

from envs import prompts
from envs.base import Task, World
from envs.prompts import PromptSpec
from envs.variants import DEFAULT
from pipeline.embedded import shopper
from pipeline.embedded.shopper import Wish

SPEC = PromptSpec(template="short", history=2, list_actions=False)
"""The prompt that the embedded model is trained on and run with."""

Order = Literal["page", "inverted", "shuffled"]


@dataclass(frozen=True)
class Turn:
    """A prompt's text and the text of the response to it."""

    prompt: str
    response: str


class Visit:
    """One episode under way: the environment, what the shopper sees, and what a prompt of it would say."""

    def __init__(self, world: World, task: Task, order: Order, rng: random.Random, variant: str = DEFAULT, mark: str = "") -> None:
        """``mark`` stands before every page, as a world that tells its name shows it."""
        self.task, self._order, self._rng, self._mark = task, order, rng, mark
        self.wish: Wish = shopper.read_task(task.instruction)
        self._env = world.make(variant)
        observation, info = self._env.reset(options={"task": task})
        self.history: list[tuple[str, str]] = []
        self._see(observation, info)

    def _see(self, observation: str, info: dict[str, Any]) -> None:
        if self._order != "page":
            observation = shopper.rearranged(observation, self._order, self._rng)
        if self._mark:
            observation = f"{self._mark}{prompts.SEPARATOR}{observation}"
        self.observation, self.admissible = observation, info["admissible"]
        self.page = shopper.read_page(observation)

    def step(self, action: str) -> bool:
        """Do ``action``; whether the episode is over."""
        seen = self.observation
        observation, _, terminated, truncated, info = self._env.step(action)
        self.history.append((seen, action))
        if terminated or truncated:
            return True
        self._see(observation, info)
        return False

    def turn(self, action: str) -> Turn:
        """The present prompt, answered with ``action``."""
        return Turn(prompts.render(SPEC, self.task.instruction, self.history, self.observation, self.admissible), action)
