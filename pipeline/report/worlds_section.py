"""The section on the clients' worlds in a report's page. Owns its HTML and wording; the numbers come from ``worlds``."""

from __future__ import annotations

from html import escape

from pipeline.report.chart import line_chart
from pipeline.report.document import both_widths, row, section, table
from pipeline.report.rates import Rate
from pipeline.report.worlds import Matrix, Worlds

SHOWN = 100
"""Rows of a table."""


def worlds_section(worlds: Worlds, legend: str, note: str) -> str:
    """The section; empty where clients' worlds are alike. ``legend`` belongs to the chart, ``note`` to its numbers."""
    if not worlds.lines:
        return ""
    parts = []
    if worlds.chart is not None:
        parts.append(legend + both_widths(line_chart(worlds.chart, 940, 320), line_chart(worlds.chart, 350, 280)) + note)
    parts.append(_lines(worlds))
    if worlds.matrix is not None:
        parts.append("<h3 class='gap'>Whose parameters, in which world</h3>" + _matrix(worlds.matrix))
    if worlds.differences:
        parts.append(_differences(worlds))
    return section("worlds", "Clients' worlds", "".join(parts))


def own_worlds_tile(worlds: Worlds) -> str:
    """The headline of a federation whose worlds differ: the mean over clients, each in its own world, and the worst world."""
    (_, first), (round, last) = worlds.means[0], worlds.means[-1]
    change = f"{100 * last:.1f}%" if len(worlds.means) == 1 else f'{100 * first:.1f}% <span class="arrow">→</span> {100 * last:.1f}%'
    ends = [(line.rates[-1], line.world) for line in worlds.lines if line.rates]
    worst, name = min(ends, key=lambda end: end[0].value)
    clients = sum(len(line.clients) for line in worlds.lines if line.rates)
    when = f"after round {round}" if round else "before training"
    return (
        f'<div class="tile"><h3>Mean over clients, each in its own world</h3><p class="big">{change}</p>'
        f"<p>{when}, {clients} clients, held-out tasks, sampled</p><p>worst world {escape(name)}: {_rate(worst)}</p></div>"
    )


def _lines(worlds: Worlds) -> str:
    rows = []
    for line in worlds.lines[:SHOWN]:
        first, last = (line.rates[0], line.rates[-1]) if line.rates else (None, None)
        reach = "–" if line.reach is None else f"{100 * line.reach:.0f}%"
        clients = f"{len(line.clients)} ({line.trained})"
        rows.append(row(escape(line.world), clients, reach, _rate(first), _rate(last), str(last.n) if last else "–"))
    rates = [line.rates[-1] for line in worlds.lines if line.rates]
    if worlds.means:
        worst = min(rates, key=lambda rate: rate.value)
        rows.append(row("<b>mean over clients</b>", "", "", f"{100 * worlds.means[0][1]:.1f}%", f"{100 * worlds.means[-1][1]:.1f}%", ""))
        rows.append(row("<b>worst world</b>", "", "", "", _rate(worst), str(worst.n)))
    if worlds.control:
        rows.append(row("<b>unperturbed</b>", "", "", _rate(worlds.control[0]), _rate(worlds.control[-1]), str(worlds.control[-1].n)))
    head = ["World", "Clients (trained)", "Oracle reaches", "First", "Last", "Tasks"]
    note = "The shared agent on held-out tasks, sampled. One world's number misleads: read the mean, the worst and the unperturbed one."
    silent = [line for line in worlds.lines if line.trained and line.silent == line.trained]
    if silent:
        which = ", ".join(f"{line.world} ({line.trained} clients)" for line in silent)
        note += (
            f" In {which} no training episode succeeded at any client so far: without a success to compare with, its updates say nothing, "
            "and the average learns from the others alone."
        )
    return f'<div class="scroll">{table(head, rows)}</div><p class="note">{escape(note)}</p>'


def _matrix(matrix: Matrix) -> str:
    head = ["Parameters of", *(escape(world) for world in matrix.worlds)]
    rows = [row(escape(name), *(_rate(rate) for rate in rates)) for name, rates in matrix.rows[:SHOWN]]
    return f'<div class="scroll">{table(head, rows)}</div>'


def _differences(worlds: Worlds) -> str:
    # Worlds that rank nothing have no hits that could differ.
    ranked = any(d["jaccard"] < 1 or d["top1"] > 0 for d in worlds.differences)
    rows = []
    for d in worlds.differences[:SHOWN]:
        hits = [f"{d['jaccard']:.2f}", f"{100 * d['top1']:.0f}%"] if ranked else []
        rows.append(row(f"{escape(str(d['first']))} | {escape(str(d['second']))}", *hits, f"{100 * d['replies']:.0f}%"))
    head = ["Worlds", *(["Hits in common (Jaccard@10)", "Other first hit"] if ranked else []), "Other replies"]
    notes = " ".join([*worlds.notes, "Both worlds were asked the same before the run; two that answer alike are refused."])
    body = f'<div class="scroll">{table(head, rows)}</div><p class="note">{escape(notes)}</p>'
    return f"<details><summary>How far the worlds are apart</summary>{body}</details>"


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return "–"
    low, high = rate.interval
    return f"{100 * rate.value:.1f}% <small>[{100 * low:.1f}, {100 * high:.1f}]</small>"
