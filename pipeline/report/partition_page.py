"""The page on a partition: what was asked, what was got, and who owns what.

Owns HTML and wording; the numbers come from ``envs.partition``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from envs.partition.invariants import Finding
from envs.partition.measures import COMPARED
from envs.partition.report import Asked, PartitionReport
from pipeline.report.document import attribute, both_widths, document, facts, row, section, table
from pipeline.report.partition_charts import Column, columns, heat_strips, histogram, matrix

SHOWN = 400
"""Clients that are drawn; of more, so many at even distances."""
TABLED = 1000
MATRIX = 40
"""Most clients whose pairs are drawn one by one."""
STYLE_NAMES = ("page.css", "partition.css")
TIP = '<div id="tip" role="status" hidden></div>'
SUMMED = {"preference": "category mixes", "coverage": "numbers of tasks", "hardness": "shares of easy tasks"}

Tables = dict[str, dict[str, Any]]


def partition_page(report: PartitionReport, title: str, facts_of_world: str = "", command: str = "") -> str:
    """The page as one self-contained document. ``facts_of_world`` stands below the title."""
    tables: Tables = {}
    parts = [
        _head(report, title, facts_of_world),
        _banner(report),
        _tiles(report),
        section("asked", "Asked and got", _asked(report)),
        section("findings", "Did the knobs do what they say, and nothing else?", _findings(report)),
        section("categories", "Categories by client", _categories(report)),
        section("sizes", "Tasks by client", _sizes(report)),
        section("divergence", "Distance from the global mix", _divergence(report)),
        _easy(report),
        section("overlap", "Tasks in common", _overlap(report, tables)),
        section("clients", "Clients", _clients(report, tables)),
        _settings(report, command),
        f"<footer><p>fedagent-ray. Seed {report.partition.seed}. The same settings give the same partition on every machine.</p></footer>",
    ]
    body = "<main>" + "\n".join(part for part in parts if part) + "</main>" + TIP
    return document(f"{title}: partition", body, STYLE_NAMES, ["report.js"], {"name": title, "tables": tables})


def write_partition_page(report: PartitionReport, path: Path, title: str, facts_of_world: str = "", command: str = "") -> Path:
    """Write the page to ``path``; it appears whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(partition_page(report, title, facts_of_world, command), encoding="utf-8")
    os.replace(part, path)
    return path


def _head(report: PartitionReport, title: str, world: str) -> str:
    partition = report.partition
    what = f"given by {partition.source}" if partition.source else partition.spec.kind
    what += ", as published" if partition.spec.reference else ""
    lines = [f"{len(partition.clients):,} clients, {len(partition.tasks):,} train tasks, partition: {what}", world]
    return f"<header><h1>{escape(title)}</h1>{''.join(f'<p>{escape(line)}</p>' for line in lines if line)}</header>"


def _banner(report: PartitionReport) -> str:
    notes = [*report.partition.notes, *report.limits, *(_sentence(finding) for finding in report.violations)]
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<section class="banner" id="warnings"><strong>This partition is not quite what was asked for</strong><ul>{items}</ul></section>'
    )


def _sentence(finding: Finding) -> str:
    note = f" ({finding.note})" if finding.note else ""
    return f"{finding.rule}, {finding.measure}: {_figure(finding.got)}, expected {_figure(finding.low)} to {_figure(finding.high)}{note}"


def _tiles(report: PartitionReport) -> str:
    m = report.measures
    low, high = int(m.sizes.min()), int(m.sizes.max())
    sizes = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    bad = len(report.violations)
    checks = [f for f in report.findings]
    verdict = "not checked" if not checks else f"{len(checks) - bad} of {len(checks)}"
    return (
        '<section class="tiles" id="headline">'
        f'<div class="tile"><h3>Tasks of a client</h3><p class="big">{sizes}</p><p>mean {m.sizes.mean():,.1f}</p></div>'
        f'<div class="tile"><h3>Tasks with an owner</h3><p class="big">{_percent(m.union)}</p>'
        f"<p>two clients share {_percent(m.overlap.mean)} on average</p></div>"
        f'<div class="tile"><h3>Checks passed</h3><p class="big">{verdict}</p><p>{_checked(report)}</p></div></section>'
    )


def _checked(report: PartitionReport) -> str:
    if not report.findings:
        return "a file asks for nothing that could be checked"
    return "as asked" if not report.violations else "see below"


def _asked(report: PartitionReport) -> str:
    rows = [
        row(escape(line.knob), _or_none(line.asked, "off"), _got(line), _or_none(line.measure), _limits(report, line))
        for line in report.asked
    ]
    head = ["Knob", "Asked", "Got", "Measure", "Means"]
    note = (
        "Each knob is a dispersion from 0 (clients alike) to 1 (as far apart as their mean allows). Got is the outcome in the same unit. "
        "Measures: mean squared distance of category mixes, squared coefficient of variation of sizes, variance of easy shares."
    )
    return table(head, rows) + f'<p class="note">{escape(note)}</p>'


def _got(line: Asked) -> str:
    return "–" if line.got is None else f"{max(0.0, line.got):.3f}"


def _limits(report: PartitionReport, line: Asked) -> str:
    if line.asked is None:
        return escape(f"{SUMMED[line.knob]} differ by chance only")
    if line.knob == "preference":
        return "Dirichlet around the global mix"
    beta = f"Beta of concentration {line.concentration:.3g}" if line.concentration is not None else "Beta"
    if line.knob == "coverage":
        low, mean, high = report.partition.spec.bounds()
        return escape(f"{beta}, {low:,} to {high:,} tasks, mean {mean:,}")
    return escape(beta)


def _findings(report: PartitionReport) -> str:
    if not report.findings:
        return '<p class="empty">An explicit file asks for nothing that could be checked.</p>'
    marks = {"ok": "as expected", "limit": "at a limit", "violation": "not as asked"}
    rows = [
        row(
            escape(finding.rule),
            escape(finding.measure),
            _figure(finding.got),
            _figure(finding.expected),
            f"{_figure(finding.low)} – {_figure(finding.high)}",
            f'<span class="mark {finding.level}">{marks[finding.level]}</span>',
            f'<span class="free">{escape(finding.note)}</span>',
        )
        for finding in report.findings
    ]
    note = (
        "D1: a knob moves its own measure by the amount asked. D2: the others stay at the level of chance. D3: means stay. "
        "D4: layers and clients are drawn independently. Bands: five standard deviations of redraws, or what rounding to whole tasks costs."
    )
    return table(["Rule", "Measure", "Got", "Expected", "Band", "", "Note"], rows) + f'<p class="note">{escape(note)}</p>'


def _categories(report: PartitionReport) -> str:
    partition, m = report.partition, report.measures
    top = m.mixes.argmax(axis=1)
    rank = np.argsort(-m.pool_mix, kind="stable")
    place = {int(category): i for i, category in enumerate(rank)}
    order = sorted(range(len(partition.clients)), key=lambda i: (place[int(top[i])], -float(m.mixes[i, top[i]])))
    order = _thinned(order)
    rows = [
        [
            Column(float(m.mixes[i, c]), f"{partition.clients[i]}, {partition.categories[c]}: {_percent(float(m.mixes[i, c]))}")
            for i in order
        ]
        for c in rank
    ]
    names = [partition.categories[c] for c in rank]
    notes = [f"all tasks {_percent(float(m.pool_mix[c]))}, mean client {_percent(float(m.mean_mix[c]))}" for c in rank]
    drawn = [heat_strips(names, notes, rows, width, "Share of each category by client") for width in (940, 350)]
    note = "One column per client, ordered by its largest category; the darker, the larger the category's share of its tasks." + _thin_note(
        report
    )
    return both_widths(*drawn) + f'<p class="note">{escape(note)}</p>'


def _sizes(report: PartitionReport) -> str:
    sizes = report.measures.sizes
    if int(sizes.min()) == int(sizes.max()):
        return f'<p class="empty">Every client has {int(sizes[0]):,} tasks.</p>'

    def draw(width: int, height: int) -> str:
        return histogram(
            report.sizes.edges, report.sizes.counts, width, height, "Clients by number of tasks", "tasks of a client", "clients"
        )

    return both_widths(draw(940, 220), draw(350, 200))


def _divergence(report: PartitionReport) -> str:
    m, names = report.measures, report.partition.clients
    order = _thinned(np.argsort(-m.chi2, kind="stable").tolist())
    bars = [Column(float(m.chi2[i]), f"{names[i]}: chi-square {m.chi2[i]:.3f}, total variation {m.tv[i]:.3f}") for i in order]
    mean = float(m.chi2.mean())

    def draw(width: int, height: int) -> str:
        tip = f"mean {mean:.3f}"
        return columns(
            bars, width, height, "Chi-square divergence by client", "clients, farthest first", percent=False, line=mean, line_tip=tip
        )

    note = (
        f"Chi-square divergence of each client's category mix from all train tasks'; mean {mean:.3f} (dashed), which bounds a shared "
        f"policy's loss by a factor sqrt(1 + chi2) = {math.sqrt(1 + mean):.2f}. Mean total variation {float(m.tv.mean()):.3f}."
    )
    return both_widths(draw(940, 220), draw(350, 200)) + f'<p class="note">{escape(note)}</p>'


def _easy(report: PartitionReport) -> str:
    m, names = report.measures, report.partition.clients
    if m.easy is None or m.pool_easy is None:
        return ""
    easy, pool = m.easy, m.pool_easy
    order = _thinned(np.argsort(-easy, kind="stable").tolist())
    bars = [Column(float(easy[i]), f"{names[i]}: {_percent(float(easy[i]))} easy") for i in order]

    def draw(width: int, height: int) -> str:
        tip = f"all train tasks: {_percent(pool)} easy"
        return columns(
            bars, width, height, "Share of easy tasks by client", "clients, easiest first", percent=True, line=pool, line_tip=tip
        )

    mean = _percent(float(easy.mean()))
    note = f"Share of easy tasks by client; of all train tasks {_percent(pool)} are easy (dashed), of a client's {mean} on average."
    if report.label_test is not None:
        chi2, degrees, tail = report.label_test
        linked = "depend on" if tail < 0.001 else "show no link to"
        note += f" Labels {linked} the category (chi-square {chi2:.1f}, {degrees} df, p = {tail:.2g})."
    return section("easy", "Easy tasks by client", both_widths(draw(940, 220), draw(350, 200)) + f'<p class="note">{escape(note)}</p>')


def _overlap(report: PartitionReport, tables: Tables) -> str:
    shared, names = report.measures.overlap, report.partition.clients
    if len(shared.clients) < 2:
        return '<p class="empty">There is only one client.</p>'
    edges, counts = report.overlaps.edges, report.overlaps.counts
    drawn = [
        histogram(
            [100 * e for e in edges],
            counts,
            width,
            height,
            "Pairs of clients by overlap",
            "tasks in common, % of the two together",
            "pairs",
        )
        for width, height in ((940, 220), (350, 200))
    ]
    most, first, second = shared.most
    pair = f"{names[first]} and {names[second]}"
    note = f"Jaccard similarity of two clients' tasks: mean {_percent(shared.mean)}, most {_percent(most)} ({pair})."
    if most > edges[-1]:
        note += " The last bar includes pairs beyond it."
    if len(shared.clients) < len(names):
        note += f" {COMPARED} of {len(names)} clients were compared."
    body = both_widths(*drawn)
    if len(shared.clients) <= MATRIX:
        chosen = [names[i] for i in shared.clients.tolist()]
        values = shared.jaccard.tolist()
        square = [matrix(chosen, values, most, width, "Overlap of every two clients") for width in (560, 340)]
        body += f'<details><summary>Every two clients</summary><div class="square">{both_widths(*square)}</div></details>'
        tables["overlap"] = {"columns": ["client", *chosen], "rows": [[name, *line] for name, line in zip(chosen, values, strict=True)]}
        note += " "
        return body + f'<p class="note">{escape(note)}{_csv("overlap")}</p>'
    return body + f'<p class="note">{escape(note)}</p>'


def _clients(report: PartitionReport, tables: Tables) -> str:
    partition = report.partition
    lines = [report.client(i) for i in range(len(partition.clients))]
    categories = partition.categories
    easy = report.measures.easy is not None
    head = ["client", "tasks", *categories, "chi-square", "total variation", *(["easy"] if easy else [])]
    tables["clients"] = {"columns": head, "rows": [_values(line, categories, easy) for line in lines]}
    header = "".join(f'<th><button type="button">{escape(name)}</button></th>' for name in head)
    rows = "".join(_client_row(_values(line, categories, easy), len(categories)) for line in lines[:TABLED])
    note = "Click a heading to sort."
    if len(lines) > TABLED:
        note += f" The first {TABLED:,} of {len(lines):,} clients; the CSV file has all."
    body = f'<div class="scroll tall"><table class="sortable"><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
    return f'{body}<p class="note">{escape(note)} {_csv("clients")}</p>'


def _values(line: Mapping[str, Any], categories: Sequence[str], easy: bool) -> list[Any]:
    values = [line["client"], line["tasks"], *(line["categories"][name] for name in categories), line["chi2"], line["tv"]]
    return values + ([line["easy"]] if easy else [])


def _client_row(values: Sequence[Any], categories: int) -> str:
    shows: list[Callable[[Any], str]] = [str, lambda v: f"{v:,}", *[lambda v: f"{v:,}"] * categories, _figure, _figure, _percent]
    cells = zip(values, shows, strict=False)
    return "<tr>" + "".join(f'<td data-v="{attribute(value)}">{escape(show(value))}</td>' for value, show in cells) + "</tr>"


def _settings(report: PartitionReport, command: str) -> str:
    pairs = [(key.replace("_", " "), str(value)) for key, value in report.plain()["settings"].items()]
    pairs.append(("seed", str(report.partition.seed)))
    shown = f"<h3 class='gap'>Command</h3><pre>{escape(command)}</pre>" if command else ""
    return section("settings", "Settings", facts("Partition", pairs) + shown)


def _thinned(order: Sequence[int]) -> list[int]:
    if len(order) <= SHOWN:
        return list(order)
    return [order[round(i * (len(order) - 1) / (SHOWN - 1))] for i in range(SHOWN)]


def _thin_note(report: PartitionReport) -> str:
    number = len(report.partition.clients)
    return f" {SHOWN} of {number:,} clients are drawn." if number > SHOWN else ""


def _or_none(value: float | None, none: str = "–") -> str:
    return none if value is None else _figure(value)


def _figure(value: float) -> str:
    if value == int(value) and abs(value) >= 1:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.0001 or value == 0 else f"{value:.1e}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


def _csv(name: str) -> str:
    return f'<button type="button" class="csv" data-csv="{attribute(name)}">CSV</button>'
