"""What a run shows in the terminal: a live display, and one permanent line per finished round and evaluation.

Owns wording and layout. On a stream that is not a terminal (or a dumb one) only the permanent lines are written. Knows records of
the run log and the plan's totals, nothing of what produces them.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from envs.variants import DEFAULT

QUIET_S = 15.0
"""Without a terminal, phases are written while the run starts, and later only after this many seconds without a line."""


class Progress:
    """The display of one run. A context manager; ``close`` may be called twice.

    ``plan`` has ``rounds``, ``episodes_per_round`` and, for a resumed run, ``first_round`` (default 1); where clients' worlds differ also
    ``homes``, every client's world, and ``worlds``, those that are measured beside the unperturbed one, in this order.
    """

    def __init__(
        self,
        plan: Mapping[str, Any],
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        environ = os.environ if environ is None else environ
        # In a notebook rich would write to the cell instead of the stream.
        notebook = None if stream is None else False
        self._console = Console(file=stream or sys.stderr, highlight=False, soft_wrap=False, force_jupyter=notebook, _environ=environ)
        self._live_wanted = self._console.is_terminal and not self._console.is_dumb_terminal
        self._clock = clock
        self._rounds = int(plan.get("rounds") or 0)
        self._per_round = int(plan.get("episodes_per_round") or 0)
        self._first = int(plan.get("first_round") or 1)
        self._began = self._round_began = self._last_line = clock()
        homes: Mapping[str, str] = plan.get("homes") or {}
        self._worlds: Sequence[str] = plan.get("worlds") or ()
        self._residents = Counter(world for world in homes.values() if world in (*self._worlds, DEFAULT))
        self._own: dict[str, float] = {}
        self._done = self._first - 1
        self._phase = "starting"
        self._underway = False
        self._episodes = self._tokens = 0
        self._train: float | None = None
        self._heldout: Mapping[str, Any] | None = None
        self._start: Mapping[str, Any] | None = None
        self._live: Live | None = None
        self._closed = False

    def __enter__(self) -> Progress:
        if self._live_wanted and not self._closed:
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def phase(self, text: str) -> None:
        """Say what is happening now."""
        changed = text != self._phase
        self._phase = text
        if not self._live_wanted and changed and (not self._underway or self._clock() - self._last_line >= QUIET_S):
            self._print(Text(f"{text} ..."))

    def episodes(self, done_in_round: int, tokens: int) -> None:
        """``done_in_round`` episodes of the running round are finished; they took ``tokens`` tokens together."""
        self._episodes, self._tokens = done_in_round, tokens

    def round(self, record: Mapping[str, Any]) -> None:
        """A round ended: its permanent line."""
        number, now = int(record["round"]), self._clock()
        self._underway = True
        seconds = record.get("seconds") or now - self._round_began
        self._train = record.get("success", self._train)
        clients, failed = record.get("clients") or [], record.get("failed") or []
        parts = [f"round {number:>{len(str(self._rounds))}}/{self._rounds}", f"success {percent(record.get('success'))}"]
        if clients:
            parts.append(f"{len(clients) - len(failed)}/{len(clients)} clients")
        if record.get("episodes") is not None:
            parts.append(f"{record['episodes']:,} episodes")
        if record.get("tokens"):
            parts.append(f"{short(record['tokens'] / max(seconds, 1e-9))} tok/s")
        parts.append(duration(seconds))
        line = Text("  ".join(parts))
        self._print(line)
        for failure in failed:
            self.warn(f"round {number}: client {failure.get('client')} failed: {failure.get('error')}")
        self._done, self._round_began = number, now
        self._episodes = self._tokens = 0

    def evaluation(self, record: Mapping[str, Any]) -> None:
        """An evaluation ended: its permanent line. Cells of the client-by-world matrix are for the report."""
        if record.get("client") and (record.get("world") or DEFAULT) != DEFAULT:
            return
        number, whole = int(record["round"]), not record.get("client")
        self._underway = True
        world = str(record.get("world") or DEFAULT)
        unperturbed = " in the unperturbed world" if self._worlds else ""
        where = unperturbed if world == DEFAULT else f" in {world}"
        who = "" if whole else f", client {record['client']}"
        when = "before training" if number == 0 else f"after round {number}"
        line = f"held-out {when}{where}{who}: {rate(record)} {record.get('mode') or 'sampled'}, {record.get('n', '?')} tasks"
        self._print(Text(line, style="bold"))
        if not whole or record.get("mode") == "greedy":
            return
        if world == DEFAULT:
            self._start = self._start or record
            self._heldout = record
        if isinstance(success := record.get("success"), int | float):
            self._own[world] = float(success)
        if self._worlds and world == self._worlds[-1]:
            self._print_own(when)

    def _print_own(self, when: str) -> None:
        """What a federation of worlds that differ is about: the mean over its clients, each in its own world."""
        own = {world: self._own[world] for world in self._residents if world in self._own}
        self._own = {}
        if not own:
            return
        clients = sum(self._residents[world] for world in own)
        mean = sum(self._residents[world] * rate for world, rate in own.items()) / clients
        worst = min(own, key=own.__getitem__)
        words = (
            f"held-out {when}, mean over {clients} clients in their own worlds: {percent(mean)}, worst world {worst}: {percent(own[worst])}"
        )
        self._print(Text(words, style="bold"))

    def warn(self, text: str) -> None:
        """A permanent warning line."""
        self._print(Text(f"warning: {text}", style="yellow"))

    def close(self, summary: str | None = None) -> None:
        """End the live display and write the last words."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if not self._closed and summary:
            self._print(Text(summary))
        self._closed = True

    def _print(self, line: Text) -> None:
        self._last_line = self._clock()
        # Lines of a log file are not broken; lines of a terminal are, between words.
        self._console.print(line, soft_wrap=not self._live_wanted)

    def _completed(self) -> float:
        """Rounds done, the running one in part: episodes are most of a round but training and averaging follow."""
        within = min(self._episodes / self._per_round, 1.0) if self._per_round else 0.0
        return min(self._done + 0.9 * within, float(self._rounds))

    def _left(self) -> str:
        before, wanted = self._first - 1, self._rounds - self._first + 1
        fraction = (self._completed() - before) / max(wanted, 1)
        if not 0 < fraction < 1:
            return ""
        return f", {duration((self._clock() - self._began) / fraction * (1 - fraction))} left"

    def _render(self) -> Group:
        now = self._clock()
        top = Table.grid(padding=(0, 1), expand=False)
        title = Text(f"round {min(self._done + 1, self._rounds)}/{self._rounds}", style="bold")
        bar = ProgressBar(total=max(self._rounds, 1), completed=self._completed(), width=30)
        top.add_row(title, bar, Text(f"{duration(now - self._began)} elapsed{self._left()}"))
        rows = [_line(self._phase, "cyan")]
        if self._per_round:
            speed = short(self._tokens / max(now - self._round_began, 1e-9))
            rows.append(_line(f"episodes {self._episodes:,}/{self._per_round:,}   {speed} tok/s"))
        success = [f"training success {percent(self._train)}"] if self._train is not None else []
        if self._heldout is not None:
            success.append(f"held-out{' (unperturbed)' if self._worlds else ''} {rate(self._heldout)}")
            if self._start is not None and self._start is not self._heldout:
                success.append(f"start {percent(self._start.get('success'))}")
        if success:
            rows.append(_line("   ".join(success)))
        return Group(top, *rows)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def percent(value: object) -> str:
    """A share in [0, 1] as ``41.5%``."""
    return f"{100 * value:.1f}%" if isinstance(value, int | float) else "--"


def rate(record: Mapping[str, Any]) -> str:
    """``41.5% [36.0, 47.2]``: success with its interval, where the record has one."""
    low, high = record.get("success_low"), record.get("success_high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return percent(record.get("success"))
    return f"{percent(record.get('success'))} [{100 * low:.1f}, {100 * high:.1f}]"


def short(value: float) -> str:
    """A count in three digits: ``950``, ``12.3k``, ``4.1M``."""
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if value < limit * 0.9995:
            scaled = value / divisor
            return f"{scaled:.0f}{unit}" if not unit or scaled >= 99.95 else f"{scaled:.1f}{unit}"
    return f"{value / 1e9:.1f}G"


def duration(seconds: float) -> str:
    """``0.8 s``, ``42 s``, ``3:05`` (minutes), ``2:03:05`` (hours)."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
