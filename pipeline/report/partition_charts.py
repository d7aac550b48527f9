"""Drawings for the page on a partition, as inline SVG: histograms, a heat map of clients by category, ranked columns.

Owns geometry; colours are CSS classes, as in ``chart``. Knows nothing of tasks or clients beyond names and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipeline.report.chart import axis, number, round_ticks

LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 34
LINE, STRIP, GAP = 16, 20, 8
"""Heights of a heat map's label, strip, and the gap below, in pixels."""


@dataclass(frozen=True)
class Column:
    """A column of a chart: its height and what it says when touched."""

    value: float
    tip: str


def histogram(edges: Sequence[float], counts: Sequence[int], width: int, height: int, title: str, x_label: str, unit: str) -> str:
    """Counts between ``edges``; ``unit`` names what is counted."""
    ticks = axis([0.0, float(max(counts, default=1) or 1)], 4)
    low, high = edges[0], edges[-1]

    def sx(x: float) -> float:
        return round(LEFT + (x - low) / (high - low) * (width - LEFT - RIGHT), 1)

    out = [_open(width, height, title), _grid(ticks, width, height, percent=False)]
    for first, last, count in zip(edges[:-1], edges[1:], counts, strict=True):
        if count:
            tall = count / ticks[-1] * (height - TOP - BOTTOM)
            tip = f"{_span(first, last)}: {count:,} {unit}"
            wide = max(1.0, sx(last) - sx(first) - 1)
            out.append(_rect(sx(first) + 0.5, height - BOTTOM - tall, wide, tall, "c0", tip))
    for x in _x_ticks(low, high, max(2, (width - LEFT) // 80)):
        out.append(f'<text class="tick" x="{sx(x)}" y="{height - BOTTOM + 16}" text-anchor="middle">{number(x)}</text>')
    return "".join([*out, _x_title(x_label, width, height), "</svg>"])


def _span(first: float, last: float) -> str:
    """Whole numbers between half-way edges as such, else the edges."""
    if (first + 0.5).is_integer() and (last + 0.5).is_integer():
        low, high = round(first + 0.5), round(last - 0.5)
        return str(low) if low == high else f"{low} to {high}"
    return f"{number(first)} to {number(last)}"


def _x_ticks(low: float, high: float, most: int) -> list[float]:
    if (low + 0.5).is_integer() and (high + 0.5).is_integer():
        return round_ticks(low + 0.5, high - 0.5, most)
    return [x for x in axis([low, high], most) if low <= x <= high]


def columns(
    bars: Sequence[Column],
    width: int,
    height: int,
    title: str,
    x_label: str,
    *,
    percent: bool,
    line: float | None = None,
    line_tip: str = "",
) -> str:
    """Columns side by side in the given order; ``line`` is a level across all of them. ``percent`` puts shares on a full axis."""
    values = [bar.value for bar in bars] + ([line] if line is not None else [])
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0] if percent else axis([0.0, max([*values, 1e-9])], 4)
    out = [_open(width, height, title), _grid(ticks, width, height, percent)]
    room = (width - LEFT - RIGHT) / max(len(bars), 1)
    thick = room * 0.8 if room > 3 else room
    for i, bar in enumerate(bars):
        tall = bar.value / ticks[-1] * (height - TOP - BOTTOM)
        # A hair for zero, so that every client can be touched.
        tall = max(tall, 1.0)
        out.append(_rect(LEFT + i * room, height - BOTTOM - tall, thick, tall, "c0", bar.tip))
    if line is not None:
        y = round(height - BOTTOM - line / ticks[-1] * (height - TOP - BOTTOM), 1)
        tip = escape(line_tip, quote=True)
        path = f'<path class="curve dashed" d="M{LEFT} {y}L{width - RIGHT} {y}"/>'
        out.append(f'<g class="c1" data-tip="{tip}">{path}</g>')
    return "".join([*out, _x_title(x_label, width, height), "</svg>"])


def heat_strips(names: Sequence[str], notes: Sequence[str], rows: Sequence[Sequence[Column]], width: int, title: str) -> str:
    """One strip per row of ``rows``, a cell per column, shaded by its value in [0, 1]; the name stands above, its note at the right."""
    height = len(names) * (LINE + STRIP + GAP)
    out = [_open(width, height, title)]
    cell = width / max((len(row) for row in rows), default=1)
    for r, (name, note, row) in enumerate(zip(names, notes, rows, strict=True)):
        top = r * (LINE + STRIP + GAP)
        out.append(f'<text class="tick" x="0" y="{top + 12}">{escape(name)}</text>')
        out.append(f'<text class="tick" x="{width}" y="{top + 12}" text-anchor="end">{escape(note)}</text>')
        y = top + LINE
        out.append(f'<rect class="cell-back" x="0" y="{y}" width="{width}" height="{STRIP}"/><g class="c0">')
        for i, bar in enumerate(row):
            # Neighbours overlap by a trace, or narrow cells leave hair lines between them.
            wide = cell - 1 if cell > 6 else cell + 0.05
            tip = escape(bar.tip, quote=True)
            place = f'x="{i * cell:.2f}" y="{y}" width="{wide:.2f}" height="{STRIP}"'
            out.append(f'<rect data-tip="{tip}" {place} fill-opacity="{bar.value:.3f}"/>')
        out.append("</g>")
    return "".join([*out, "</svg>"])


def matrix(names: Sequence[str], values: Sequence[Sequence[float]], most: float, width: int, title: str) -> str:
    """A square of cells shaded by ``values`` (0 to ``most``); the diagonal stays empty."""
    number_of = len(names)
    left = 44
    cell = (width - left) / max(number_of, 1)
    height = math.ceil(left + cell * number_of)
    out = [_open(width, height, title)]
    every = max(1, math.ceil(14 / cell))
    for i, name in enumerate(names):
        if i % every == 0:
            middle = left + (i + 0.5) * cell
            out.append(f'<text class="tick" x="{left - 5}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>')
            turn = f"rotate(-60 {middle:.1f} {left - 6})"
            out.append(f'<text class="tick" x="{middle:.1f}" y="{left - 6}" transform="{turn}">{escape(name)}</text>')
    out.append(f'<rect class="cell-back" x="{left}" y="{left}" width="{width - left}" height="{width - left}"/><g class="c0">')
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if i != j:
                tip = escape(f"{names[i]} and {names[j]}: {100 * value:.1f}% in common", quote=True)
                place = f'x="{left + j * cell:.2f}" y="{left + i * cell:.2f}" width="{cell - 0.5:.2f}" height="{cell - 0.5:.2f}"'
                out.append(f'<rect data-tip="{tip}" {place} fill-opacity="{value / most if most else 0:.3f}"/>')
    return "".join([*out, "</g></svg>"])


def _open(width: int, height: int, title: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">'


def _grid(ticks: Sequence[float], width: int, height: int, percent: bool) -> str:
    out = []
    for y in ticks:
        at = round(height - BOTTOM - y / ticks[-1] * (height - TOP - BOTTOM), 1)
        label = f"{100 * y:.0f}%" if percent else number(y)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{at}" y2="{at}"/>')
        out.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
    return "".join(out)


def _rect(x: float, y: float, width: float, height: float, color: str, tip: str) -> str:
    place = f'x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}"'
    return f'<rect class="{color}" data-tip="{escape(tip, quote=True)}" {place}/>'


def _x_title(text: str, width: int, height: int) -> str:
    return f'<text class="tick" x="{(LEFT + width - RIGHT) / 2:g}" y="{height - 4}" text-anchor="middle">{escape(text)}</text>'
