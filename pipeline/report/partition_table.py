"""A partition in the terminal: what was asked and got, what the check found, and the first clients."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from envs.partition.report import PartitionReport

CLIENTS = 12
"""Clients shown; the page and the JSON form have all."""
CATEGORIES = 3
"""Categories named per client."""


def partition_tables(report: PartitionReport) -> RenderableType:
    """All tables of a partition."""
    return Group(_head(report), _asked(report), *([_findings(report)] if report.findings else []), _clients(report), *_notes(report))


def _head(report: PartitionReport) -> Table:
    partition, m = report.partition, report.measures
    kind = f"given by {partition.source}" if partition.source else partition.spec.kind
    most, first, second = m.overlap.most
    table = Table(title=f"Partition: {kind}{', as published' if partition.spec.reference else ''}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    table.add_row("clients", f"{len(partition.clients):,}, {m.sizes.mean():,.1f} tasks each ({m.sizes.min():,} to {m.sizes.max():,})")
    table.add_row("tasks", f"{len(partition.tasks):,}, {100 * m.union:.1f} % have an owner")
    pair = f"{partition.clients[first]}, {partition.clients[second]}"
    table.add_row("in common", f"{100 * m.overlap.mean:.2f} % of two clients' tasks, at most {100 * most:.1f} % ({pair})")
    table.add_row("from the global mix", f"chi-square {m.chi2.mean():.3f} (to {m.chi2.max():.3f}), total variation {m.tv.mean():.3f}")
    if m.easy is not None and m.pool_easy is not None:
        shares = f"{100 * m.easy.mean():.1f} % of a client's tasks ({100 * m.easy.min():.0f} to {100 * m.easy.max():.0f} %)"
        table.add_row("easy", f"{shares}, {100 * m.pool_easy:.1f} % of all tasks")
    return table


def _asked(report: PartitionReport) -> Table:
    table = Table(title="Asked and got, 0 (alike) to 1", title_justify="left")
    for column in ("knob", "asked", "got", "measure"):
        table.add_column(column, justify="left" if column == "knob" else "right")
    for line in report.asked:
        got = "-" if line.got is None else f"{max(0.0, line.got):.3f}"
        measure = "-" if line.measure is None else f"{line.measure:.4f}"
        table.add_row(line.knob, "off" if line.asked is None else f"{line.asked:.4g}", got, measure)
    return table


def _findings(report: PartitionReport) -> Table:
    table = Table(title="Checks", title_justify="left")
    for column in ("rule", "measure", "got", "expected", "band", ""):
        table.add_column(column, justify="right" if column in ("got", "expected", "band") else "left")
    words = {"ok": "[green]ok[/]", "limit": "[yellow]limit[/]", "violation": "[red]not as asked[/]"}
    for f in report.findings:
        band = f"{f.low:.4g} - {f.high:.4g}"
        table.add_row(f.rule, f.measure, f"{f.got:.4g}", f"{f.expected:.4g}", band, words[f.level])
    return table


def _clients(report: PartitionReport) -> Table:
    partition = report.partition
    table = Table(title="Clients", title_justify="left")
    easy = report.measures.easy is not None
    for column in ("client", "tasks", "categories", "chi-square", *(["easy"] if easy else [])):
        table.add_column(column, justify="left" if column in ("client", "categories") else "right", no_wrap=column == "client")
    for i in range(min(CLIENTS, len(partition.clients))):
        line = report.client(i)
        share = [f"{100 * line['easy']:.0f} %"] if easy else []
        table.add_row(Text(line["client"]), str(line["tasks"]), Text(_mix(line["categories"])), f"{line['chi2']:.3f}", *share)
    if len(partition.clients) > CLIENTS:
        table.add_row(f"... {len(partition.clients) - CLIENTS} more")
    return table


def _mix(counts: Mapping[str, int]) -> str:
    """The largest categories first."""
    ordered = sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])
    rest = sum(counts[name] for name in ordered[CATEGORIES:])
    return ", ".join([*(f"{name} {counts[name]}" for name in ordered[:CATEGORIES]), *([f"others {rest}"] if rest else [])])


def _notes(report: PartitionReport) -> list[Text]:
    notes = [Text(f"note: {note}", style="yellow") for note in report.partition.notes]
    return notes + [Text(f"note: {f.rule} {f.measure}: {f.note}", style="yellow") for f in report.findings if f.level == "limit"]
