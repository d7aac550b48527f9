"""What a sweep shows while it runs: a live table of arms in a terminal; elsewhere a line per trial that ended, failed or is retried."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ray.tune import Callback
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipeline.progress import duration
from pipeline.sweep.trainable import KEY


class SweepScreen(Callback):  # type: ignore[misc]
    """Tune's callback behind the display. Tune stores it with the sweep, so what belongs to a terminal is made at the start of a run.

    ``rounds`` are the trials' own, by trial name.
    """

    def __init__(self, rounds: Mapping[str, int]) -> None:
        self._rounds = dict(rounds)
        self._console: Console | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_rounds": self._rounds, "_console": None}

    def setup(self, stop: Any = None, num_samples: int | None = None, total_num_samples: int | None = None, **info: Any) -> None:
        """Open the display."""
        self._console = Console(file=sys.stderr, highlight=False)
        self._began = time.monotonic()
        self._first: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._last: dict[str, Mapping[str, Any]] = {}
        self._status: dict[str, str] = {}
        self._arms: dict[str, str] = {}
        self._live: Live | None = None
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=2, transient=True)
            self._live.start()

    def on_step_end(self, iteration: int, trials: Sequence[Any], **info: Any) -> None:
        """Look at where all trials stand."""
        for trial in trials:
            name = trial.config[KEY]["name"]
            self._arms[name] = trial.config[KEY]["arm"]
            self._status[name] = str(trial.status)
            if trial.last_result and name not in self._last:
                self._last[name] = trial.last_result
                self._done[name] = self._first[name] = int(trial.last_result.get("round") or 0)

    def on_trial_result(self, iteration: int, trials: Sequence[Any], trial: Any, result: Mapping[str, Any], **info: Any) -> None:
        """Keep a round's numbers."""
        name = trial.config[KEY]["name"]
        self._last[name] = result
        self._done[name] = int(result.get("round") or 0)
        # What an earlier attempt trained is no work of this session.
        self._first.setdefault(name, self._done[name] - 1)

    def on_trial_complete(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """A trial ended: its permanent line."""
        name = trial.config[KEY]["name"]
        self._status[name] = "TERMINATED"
        result = self._last.get(name, {})
        rates = [f"{word} {_percent(result.get(key))}" for key, word in (("worlds_mean", "worlds"), ("control", "unperturbed"))]
        early = "" if self._done.get(name, 0) >= self._rounds.get(name, 0) else f", stopped after round {self._done.get(name, 0)}"
        self._say(f"{self._count()} {name}: {', '.join(rates)}{early}")

    def on_trial_recover(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """A trial died and is tried again."""
        self._say(f"{trial.config[KEY]['name']}: died, goes on from its last whole round (retry {trial.num_failures})", "yellow")

    def on_trial_error(self, iteration: int, trials: Sequence[Any], trial: Any, **info: Any) -> None:
        """A trial is given up."""
        name = trial.config[KEY]["name"]
        self._status[name] = "ERROR"
        self._say(f"{self._count()} {name}: failed", "red")

    def on_experiment_end(self, trials: Sequence[Any], **info: Any) -> None:
        """Close the display."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text: str, style: str = "") -> None:
        if self._console is not None:
            self._console.print(Text(text, style=style), soft_wrap=True)

    def _count(self) -> str:
        ended = sum(status in ("TERMINATED", "ERROR") for status in self._status.values())
        return f"{ended}/{len(self._rounds)}"

    def _render(self) -> Table:
        table = Table(title=Text(f"{self._count()} trials, {self._clock()}"), title_justify="left")
        for column in ("arm", "trials", "rounds", "training", "mean over worlds", "unperturbed"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        groups: dict[str, list[str]] = {}
        for name, arm in sorted(self._arms.items()):
            groups.setdefault(arm, []).append(name)
        height = max(8, self._console.size.height - 8) if self._console is not None else 20
        running = sorted(groups, key=lambda arm: -sum(self._status[name] == "RUNNING" for name in groups[arm]))[:height]
        for arm in [arm for arm in groups if arm in running]:
            names = groups[arm]
            ended = sum(self._status[name] in ("TERMINATED", "ERROR") for name in names)
            active = sum(self._status[name] == "RUNNING" for name in names)
            rounds = f"{sum(self._done.get(name, 0) for name in names)}/{sum(self._rounds[name] for name in names)}"
            seen = [self._last[name] for name in names if name in self._last]
            means = [_mean([result.get(key) for result in seen]) for key in ("success", "worlds_mean", "control")]
            table.add_row(arm, f"{ended}/{len(names)}" + (f" +{active}" if active else ""), rounds, *map(_percent, means))
        if len(groups) > height:
            table.add_row(f"... {len(groups) - height} more")
        return table

    def _clock(self) -> str:
        elapsed = time.monotonic() - self._began
        done = sum(self._done[name] - self._first.get(name, 0) for name in self._done)
        open_ = [name for name in self._rounds if self._status.get(name) not in ("TERMINATED", "ERROR")]
        left = sum(self._rounds[name] - self._done.get(name, 0) for name in open_)
        return f"{duration(elapsed)} so far" + (f", about {duration(elapsed / done * left)} to go" if done > 0 and left > 0 else "")


def _mean(values: Sequence[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _percent(rate: Any) -> str:
    return "-" if rate is None else f"{100 * float(rate):.1f} %"
