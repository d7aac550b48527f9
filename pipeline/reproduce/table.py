"""Results as text: a table per family with intervals over seeds, differences paired by seed, and gaps. Computes nothing itself."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from pipeline.reproduce.results import FAMILIES, Arm, Missing, Results
from pipeline.reproduce.statistics import Summary, difference, over_seeds, pooled

TITLES = {
    "uniform": "Alike clients",
    "task": "Clients that ask for different things",
    "environment": "Worlds that answer differently",
    "escape": "Escape hatches",
    "bandit": "The two-client bandit (mean reward per play)",
    "alfworld": "ALFWorld",
}
WIDTH = 170
SPELLED = 6
"""Gaps of one reason that are spelled out."""


def results_table(results: Results, width: int = WIDTH) -> str:
    """All of it, as plain text."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, color_system=None, emoji=False)
    seeds = sorted({arm.seed for arm in results.arms})
    console.print(f"{len(results.arms)} trials, seeds {', '.join(map(str, seeds)) or 'none'}; {results.machine}; {results.date}")
    console.print(f"command: {results.command}")
    if any(arm.family == "task" for arm in results.arms):
        console.print("Bound factor: sqrt(1 + chi-square) of the worst client's task mix, by which what it can lose may grow (theorem 2).")
    console.print(
        "Success in % at the end of training: mean over seeds [95 % t interval over seeds]; with one seed (Wilson's interval of its "
        "tasks). A difference is paired by seed, in points."
    )
    for family in FAMILIES:
        arms = [arm for arm in results.arms if arm.family == family]
        if arms:
            console.print(_family(family, arms, results.arms))
    if results.missing:
        console.print(f"\nMissing: {len(results.missing)}")
        for line in _missing(results.missing):
            console.print(f"  {line}")
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _missing(gaps: Sequence[Missing]) -> Iterator[str]:
    """What was to be there, one by one; what was left out on purpose or cannot run here, counted."""
    yield from (gap.text for gap in gaps if gap.wanted)
    for reason, number in Counter(gap.reason for gap in gaps if not gap.wanted).items():
        if number > SPELLED:
            yield f"{number} arms and seeds: {reason}"
        else:
            yield from (gap.text for gap in gaps if gap.reason == reason)


def _family(family: str, arms: Sequence[Arm], everything: Sequence[Arm]) -> Table:
    table = Table(title=TITLES[family], title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    bandit = family == "bandit"
    more = {"bandit": ["worst client loses", "at least"], "task": ["bound factor"]}.get(family, ["control", "after local", "alone"])
    for place, name in enumerate(("arm", "", "seeds", "own worlds", "worst world", *more, "shared policy", "against")):
        table.add_column(name, justify="left" if place < 2 or name == "against" else "right", no_wrap=place == 0)
    for name in dict.fromkeys(arm.name for arm in arms):
        own = [arm for arm in arms if arm.name == name]
        first = own[0]
        cells = [name, first.label, str(len(own)), _rate(own, "mean_worlds"), _rate(own, "worst_world")]
        if bandit:
            cells += [_mean(own, "worst_gap"), _mean(own, "floor_gap")]
        elif family == "task":
            bound = over_seeds([arm.bound for arm in own], boot=False)
            cells.append("" if bound is None else f"{bound.mean:.2f}")
        else:
            cells += [_rate(own, "control"), _mean(own, "after_local"), _mean(own, "alone")]
        floor = _mean(own, "floor")
        cells.append(f"{floor} {first.kind}" if floor else first.kind if first.kind != "none" else "")
        cells.append(_against(first, everything))
        table.add_row(*cells)
    return table


def _rate(arms: Sequence[Arm], metric: str) -> str:
    summary = over_seeds([getattr(arm, metric) for arm in arms], boot=False)
    if summary is None:
        return ""
    if summary.interval is not None:
        return interval(summary)
    known = [arm for arm in arms if getattr(arm, metric) is not None]
    low, high = pooled([getattr(arm, metric) for arm in known], [arm.n_eval for arm in known])
    return f"{100 * summary.mean:.1f} ({100 * low:.0f}, {100 * high:.0f})"


def _mean(arms: Sequence[Arm], metric: str) -> str:
    summary = over_seeds([getattr(arm, metric) for arm in arms], boot=False)
    return "" if summary is None else f"{100 * summary.mean:.1f}"


def _against(arm: Arm, everything: Sequence[Arm]) -> str:
    if arm.versus is None:
        return ""
    found = difference(everything, arm.name, arm.versus)
    return "" if found is None else f"{arm.versus}: {interval(found, signed=True)}"


def interval(summary: Summary, *, signed: bool = False) -> str:
    """A mean with its t interval, in percent or points."""
    sign = "+" if signed else ""
    mean = f"{100 * summary.mean:{sign}.1f}"
    return mean if summary.interval is None else f"{mean} [{100 * summary.interval.low:{sign}.0f}, {100 * summary.interval.high:{sign}.0f}]"
