"""What a reproduction shows in the terminal: a live table of what runs and how long the rest will take, and lines that stay.

On a stream that is no terminal only the lines are written: one per finished trial. Knows states, nothing of workers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.progress import duration
from pipeline.reproduce.runner import State
from pipeline.reproduce.store import Store
from pipeline.reproduce.trials import Trial


class Screen:
    """The display of one reproduction. A context manager."""

    def __init__(
        self,
        store: Store,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=False, _environ=environ)
        self._wanted = self._console.is_terminal and not self._console.is_dumb_terminal
        self._store, self._clock = store, clock
        self._state: State | None = None
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self._wanted:
            self._live = Live(console=self._console, get_renderable=self.render, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, state: State) -> None:
        """Show where things stand."""
        self._state = state

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text), soft_wrap=not self._wanted)

    def finished(self, trial: Trial) -> None:
        """A trial came to its end: its line."""
        outcome, state = self._store.outcome(trial), self._state
        if outcome is None or not outcome.done:
            return
        mean, start = outcome.numbers.get("mean_worlds"), outcome.numbers.get("start")
        parts = [f"{trial.arm.name}, seed {trial.seed}:", _percent(start), "->", _percent(mean)]
        parts.append(f"in {duration(float(outcome.numbers.get('wall_seconds') or 0.0))}")
        if state is not None:
            parts.append(f"({state.done} of {state.total} done, about {duration(state.left)} left)")
        self.say(" ".join(parts))

    def render(self) -> Group:
        """The live part."""
        state = self._state
        if state is None:
            return Group(Text("starting workers ..."))
        ended = state.done + state.failed
        top = Table.grid(padding=(0, 1))
        words = f"{duration(self._clock() - state.began)} elapsed, about {duration(state.left)} left"
        top.add_row(
            Text(f"{ended}/{state.total} trials", style="bold"), ProgressBar(total=max(1, state.total), completed=ended, width=30), words
        )
        rows = Table.grid(padding=(0, 2))
        for slot in state.running:
            underway = self._store.underway(slot.trial)
            rounds = f"round {underway.round}/{underway.rounds}" if underway.rounds else "starting"
            rows.add_row(
                Text(f"  {slot.trial.arm.name}, seed {slot.trial.seed}", style="cyan"), rounds, duration(self._clock() - slot.began)
            )
        counts = f"  {len(state.waiting)} waiting" + (f", {state.failed} failed" if state.failed else "")
        return Group(top, rows, Text(counts))


def _percent(value: object) -> str:
    return f"{100 * value:.0f} %" if isinstance(value, int | float) else "?"
