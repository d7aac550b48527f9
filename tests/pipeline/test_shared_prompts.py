"""The prompts on which policies are compared: held-out, a few turns deep, different, and the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from actors.prompting import ChatPrompter
from envs.bandit import BanditWorld
from envs.base import Split, Task, World
from pipeline.shared_prompts import POSITIONS, shared_prompts
from tests.worlds import GuessWorld, guess_task


class Steps(GuessWorld):
    """Held-out tasks 100 to 104, whose oracle guesses upwards for three turns; the observation counts the turns."""

    def tasks(self, split: Split) -> Sequence[Task]:
        return [guess_task(100 + i if split == "heldout" else i) for i in range(5)]

    def oracle(self, task: Task, variant: object = None) -> list[str]:
        return ["1", "22", str(task.payload["target"])]


def prompter(seen: list[tuple[str, int, str]], length: int = 4) -> ChatPrompter:
    """Encodes (instruction, turns before, observation) as their number among those seen, ``length`` + turns tokens long."""

    def encode(instruction: str, history: Sequence[tuple[str, str]], observation: str, admissible: object) -> list[int]:
        key = (instruction, len(history), observation)
        if key not in seen:
            seen.append(key)
        return [seen.index(key)] * (length + len(history))

    def tokens(text: str, add_special_tokens: bool) -> list[int]:
        return [ord(letter) for letter in text]

    return cast(ChatPrompter, SimpleNamespace(encode=encode, tokenizer=SimpleNamespace(encode=tokens)))


def test_prompts_go_down_the_oracles_path_of_heldout_tasks() -> None:
    seen: list[tuple[str, int, str]] = []
    probe = shared_prompts(Steps(), prompter(seen), 6, limit=100)
    assert probe is not None
    turns = [0, 1, 2, 0, 1, 1]
    assert [(text, turn) for text, turn, _ in seen] == [(f"find {100 + i % 5}", turn) for i, turn in enumerate(turns)]
    assert [observation for _, _, observation in seen[:3]] == ["guess (default)", "low after 1", "low after 2"]
    assert probe.responses[:3] == ((49,), (50, 50), tuple(map(ord, "102")))
    assert [len(prompt) for prompt in probe.prompts] == [4 + turn for turn in turns]


def test_a_prompt_that_does_not_fit_is_left_out() -> None:
    probe = shared_prompts(Steps(), prompter([]), 5, limit=5)
    assert probe is not None
    assert [len(prompt) for prompt in probe.prompts] == [4, 5, 4, 5]
    assert shared_prompts(Steps(), prompter([]), 5, limit=3) is None
    assert shared_prompts(Steps(), prompter([]), 0, limit=100) is None


def test_a_world_with_few_different_prompts_gives_few() -> None:
    world: World = BanditWorld()
    seen: list[tuple[str, int, str]] = []
    probe = shared_prompts(world, prompter(seen), 50, limit=100)
    assert probe is not None
    assert len(set(probe.prompts)) == len(probe.prompts) <= 50
    assert all(0 < len(response) <= POSITIONS for response in probe.responses)
    again = shared_prompts(world, prompter([]), 50, limit=100)
    assert again == probe
