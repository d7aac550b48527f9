"""Scripts of actions and what worlds answer to them: the sample that everything dynamic in a diagnosis is computed from.

Every script is played in every world, so that what was done carries no word of where. Owns no statistics.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from envs.base import Task, TextEnv, World
from pipeline.diagnose.setup import Home, Settings, Visit

Kind = Literal["oracle", "deviation", "walk", "policy"]

FEWEST_SEEDS = 8
_PLACEHOLDER = re.compile(r"<[^<>]*>")
_WORD = re.compile(r"[a-z0-9]+")

Outcome = tuple[str, bool, float]
"""What a state shows and does: observation, whether the episode ended, reward."""


@dataclass(frozen=True)
class Script:
    """Actions for one task. ``owners`` are the worlds (by place) whose oracle would do this."""

    kind: Kind
    label: str
    actions: tuple[str, ...]
    owners: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A script played in a world: ``outcomes[t]`` came before action ``t``; ``offered[t]`` are the actions on offer there."""

    outcomes: tuple[Outcome, ...]
    offered: tuple[frozenset[str], ...]

    @property
    def ret(self) -> float:
        """Sum of rewards."""
        return sum(reward for _, _, reward in self.outcomes)

    @property
    def ended(self) -> bool:
        """Whether the world ended the episode."""
        return self.outcomes[-1][1]


@dataclass(frozen=True)
class Sample:
    """Everything that was played. ``traces[home][task][script]`` has one trace per seed; a single one where the world draws nothing."""

    homes: Sequence[Home]
    tasks: Sequence[Task]
    scripts: Sequence[Sequence[Script]]
    traces: Sequence[Sequence[Sequence[Sequence[Trace]]]]
    draws: Sequence[bool]
    success_pays: float

    @cached_property
    def episodes(self) -> int:
        """Episodes played."""
        return sum(len({id(trace) for trace in seeds}) for home in self.traces for task in home for seeds in task)

    def value(self, home: int, task: int, script: int) -> float:
        """Mean return of a script in successes."""
        return mean([trace.ret for trace in self.traces[home][task][script]]) / self.success_pays


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return sum(values) / len(values)


def play(env: TextEnv, task: Task, actions: Sequence[str], seed: int) -> Trace:
    """Play a script until its end or the episode's."""
    observation, info = env.reset(seed=seed, options={"task": task})
    outcomes: list[Outcome] = [(observation, False, 0.0)]
    offered = [_offers(info["admissible"])]
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        outcomes.append((observation, over, float(reward)))
        offered.append(_offers(info["admissible"]))
        if over:
            break
    return Trace(tuple(outcomes), tuple(offered))


def take_sample(world: World, homes: Sequence[Home], tasks: Sequence[Task], settings: Settings, visits: Sequence[Visit] = ()) -> Sample:
    """Write scripts for every task and play each in every world, mute. ``visits`` of another policy are played beside them."""
    envs = [world.make(home.mute) for home in homes]
    visited = {task.id: [visit.actions for visit in visits if visit.task.id == task.id] for task in tasks}
    scripts = [write_scripts(world, homes, envs, task, place, settings, visited[task.id]) for place, task in enumerate(tasks)]
    draws = [
        any(
            play(env, task, script.actions, first_seed(place)) != play(env, task, script.actions, first_seed(place) + 1)
            for place, (task, own) in enumerate(zip(tasks, scripts, strict=True))
            for script in own
        )
        for env in envs
    ]
    seeds = max(FEWEST_SEEDS, min(settings.seeds, settings.episodes // max(1, sum(map(len, scripts)))))
    # A world that draws is compared seed by seed with one that does not, which then repeats itself.
    repeats = seeds if any(draws) else 1
    traces = []
    for env, drawing in zip(envs, draws, strict=True):
        traces.append(
            [
                [_repeated(env, task, script.actions, first_seed(place), repeats, drawing) for script in own]
                for place, (task, own) in enumerate(zip(tasks, scripts, strict=True))
            ]
        )
    return Sample(homes, tasks, scripts, traces, draws, settings.success_pays)


def first_seed(place: int) -> int:
    """The first of a task's seeds; tasks have seeds of their own, lest one stroke of luck be counted for all of them."""
    return 1 + 10_000 * place


def _repeated(env: TextEnv, task: Task, actions: Sequence[str], first: int, repeats: int, drawing: bool) -> list[Trace]:
    """One trace per seed; the same one again in a world that draws nothing."""
    if not drawing:
        return [play(env, task, actions, first)] * repeats
    return [play(env, task, actions, seed) for seed in range(first, first + repeats)]


def write_scripts(
    world: World,
    homes: Sequence[Home],
    envs: Sequence[TextEnv],
    task: Task,
    place: int,
    settings: Settings,
    visited: Sequence[tuple[str, ...]] = (),
) -> list[Script]:
    """Scripts for one task, each once: what the oracle of every world does, departures from it, random walks, and visits given."""
    rng = random.Random(f"scripts {settings.seed} {task.id}")
    owners: dict[tuple[str, ...], list[int]] = {}
    for number, home in enumerate(homes):
        if actions := tuple(world.oracle(task, home.mute)):
            owners.setdefault(actions, []).append(number)
    scripts = [Script("oracle", f"oracle {'+'.join(map(str, own))}", actions, tuple(own)) for actions, own in owners.items()]
    for number, script in enumerate(list(scripts)):
        share = -(-settings.deviations // len(owners)) if number < settings.deviations else 0
        scripts += _deviations(envs[script.owners[0]], task, script.actions, share, rng)
    for number in range(settings.walks):
        scripts.append(_walk(envs[(place + number) % len(envs)], task, world.max_steps, number, rng))
    scripts += [Script("policy", f"policy {number}", actions) for number, actions in enumerate(visited)]
    seen: set[tuple[str, ...]] = set()
    # A policy's own scripts are kept beside equal ones: they are where the policy goes.
    return [s for s in scripts if s.kind == "policy" or not (s.actions in seen or seen.add(s.actions))]  # type: ignore[func-returns-value]


def _deviations(env: TextEnv, task: Task, actions: tuple[str, ...], most: int, rng: random.Random) -> list[Script]:
    """At most ``most`` scripts that replace one action of ``actions`` by another on offer there and then go on with the rest."""
    trace = play(env, task, actions, 1)
    choices = []
    for turn in range(len(trace.outcomes) - 1):
        others = sorted(trace.offered[turn] - {actions[turn].lower()})
        choices += [(turn, other) for other in others if not _PLACEHOLDER.search(other)]
    picked = rng.sample(choices, most) if len(choices) > most else choices
    return [
        Script("deviation", f"deviation {turn} {number}", (*actions[:turn], other, *actions[turn + 1 :]))
        for number, (turn, other) in enumerate(sorted(picked))
    ]


def _walk(env: TextEnv, task: Task, steps: int, number: int, rng: random.Random) -> Script:
    """Actions drawn from what is on offer, until the episode ends."""
    _, info = env.reset(seed=number, options={"task": task})
    actions: list[str] = []
    while len(actions) < steps and info["admissible"]:
        action = rng.choice(list(info["admissible"]))
        if _PLACEHOLDER.search(action):
            words = _WORD.findall(task.instruction.lower())
            action = _PLACEHOLDER.sub(" ".join(rng.sample(words, min(3, len(words)))), action)
        actions.append(action)
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    return Script("walk", f"walk {number}", tuple(actions))


def _offers(admissible: Sequence[str]) -> frozenset[str]:
    return frozenset(action.lower() for action in admissible)
