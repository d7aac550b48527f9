"""Whether worlds agree about what is best: returns of the same scripts in both, and what decides where the best scripts part.

A script is a policy that ignores what it sees. Where one script is best in both worlds of a pair, nothing is in conflict. Where none is,
the best scripts share their first actions up to a fork. If the worlds offer different actions there, the page itself says which world's
action to take; if not, the policy must know its world (``apart``), from what it has read or seen up to the fork.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.base import Task, World
from pipeline.diagnose.divergence import Estimate, estimate
from pipeline.diagnose.scripts import Sample, Script, Trace, first_seed, mean, play
from pipeline.theory.finite import losses_by_turn

TWINS = 12
"""Tasks of the same words that are looked at."""
Z = 2.0
"""Standard errors by which a script must fall behind the best one to count as worse, where worlds draw."""


@dataclass(frozen=True)
class Ranking:
    """Two worlds' opinions of the same scripts, over ``tasks`` tasks that can be solved in both.

    ``tau`` is the mean of Kendall's tau-b over tasks in which both worlds prefer anything (None without any). ``agree`` is the share of
    tasks with a script that is best in both and on whose way replies mean the same; ``turned`` of those with such a script whose replies
    do not (``said_otherwise``); ``offered`` of those in which the worlds offer different actions at the fork; ``noticed`` of those in
    which acting as one world's script in the other leads to where its next action is not on offer, in time to do the other's script;
    ``apart`` of the rest, ``turned`` included. ``forks`` counts the turn of the fork of those apart. ``gap`` is what the best shared
    script loses on average to the best script of each world, in successes. ``unsolved`` tasks have no script that succeeds in one of the
    worlds.
    """

    first: int
    second: int
    tasks: int
    unsolved: int
    tau: float | None
    agree: Estimate
    offered: float
    noticed: float
    apart: float
    turned: float
    forks: Mapping[int, int]
    gap: Estimate


def rank(world: World, sample: Sample, first: int, second: int, told: Histories) -> Ranking:
    """Compare the rankings of two worlds."""
    taus: list[float] = []
    agreeing: list[float] = []
    gaps: list[float] = []
    offered = noticed = unsolved = turns = 0
    forks: dict[int, int] = {}
    for task, scripts in enumerate(sample.scripts):
        values = [[sample.value(home, task, number) for number in range(len(scripts))] for home in (first, second)]
        if min(map(max, values)) <= 0:
            unsolved += 1
            continue
        if (tau := _tau(*values)) is not None:
            taus.append(tau)
        gaps.append(shared_gap(sample, task, {first: 0.5, second: 0.5}))
        best = [best_scripts(sample, home, task) for home in (first, second)]
        turned = _turned(sample, task, (first, second), told)
        if best[0] & best[1]:
            agreeing.append(float(turned is None))
            if turned is not None:
                turns += 1
                forks[turned] = forks.get(turned, 0) + 1
            continue
        agreeing.append(0.0)
        left, right, turn = _fork(scripts, best[0], best[1], (first, second))
        if _offers_differ(sample, task, scripts, (left, right), (first, second), turn):
            offered += 1
        elif _noticed(world, sample, task, (left, right), (first, second)):
            noticed += 1
        else:
            forks[turn] = forks.get(turn, 0) + 1
    tasks = len(agreeing)
    return Ranking(
        first,
        second,
        tasks,
        unsolved,
        tau=mean(taus) if taus else None,
        agree=estimate(agreeing),
        offered=offered / tasks if tasks else 0.0,
        noticed=noticed / tasks if tasks else 0.0,
        apart=sum(forks.values()) / tasks if tasks else 0.0,
        turned=turns / tasks if tasks else 0.0,
        forks=dict(sorted(forks.items())),
        gap=estimate(gaps),
    )


Histories = Sequence[Mapping[tuple[str, ...], frozenset[str]]]
"""By world: what its oracle does next after what was done and seen, over tasks of the same words."""


def said_otherwise(world: World, sample: Sample) -> Histories:
    """What the oracles do after every history they meet, on the matched tasks and on train tasks that read the same.

    A script knows the answer of its task, which may stand in no text. So a reply that means one thing here and the opposite there is no
    contradiction to scripts; it is one between the oracles of two tasks that look alike. Empty where worlds draw.
    """
    if any(sample.draws):
        return [{} for _ in sample.homes]
    wanted = {task.instruction for task in sample.tasks}
    alike: dict[str, list[Task]] = {}
    for task in (*sample.tasks, *world.tasks("train")):
        if task.instruction in wanted:
            group = alike.setdefault(task.instruction, [])
            if len(group) < TWINS and all(task.id != other.id for other in group):
                group.append(task)
    found = []
    for home in sample.homes:
        env, nexts = world.make(home.mute), dict[tuple[str, ...], set[str]]()
        for group in alike.values():
            for task in group if len(group) > 1 else ():
                actions = world.oracle(task, home.mute)
                trace = play(env, task, actions, 1)
                for turn, action in enumerate(actions[: len(trace.outcomes) - 1]):
                    nexts.setdefault(_history(task, actions, trace, turn), set()).add(action)
        found.append({history: frozenset(own) for history, own in nexts.items()})
    return found


def _history(task: Task, actions: Sequence[str], trace: Trace, turn: int) -> tuple[str, ...]:
    return task.instruction, *actions[:turn], *(observation for observation, _, _ in trace.outcomes[: turn + 1])


def _turned(sample: Sample, task: int, homes: tuple[int, int], told: Histories) -> int | None:
    """The first turn on the oracles' paths at which both oracles know the history, from some task, and never do the same."""
    turns = []
    for number, script in enumerate(sample.scripts[task]):
        for home in set(homes) & set(script.owners):
            trace = sample.traces[home][task][number][0]
            for turn in range(len(trace.outcomes) - 1):
                history = _history(sample.tasks[task], script.actions, trace, turn)
                left, right = (told[place].get(history, frozenset()) for place in homes)
                if left and right and not left & right:
                    turns.append(turn)
                    break
    return min(turns, default=None)


def best_scripts(sample: Sample, home: int, task: int) -> set[int]:
    """Scripts that are as good as the best one in a world; where it draws, those that do not fall significantly behind (paired by
    seed)."""
    traces = sample.traces[home][task]
    returns = [[trace.ret for trace in seeds] for seeds in traces]
    top = max(range(len(returns)), key=lambda number: mean(returns[number]))
    return {number for number, own in enumerate(returns) if not _behind(own, returns[top])}


def _behind(own: Sequence[float], best: Sequence[float]) -> bool:
    lost = [b - a for a, b in zip(own, best, strict=True)]
    average, n = mean(lost), len(lost)
    if n == 1:
        return average > 1e-9
    spread = math.sqrt(sum((x - average) ** 2 for x in lost) / (n - 1) / n)
    return average > Z * spread + 1e-9


def shared_gap(sample: Sample, task: int, shares: Mapping[int, float]) -> float:
    """What the best script for all worlds in ``shares`` loses to the best script of each, in successes."""
    return sum(shared_losses(sample, task, shares))


def shared_losses(sample: Sample, task: int, shares: Mapping[int, float]) -> list[float]:
    """That gap by turn (the performance-difference decomposition): what is left to a world's own best script after following the shared
    one for t turns, less what is left after t + 1. The last entry is of its end, where a longer script would have gone on.

    Where worlds draw, scripts are chosen on one half of the seeds and valued on the other, so that luck is not counted as skill.
    """
    actions = [script.actions for script in sample.scripts[task]]
    numbers = range(len(actions))
    losses = [0.0] * (1 + max(map(len, actions)))
    for kept in (0, 1):
        chosen = {home: [_half(sample, home, task, number, 1 - kept) for number in numbers] for home in shares}
        valued = {home: [_half(sample, home, task, number, kept) for number in numbers] for home in shares}
        shared = max(numbers, key=lambda number: sum(share * chosen[home][number] for home, share in shares.items()))
        path = actions[shared]
        for home, share in shares.items():
            continued = [
                valued[home][max((n for n in numbers if actions[n][:turn] == path[:turn]), key=chosen[home].__getitem__)]
                for turn in range(len(path) + 1)
            ]
            for turn, loss in enumerate(losses_by_turn([*continued, valued[home][shared]])):
                losses[turn] += share * loss / 2
    return losses


def _half(sample: Sample, home: int, task: int, number: int, which: int) -> float:
    traces = sample.traces[home][task][number]
    return mean([trace.ret for trace in (traces[which::2] or traces)]) / sample.success_pays


def _tau(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Kendall's tau-b; None where one of them prefers nothing."""
    from scipy.stats import kendalltau

    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    return float(kendalltau(left, right).statistic)


def _fork(scripts: Sequence[Script], left: set[int], right: set[int], homes: tuple[int, int]) -> tuple[int, int, int]:
    """Of the best scripts of two worlds the pair that stays together longest, each world's own oracle before others, and the turn at which
    they part."""

    def common(pair: tuple[int, int]) -> tuple[int, int]:
        a, b = (scripts[number].actions for number in pair)
        length = next((turn for turn, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        return length, sum(home in scripts[number].owners for home, number in zip(homes, pair, strict=True))

    pair = max(((a, b) for a in sorted(left) for b in sorted(right)), key=common)
    return *pair, common(pair)[0]


def _offers_differ(sample: Sample, task: int, scripts: Sequence[Script], pair: tuple[int, int], homes: tuple[int, int], turn: int) -> bool:
    """Whether the two worlds offer different actions at the fork, so that one of the two best actions can be taken in its own world
    only."""
    for (home, other), number in zip((homes, homes[::-1]), pair, strict=True):
        actions = scripts[number].actions
        if turn >= len(actions):
            continue
        action = actions[turn].lower()
        here, there = sample.traces[home][task][number][0], sample.traces[other][task][number][0]
        if turn >= len(there.offered) or (action in here.offered[turn] and action not in there.offered[turn]):
            return True
    return False


def _noticed(world: World, sample: Sample, task: int, pair: tuple[int, int], homes: tuple[int, int]) -> bool:
    """Whether one world's script, begun in the other world, comes to where its next action is not on offer, and the other script still
    does as well from there as from the start."""
    scripts = sample.scripts[task]
    for (_, other), (number, right) in zip((homes, homes[::-1]), (pair, pair[::-1]), strict=True):
        actions, trace = scripts[number].actions, sample.traces[other][task][number][0]
        for turn in range(1, min(len(actions), len(trace.outcomes) - trace.ended)):
            if trace.offered[turn] and actions[turn].lower() not in trace.offered[turn] and "search[" not in actions[turn]:
                mended = play(
                    world.make(sample.homes[other].mute), sample.tasks[task], (*actions[:turn], *scripts[right].actions), first_seed(task)
                )
                if mended.ret >= sample.traces[other][task][right][0].ret - 1e-9:
                    return True
                break
    return False
