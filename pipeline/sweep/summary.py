"""What came of a sweep: one row per trial from the trials' own run folders, the arms over their seeds, as a table, JSON and CSV."""

from __future__ import annotations

import csv
import datetime
import io
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from pipeline.errors import DataError
from pipeline.run_folder import write_atomic
from pipeline.runlog import FILE_NAME, read_history
from pipeline.statistics import t_interval
from pipeline.sweep.curve import FINAL, Curve
from pipeline.sweep.manifest import TRIAL_RUN, Manifest
from pipeline.sweep.trials import Trial

SCHEMA = 1
SUMMARY, CSV = "sweep.json", "sweep.csv"
NUMBERS = ("round", "episodes", *FINAL, "measured_round", "seconds")


@dataclass(frozen=True)
class Row:
    """A trial's outcome. ``status`` is finished, stopped (early, by ASHA), failed, or unfinished; ``error`` the first line of why."""

    trial: Trial
    status: str
    error: str | None
    numbers: Mapping[str, Any]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        trial = self.trial
        settings = {"number": trial.number, "name": trial.name, "arm": trial.arm, "seed": trial.seed, "settings": dict(trial.point)}
        return {**settings, "status": self.status, "error": self.error, **{name: self.numbers.get(name) for name in NUMBERS}}


def rows_of(folder: Path, trials: Sequence[Trial], errors: Mapping[str, str], stopped_early: bool) -> list[Row]:
    """The trials' outcomes as their folders tell them. ``errors`` are Tune's, by trial name; ``stopped_early`` tells that ASHA ran."""
    return [row_of(folder, trial, errors.get(trial.name), stopped_early) for trial in trials]


def row_of(folder: Path, trial: Trial, error: str | None, stopped_early: bool = False) -> Row:
    """One trial's outcome."""
    log = folder / trial.name / TRIAL_RUN / FILE_NAME
    if not log.exists():
        return Row(trial, "failed" if error else "unfinished", error, {})
    try:
        history = read_history(log)
    except DataError as damage:
        return Row(trial, "failed", str(damage), {})
    curve = Curve()
    for record in (*history.starts[-1:], *history.evaluations, *history.rounds):
        curve.feed(record)
    rounds = ((history.start.get("config") or {}).get("federation") or {}).get("rounds")
    status = (history.end or {}).get("status")
    if status == "finished" and curve.round == rounds:
        found, error = "finished", None
    elif error is not None:
        found = "failed"
    else:
        found = "stopped" if status == "stopped" and stopped_early else "unfinished"
    return Row(trial, found, error, {**curve.row(), "seconds": history.session_seconds})


def arms_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The arms in order of their first trial: settings, seeds, and of every rate the mean over finished seeds with a 95 % t interval."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.trial.arm, []).append(row)
    arms = []
    for arm, members in groups.items():
        done = [row for row in members if row.status == "finished"]
        settings = {name: value for name, value in members[0].trial.point.items() if name != "run.seed"}
        found: dict[str, Any] = {"arm": arm, "settings": settings, "trials": len(members), "finished": len(done)}
        found["seeds"] = [row.trial.seed for row in done]
        for name in FINAL:
            values = [float(row.numbers[name]) for row in done if row.numbers.get(name) is not None]
            found[name] = sum(values) / len(values) if values else None
            found[f"{name}_low"], found[f"{name}_high"] = t_interval(values) if len(values) > 1 else (None, None)
        arms.append(found)
    return arms


def write_summary(folder: Path, manifest: Manifest, rows: Sequence[Row]) -> None:
    """``sweep.json`` and ``sweep.csv`` in the sweep's folder; trials that are missing or failed are named in it."""
    plain = {
        "schema": SCHEMA,
        "sweep": folder.name,
        "space": manifest.space,
        "base": dict(manifest.base.given),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": ["fedagent", *sys.argv[1:]],
        "versions": {name: value for name, value in manifest.code.items() if not name.endswith(".py")},
        "complete": all(row.status in ("finished", "stopped") for row in rows),
        "missing": [row.trial.name for row in rows if row.status not in ("finished", "stopped")],
        "arms": arms_of(rows),
        "trials": [row.plain() for row in rows],
    }
    write_atomic(folder / SUMMARY, json.dumps(plain, indent=1) + "\n")
    varied = sorted({path for row in rows for path in row.trial.point})
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["number", "name", "arm", *varied, "status", "error", *NUMBERS])
    for row in rows:
        settings = [_cell(row.trial.point.get(path)) for path in varied]
        numbers = [_cell(row.numbers.get(name)) for name in NUMBERS]
        table.writerow([row.trial.number, row.trial.name, row.trial.arm, *settings, row.status, row.error or "", *numbers])
    write_atomic(folder / CSV, stream.getvalue())


def _cell(value: Any) -> Any:
    return "" if value is None else value if isinstance(value, str | int | float) else json.dumps(value)


def arms_table(rows: Sequence[Row], title: str) -> Table:
    """The arms over their seeds, for a terminal. Rates in %; in brackets the interval over seeds."""
    table = Table(title=title, title_justify="left")
    for name in ("arm", "finished", "start", "mean over worlds", "worst world", "unperturbed"):
        table.add_column(name, justify="left" if name == "arm" else "right", overflow="fold")
    for arm in arms_of(rows):
        rates = [_rate(arm, name) for name in ("start", "worlds_mean", "worlds_worst", "control")]
        table.add_row(arm["arm"], f"{arm['finished']}/{arm['trials']}", *rates)
    return table


def _rate(arm: Mapping[str, Any], name: str) -> str:
    if arm[name] is None:
        return "-"
    low, high = arm[f"{name}_low"], arm[f"{name}_high"]
    return f"{100 * arm[name]:.1f}" + (f" [{100 * max(low, 0):.0f}, {100 * min(high, 1):.0f}]" if low is not None else "")


def failures(rows: Sequence[Row]) -> list[str]:
    """One line per trial that failed or did not end."""
    return [
        f"{row.trial.name}: {row.status}" + (f": {row.error}" if row.error else "")
        for row in rows
        if row.status in ("failed", "unfinished")
    ]
