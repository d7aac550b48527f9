"""A diagnosis as one self-contained HTML page, in the look of a run's report. Everything is escaped; nothing is loaded from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from pipeline.diagnose.diagnosis import Diagnosis
from pipeline.diagnose.table import GUESSING, percent, ranged, test_facts
from pipeline.report.chart import Chart, Point, Series, line_chart
from pipeline.report.document import attribute, both_widths, document, empty, facts, row, section, table

PAIRS_SHOWN = 100
CATEGORIES_SHOWN = 30
TIP = '<div id="tip" role="status" hidden></div>'


def write_page(found: Diagnosis, out: Path, name: str) -> Path:
    """Write the page of a diagnosis; ``out``. ``name`` says what was diagnosed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.new")
    aside.write_text(render(found, name), encoding="utf-8")
    aside.replace(out)
    return out


def render(found: Diagnosis, name: str) -> str:
    """The page."""
    tables = {"pairs": _pair_rows(found), "reading": _reading_rows(found)}
    parts = [_head(found, name), _verdict(found), _tiles(found), _maps(found), _reading(found), _pairs(found), _tests(found)]
    parts += [_tasks(found), _homes(found), _measured(found)]
    body = "<main>" + "\n".join(part for part in parts if part) + "</main>" + TIP
    return document(f"{name}: diagnosis", body, ["page.css"], ["report.js"], {"name": f"{name}-diagnosis", "tables": tables})


def _head(found: Diagnosis, name: str) -> str:
    worlds = "all clients in one world" if found.worlds == 1 else f"{found.worlds} worlds"
    line = f"world {found.world}, {found.clients} clients, {worlds}, nothing trained"
    return f"<header><h1>{escape(name)}: diagnosis</h1><p>{escape(line)}</p></header>"


def _verdict(found: Diagnosis) -> str:
    advice = "".join(f"<li>{escape(line)}</li>" for line in found.verdict.advice)
    body = f"<p>{escape(found.verdict.paragraph)}</p><h3 class='gap'>What to expect</h3><p>{escape(found.verdict.expect)}</p>"
    body += f"<h3 class='gap'>What to do</h3><ul>{advice}</ul>"
    kind = "banner" if found.verdict.kind in ("conflict", "partial_conflict") else "verdict"
    return f'<section id="verdict" class="{kind}"><h2>{escape(found.verdict.title)}</h2>{body}</section>'


def _tile(title: str, big: str, lines: Sequence[str]) -> str:
    rest = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="tile"><h3>{escape(title)}</h3><p class="big">{escape(big)}</p>{rest}</div>'


def _mean(found: Diagnosis, values: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(found.weights, values, strict=True))


def _tiles(found: Diagnosis) -> str:
    if not found.pairs:
        return ""
    best = found.readings.best
    tiles = [
        _tile(
            "Answers that differ",
            percent(_mean(found, [p.everywhere.value for p in found.pairs])),
            [
                f"of the states visited; {percent(found.conditions.delta_eff)} on the oracles' paths",
                f"delta {max(p.largest for p in found.pairs):.2f} at the most different state",
            ],
        ),
        _tile(
            "One script is best in both",
            percent(_mean(found, [r.agree.value for r in found.rankings])),
            [
                f"of the tasks; on {percent(_mean(found, [r.offered for r in found.rankings]))} the page offers the right one,",
                f"on {percent(_mean(found, [r.noticed for r in found.rankings]))} a wrong guess shows in time",
            ],
        ),
        _tile(
            "The world can be read",
            "–" if best is None else percent(best.accuracy.value),
            ["no texts to classify"]
            if best is None
            else [f"of guesses are right by turn {best.turn}, chance {percent(found.readings.chance)}", f"{best.bits:.2f} bits"],
        ),
        _tile(
            "Contradiction that is only felt",
            percent(found.verdict.conflict),
            [
                f"of tasks; the best shared script loses {found.gap.value:.2f} of one success",
                "no floor" if found.verdict.floor is None else f"floor B delta / 2 = {found.verdict.floor:.2f}",
            ],
        ),
    ]
    return f'<section class="tiles" id="numbers">{"".join(tiles)}</section>'


def _maps(found: Diagnosis) -> str:
    if not found.pairs:
        return ""
    names = [home.name for home in found.homes]
    differ = {(p.first, p.second): p.everywhere.value for p in found.pairs}
    path = {(p.first, p.second): p.on_path.value for p in found.pairs}
    contradict = {(r.first, r.second): r.apart for r in found.rankings}
    drawn = [
        ("Answers that differ, all states", differ, 0),
        ("Answers that differ, oracles' paths", path, 3),
        ("Tasks in contradiction", contradict, 1),
    ]
    figures = "".join(
        f"<figure><figcaption><b>{escape(title)}</b></figcaption>{heat_map(values, names, color, title)}</figure>"
        for title, values, color in drawn
    )
    key = "".join(f"<li value='{number}'>{escape(name)}</li>" for number, name in enumerate(names, start=1))
    note = "<p class='note'>Each cell compares two worlds on the same tasks and the same actions.</p>"
    return section("maps", "Between worlds", f'<div class="grid3">{figures}</div><ol class="note">{key}</ol>{note}')


def heat_map(values: dict[tuple[int, int], float], names: Sequence[str], color: int, title: str) -> str:
    """Shares between every two worlds as a square of cells, with numbers for names."""
    size, margin = 264, 22
    step = (size - margin) / len(names)
    out = [f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="{attribute(title)}" class="c{color}">']
    for place in range(len(names)):
        middle = margin + (place + 0.5) * step
        out.append(f'<text class="tick" x="{middle:.1f}" y="14" text-anchor="middle">{place + 1}</text>')
        out.append(f'<text class="tick" x="12" y="{middle + 4:.1f}" text-anchor="middle">{place + 1}</text>')
    for i in range(len(names)):
        for j in range(len(names)):
            if i == j:
                continue
            value = values[min(i, j), max(i, j)]
            x, y = margin + j * step, margin + i * step
            tip = attribute(f"{names[i]} | {names[j]}: {percent(value)}")
            box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{step - 2:.1f}" height="{step - 2:.1f}" rx="3"'
            out.append(f'<rect {box} fill-opacity="{0.06 + 0.6 * value:.3f}" data-tip="{tip}"/>')
            out.append(
                f'<text x="{x + step / 2:.1f}" y="{y + step / 2 + 4:.1f}" text-anchor="middle" font-size="11" '
                f'style="fill: var(--ink)" pointer-events="none">{percent(value)}</text>'
            )
    out.append("</svg>")
    return "".join(out)


def _reading(found: Diagnosis) -> str:
    if len(found.homes) < 2:
        return ""
    title = "Guessing the world from what is seen"
    if not found.readings.by_turn:
        return section("reading", title, empty("Too few tasks to fit a classifier."))
    lines = found.readings.by_turn
    points = [
        Point(line.turn, line.accuracy.value, line.accuracy.low, line.accuracy.high, f"{line.bits:.2f} bits, {line.texts} texts")
        for line in lines
    ]
    chance = [Point(line.turn, found.readings.chance) for line in (lines[0], lines[-1])]
    chart = Chart(
        "reading",
        title,
        [Series("accuracy", "accuracy", points, 0, "band"), Series("chance", "chance", chance, 6, dashed=True)],
        percent=True,
        x_label="turn (0: before the first action)",
    )
    legend = '<p class="legend">' + "".join(_key(series) for series in chart.series) + "</p>"
    note = (
        "A text classifier, on tasks that it was not fitted to; the same actions in every world, so that only what is seen can tell. "
        "Shading is the 95 % interval over tasks." + (f" {GUESSING}" if found.verdict.kind == "felt" else "")
    )
    drawn = both_widths(line_chart(chart, 940, 280), line_chart(chart, 350, 240))
    return section("reading", title, f'{legend}{drawn}<p class="note">{escape(note)} {_csv("reading")}</p>')


def _key(series: Series) -> str:
    line = f'<path class="curve{" dashed" if series.dashed else ""}" d="M1 5L25 5"/>'
    swatch = f'<svg class="c{series.color}" viewBox="0 0 26 10" aria-hidden="true">{line}</svg>'
    return f'<span class="key">{swatch}{escape(series.label)}</span>'


def _csv(name: str) -> str:
    return f'<button type="button" class="csv" data-csv="{name}">CSV</button>'


def _pairs(found: Diagnosis) -> str:
    if not found.pairs:
        return ""
    with_policy = any(pair.policy is not None for pair in found.pairs)
    head = ["Worlds", "Answers differ", "On the oracles' path", *(["On the policy's path"] if with_policy else [])]
    head += ["Kendall's tau", "Same script best", "Page offers", "Noticed in time", "Contradict", "Loss of a shared script", "Tasks"]
    rows = []
    for pair, ranking in list(zip(found.pairs, found.rankings, strict=True))[:PAIRS_SHOWN]:
        rows.append(
            row(
                f"{pair.first + 1} | {pair.second + 1}",
                ranged(pair.everywhere),
                ranged(pair.on_path),
                *(["–" if pair.policy is None else ranged(pair.policy)] if with_policy else []),
                "–" if ranking.tau is None else f"{ranking.tau:.2f}",
                ranged(ranking.agree),
                percent(ranking.offered),
                percent(ranking.noticed),
                percent(ranking.apart),
                f"{ranking.gap.value:.2f} [{ranking.gap.low:.2f}, {ranking.gap.high:.2f}]",
                str(ranking.tasks),
            )
        )
    note = "Distances are total variation at states that both worlds reach; brackets are 95 % intervals over tasks."
    if len(found.pairs) > PAIRS_SHOWN:
        note += f" The first {PAIRS_SHOWN} of {len(found.pairs)} pairs; the CSV file has all."
    return section(
        "pairs",
        "Three escape hatches, pair by pair",
        f'<div class="scroll">{table(head, rows)}</div><p class="note">{escape(note)} {_csv("pairs")}</p>',
    )


def _tests(found: Diagnosis) -> str:
    return section("tests", "Tests before deployment", f'<div class="two">{facts("Measured on scripts", test_facts(found))}</div>')


def _tasks(found: Diagnosis) -> str:
    side = found.tasks
    rows = [row(escape(name), percent(share)) for name, share in list(side.categories.items())[:CATEGORIES_SHOWN]]
    pairs = [
        ("clients", str(side.clients)),
        ("different tasks", str(side.tasks)),
        ("chi-square by category, mean", f"{side.by_category.mean:.3f}"),
        ("chi-square by category, worst", f"{side.by_category.worst:.3f} ({side.by_category.client})"),
        ("chi-square by task, mean", f"{side.by_task.mean:.3f}"),
        ("chi-square by task, worst", f"{side.by_task.worst:.3f} ({side.by_task.client})"),
        ("factor of the task bound, by category", f"{side.by_category.factor:.2f}"),
        ("differ by more than chance", "yes" if side.differ else "no"),
    ]
    return section(
        "tasks", "What clients ask", f'<div class="two">{facts("Mixtures", pairs)}{table(["Category", "Mean share"], rows)}</div>'
    )


def _homes(found: Diagnosis) -> str:
    rows = [
        row(
            f"{number}. {escape(home.name)}",
            str(len(home.clients)),
            escape(", ".join(home.clients[:3]) + (", …" if len(home.clients) > 3 else "")),
            f"{home.solved} of {home.tried}",
            "yes" if home.draws else "no",
        )
        for number, home in enumerate(found.homes, start=1)
    ]
    return section(
        "worlds", "Worlds", f'<div class="scroll">{table(["World", "Clients", "For instance", "Oracle solves", "Draws"], rows)}</div>'
    )


def _measured(found: Diagnosis) -> str:
    said = [
        f"{found.matched_tasks} tasks were played in {len(found.homes)} worlds: {found.episodes} episodes of scripted actions "
        f"(each world's oracle, up to {found.settings.deviations} departures from it, {found.settings.walks} random walks)",
        *found.notes,
    ]
    return section("measured", "How this was measured", "<ul>" + "".join(f"<li>{escape(line)}.</li>" for line in said) + "</ul>")


def _pair_rows(found: Diagnosis) -> dict[str, Any]:
    names = [home.name for home in found.homes]
    columns = ["first", "second", "everywhere", "low", "high", "on path", "largest", "tau", "agree", "offered", "noticed", "apart", "gap"]
    pick: Callable[[Any, Any], list[object]] = lambda p, r: [  # noqa: E731
        *(names[p.first], names[p.second], p.everywhere.value, p.everywhere.low, p.everywhere.high, p.on_path.value, p.largest),
        *(r.tau, r.agree.value, r.offered, r.noticed, r.apart, r.gap.value),
    ]
    return {"columns": columns, "rows": [pick(p, r) for p, r in zip(found.pairs, found.rankings, strict=True)]}


def _reading_rows(found: Diagnosis) -> dict[str, Any]:
    rows = [[r.turn, r.accuracy.value, r.accuracy.low, r.accuracy.high, r.bits, r.texts] for r in found.readings.by_turn]
    return {"columns": ["turn", "accuracy", "low", "high", "bits", "texts"], "rows": rows}
