"""Line charts and stacked bars as inline SVG, without scripts or outside files.

Owns geometry. Colours are CSS classes (``c0`` ... ``c7``), so that the page decides on light and dark. Knows nothing of runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

MAX_TIPS = 150
"""Points of a series that carry a tooltip and a dot; of longer series every k-th does."""


@dataclass(frozen=True)
class Point:
    """A value ``y`` at ``x``, with an interval where there is one. ``note`` ends the tooltip."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Series:
    """A named curve. ``band`` shades the intervals, ``bars`` draws them as whiskers, ``line`` leaves them out."""

    key: str
    label: str
    points: Sequence[Point]
    color: int = 0
    style: Literal["band", "bars", "line"] = "line"
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis. ``percent``: values are shares in [0, 1] and the axis spans them all."""

    id: str
    title: str
    series: Sequence[Series]
    percent: bool = False
    x_label: str = "round"

    def rows(self) -> list[list[object]]:
        """The data as a table: series, x, value, low, high."""
        return [[s.label, p.x, p.y, p.low, p.high] for s in self.series for p in s.points]


@dataclass(frozen=True)
class Bar:
    """A stacked column: its name and the values of its parts, in the order of the chart's parts."""

    name: str
    values: Sequence[float]


def line_chart(chart: Chart, width: int, height: int) -> str:
    """``chart`` as SVG of ``width`` by ``height`` user units; one unit is meant to be about one pixel."""
    points = [p for s in chart.series for p in s.points]
    left, right, top, bottom = 46 if chart.percent else 54, 12, 10, 34 if chart.x_label else 20
    x_low, x_high = min(p.x for p in points), max(p.x for p in points)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    if chart.percent:
        y_ticks = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    else:
        y_ticks = axis([v for p in points for v in (p.y, p.low, p.high) if v is not None], 4)
    y_low, y_high = y_ticks[0], y_ticks[-1]

    def sx(x: float) -> float:
        return round(left + (x - x_low) / (x_high - x_low) * (width - left - right), 1)

    def sy(y: float) -> float:
        return round(height - bottom - (y - y_low) / (y_high - y_low) * (height - top - bottom), 1)

    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(chart.title, quote=True)}">']
    for y in y_ticks:
        label = f"{100 * y:.0f}%" if chart.percent else number(y)
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{sy(y)}" y2="{sy(y)}"/>')
        out.append(f'<text class="tick" x="{left - 6}" y="{sy(y) + 4:.1f}" text-anchor="end">{label}</text>')
    for x in round_ticks(x_low, x_high, max(2, (width - left) // 55)):
        out.append(f'<text class="tick" x="{sx(x)}" y="{height - bottom + 16}" text-anchor="middle">{number(x)}</text>')
    if chart.x_label:
        out.append(
            f'<text class="tick" x="{(left + width - right) / 2:g}" y="{height - 4}" text-anchor="middle">{escape(chart.x_label)}</text>'
        )
    for series in chart.series:
        if series.points:
            out.append(_curve(series, sx, sy, chart.percent))
    out.append("</svg>")
    return "".join(out)


def _curve(series: Series, sx: Callable[[float], float], sy: Callable[[float], float], percent: bool) -> str:
    points = series.points
    out = [f'<g class="series c{series.color}" data-series="{escape(series.key, quote=True)}">']
    ranged = [p for p in points if p.low is not None and p.high is not None]
    if series.style == "band" and len(ranged) > 1:
        upper = [f"{sx(p.x)},{sy(p.high or 0.0)}" for p in ranged]
        lower = [f"{sx(p.x)},{sy(p.low or 0.0)}" for p in reversed(ranged)]
        out.append(f'<polygon class="band" points="{" ".join(upper + lower)}"/>')
    if series.style != "line":
        for p in ranged:
            out.append(f'<line class="whisker" x1="{sx(p.x)}" x2="{sx(p.x)}" y1="{sy(p.low or 0.0)}" y2="{sy(p.high or 0.0)}"/>')
    if len(points) > 1:
        path = "M" + "L".join(f"{sx(p.x)} {sy(p.y)}" for p in points)
        out.append(f'<path class="curve{" dashed" if series.dashed else ""}" d="{path}"/>')
    step = max(1, math.ceil(len(points) / MAX_TIPS))
    radius = 3.5 if series.style != "line" else 2
    for i, p in enumerate(points):
        if i % step == 0 or i == len(points) - 1:
            tip = escape(tooltip(series.label, p, percent), quote=True)
            out.append(f'<circle class="dot" tabindex="0" cx="{sx(p.x)}" cy="{sy(p.y)}" r="{radius}" data-tip="{tip}"/>')
    out.append("</g>")
    return "".join(out)


def tooltip(label: str, point: Point, percent: bool) -> str:
    """What a point says when touched."""
    show = (lambda v: f"{100 * v:.1f}%") if percent else number
    text = f"{label}, {number(point.x)}: {show(point.y)}"
    if point.low is not None and point.high is not None:
        text += f" [{show(point.low)}, {show(point.high)}]"
    return f"{text}. {point.note}" if point.note else text


def spark(values: Sequence[float], width: int = 90, height: int = 22) -> str:
    """A curve of shares in [0, 1] without axes, for a table cell."""
    if not values:
        return ""
    step = (width - 6) / max(len(values) - 1, 1)
    spots = [(round(3 + i * step, 1), round(height - 3 - v * (height - 6), 1)) for i, v in enumerate(values)]
    path = "M" + "L".join(f"{x} {y}" for x, y in spots)
    end = f'<circle class="dot" cx="{spots[-1][0]}" cy="{spots[-1][1]}" r="2"/>'
    return f'<svg class="spark c0" viewBox="0 0 {width} {height}" aria-hidden="true"><path class="curve" d="{path}"/>{end}</svg>'


def stacked_columns(bars: Sequence[Bar], parts: Sequence[str], colors: Sequence[int], width: int, height: int, title: str) -> str:
    """Columns side by side, each the sum of its parts, in seconds."""
    left, right, top, bottom = 46, 12, 10, 34
    ticks = axis([0.0, max((sum(b.values) for b in bars), default=1.0)], 4)
    room = (width - left - right) / max(len(bars), 1)
    scale = (height - top - bottom) / ticks[-1]
    out = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title, quote=True)}">']
    for y in ticks:
        at = round(height - bottom - y * scale, 1)
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{at}" y2="{at}"/>')
        out.append(f'<text class="tick" x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{number(y)}</text>')
    every = max(1, math.ceil(len(bars) * 28 / (width - left)))
    for i, bar in enumerate(bars):
        x, base = left + i * room, float(height - bottom)
        thick = max(room * 0.76, min(room, 1.0))
        for part, color, value in zip(parts, colors, bar.values, strict=True):
            tall = value * scale
            base -= tall
            if tall >= 0.05:
                tip = escape(f"round {bar.name}: {part} {value:.1f} s", quote=True)
                place = f'x="{x + (room - thick) / 2:.1f}" y="{base:.1f}" width="{thick:.1f}" height="{tall:.1f}"'
                out.append(f'<rect class="c{color}" data-tip="{tip}" {place}/>')
        if i % every == 0:
            out.append(
                f'<text class="tick" x="{x + room / 2:.1f}" y="{height - bottom + 16}" text-anchor="middle">{escape(bar.name)}</text>'
            )
    out.append(f'<text class="tick" x="{(left + width - right) / 2:g}" y="{height - 4}" text-anchor="middle">round</text></svg>')
    return "".join(out)


def axis(values: Sequence[float], wanted: int) -> list[float]:
    """About ``wanted`` round tick values that span ``values``; from zero when that costs little room."""
    low, high = min(values), max(values)
    if 0 < low <= 0.6 * high:
        low = 0.0
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = min(0.0, 1.5 * low), max(0.0, 1.5 * high) or 1.0
    step = _round_step((high - low) / wanted)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` whole numbers between ``low`` and ``high``, evenly spaced."""
    step = max(1.0, _round_step((high - low) / max(most - 1, 1)))
    step = math.ceil(step)
    return [float(k) for k in range(math.ceil(low / step) * step, math.floor(high) + 1, step)]


def number(value: float) -> str:
    """``value`` in three digits, plain where that is short."""
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.3g}"


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    return next(m * power for m in (1, 2, 2.5, 5, 10) if raw <= m * power * (1 + 1e-9))
