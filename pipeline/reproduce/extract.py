"""From a run's log to the numbers of an arm. Reads records; runs nothing, knows no other arm.

One number misleads where worlds contradict each other, so there are several: over the clients' own worlds, in the worst one, in the
unperturbed one, and of the clients themselves after their local training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from envs.variants import DEFAULT
from pipeline.errors import DataError
from pipeline.reproduce.results import Cost, CurvePoint, DriftPoint, Matrix
from pipeline.runlog import History

Record = Mapping[str, Any]
Rates = Mapping[str, float]


def numbers(history: History, *, metric: str = "success") -> dict[str, Any]:
    """What a finished run says, under the names of ``Arm``.

    ``metric`` is ``success``, or ``score`` where that is the mean reward (the bandit). Raises ``DataError`` for a log without a last
    evaluation.
    """
    homes: Mapping[str, str] = (history.start.get("plan") or {}).get("worlds_per_client") or {}
    residents = Counter(homes.values()) if homes else Counter({DEFAULT: 1})
    by_round = shared_rates(history, metric)
    last = max(by_round, default=-1)
    if not history.rounds or last < int(history.rounds[-1]["round"]):
        raise DataError("the run's log has no evaluation after the last round")
    end = by_round[last]
    mean, worst = summary(end, residents)
    n = [int(e["n"]) for e in history.evaluations if e["round"] == last and not e.get("client") and _sampled(e)]
    start = by_round.get(0)
    matrix = client_matrix(history, homes, metric)
    return {
        "rounds": int(history.rounds[-1]["round"]),
        "episodes": sum(int(r.get("episodes") or 0) for r in history.rounds),
        "n_eval": min(n),
        "mean_worlds": mean,
        "worst_world": worst,
        "control": end.get(DEFAULT),
        "start": None if start is None else summary(start, residents)[0],
        "after_local": None if matrix is None else _at_home(matrix),
        "worlds": {world: end[world] for world in residents if world in end},
        "matrix": matrix if matrix is not None and len(set(matrix.worlds)) > 1 else None,
        "curve": curve(history, by_round, residents, metric),
        "drift": drift(history),
        "cost": cost(history),
    }


def shared_rates(history: History, metric: str = "success") -> dict[int, dict[str, float]]:
    """Of the shared agent, by round and world; sampled evaluations only."""
    found: dict[int, dict[str, float]] = {}
    for record in history.evaluations:
        if not record.get("client") and _sampled(record):
            found.setdefault(int(record["round"]), {})[str(record.get("world") or DEFAULT)] = float(record[metric])
    return found


def _sampled(record: Record) -> bool:
    return (record.get("mode") or "sampled") == "sampled"


def summary(rates: Rates, residents: Mapping[str, int]) -> tuple[float | None, float | None]:
    """Mean over clients of the rate in the client's own world, and the lowest of those worlds; of the worlds that were measured."""
    known = [(count, rates[world]) for world, count in residents.items() if world in rates]
    if not known:
        return None, None
    return sum(count * rate for count, rate in known) / sum(count for count, _ in known), min(rate for _, rate in known)


def client_matrix(history: History, homes: Mapping[str, str], metric: str = "success") -> Matrix | None:
    """The last round's clients, each with its own parameters, in every measured world; None where they were not measured."""
    cells: dict[str, dict[str, float]] = {}
    for record in history.evaluations:
        if record.get("client") and _sampled(record):
            cells.setdefault(str(record["client"]), {})[str(record.get("world") or DEFAULT)] = float(record[metric])
    if not cells:
        return None
    clients = sorted(cells)
    worlds = list(dict.fromkeys(world for client in clients for world in cells[client]))
    rates = tuple(tuple(cells[client].get(world) for world in worlds) for client in clients)
    return Matrix(tuple(clients), tuple(worlds), rates, tuple(homes.get(client, DEFAULT) for client in clients))


def _at_home(matrix: Matrix) -> float | None:
    own = [row[matrix.worlds.index(home)] for home, row in zip(matrix.homes, matrix.rates, strict=True) if home in matrix.worlds]
    known = [rate for rate in own if rate is not None]
    return sum(known) / len(known) if known else None


def curve(history: History, by_round: Mapping[int, Rates], residents: Mapping[str, int], metric: str = "success") -> tuple[CurvePoint, ...]:
    """A point per round, measured or not, and one before training."""
    trained = {int(r["round"]): r for r in history.rounds}
    points, episodes = [], 0
    for round in sorted({*by_round, *trained}):
        record = trained.get(round)
        episodes += int(record.get("episodes") or 0) if record else 0
        rates = by_round.get(round, {})
        mean, worst = summary(rates, residents)
        points.append(CurvePoint(round, episodes, mean, worst, rates.get(DEFAULT), _number(record, metric)))
    return tuple(points)


def drift(history: History) -> tuple[DriftPoint, ...]:
    """How far clients drifted apart, for the rounds that say so."""
    names = {
        "cosine": "drift_cosine",
        "norm": "drift_norm",
        "ratio": "drift_ratio",
        "divergence": "policy_divergence",
        "shift": "policy_shift",
        "clip_fraction": "clip_fraction",
    }
    points = []
    for record in history.rounds:
        values = {name: _number(record, key) for name, key in names.items()}
        if any(value is not None for name, value in values.items() if name != "clip_fraction"):
            points.append(DriftPoint(int(record["round"]), **values))
    return tuple(points)


def cost(history: History) -> Cost:
    """Where the time of the rounds went. In one process clients wait for each other, so what is left of a round after the server's phases
    is divided between rollouts and training as the clients' own times are."""
    seconds = dict.fromkeys(("rollout", "train", "aggregate", "evaluate", "other"), 0.0)
    for record in history.rounds:
        phases = {name: float(value or 0.0) for name, value in (record.get("phases") or {}).items()}
        server = {"aggregate": phases.get("aggregate", 0.0), "evaluate": phases.get("evaluate", 0.0)}
        other = phases.get("publish", 0.0) + phases.get("checkpoint", 0.0)
        clients = max(0.0, float(record.get("seconds") or 0.0) - sum(server.values()) - other)
        own = phases.get("rollout", 0.0) + phases.get("train", 0.0)
        for name in ("rollout", "train"):
            seconds[name] += clients * phases.get(name, 0.0) / own if own else 0.0
        for name, value in (*server.items(), ("other", other)):
            seconds[name] += value
    first = [float(e.get("seconds") or 0.0) for e in history.evaluations if e["round"] == 0]
    seconds["evaluate"] += sum(first)
    tokens = _total(history.rounds, "tokens")
    exchanged = _total(history.rounds, "bytes_up") + _total(history.rounds, "bytes_down")
    return Cost(**{f"{name}_seconds": value for name, value in seconds.items()}, tokens=tokens, bytes=exchanged)


def _total(records: Sequence[Record], name: str) -> float:
    return sum(value for record in records if (value := _number(record, name)) is not None)


def _number(record: Record | None, name: str) -> float | None:
    value = None if record is None else record.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
