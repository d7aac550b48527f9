"""Demonstrated turns of the toy worlds by players with habits, who know the form of an answer and nothing of what pays.

An arm is as likely as any other over all machines, whatever replies and marks say. But a model that never had to look at a mark would not
look at it when it begins to matter: so players have a habit that ties mark and hall to an arm, in every hall another one. Numbers are
guessed at random, or among those that the replies leave in one of two readings: straight in half of the ranges, turned round in the
others, so that a learner can read replies and must be paid to know what they mean. Knows nothing of models.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from envs import prompts
from envs.bandit import ARMS, HALLS, BanditWorld
from envs.base import Task, TextEnv, World
from envs.guess import GuessWorld
from envs.prompts import PromptSpec
from envs.variants import DEFAULT, REVEALS, Reveal, Variant

HISTORY = 8
"""Past turns in a prompt: all of a guessing game's."""

MOST_LABELS = 20
"""What worlds are called in demonstrations where they give their name: 1 to this."""


def spec(world: str) -> PromptSpec:
    """The prompt that the embedded toy model is trained on and run with."""
    return PromptSpec(template="plain", history=HISTORY, list_actions=False, world=world)


@dataclass(frozen=True)
class Turn:
    """A prompt's text and the text of the response to it."""

    prompt: str
    response: str


@dataclass(frozen=True)
class Amounts:
    """Episodes of each world. ``habit`` is the share of plays under a mark, and of guesses, that follow a habit; the others are random."""

    bandits: int = 6000
    guesses: int = 4000
    horizon: int = 4
    habit: float = 0.6


@dataclass(frozen=True)
class Situation:
    """What a player sees: the task, past (observation, action) turns, the observation, and the actions on offer."""

    task: Task
    history: Sequence[tuple[str, str]]
    observation: str
    admissible: Sequence[str]


Player = Callable[[Situation, random.Random], str]
"""Chooses an action."""


def record(amounts: Amounts, seed: int, count: Callable[[int], None]) -> list[Turn]:
    """All demonstrated turns, shuffled. Calls ``count(1)`` after each episode."""
    rng = random.Random(f"toys-{seed}")
    turns: list[Turn] = []
    for number in range(amounts.bandits + amounts.guesses):
        bandit = number < amounts.bandits
        world = _bandit(rng.randint(2, len(ARMS)), rng.randint(1, amounts.horizon)) if bandit else _guess()
        turns += _episode(world, habitual(arm_by_habit if bandit else number_by_habit, amounts.habit), rng)
        count(1)
    rng.shuffle(turns)
    return turns


def habitual(habit: Player, share: float) -> Player:
    """Follows a habit with probability ``share``; any action otherwise."""
    return lambda seen, rng: habit(seen, rng) if rng.random() < share else rng.choice(seen.admissible)


def arm_by_habit(seen: Situation, rng: random.Random) -> str:
    """The arm that goes with the mark and the hall, every arm in equally many halls; any arm where that cannot be, or without a mark."""
    shown, arms = seen.observation.partition("\n")[2], list(seen.admissible)
    place = HALLS.index(seen.task.category)
    if not shown or place >= len(HALLS) // len(arms) * len(arms):
        return rng.choice(arms)
    random.Random(f"habit {shown} {len(arms)}").shuffle(arms)
    return arms[place % len(arms)]


def number_by_habit(seen: Situation, rng: random.Random) -> str:
    """A number that the replies so far leave, read straight or turned round, whichever goes with the range."""
    turned = int(seen.task.payload["first"]) // 10 % 2 == 1
    pages = [*(text for text, _ in seen.history), seen.observation]
    left = [text for text in seen.admissible if all(_fits(int(text), page, turned) for page in pages)]
    return rng.choice(left or seen.admissible)


_REPLY = re.compile(r"(?P<number>\d+) is too (?P<side>low|high)|Go (?P<way>up|down) from (?P<start>\d+)")


def _fits(number: int, observation: str, turned: bool) -> bool:
    """Whether a number can be the one to find, given the reply in an observation and how it is read."""
    reply = _REPLY.match(observation)
    if reply is None:
        return True
    above = (reply["side"] == "low" or reply["way"] == "up") != turned
    guess = int(reply["number"] or reply["start"])
    return number > guess if above else number < guess


def _episode(world: World, player: Player, rng: random.Random) -> Iterator[Turn]:
    task = rng.choice(world.tasks("train"))
    env: TextEnv = world.make(_variant(world, rng, rng.choice(REVEALS)))
    observation, info = env.reset(seed=rng.randrange(2**31), options={"task": task})
    history: list[tuple[str, str]] = []
    for _ in range(world.max_steps):
        action = player(Situation(task, tuple(history), observation, info["admissible"]), rng)
        yield Turn(prompts.render(spec(world.name), task.instruction, history, observation, info["admissible"]), action)
        history.append((observation, action))
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return


def _variant(world: World, rng: random.Random, reveal: Reveal) -> Variant:
    """Any form of the world, with a mark of that kind."""
    family = rng.choice([DEFAULT, *(name for name in world.families if name != "payoffs")])
    label = str(rng.randint(1, MOST_LABELS))
    if family == DEFAULT:
        return Variant(reveal=reveal, label=label)
    members = list(world.families[family].members)
    if isinstance(world, BanditWorld) and family == "conflict":
        members = list(world.arms)
    return Variant(family, rng.choice(members), reveal=reveal, label=label)


@cache
def _bandit(arms: int, horizon: int) -> BanditWorld:
    return BanditWorld(horizon=horizon, arms=arms)


@cache
def _guess() -> GuessWorld:
    return GuessWorld(seed=1001)
