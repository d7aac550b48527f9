"""What a warm-started ALFWorld model must show before it may be used.

Owns the measurements and their limits: success with room to learn, right decisions where it matters, and worlds in which something else
heats or cools that can be won at all at temperature 1, so that reinforcement learning has something to reinforce.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from envs import prompts
from envs.alfworld import AlfWorld
from envs.alfworld.expert import read_task
from envs.alfworld.variants import dynamics
from envs.memory import recall
from envs.variants import Variant
from pipeline.embedded.alfworld.demos import SPEC
from pipeline.embedded.alfworld.housekeeper import Decision, Skill, clumsy_action, kind, right_action
from pipeline.embedded.gates import GateError, Policy

MAX_NEW_TOKENS = 12
STOVE = "appliance:heat_at_stove"
"""A world that looks like the usual one, in which the stove heats and the microwave does not."""


@dataclass(frozen=True)
class Gates:
    """Accepted ranges, as shares. ``success`` and ``stove`` are sampled at temperature 1; the others are greedy."""

    success: tuple[float, float] = (0.50, 0.82)
    greedy_success: float = 0.88
    inadmissible: float = 0.12
    stove: float = 0.45
    take: float = 0.97
    decision: float = 0.80


@dataclass(frozen=True)
class Outcome:
    """Shares over played games. ``inadmissible`` is that of turns."""

    success: float
    inadmissible: float
    turns: float
    by_type: Mapping[str, float]


@dataclass(frozen=True)
class Measured:
    """Shares measured on held-out games, and how many there were."""

    success: float
    greedy_success: float
    inadmissible: float
    greedy_inadmissible: float
    demonstrated: float
    stove: float
    games: int
    by_type: Mapping[str, float] = field(default_factory=dict)
    greedy_by_type: Mapping[str, float] = field(default_factory=dict)
    decisions: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {name: _rounded(value) for name, value in asdict(self).items()}


def _rounded(value: Any) -> Any:
    return {name: round(share, 4) for name, share in value.items()} if isinstance(value, dict) else round(value, 4)


def check(measured: Measured, gates: Gates) -> None:
    """Raise ``GateError`` that lists every missed gate, measured against accepted."""
    low, high = gates.success
    missed = []
    if not low <= measured.success <= high:
        missed.append(f"success at temperature 1 is {measured.success:.1%}, accepted {low:.0%} to {high:.0%}")
    for what, value, least in (
        ("greedy success", measured.greedy_success, gates.greedy_success),
        ("success where the stove heats", measured.stove, gates.stove),
        ("right greedy decisions to take", measured.decisions.get("take", 0.0), gates.take),
        *((f"right greedy decisions to {name}", share, gates.decision) for name, share in measured.decisions.items() if name != "take"),
    ):
        if not value >= least:
            missed.append(f"{what}: {value:.1%}, at least {least:.0%} needed")
    if not measured.inadmissible <= gates.inadmissible:
        missed.append(f"inadmissible commands at temperature 1: {measured.inadmissible:.1%}, at most {gates.inadmissible:.0%} accepted")
    if missed:
        raise GateError(
            f"the built ALFWorld model misses {len(missed)} gate(s) on {measured.games} held-out games: {'; '.join(missed)}. "
            "Build with another seed, or with more games"
        )


def play(policy: Policy, world: AlfWorld, games: Sequence[str], temperature: float, max_steps: int, variant: str = "") -> Outcome:
    """Let a policy play games, all of them at once; a game may occur several times. Raises ``ValueError`` without games."""
    if not games:
        raise ValueError("there are no games to play")
    engine = world.engine(dynamics(Variant.parse(variant)) if variant else None)
    going = [(place, engine.play(game), world.info(game).task, list[tuple[str, str]]()) for place, game in enumerate(games)]
    turns = wasted = 0
    won: set[int] = set()
    for _ in range(max_steps):
        texts = [prompts.render(SPEC, task, history, play.observation, ()) for _, play, task, history in going]
        for (place, play, _, history), answer in zip(going, policy(texts, temperature), strict=True):
            action = command(answer)
            turns += 1
            wasted += action not in play.admissible
            history.append((play.observation, action))
            if play.step(action)[2]:
                won.add(place)
        going = [episode for episode in going if episode[0] not in won]
        if not going:
            break
    shares: dict[str, list[bool]] = defaultdict(list)
    for place, game in enumerate(games):
        shares[world.info(game).task_type].append(place in won)
    by_type = {name: sum(hits) / len(hits) for name, hits in shares.items()}
    return Outcome(len(won) / len(games), wasted / turns, turns / len(games), by_type)


def command(answer: str) -> str:
    """The command in a decoded answer, which may end in the stop token."""
    return prompts.parse(SPEC, answer.partition("<")[0]).action


def decisions(policy: Policy, world: AlfWorld, games: Sequence[str], max_steps: int, seed: int = 0) -> dict[str, float]:
    """Share of right greedy decisions by kind, in the situations that a clumsy housekeeper gets into.

    Several commands may be right: any wanted thing in view may be taken, any appliance tried.
    """
    engine, skill = world.engine(), Skill()
    texts: list[str] = []
    accepted: list[tuple[Decision, set[str]]] = []
    for game in games:
        rng = random.Random(f"decisions-{seed}-{game}")
        play, task = engine.play(game), world.info(game).task
        wish, history = read_task(task), list[tuple[str, str]]()
        for _ in range(max_steps):
            memory = recall(task, history, play.observation)
            right = {right_action(wish, memory, skill, random.Random(draw)) for draw in range(6)}
            decision, actions = next(iter(right))[0], {action for _, action in right}
            if decision == "take":
                actions |= {f"take {t} from {place}" for t, place in memory.noted.items() if place == memory.here and kind(t) == wish.thing}
            texts.append(prompts.render(SPEC, task, history, play.observation, ()))
            accepted.append((decision, actions))
            _, action = clumsy_action(wish, memory, play.admissible, skill, rng)
            history.append((play.observation, action))
            if play.step(action)[2]:
                break
    hits: dict[str, list[bool]] = defaultdict(list)
    for start in range(0, len(texts), 256):
        for (kind_of, actions), answer in zip(accepted[start : start + 256], policy(texts[start : start + 256], 0.0), strict=True):
            hits[kind_of].append(command(answer) in actions)
    return {name: sum(found) / len(found) for name, found in sorted(hits.items())}


def measure(
    policy: Policy, world: AlfWorld, heldout: Sequence[str], demonstrated: Sequence[str], max_steps: int, shown: AlfWorld | None = None
) -> Measured:
    """All numbers that ``check`` needs. ``demonstrated`` games (of ``shown``, else of ``world``) were trained on: those of the held-out
    games' task types tell what was learned by heart."""
    # Each game twice: a share of 300 games has a standard error of almost three points.
    sampled, greedy = play(policy, world, [*heldout, *heldout], 1.0, max_steps), play(policy, world, heldout, 0.0, max_steps)
    heat = [game for game in heldout if world.info(game).task_type == "pick_heat_then_place_in_recep"]
    types = {world.info(game).task_type for game in heldout}
    same = [game for game in demonstrated if (shown or world).info(game).task_type in types] or list(demonstrated)
    return Measured(
        success=sampled.success,
        greedy_success=greedy.success,
        inadmissible=sampled.inadmissible,
        greedy_inadmissible=greedy.inadmissible,
        demonstrated=play(policy, shown or world, same, 1.0, max_steps).success,
        stove=play(policy, world, [*heat, *heat], 1.0, max_steps, STOVE).success,
        games=len(heldout),
        by_type=sampled.by_type,
        greedy_by_type=greedy.by_type,
        decisions=decisions(policy, world, heldout[::2], max_steps),
    )
