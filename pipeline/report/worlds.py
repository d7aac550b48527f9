"""What a report says of the clients' worlds, as plain data: who lives where, what was proven before the run, success in every world.

The mean over the clients' own worlds is the number that a federation is about; one world's number alone misleads, so the worst world and
the unperturbed one stand beside it. Knows nothing of HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.report.chart import Chart, Point, Series
from pipeline.report.rates import Rate, as_number, rate_of
from pipeline.runlog import History

MAX_LINES = 6
"""Worlds drawn as lines; of more, the first ones."""


@dataclass(frozen=True)
class WorldLine:
    """One of the clients' worlds. ``reach`` is the oracle's solved share of the tasks tried; ``rates`` the shared agent's, by round;
    ``trained`` counts clients that have trained, ``silent`` those of them that never had a training episode that succeeded."""

    world: str
    clients: Sequence[str]
    reach: float | None
    rates: Sequence[Rate]
    trained: int = 0
    silent: int = 0


@dataclass(frozen=True)
class Matrix:
    """Success of each client's own parameters (rows; the shared agent last) in each world (columns), where measured."""

    worlds: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Rate | None]]]


@dataclass(frozen=True)
class Worlds:
    """All of it; ``lines`` is empty where clients' worlds are alike."""

    lines: Sequence[WorldLine] = ()
    means: Sequence[tuple[int, float]] = ()
    """Round, and the mean success over clients of the shared agent in the client's own world, over the measured worlds."""
    control: Sequence[Rate] = ()
    matrix: Matrix | None = None
    differences: Sequence[Mapping[str, Any]] = ()
    notes: Sequence[str] = ()
    chart: Chart | None = field(default=None, repr=False)


def read_worlds(history: History) -> Worlds:
    """The worlds of a run's log."""
    plan = history.start.get("plan") or {}
    homes: Mapping[str, str] = plan.get("worlds_per_client") or {}
    proof = plan.get("proof") or {}
    residents: dict[str, list[str]] = {}
    for client, world in homes.items():
        residents.setdefault(str(world), []).append(str(client))
    measured: dict[str, list[Rate]] = {}
    for record in history.evaluations:
        if not record.get("client") and record.get("mode") != "greedy" and (rate := rate_of(record)):
            measured.setdefault(str(record.get("world") or "default"), []).append(rate)
    names = [name for name in {**dict.fromkeys(residents), **dict.fromkeys(measured)} if name != "default" or name in residents]
    if not any(name != "default" for name in names):
        return Worlds()
    tried: dict[str, list[tuple[int, int]]] = {}
    for reach in proof.get("reach") or []:
        tried.setdefault(str(reach["world"]), []).append((int(reach["solved"]), int(reach["tried"])))
    best: dict[str, float] = {}
    for record in history.clients:
        if (success := as_number(record.get("success"))) is not None:
            best[str(record["client"])] = max(success, best.get(str(record["client"]), 0.0))
    lines = []
    for name in names:
        trained = [client for client in residents.get(name, []) if client in best]
        silent = sum(best[client] == 0 for client in trained)
        lines.append(WorldLine(name, residents.get(name, []), _share(tried.get(name, [])), measured.get(name, []), len(trained), silent))
    means = _means(lines)
    return Worlds(
        lines=lines,
        means=means,
        control=measured.get("default", []),
        matrix=_matrix(history, names),
        differences=proof.get("differences") or [],
        notes=[str(note) for note in proof.get("notes") or []],
        chart=_chart(lines, means, measured.get("default", [])),
    )


def _share(counts: Sequence[tuple[int, int]]) -> float | None:
    total = sum(tried for _, tried in counts)
    return sum(solved for solved, _ in counts) / total if total else None


def _means(lines: Sequence[WorldLine]) -> list[tuple[int, float]]:
    by_round: dict[int, list[tuple[int, float]]] = {}
    for line in lines:
        for rate in line.rates:
            by_round.setdefault(rate.round, []).append((len(line.clients), rate.value))
    means = []
    for round, values in sorted(by_round.items()):
        weight = sum(w for w, _ in values)
        if weight:
            means.append((round, sum(w * v for w, v in values) / weight))
    return means


def _matrix(history: History, names: Sequence[str]) -> Matrix | None:
    columns = ["default", *(name for name in names if name != "default")]
    cells: dict[str, dict[str, Rate]] = {}
    for record in history.evaluations:
        if record.get("mode") != "greedy" and (rate := rate_of(record)):
            cells.setdefault(str(record.get("client") or "shared agent"), {})[str(record.get("world") or "default")] = rate
    if len(cells) < 2:
        return None
    rows = sorted(cells, key=lambda name: (name == "shared agent", name))
    return Matrix(columns, [(name, [cells[name].get(world) for world in columns]) for name in rows])


def _chart(lines: Sequence[WorldLine], means: Sequence[tuple[int, float]], control: Sequence[Rate]) -> Chart | None:
    series = []
    if means:
        series.append(Series("world-mean", "mean over the clients' worlds", [Point(r, v) for r, v in means], 0))
    if control:
        series.append(Series("world-default", "unperturbed world", [_point(rate) for rate in control], 1, dashed=True))
    drawn = [line for line in lines if line.rates][:MAX_LINES]
    series += [
        Series(f"world-{i}", line.world, [_point(rate) for rate in line.rates], 2 + i) for i, line in enumerate(drawn) if len(drawn) > 1
    ]
    return Chart("worlds", "The shared agent in the clients' worlds", series, percent=True) if series else None


def _point(rate: Rate) -> Point:
    return Point(rate.round, rate.value, *rate.interval, note=f"{rate.successes} of {rate.n} tasks")
