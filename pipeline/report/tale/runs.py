"""Run folders as arms, so that runs can stand beside each other and beside a reproduction. Knows run logs; knows nothing of pages.

Runs whose configuration differs in nothing but the seed become seeds of one arm.
"""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.report.data import ReportData, read_report
from pipeline.report.rates import as_number, rate_of
from pipeline.report.tale.groups import Plain, mean_of
from pipeline.report.tale.story import Source
from pipeline.report.worlds import Matrix

FAMILY = "run"
DRIFT = {
    "cosine": ("drift_cosine", "client_cosine_mean"),
    "norm": ("drift_norm",),
    "ratio": ("drift_ratio",),
    "divergence": ("policy_divergence",),
    "shift": ("policy_shift",),
    "clip_fraction": ("clip_fraction",),
}
"""Measure, and the keys of a round's record that hold it, the first found."""


def read_runs(folders: Sequence[Path]) -> list[Source]:
    """A source for each folder. Raises ``DataError`` for a folder without records, as the report of a single run does."""
    seen: dict[str, str] = {}
    taken: set[tuple[str, int]] = set()
    sources = []
    for folder in folders:
        data = read_report(folder)
        arm = run_arm(data)
        kind = json.dumps({k: v for k, v in data.config.items() if k != "run"}, sort_keys=True, default=str)
        name = seen.setdefault(kind, _unused(data.name, set(seen.values())))
        if (name, arm["seed"]) in taken:
            name = _unused(data.name, {name, *seen.values()})
        taken.add((name, arm["seed"]))
        sources.append(run_source(data, {**arm, "name": name, "label": name}))
    return sources


def run_source(data: ReportData, arm: Plain) -> Source:
    """The arm of a run with what made it and what is not there yet."""
    start = data.history.start
    command = start.get("command") or ""
    day = data.history.last_time
    return Source(
        arms=[arm],
        command=shlex.join(map(str, command)) if isinstance(command, list) else str(command),
        date=day.date().isoformat() if isinstance(day, datetime.datetime) else str(day or "")[:10],
        versions={str(k): str(v) for k, v in (start.get("versions") or {}).items()},
        missing=[f"Run {data.name}: {text}" for text in data.missing],
    )


def run_arm(data: ReportData) -> Plain:
    """The run as a row of a results file, as far as its log goes."""
    config = data.config
    variant = (config.get("world") or {}).get("variant") or {}
    family = str(variant.get("family") or "default")
    worlds = {line.world: line.rates[-1].value for line in data.worlds.lines if line.rates}
    control = data.sampled.last if data.sampled else None
    means = data.worlds.means
    own = means[-1][1] if means else control.value if control else None
    return {
        "name": data.name,
        "label": data.name,
        "family": FAMILY,
        "variant": None if family == "default" else family,
        "severity": None if family == "default" else as_number(variant.get("severity")),
        "algorithm": str((config.get("algorithm") or {}).get("name") or "grpo"),
        "mode": str((config.get("federation") or {}).get("mode") or "federated"),
        "seed": int(as_number((config.get("run") or {}).get("seed")) or 0),
        "rounds": data.rounds_done,
        "episodes": int(data.totals.get("episodes") or 0),
        "n_eval": control.n if control else next((line.rates[-1].n for line in data.worlds.lines if line.rates), 0),
        "mean_worlds": own,
        "worst_world": min(worlds.values()) if worlds else own,
        "control": control.value if control else None,
        "start": means[0][1] if means else data.sampled.first.value if data.sampled else None,
        "kind": "none",
        "reveal": str(variant.get("reveal") or "none"),
        "after_local": _after_local(data),
        "worlds": worlds or None,
        "wall_seconds": data.totals.get("seconds"),
        "curve": _points(data),
        "drift": _drift(data),
        "matrix": _matrix(data.worlds.matrix, data.history.start),
        "cost": _cost(data),
    }


def _unused(name: str, taken: set[str]) -> str:
    return next(n for i in range(1, len(taken) + 2) if (n := name if i == 1 else f"{name} ({i})") not in taken)


def _points(data: ReportData) -> list[Plain]:
    by_round: dict[int, Plain] = {}

    def at(round: int) -> Plain:
        return by_round.setdefault(round, {"round": round, "episodes": None})

    for e in data.history.evaluations:
        rate = rate_of(e)
        if rate and not e.get("client") and (e.get("world") or "default") == "default" and e.get("mode") != "greedy":
            at(rate.round)["control"] = rate.value
    for line in data.worlds.lines:
        for rate in line.rates:
            point = at(rate.round)
            point["worst_world"] = min(rate.value, point.get("worst_world", 1.0))
    for round, mean in data.worlds.means:
        at(round)["mean_worlds"] = mean
    if not data.worlds.lines:
        for point in by_round.values():
            point["mean_worlds"] = point["worst_world"] = point.get("control")
    done = 0.0
    for r in sorted(data.history.rounds, key=lambda r: int(r["round"])):
        done += as_number(r.get("episodes")) or 0.0
        at(int(r["round"])).update(train=as_number(r.get("success")), episodes=round_number(done))
    return [by_round[r] for r in sorted(by_round)]


def round_number(value: float) -> int | None:
    """A count, or None where nothing was counted."""
    return round(value) if value else None


def _drift(data: ReportData) -> list[Plain]:
    points = []
    for r in data.history.rounds:
        clients = [c for c in data.history.clients if c["round"] == r["round"]]
        point: Plain = {"round": int(r["round"])}
        for name, keys in DRIFT.items():
            found = [v for key in keys if (v := as_number(r.get(key))) is not None]
            point[name] = found[0] if found else mean_of([c.get(keys[0]) for c in clients])
        if any(v is not None for k, v in point.items() if k != "round"):
            points.append(point)
    return points


def _matrix(matrix: Matrix | None, start: Mapping[str, Any]) -> Plain | None:
    if matrix is None:
        return None
    homes = (start.get("plan") or {}).get("worlds_per_client") or {}
    clients = [name for name, _ in matrix.rows]
    rates = [[None if rate is None else rate.value for rate in row] for _, row in matrix.rows]
    return {"clients": clients, "worlds": list(matrix.worlds), "rates": rates, "homes": [str(homes.get(c, "")) for c in clients]}


def _after_local(data: ReportData) -> float | None:
    """Mean over the clients whose own parameters were measured in their own world."""
    homes = (data.history.start.get("plan") or {}).get("worlds_per_client") or {}
    if data.worlds.matrix is None:
        return mean_of([line.own.value for line in data.clients if line.own])
    worlds = list(data.worlds.matrix.worlds)
    own = [row[worlds.index(homes[c])] for c, row in data.worlds.matrix.rows if homes.get(c) in worlds]
    return mean_of([rate.value for rate in own if rate])


def _cost(data: ReportData) -> Plain:
    sums: dict[str, float] = {}
    for r in data.history.rounds:
        for phase, seconds in (r.get("phases") or {}).items():
            sums[phase] = sums.get(phase, 0.0) + (as_number(seconds) or 0.0)
    named = {f"{phase}_seconds": sums.pop(phase, 0.0) for phase in ("rollout", "train", "aggregate", "evaluate")}
    exchanged = sum(data.totals.get(key) or 0.0 for key in ("bytes_up", "bytes_down"))
    return {**named, "other_seconds": sum(sums.values()), "tokens": data.totals.get("tokens") or 0.0, "bytes": exchanged}
