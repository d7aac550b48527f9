"""The tables of the tale: every arm with its numbers, and our numbers beside published ones. HTML and the rows for CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from pipeline.report.document import attribute, empty
from pipeline.report.tale.groups import VALUES, Group, Plain
from pipeline.report.tale.published import L10, REFERENCE, Citation
from pipeline.reproduce.statistics import Summary

FAMILY_NAMES = {"uniform": "alike", "task": "tasks", "environment": "worlds", "escape": "hatch", "alfworld": "ALFWorld"}
COLUMNS = (
    ("start", "Before"),
    ("mean_worlds", "Mean over own worlds"),
    ("worst_world", "Worst world"),
    ("control", "Control world"),
    ("floor", "Limit"),
    ("alone", "Alone in its world"),
    ("after_local", "After local training"),
)


@dataclass(frozen=True)
class Beside:
    """A published number and the arm of ours that stands beside it, with the uniform arm that shares are taken of."""

    citation: Citation
    ours: Group | None
    uniform: Group | None


def arms_table(groups: Sequence[Group]) -> str:
    """A row for each arm, sortable by any column."""
    if not groups:
        return empty("There are no arms.")
    heads = ["Arm", "Runs", *(title for _, title in COLUMNS)]
    header = "".join(f'<th><button type="button">{escape(h)}</button></th>' for h in heads)
    body = "".join(_row(group) for group in groups)
    return f'<div class="scroll tall"><table class="sortable"><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def _row(group: Group) -> str:
    detail = ", ".join(p for p in (FAMILY_NAMES.get(group.text("family"), group.text("family")), group.text("mode")) if p)
    cells = [
        f'<td class="name" data-v="{attribute(group.title)}">{escape(group.title)}<small>{escape(detail)}</small></td>',
        f'<td data-v="{len(group.runs)}">{len(group.runs)}<small>× {group.n // len(group.runs):,} tasks</small></td>',
    ]
    for key, _ in COLUMNS:
        if key == "floor":
            kind = "" if group.kind == "none" else f"<small>{escape(group.kind)}</small>"
            cells.append(_cell(group.floor, f"{_percent(group.floor)}{kind}"))
            continue
        summary = group.values.get(key)
        cells.append(_cell(summary.mean if summary else None, _summary(summary)))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: float | None, shown: str) -> str:
    return f'<td data-v="{"" if value is None else round(value, 5)}">{shown}</td>'


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _summary(summary: Summary | None) -> str:
    if summary is None:
        return "–"
    if summary.low is None or summary.high is None:
        return _percent(summary.mean)
    return f"{_percent(summary.mean)}<small>[{_percent(summary.low)}, {_percent(summary.high)}]</small>"


def arms_csv(groups: Sequence[Group]) -> Plain:
    """All numbers of all arms; rates in [0, 1]."""
    columns = ["arm", "name", "family", "variant", "severity", "algorithm", "mode", "seeds", "heldout_episodes", "limit", "kind", "bound"]
    for key in VALUES:
        columns += [key, f"{key}_low", f"{key}_high", f"{key}_bootstrap_low", f"{key}_bootstrap_high"]
    rows = []
    for group in groups:
        values: list[object] = [group.label, *(group.first.get(k) for k in ("name", "family", "variant", "severity", "algorithm", "mode"))]
        values += [" ".join(map(str, group.seeds)), group.n, group.floor, group.kind, group.first.get("bound")]
        for key in VALUES:
            s = group.values.get(key)
            values += [s.mean, s.low, s.high, s.boot_low, s.boot_high] if s else [None] * 5
        rows.append(values)
    return {"columns": columns, "rows": rows}


def published_table(lines: Sequence[Beside]) -> str:
    """Published success and share of the published uniform arm; ours on the same, and the mean over own worlds, which was not published."""
    heads = ("What", "Published", "Share of uniform", "Ours, control world", "Ours, own worlds", "Share of uniform", "Source and reading")
    header = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join(f"<tr>{''.join(_beside(line))}</tr>" for line in lines)
    return f'<div class="scroll tall"><table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table></div>'


def _beside(line: Beside) -> list[str]:
    c = line.citation
    ours = line.ours.values if line.ours else {}
    share, our_share = shares(line)
    cells = [
        f"{c.value:.1f} ± {c.spread:.1f}",
        _share(share),
        _summary(ours.get("control")),
        _summary(ours.get("mean_worlds")),
        _share(our_share),
    ]
    name = f"{escape(describe(c))}" + (f"<small>{escape(line.ours.label)}</small>" if line.ours else "<small>no arm of ours</small>")
    source = f"<td>{escape(c.figure)}<small>{escape('L10, one run' if c.reading == L10 else c.reading)}</small></td>"
    return [f'<td class="name">{name}</td>', *(f"<td>{cell}</td>" for cell in cells), source]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def shares(line: Beside) -> tuple[float | None, float | None]:
    """Share of the uniform arm's success: published (environment arms of Figure 6), and ours (mean over own worlds)."""
    c = line.citation
    published = c.value / REFERENCE[c.algorithm] if c.family == "environment" else None
    mine, uniform = (g.values.get("mean_worlds") if g else None for g in (line.ours, line.uniform))
    if c.family != "environment" or mine is None or uniform is None or not uniform.mean:
        return published, None
    return published, mine.mean / uniform.mean


def describe(c: Citation) -> str:
    """What a published number is of, in words."""
    algorithm = {"grpo": "GRPO", "ppo": "PPO"}[c.algorithm]
    world = {"webshop": "WebShop", "alfworld": "ALFWorld"}[c.world]
    what = {"uniform": c.mode, "task": f"{c.variant}, {'near-uniform' if c.split == 'near' else 'extreme'}"}.get(
        c.family, c.variant.replace("_", " ")
    )
    return f"{world}, {what}, {algorithm}"


def published_csv(lines: Sequence[Beside]) -> Plain:
    """The same for CSV; percent for published numbers as printed, rates in [0, 1] for ours."""
    columns = [
        "what",
        "published_percent",
        "spread",
        "figure",
        "reading",
        "published_share",
        "our_arm",
        "our_control",
        "our_mean_worlds",
        "low",
        "high",
        "our_share",
    ]
    rows = []
    for line in lines:
        c, ours = line.citation, line.ours.values if line.ours else {}
        control, own = ours.get("control"), ours.get("mean_worlds")
        share, our_share = shares(line)
        own_values = [own.mean, own.low, own.high] if own else [None] * 3
        rows.append(
            [
                describe(c),
                c.value,
                c.spread,
                c.figure,
                c.reading,
                share,
                line.ours.label if line.ours else None,
                control.mean if control else None,
                *own_values,
                our_share,
            ]
        )
    return {"columns": columns, "rows": rows}
