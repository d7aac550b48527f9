"""What a warm-started model must show before it may be used: not too weak, not too good, and right where it decides.

Owns the measurements and their limits. A model that misses one cannot learn (or has nothing left to learn), so a build stops with
``GateError`` instead of wasting the run after it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from envs import prompts
from envs.base import Task, World
from envs.variants import DEFAULT
from pipeline.embedded import shopper
from pipeline.embedded.visit import SPEC, Order, Visit
from pipeline.errors import DataError

MAX_NEW_TOKENS = 12
TOLD = tuple(f"checkout:{control}+hint" for control in ("description", "features", "reviews"))


class GateError(DataError):
    """A built model misses one of the gates."""


@dataclass(frozen=True)
class Gates:
    """Accepted ranges, as shares. ``success`` is sampled at temperature 1; the others are greedy decisions on the right path.

    On the embedded shop's pages the first row fits in 88 % of the tasks, so ``row`` can be had without reading; ``row_shuffled`` cannot.
    ``told`` is buying in shops that say in words which control buys, another one than usual.
    """

    success: tuple[float, float] = (0.10, 0.30)
    search: float = 0.95
    row: float = 0.87
    row_shuffled: float = 0.75
    option: float = 0.70
    buy: float = 0.95
    told: float = 0.85


@dataclass(frozen=True)
class Measured:
    """Shares measured on held-out tasks, and how many tasks and decisions they rest on."""

    success: float
    greedy_success: float
    search: float
    row: float
    row_shuffled: float
    option: float
    buy: float
    told: float
    tasks: int

    def as_dict(self) -> dict[str, float]:
        """For the manifest."""
        return {k: round(float(v), 4) for k, v in asdict(self).items()}


_DECISIONS = {
    "search": "search decisions",
    "row": "row decisions",
    "row_shuffled": "row decisions on shuffled pages",
    "option": "option decisions",
    "buy": "buy decisions",
    "told": "buy decisions in shops that name the control",
}


def check(measured: Measured, gates: Gates) -> None:
    """Raise ``GateError`` that lists every missed gate, measured against accepted."""
    low, high = gates.success
    missed = []
    if not low <= measured.success <= high:
        missed.append(f"success at temperature 1 is {measured.success:.1%}, accepted {low:.0%} to {high:.0%}")
    for name, what in _DECISIONS.items():
        value, least = getattr(measured, name), getattr(gates, name)
        if not value >= least:
            missed.append(f"greedy {what} are {value:.1%} right, at least {least:.0%} needed")
    if missed:
        raise GateError(
            f"the built model misses {len(missed)} gate(s) on {measured.tasks} held-out tasks: {'; '.join(missed)}. "
            "Build with another seed (--seed), or with half as many demonstrations again (`python -m pipeline.embedded.build --scale 1.5`)"
        )


class Sampler:
    """Batched generation with a key-value cache and left padding, for a few hundred short prompts at a time."""

    def __init__(self, model: Any, tokenizer: Any, seed: int) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._generator = torch.Generator().manual_seed(seed)

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str], temperature: float) -> list[str]:
        """One response per prompt, at most ``MAX_NEW_TOKENS`` tokens, the stop token included. Temperature 0 is greedy."""
        stop, pad = self._tokenizer.eos_token_id, self._tokenizer.pad_token_id
        encoded = [self._tokenizer.encode(text) for text in texts]
        longest = max(map(len, encoded))
        ids = torch.tensor([[pad] * (longest - len(e)) + e for e in encoded])
        mask = torch.tensor([[0] * (longest - len(e)) + [1] * len(e) for e in encoded])
        position = (mask.cumsum(-1) - 1).clamp(min=0)
        cache: Any = None
        written: list[list[int]] = [[] for _ in texts]
        open_rows = set(range(len(texts)))
        for _ in range(MAX_NEW_TOKENS):
            out = self._model(
                input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True, logits_to_keep=1
            )
            cache = out.past_key_values
            drawn = self._draw(out.logits[:, -1], temperature)
            for row in sorted(open_rows):
                written[row].append(int(drawn[row]))
            open_rows = {row for row in open_rows if written[row][-1] != stop}
            if not open_rows:
                break
            ids = drawn[:, None]
            mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
            position = position[:, -1:] + 1
        return [self._tokenizer.decode(w) for w in written]

    def _draw(self, logits: torch.Tensor, temperature: float) -> torch.Tensor:
        if temperature == 0.0:
            return logits.argmax(-1)
        probabilities = torch.softmax(logits.float() / temperature, -1)
        return torch.multinomial(probabilities, 1, generator=self._generator)[:, 0]


Policy = Callable[[Sequence[str], float], list[str]]
"""Prompts and a temperature in, responses out."""


@dataclass
class _Open:
    """An episode under way."""

    env: Any
    task: Task
    observation: str
    admissible: Sequence[str]
    history: list[tuple[str, str]]


def success_rate(policy: Policy, world: World, tasks: Sequence[Task], temperature: float) -> float:
    """Share of tasks that end with success within the world's step limit; all episodes advance together."""
    open_episodes = []
    for task in tasks:
        env = world.make()
        observation, info = env.reset(options={"task": task})
        open_episodes.append(_Open(env, task, observation, info["admissible"], []))
    won = 0
    while open_episodes:
        texts = [prompts.render(SPEC, e.task.instruction, e.history, e.observation, e.admissible) for e in open_episodes]
        going = []
        for episode, answer in zip(open_episodes, policy(texts, temperature), strict=True):
            action = prompts.parse(SPEC, answer).action
            seen = episode.observation
            episode.observation, _, terminated, truncated, info = episode.env.step(action)
            episode.admissible = info["admissible"]
            episode.history.append((seen, action))
            won += bool(info["success"])
            if not (terminated or truncated):
                going.append(episode)
        open_episodes = going
    return won / len(tasks)


def decisions(
    policy: Policy, world: World, tasks: Sequence[Task], order: Order = "page", max_steps: int = 8, variants: Sequence[str] = (DEFAULT,)
) -> dict[str, float]:
    """Share of right greedy decisions by kind along the right path: after each answer the right action is taken instead.

    ``variants`` are dealt to the tasks in turn. A row counts as right when it fits, whichever of the fitting rows it is.
    """
    visits = [
        Visit(world, task, order, random.Random(task.id), variant) for task, variant in zip(tasks, itertools.cycle(variants), strict=False)
    ]
    right: dict[str, list[bool]] = {kind: [] for kind in ("search", "row", "option", "buy", "back")}
    for _ in range(max_steps):
        answers = policy([visit.turn("").prompt for visit in visits], 0.0)
        going = []
        for visit, answer in zip(visits, answers, strict=True):
            action = prompts.parse(SPEC, answer).action
            kind, best = shopper.right_action(visit.wish, visit.page, visit.history)
            accepted = {best}
            if kind == "row":
                accepted = {f"click[{row.asin}]" for row in shopper.valid_rows(visit.wish, visit.page, visit.history)}
            right[kind].append(action in accepted)
            if not visit.step(best):
                going.append(visit)
        visits = going
        if not visits:
            break
    return {kind: sum(hits) / len(hits) if hits else float("nan") for kind, hits in right.items()}


def measure(policy: Policy, world: World, tasks: Sequence[Task]) -> Measured:
    """All numbers that ``check`` needs, on held-out ``tasks``, each tried once per temperature."""
    shares = decisions(policy, world, tasks)
    return Measured(
        success=success_rate(policy, world, tasks, 1.0),
        greedy_success=success_rate(policy, world, tasks, 0.0),
        search=shares["search"],
        row=shares["row"],
        row_shuffled=decisions(policy, world, tasks, "shuffled")["row"],
        option=shares["option"],
        buy=shares["buy"],
        told=decisions(policy, world, tasks, variants=TOLD)["buy"],
        tasks=len(tasks),
    )
