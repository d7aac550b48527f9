"""What a report says, as plain data: read from a run folder, tolerant of what is missing, explicit about it.

Owns the choice of numbers (which evaluation is the headline, what is summed, what is missing) and knows nothing of HTML.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.report.chart import Bar, Chart, Point, Series
from pipeline.report.rates import Rate, as_number, rate_of
from pipeline.report.worlds import Worlds, read_worlds
from pipeline.runlog import History, Record, read_history
from pipeline.statistics import Interval, newcombe

PHASES = ("rollout", "train", "publish", "aggregate", "evaluate", "checkpoint")

SIGNALS = (
    ("kl", "KL to the anchor", "nats per token"),
    ("entropy", "Entropy", "nats per token"),
    ("clip_fraction", "Clipped ratios", "share of tokens"),
    ("logprob_gap", "Engine-learner gap", "mean absolute log-probability difference"),
    ("zero_variance", "Zero-variance groups", "share of groups: nothing to learn from"),
    ("residual_mean", "Averaging residual", "part of the mean update lost to rank r"),
    ("grad_norm", "Gradient norm", "before clipping"),
    ("loss", "Loss", ""),
    ("update_norm", "Size of the averaged update", ""),
    ("drift_cosine", "Agreement of clients' updates", "mean cosine of two clients' updates"),
    ("drift_norm", "Size of clients' updates", "mean norm"),
    ("drift_ratio", "What averaging keeps", "size of the averaged update, of that of the clients'"),
    ("policy_divergence", "Clients' policies apart", "nats per token, from their mixture, on shared prompts"),
    ("policy_shift", "Clients' policies moved", "nats per token, from the round's start, on shared prompts"),
    ("score", "Training score", "world's own measure, 0 to 1"),
    ("turns", "Turns per training episode", ""),
    ("invalid", "Invalid actions in training", "share of turns"),
    ("engine_tokens_per_s", "Engine speed", "tokens per second"),
    ("padding_waste", "Padding", "share of learner tokens"),
)
"""Key of the round (or client) record, title, unit."""


@dataclass(frozen=True)
class Gain:
    """From the first to the last evaluation of a mode. ``last`` equals ``first`` when there is only one."""

    mode: str
    temperature: float | None
    first: Rate
    last: Rate

    @property
    def interval(self) -> Interval:
        """Newcombe's interval of the difference; the tasks are the same at both ends, so it errs on the wide side."""
        return newcombe(self.last.successes, self.last.n, self.first.successes, self.first.n)


@dataclass(frozen=True)
class ClientLine:
    """A client over the whole run. ``success`` has its training success at each visit; ``world`` is empty where worlds are alike, ``asks``
    names the category of most of its tasks and their share."""

    client: str
    visits: int
    failures: int
    retries: int
    episodes: int
    tokens: int
    success: Sequence[float]
    score: float | None
    invalid: float | None
    rollout_seconds: float
    train_seconds: float
    own: Rate | None = None
    world: str = ""
    asks: str = ""


@dataclass(frozen=True)
class Failure:
    """A client that did not report in a round."""

    round: int
    client: str
    attempts: int | None
    error: str
    traceback: str | None
    """The file with the traceback, relative to the run folder."""


@dataclass(frozen=True)
class ReportData:
    """All that the page shows."""

    folder: Path
    name: str
    history: History
    config: Mapping[str, Any]
    sampled: Gain | None
    greedy: Gain | None
    worlds: Worlds
    missing: Sequence[str]
    rounds_done: int
    rounds_planned: int | None
    success: Chart | None
    signals: Sequence[tuple[Chart, str]]
    columns: Sequence[Bar]
    phases: Sequence[str]
    clients: Sequence[ClientLine]
    failures: Sequence[Failure]
    totals: Mapping[str, float | None] = field(default_factory=dict)


def read_report(folder: Path) -> ReportData:
    """Read a run folder. Raises ``DataError`` when it has no records yet, saying what to do."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the run folder that the run printed at its start")
    history = read_history(folder)
    if not (history.starts or history.rounds or history.evaluations):
        raise DataError(f"{folder}/metrics.jsonl has no records: the run has not got to its first one; try again once it has")
    config = history.start.get("config") or _resolved(folder)
    planned = as_number((config.get("federation") or {}).get("rounds"))
    rounds_done = max((int(r["round"]) for r in history.rounds), default=0)
    sampled, greedy = _gain(history, "sampled"), _gain(history, "greedy")
    columns, phases = _columns(history.rounds)
    return ReportData(
        folder=folder,
        name=str(history.start.get("name") or folder.name),
        history=history,
        config=config,
        sampled=sampled,
        greedy=greedy,
        worlds=read_worlds(history),
        missing=_missing(history, sampled, rounds_done, planned),
        rounds_done=rounds_done,
        rounds_planned=int(planned) if planned is not None else None,
        success=_success_chart(history),
        signals=_signals(history),
        columns=columns,
        phases=phases,
        clients=_client_lines(history),
        failures=_failures(history, folder),
        totals=_totals(history),
    )


def _resolved(folder: Path) -> Mapping[str, Any]:
    try:
        value = json.loads((folder / "config.resolved.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _shared(history: History, mode: str) -> list[Record]:
    """Evaluations of the shared agent in the unperturbed world."""
    return [
        e
        for e in history.evaluations
        if not e.get("client") and (e.get("world") or "default") == "default" and (e.get("mode") or "sampled") == mode and rate_of(e)
    ]


def _gain(history: History, mode: str) -> Gain | None:
    found = _shared(history, mode)
    rates = [rate for e in found if (rate := rate_of(e))]
    if not rates:
        return None
    return Gain(mode, as_number(found[-1].get("temperature")), rates[0], rates[-1])


def _missing(history: History, sampled: Gain | None, rounds_done: int, planned: float | None) -> list[str]:
    missing = []
    end = history.end
    if not history.starts:
        missing.append("The log has no start record: configuration, versions and command are unknown.")
    if end is None:
        last = f"; its last record is from {_when(history.last_time)}" if history.last_time else ""
        missing.append(f"The run has not finished: it is running, or it was killed{last}.")
    elif end.get("status") != "finished":
        missing.append(f"The run ended as {end.get('status') or 'unknown'}.")
    if planned is not None and rounds_done < planned:
        missing.append(f"{rounds_done} of {planned:g} rounds are done.")
    if sampled is None:
        missing.append("There is no held-out evaluation yet.")
    else:
        if sampled.first.round != 0:
            missing.append(f"There is no evaluation before training: the start is taken after round {sampled.first.round}.")
        if sampled.last.round < rounds_done:
            missing.append(f"The newest held-out evaluation is after round {sampled.last.round}, not after round {rounds_done}.")
    if history.torn:
        missing.append("The last line of metrics.jsonl is incomplete and was left out.")
    return missing


def _success_chart(history: History) -> Chart | None:
    series = []
    for mode, color, style in (("sampled", 0, "band"), ("greedy", 1, "bars")):
        points = []
        for e in _shared(history, mode):
            rate = rate_of(e)
            if rate:
                points.append(Point(rate.round, rate.value, *rate.interval, note=f"{rate.successes} of {rate.n} tasks"))
        if points:
            label = f"held-out, {mode}"
            series.append(Series(mode, label, points, color, "band" if style == "band" else "bars", dashed=mode == "greedy"))
    training = [
        Point(r["round"], y, note=f"{r.get('episodes', '?')} episodes")
        for r in history.rounds
        if (y := as_number(r.get("success"))) is not None
    ]
    if training:
        series.append(Series("training", "training episodes", training, 2))
    return Chart("success", "Success over rounds", series, percent=True) if series else None


def _signals(history: History) -> list[tuple[Chart, str]]:
    """A chart per signal that was recorded, with its unit: the round's own value, else the mean of its clients'."""
    charts = []
    for key, title, unit in SIGNALS:
        points = []
        for r in history.rounds:
            value = as_number(r.get(key))
            if value is None:
                value = _client_mean(history.clients, int(r["round"]), key)
            if value is not None:
                points.append(Point(r["round"], value))
        if points:
            charts.append((Chart(f"signal-{key}", title, [Series(key, title, points, 0)], x_label=""), unit))
    return charts


def _client_mean(clients: Sequence[Record], round: int, key: str) -> float | None:
    pairs = [(v, as_number(c.get("episodes")) or 1.0) for c in clients if c["round"] == round and (v := as_number(c.get(key))) is not None]
    weight = sum(w for _, w in pairs)
    return sum(v * w for v, w in pairs) / weight if weight else None


def _columns(rounds: Sequence[Record]) -> tuple[list[Bar], list[str]]:
    """Seconds per round and phase, for the phases that took any time."""
    recorded = {p for r in rounds for p, v in (r.get("phases") or {}).items() if as_number(v)}
    phases = [p for p in PHASES if p in recorded] + sorted(recorded - set(PHASES))
    bars = [
        Bar(str(r["round"]), [as_number((r.get("phases") or {}).get(p)) or 0.0 for p in phases])
        for r in rounds
        if phases and r.get("phases")
    ]
    return bars, phases


def _client_lines(history: History) -> list[ClientLine]:
    failures: dict[str, int] = {}
    for r in history.rounds:
        for failed in r.get("failed") or []:
            failures[str(failed.get("client"))] = failures.get(str(failed.get("client")), 0) + 1
    visits: dict[str, list[Record]] = {}
    for c in history.clients:
        visits.setdefault(str(c.get("client")), []).append(c)
    own = {
        str(e["client"]): rate
        for e in history.evaluations
        if e.get("client") and (e.get("world") or "default") == "default" and (rate := rate_of(e))
    }
    plan = history.start.get("plan") or {}
    homes, mixes = plan.get("worlds_per_client") or {}, plan.get("categories_per_client") or {}
    apart = len(set(homes.values())) > 1
    lines = []
    for client in sorted({*visits, *failures, *own}):
        seen = visits.get(client, [])

        def total(key: str, seen: Sequence[Record] = seen) -> float:
            return sum(as_number(c.get(key)) or 0.0 for c in seen)

        lines.append(
            ClientLine(
                client=client,
                visits=len(seen),
                failures=failures.get(client, 0),
                retries=int(sum(max((as_number(c.get("attempts")) or 1) - 1, 0) for c in seen)),
                episodes=int(total("episodes")),
                tokens=int(total("tokens")),
                success=[v for c in seen if (v := as_number(c.get("success"))) is not None],
                score=as_number(seen[-1].get("score")) if seen else None,
                invalid=as_number(seen[-1].get("invalid")) if seen else None,
                rollout_seconds=total("rollout_seconds"),
                train_seconds=total("train_seconds"),
                own=own.get(client),
                world=str(homes.get(client, "")) if apart else "",
                asks=_mostly(mixes.get(client) or {}),
            )
        )
    return lines


def _mostly(mix: Mapping[str, int]) -> str:
    total = sum(mix.values())
    if len(mix) < 1 or not total:
        return ""
    most = max(mix, key=lambda name: mix[name])
    return f"{most} {100 * mix[most] / total:.0f}%"


def _failures(history: History, folder: Path) -> list[Failure]:
    found = []
    for r in history.rounds:
        for f in r.get("failed") or []:
            client, attempts = str(f.get("client")), as_number(f.get("attempts"))
            path = f"failures/round-{r['round']:04d}-{client}.txt"
            kept = path if (folder / path).is_file() else None
            first = (str(f.get("error") or "").strip() or "no message").splitlines()[0]
            found.append(Failure(int(r["round"]), client, int(attempts) if attempts is not None else None, first, kept))
    return found


def _totals(history: History) -> dict[str, float | None]:
    """Sums over rounds; None for what no round recorded. ``seconds`` is the wall clock of all sessions, else the rounds'."""

    def total(key: str) -> float | None:
        values = [v for r in history.rounds if (v := as_number(r.get(key))) is not None]
        return sum(values) if values else None

    totals = {key: total(key) for key in ("episodes", "tokens", "bytes_up", "bytes_down", "seconds")}
    totals["round_seconds"] = totals["seconds"]
    if history.session_seconds is not None:
        totals["seconds"] = history.session_seconds
    totals["heldout_episodes"] = sum(rate.n for e in history.evaluations if (rate := rate_of(e))) or None
    return totals


def _when(time: str) -> str:
    """An ISO time as people write it; what is no time stays as it is."""
    try:
        return f"{datetime.datetime.fromisoformat(time).astimezone(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return time
