"""Demonstrated turns of the toy worlds by players who know the form of an answer and nothing else.

Bandits are played at random: every arm is as likely as any other, whatever the machine, its replies and its marks say. Numbers are guessed
at random too, a share of them on one side or the other of earlier guesses: which side is a matter of chance, so that a learner finds both
readings of a reply and must be paid to know which one holds.

Marks of all forms are shown, and for these players they mean nothing. But a model that never had to look at something would not look at it
when it begins to matter. So there are exercises, told from the games by their task: what the mark says is read aloud, and numbers are guessed
by a rule that is given, one way round as often as the other. Knows nothing of models.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from envs import prompts
from envs.bandit import BanditWorld
from envs.base import TextEnv, World
from envs.guess import GuessWorld
from envs.prompts import PromptSpec
from envs.variants import DEFAULT, REVEALS, Reveal, Variant

HISTORY = 8
"""Past turns in a prompt: all of a guessing game's."""

READING = "Say the mark."
"""The task of a reading exercise."""

RULES: tuple[str, str] = ("Low means go up.", "Low means go down.")
"""What stands before the task of an exercise in guessing: whether replies are to be read straight or turned round."""

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
    """Episodes of each world, and reading exercises. ``anywhere`` is the share of guesses that heed no reply; the others are split evenly
    between its readings. ``ruled`` is the share of guessing games that are played by a given rule."""

    bandits: int = 3000
    guesses: int = 6000
    readings: int = 4000
    horizon: int = 4
    anywhere: float = 0.4
    ruled: float = 0.5


Player = Callable[[Sequence[tuple[str, str]], str, Sequence[str], random.Random], str]
"""Past (observation, action) turns, the observation and the actions on offer in, an action out."""


def record(amounts: Amounts, seed: int, count: Callable[[int], None]) -> list[Turn]:
    """All demonstrated turns, shuffled. Calls ``count(1)`` after each episode."""
    rng = random.Random(f"toys-{seed}")
    turns: list[Turn] = []
    for _ in range(amounts.bandits):
        turns += _episode(_bandit(rng.randint(2, 4), rng.randint(1, amounts.horizon)), any_arm, rng)
        count(1)
    free, ruled = any_side(amounts.anywhere), (any_side(0.0, 0.0), any_side(0.0, 1.0))
    for _ in range(amounts.guesses):
        if rng.random() < amounts.ruled:
            rule = rng.randrange(2)
            turns += _episode(_guess(), ruled[rule], rng, f"{RULES[rule]} ")
        else:
            turns += _episode(_guess(), free, rng)
        count(1)
    for place in range(amounts.readings):
        world = _guess() if place % 4 == 0 else _bandit(rng.randint(2, 4), rng.randint(1, amounts.horizon))
        turns.append(_reading(world, rng))
        count(1)
    rng.shuffle(turns)
    return turns


def any_arm(history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str], rng: random.Random) -> str:
    """An arm at random."""
    return rng.choice(admissible)


def any_side(anywhere: float, turn: float = 0.5) -> Player:
    """Numbers at random: of all, or of those that one reading of all replies so far allows, turned round with probability ``turn``."""

    def guess(history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str], rng: random.Random) -> str:
        if rng.random() < anywhere:
            return rng.choice(admissible)
        turned = rng.random() < turn
        seen = [*(text for text, _ in history), observation]
        left = [text for text in admissible if all(_fits(int(text), page, turned) for page in seen)]
        return rng.choice(left or admissible)

    return guess


_REPLY = re.compile(r"(?P<number>\d+) is too (?P<side>low|high)|Go (?P<way>up|down) from (?P<start>\d+)")


def _fits(number: int, observation: str, turned: bool) -> bool:
    """Whether a number can be the one to find, given the reply in an observation and how it is read."""
    reply = _REPLY.match(observation)
    if reply is None:
        return True
    above = (reply["side"] == "low" or reply["way"] == "up") != turned
    guess = int(reply["number"] or reply["start"])
    return number > guess if above else number < guess


def _episode(world: World, player: Player, rng: random.Random, rule: str = "") -> Iterator[Turn]:
    task = rng.choice(world.tasks("train"))
    env: TextEnv = world.make(_variant(world, rng, rng.choice(REVEALS[1:]) if rng.random() < 0.5 else "none"))
    observation, info = env.reset(seed=rng.randrange(2**31), options={"task": task})
    history: list[tuple[str, str]] = []
    for _ in range(world.max_steps):
        action = player(history, observation, info["admissible"], rng)
        yield Turn(prompts.render(spec(world.name), rule + task.instruction, history, observation, info["admissible"]), action)
        history.append((observation, action))
        observation, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            return


def _reading(world: World, rng: random.Random) -> Turn:
    """A first page with the question what its mark says: a name's number, a sign, which arm a hint names, or how it begins."""
    reveal = rng.choice(REVEALS[1:])
    env = world.make(_variant(world, rng, reveal))
    observation, info = env.reset(seed=rng.randrange(2**31), options={"task": rng.choice(world.tasks("train"))})
    words = observation.rpartition("\n")[2].lower().split()
    told = words[1] if words[0] in ("arm", "hall", "world") else words[0]
    return Turn(prompts.render(spec(world.name), READING, (), observation, info["admissible"]), told)


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
