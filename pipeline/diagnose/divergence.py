"""How far two worlds' answers are apart: total-variation distance of the next outcome at states that both worlds reach.

A state is what was done and seen so far; what follows the first difference is no longer the same state and is not compared. An outcome is
the observation, the end of the episode and the reward (which stands for what the page does not show); the first observation, which no
action led to, counts where it differs. Where worlds draw, the distance is
estimated by cross-fitting over seeds: one half says which outcomes are more likely in the first world, the other half measures by how
much. That has no upward bias, unlike the distance of two empirical distributions; of a small distance it may miss a part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.diagnose.scripts import Kind, Outcome, Sample, Trace, mean
from pipeline.statistics import Interval, t_interval, wilson

K = TypeVar("K")

FEWEST = 4
"""Seeds that must reach a state in both worlds for it to be compared where worlds draw."""


@dataclass(frozen=True)
class Estimate:
    """A mean over ``n`` tasks with its 95 % interval."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Divergence:
    """Two worlds (by place), compared.

    ``everywhere`` is the mean distance over all states that the scripts visit; ``on_path`` the mean over those that the oracles of the two
    visit in their own worlds (delta_eff of the optimal policies), ``policy`` over those of the given policy. ``largest`` is the largest
    distance at a state, the paper's delta (where worlds draw: of a script's step, over tasks). ``by_turn`` has the mean by step.
    """

    first: int
    second: int
    everywhere: Estimate
    on_path: Estimate
    policy: Estimate | None
    largest: float
    states: int
    by_turn: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Cell:
    task: int
    label: str
    kind: Kind
    owners: tuple[int, ...]
    turn: int
    weight: float
    distance: float


def compare(sample: Sample, first: int, second: int) -> Divergence:
    """Compare two worlds on the sample."""
    cells = list(_cells(sample, first, second))
    own = [cell for cell in cells if cell.kind == "oracle" and (first in cell.owners or second in cell.owners)]
    visited = [cell for cell in cells if cell.kind == "policy"]
    return Divergence(
        first,
        second,
        everywhere=_over_tasks(cells),
        on_path=_over_tasks(own),
        policy=_over_tasks(visited) if visited else None,
        largest=_largest(cells, drawn=sample.draws[first] or sample.draws[second]),
        states=len(cells),
        by_turn={turn: max(0.0, value) for turn, value in sorted(_grouped((c.turn, c) for c in cells).items())},
    )


def _cells(sample: Sample, first: int, second: int) -> Iterable[_Cell]:
    for task, scripts in enumerate(sample.scripts):
        for number, script in enumerate(scripts):
            left, right = sample.traces[first][task][number], sample.traces[second][task][number]
            for turn, weight, distance in distances(left, right):
                yield _Cell(task, script.label, script.kind, script.owners, turn, weight, distance)


def distances(left: Sequence[Trace], right: Sequence[Trace]) -> list[tuple[int, float, float]]:
    """(turn, share of episodes that are at common states before it, distance of what comes then), for two worlds and one script."""
    if len({trace.outcomes for trace in left}) == 1 and len({trace.outcomes for trace in right}) == 1:
        return _certain(left[0].outcomes, right[0].outcomes)
    found = []
    depth = max(len(trace.outcomes) for trace in (*left, *right))
    for turn in range(depth):
        here, there = _by_history(left, turn), _by_history(right, turn)
        total = weighted = 0.0
        for history in here.keys() & there.keys():
            a, b = here[history], there[history]
            if min(len(a), len(b)) >= FEWEST:
                weight = (len(a) / len(left) + len(b) / len(right)) / 2
                total += weight
                weighted += weight * cross_fitted(a, b)
        if total and (turn or weighted > 0):
            found.append((turn, total, weighted / total))
    return found


def _certain(left: Sequence[Outcome], right: Sequence[Outcome]) -> list[tuple[int, float, float]]:
    found = []
    for turn in range(min(len(left), len(right))):
        differs = left[turn] != right[turn]
        if turn or differs:
            found.append((turn, 1.0, float(differs)))
        if differs:
            break
    return found


def _by_history(traces: Sequence[Trace], turn: int) -> dict[tuple[Outcome, ...], list[Outcome]]:
    groups: dict[tuple[Outcome, ...], list[Outcome]] = defaultdict(list)
    for trace in traces:
        if len(trace.outcomes) > turn:
            groups[trace.outcomes[:turn]].append(trace.outcomes[turn])
    return groups


def cross_fitted(left: Sequence[Outcome], right: Sequence[Outcome]) -> float:
    """Total-variation distance of two samples without upward bias: 0 on average for samples of one distribution (single values may be
    negative)."""
    estimates = []
    for kept in (0, 1):
        choose = Counter(left[1 - kept :: 2]), Counter(right[1 - kept :: 2])
        sizes = len(left[1 - kept :: 2]), len(right[1 - kept :: 2])
        likelier = {outcome for outcome in choose[0] | choose[1] if choose[0][outcome] / sizes[0] > choose[1][outcome] / sizes[1]}
        a, b = left[kept::2], right[kept::2]
        estimates.append(sum(x in likelier for x in a) / len(a) - sum(x in likelier for x in b) / len(b))
    return mean(estimates)


def _weighted(cells: Sequence[_Cell]) -> float:
    return sum(c.weight * c.distance for c in cells) / sum(c.weight for c in cells)


def _grouped(pairs: Iterable[tuple[K, _Cell]]) -> dict[K, float]:
    groups: dict[K, list[_Cell]] = defaultdict(list)
    for key, cell in pairs:
        groups[key].append(cell)
    return {key: _weighted(cells) for key, cells in groups.items()}


def _largest(cells: Sequence[_Cell], *, drawn: bool) -> float:
    if not drawn:
        return max((cell.distance for cell in cells), default=0.0)
    return max(0.0, *_grouped(((c.label, c.turn), c) for c in cells).values(), 0.0)


def _over_tasks(cells: Sequence[_Cell]) -> Estimate:
    by_task = list(_grouped((cell.task, cell) for cell in cells).values())
    return estimate(by_task)


def estimate(by_task: Sequence[float]) -> Estimate:
    """Mean of values in [0, 1] (noise may pass below 0) with an interval over tasks. Nothing at all counts as no difference."""
    n = len(by_task)
    if n == 0:
        return Estimate(0.0, 0.0, 1.0, 0)
    value = mean(by_task)
    if len(set(by_task)) == 1 and value in (0.0, 1.0):
        interval = wilson(round(value * n), n)
    elif n > 1:
        interval = t_interval(by_task)
    else:
        interval = Interval(0.0, 1.0)
    return Estimate(max(0.0, value), max(0.0, min(interval.low, 1.0)), min(1.0, max(interval.high, 0.0)), n)
