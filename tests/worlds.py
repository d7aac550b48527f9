"""Toy worlds for tests of the machinery: guess a number, and worlds that misbehave on command."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from envs.base import Split, Task, TextEnv, World
from envs.variants import DEFAULT, Family, Variant


class GuessEnv(TextEnv):
    """Say the number of the task within ``max_steps`` guesses. A reply tells whether the guess was too low or too high.

    Tasks with ``payload["trouble"]`` raise, hang, or kill the process at their first step; with ``flag`` only until that file exists.
    """

    def __init__(self, max_steps: int, variant: str) -> None:
        self._max_steps, self._variant = max_steps, variant

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        assert options is not None
        self._task: Task = options["task"]
        self._steps = 0
        return f"guess ({self._variant})", {"admissible": ["a number"], "score": 0.0, "success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        self._misbehave()
        target = int(self._task.payload["target"])
        guess = int(action) if action.lstrip("-").isdigit() else -1
        hit = guess == target
        text = "yes" if hit else "low" if guess < target else "high"
        over = not hit and self._steps >= self._max_steps
        info = {"admissible": ["a number"], "score": 1.0 if hit else 0.0, "success": hit}
        return f"{text} after {self._steps}", 10.0 if hit else 0.0, hit, over, info

    def _misbehave(self) -> None:
        trouble, flag = self._task.payload.get("trouble"), self._task.payload.get("flag")
        if trouble is None or (flag is not None and Path(flag).exists()):
            return
        if flag is not None:
            Path(flag).touch()
        if trouble == "raise":
            raise RuntimeError("the page would not load")
        if trouble == "hang":
            time.sleep(600)
        if trouble == "die":
            os._exit(1)


class GuessWorld(World):
    """``count`` tasks; task ``i`` asks for number ``i``."""

    name: ClassVar[str] = "guess-test"
    families: ClassVar[Mapping[str, Family]] = {"other": Family("other", "dynamics", ("only",), "nothing")}

    def __init__(self, count: int = 10, max_steps: int = 4, load_s: float = 0.0) -> None:
        time.sleep(load_s)
        self.count, self.max_steps = count, max_steps

    def tasks(self, split: Split) -> Sequence[Task]:
        return [guess_task(i) for i in range(self.count)]

    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        return GuessEnv(self.max_steps, self.variant(variant).family)

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        return [str(task.payload["target"])]


def guess_task(target: int, **payload: Any) -> Task:
    """A task whose answer is ``target``."""
    return Task(f"guess-{target}", f"find {target}", "guess", {"target": target, **payload})
