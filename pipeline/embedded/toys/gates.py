"""What a warm-started toy model must show before it may be used: it answers in the right form, and knows nothing of what pays.

Owns the measurements and their limits. Everything is sampled at temperature 1, as training does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from envs import prompts
from envs.bandit import ARMS, BanditWorld
from envs.guess import GuessWorld
from envs.variants import REVEALS, Variant
from pipeline.embedded.gates import GateError, Policy
from pipeline.embedded.toys.demos import spec

MAX_NEW_TOKENS = 4
INVERTED = Variant("answers", "inverted")


@dataclass(frozen=True)
class Gates:
    """Accepted ranges, as shares. ``arm`` is the share of the most played arm of two, of any mark and member; ``bias`` the difference
    between success at guessing where replies say the truth and where they say the opposite."""

    admissible: float = 0.98
    arm: float = 0.65
    in_range: float = 0.85
    guess: tuple[float, float] = (0.2, 0.6)
    bias: float = 0.15


@dataclass(frozen=True)
class Measured:
    """``admissible`` and ``in_range`` are shares of plays and of guesses, ``guess`` and ``inverted`` of games won, each by the world."""

    admissible: float
    arm: float
    in_range: float
    guess: float
    inverted: float
    tasks: int

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {k: round(float(v), 4) for k, v in asdict(self).items()}


def check(measured: Measured, gates: Gates) -> None:
    """Raise ``GateError`` that lists every missed gate, measured against accepted."""
    low, high = gates.guess
    bias = abs(measured.guess - measured.inverted)
    missed = []
    if not measured.admissible >= gates.admissible:
        missed.append(f"arms played: {measured.admissible:.1%} of the answers, at least {gates.admissible:.0%} needed")
    if not measured.arm <= gates.arm:
        missed.append(f"the most played arm of two: {measured.arm:.1%}, at most {gates.arm:.0%}")
    if not measured.in_range >= gates.in_range:
        missed.append(f"guesses in the range: {measured.in_range:.1%}, at least {gates.in_range:.0%} needed")
    if not low <= measured.guess <= high:
        missed.append(f"numbers found: {measured.guess:.1%}, accepted {low:.0%} to {high:.0%}")
    if not bias <= gates.bias:
        missed.append(f"numbers found where replies say the opposite: {measured.inverted:.1%}, at most {gates.bias:.0%} from the usual")
    if missed:
        raise GateError(
            f"the built model misses {len(missed)} gate(s) on {measured.tasks} held-out tasks: {'; '.join(missed)}. "
            "Build with another seed (--seed)"
        )


def answer(text: str, world: str) -> str:
    """The action in a decoded answer, which may end in the stop token."""
    return prompts.parse(spec(world), text.partition("<")[0]).action


def arms(policy: Policy, tasks: int, variant: Variant) -> Counter[str]:
    """Answers to the first play of held-out machines with two arms, by text."""
    world = BanditWorld(heldout=tasks)
    env = world.make(variant)
    texts = []
    for task in world.tasks("heldout"):
        observation, info = env.reset(seed=0, options={"task": task})
        texts.append(prompts.render(spec(world.name), task.instruction, (), observation, info["admissible"]))
    return Counter(answer(text, world.name) for text in policy(texts, 1.0))


def guesses(policy: Policy, tasks: int, variant: Variant) -> tuple[float, float]:
    """Shares of games won and of guesses in the range, on held-out tasks; all games advance together."""
    world = GuessWorld(heldout=tasks)
    chosen = world.tasks("heldout")
    envs = [world.make(variant) for _ in chosen]
    pages = [env.reset(options={"task": task}) for env, task in zip(envs, chosen, strict=True)]
    histories: list[list[tuple[str, str]]] = [[] for _ in chosen]
    going, won, right, said = list(range(len(chosen))), 0, 0, 0
    while going:
        texts = [prompts.render(spec(world.name), chosen[i].instruction, histories[i], pages[i][0], ()) for i in going]
        still = []
        for i, text in zip(going, policy(texts, 1.0), strict=True):
            action = answer(text, world.name)
            right, said = right + (action in pages[i][1]["admissible"]), said + 1
            histories[i].append((pages[i][0], action))
            observation, _, terminated, truncated, info = envs[i].step(action)
            pages[i] = (observation, info)
            won += bool(info["success"])
            if not (terminated or truncated):
                still.append(i)
        going = still
    return won / len(chosen), right / said


def measure(policy: Policy, tasks: int) -> Measured:
    """All numbers that ``check`` needs, on ``tasks`` held-out tasks of every form of the worlds that is looked at."""
    two: Sequence[str] = ARMS[:2]
    answers = [
        arms(policy, tasks, Variant("conflict", member, reveal=reveal, label=str(1 + number)))
        for reveal in REVEALS
        for number, member in enumerate(two)
    ]
    played = [sum(found[arm] for arm in two) / found.total() for found in answers]
    won, right = guesses(policy, tasks, Variant())
    return Measured(
        admissible=sum(played) / len(played),
        arm=max(max(found[arm] for arm in two) / found.total() for found in answers),
        in_range=right,
        guess=won,
        inverted=guesses(policy, tasks, INVERTED)[0],
        tasks=tasks,
    )
