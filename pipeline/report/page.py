"""Writes a report's page. Owns HTML, wording and order; the numbers come from ``data``. Everything is escaped."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from pipeline.progress import duration, short
from pipeline.report.chart import Chart, line_chart, number, spark, stacked_columns
from pipeline.report.data import ClientLine, Gain, ReportData
from pipeline.report.document import attribute, both_widths, document, empty, facts, section
from pipeline.report.rates import Rate
from pipeline.report.worlds_section import own_worlds_tile, worlds_section

MAX_CLIENT_ROWS = 200
MAIN_SIGNALS = 6
TIP = '<div id="tip" role="status" hidden></div>'

Tables = dict[str, dict[str, Any]]
"""What the CSV buttons hand out: columns and rows by name."""


def render(data: ReportData, episodes_page: str | None = None) -> str:
    """The page. ``episodes_page`` is the episode viewer's address, relative to the report."""
    tables: Tables = {}
    sections = [
        _head(data, episodes_page),
        _banner(data),
        _headline(data),
        *((_worlds(data, tables), _success(data, tables)) if data.worlds.lines else (_success(data, tables),)),
        _clients(data, tables),
        _time(data, tables),
        _signals(data, tables),
        _failures(data),
        _cost(data),
        _configuration(data),
        _foot(),
    ]
    body = "<main>" + "\n".join(s for s in sections if s) + "</main>" + TIP
    return document(f"{data.name}: report", body, ["page.css"], ["report.js"], {"name": data.name, "tables": tables})


def _head(data: ReportData, episodes_page: str | None) -> str:
    config = data.config
    federation, algorithm, world, model = (config.get(k) or {} for k in ("federation", "algorithm", "world", "model"))
    facts = []
    if federation:
        facts.append(f"{federation.get('mode', 'federated')} {str(algorithm.get('name', '')).upper()}".strip())
        clients = f"{federation.get('clients', '?')} clients"
        mode = federation.get("mode", "federated")
        if mode == "centralized":
            clients = f"the tasks of {clients} pooled"
        elif mode == "local":
            clients = f"client {federation.get('local_client', 0)} of {clients} alone"
        elif federation.get("clients_per_round") not in (None, federation.get("clients")):
            clients += f", {federation['clients_per_round']} per round"
        facts.append(clients)
    if world.get("name"):
        facts.append(f"world {world['name']}")
    if model.get("name"):
        facts.append(f"model {model['name']}, {model.get('adapter', '?')}")
    links = ['<a href="metrics.jsonl">metrics.jsonl</a>']
    if (data.folder / "config.resolved.json").is_file():
        links.append('<a href="config.resolved.json">config.resolved.json</a>')
    if (data.folder / "partition.html").is_file():
        links.insert(0, '<a href="partition.html">who owns which tasks</a>')
    if episodes_page:
        links.insert(0, f'<a href="{escape(episodes_page, quote=True)}">episodes turn by turn</a>')
    return f"<header><h1>{escape(data.name)}</h1><p>{escape(' · '.join(facts))}</p><p class='links'>{' '.join(links)}</p></header>"


def _banner(data: ReportData) -> str:
    if not data.missing:
        return ""
    items = "".join(f"<li>{escape(m)}</li>" for m in data.missing)
    return f'<section class="banner" id="missing"><strong>This report is not complete</strong><ul>{items}</ul></section>'


def _headline(data: ReportData) -> str:
    where = ", unperturbed world" if data.worlds.lines else ""
    tiles = [own_worlds_tile(data.worlds)] if data.worlds.means else []
    tiles += [_gain_tile(gain, where) for gain in (data.sampled, data.greedy) if gain]
    totals = data.totals
    rounds = f"{data.rounds_done} of {data.rounds_planned}" if data.rounds_planned is not None else str(data.rounds_done)
    cost = [f"<b>{rounds}</b> rounds"]
    if totals.get("episodes") is not None:
        cost.append(f"<b>{totals['episodes']:,.0f}</b> training episodes")
    if totals.get("seconds") is not None:
        cost.append(f"<b>{duration(float(totals['seconds'] or 0))}</b> wall clock")
    tiles.append(f'<div class="tile"><h3>Work</h3><p class="lines">{"<br>".join(cost)}</p></div>')
    return f'<section class="tiles" id="headline">{"".join(tiles)}</section>'


def _gain_tile(gain: Gain, where: str) -> str:
    how = "greedy" if gain.mode == "greedy" else "sampled" + (f" (T = {number(gain.temperature)})" if gain.temperature else "")
    title = f"Held-out success{where}, {how}"
    if gain.first.round == gain.last.round:
        when = f"after round {gain.first.round}" if gain.first.round else "before training"
        return (
            f'<div class="tile"><h3>{escape(title)}</h3><p class="big">{_percent(gain.first)}</p>'
            f"<p>{when}, {_range(gain.first)}, {gain.first.n} tasks</p></div>"
        )
    low, high = gain.interval
    difference = 100 * (gain.last.value - gain.first.value)
    n = f"{gain.last.n} tasks" if gain.first.n == gain.last.n else f"{gain.first.n} and {gain.last.n} tasks"
    return (
        f'<div class="tile"><h3>{escape(title)}</h3>'
        f'<p class="big">{_percent(gain.first)} <span class="arrow">→</span> {_percent(gain.last)}</p>'
        f"<p>{_range(gain.first)} → {_range(gain.last)}</p>"
        f"<p>{difference:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], rounds {gain.first.round} to {gain.last.round}, {n}</p></div>"
    )


def _success(data: ReportData, tables: Tables) -> str:
    chart = data.success
    if chart is None:
        return section("success", "Success over rounds", empty("Nothing measured yet."))
    _table(tables, chart)
    note = (
        "Held-out tasks are never trained on. Shading and whiskers are Wilson 95 % intervals. Training success has no interval: its "
        "episodes come in groups of one task and are not independent."
    )
    drawn = both_widths(line_chart(chart, 940, 340), line_chart(chart, 350, 280))
    title = f"{chart.title}{', in the unperturbed world' if data.worlds.lines else ''}"
    return section("success", title, f"{_legend(chart)}{drawn}{_note(note, chart.id)}")


def _legend(chart: Chart) -> str:
    keys = []
    for s in chart.series:
        line = f'<path class="curve{" dashed" if s.dashed else ""}" d="M1 5L25 5"/>'
        swatch = f'<svg class="c{s.color}" viewBox="0 0 26 10" aria-hidden="true">{line}</svg>'
        toggle = f'type="button" class="key" aria-pressed="true" data-toggle="{attribute(s.key)}"'
        keys.append(f"<button {toggle}>{swatch}{escape(s.label)}</button>")
    return f'<p class="legend">{"".join(keys)}</p>'


def _worlds(data: ReportData, tables: Tables) -> str:
    chart = data.worlds.chart
    if chart is not None:
        _table(tables, chart)
    note = (
        ""
        if chart is None
        else _note("Each client lives in one world; what it is asked does not say which, unless world.variant.reveal does.", chart.id)
    )
    return worlds_section(data.worlds, "" if chart is None else _legend(chart), note)


def _clients(data: ReportData, tables: Tables) -> str:
    if not data.clients:
        return section("clients", "Clients", empty("No client has reported yet."))
    own, worlds, asks = (any(getattr(c, what) for c in data.clients) for what in ("own", "world", "asks"))
    tables["clients"] = _client_table(data.clients)
    head = [
        "Client",
        *(["World"] if worlds else []),
        *(["Mostly asks"] if asks else []),
        "First",
        "Last",
        "Success per visit",
        "Score",
        "Invalid",
        "Visits",
        "Failed",
        "Episodes",
        "Tokens",
    ]
    head += ["Rollout", "Training"]
    head += ["Own, held-out"] if own else []
    header = "".join(f'<th><button type="button">{h}</button></th>' for h in head)
    rows = "".join(_client_row(c, own, worlds, asks) for c in data.clients[:MAX_CLIENT_ROWS])
    note = "Success of training episodes at the first and last visit; click a heading to sort."
    if len(data.clients) > MAX_CLIENT_ROWS:
        note += f" The first {MAX_CLIENT_ROWS} of {len(data.clients)} clients; the CSV file has all."
    body = f'<div class="scroll"><table class="sortable"><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>'
    return section("clients", "Clients", body + _note(note, "clients"))


def _client_table(clients: Sequence[ClientLine]) -> dict[str, Any]:
    columns = [
        "client",
        "visits",
        "failures",
        "retries",
        "episodes",
        "tokens",
        "first success",
        "last success",
        "last score",
        "last invalid",
    ]
    columns += ["rollout s", "train s", "own success", "own low", "own high", "world", "mostly asks"]
    rows = []
    for c in clients:
        first, last = (c.success[0], c.success[-1]) if c.success else (None, None)
        values: list[object] = [c.client, c.visits, c.failures, c.retries, c.episodes, c.tokens, first, last, c.score, c.invalid]
        values += [round(c.rollout_seconds, 2), round(c.train_seconds, 2)]
        rows.append([*values, *([c.own.value, *c.own.interval] if c.own else [None, None, None]), c.world, c.asks])
    return {"columns": columns, "rows": rows}


def _client_row(c: ClientLine, own: bool, worlds: bool, asks: bool) -> str:
    first, last = (c.success[0], c.success[-1]) if c.success else (None, None)
    cells: list[tuple[str, object]] = [
        (escape(c.client), c.client),
        *([(escape(c.world), c.world)] if worlds else []),
        *([(escape(c.asks), c.asks)] if asks else []),
        (_share(first), first),
        (_share(last), last),
        (spark(c.success), last),
        ("–" if c.score is None else f"{c.score:.2f}", c.score),
        (_share(c.invalid), c.invalid),
        (str(c.visits), c.visits),
        (f"{c.failures}" + (f" <small>+{c.retries} retried</small>" if c.retries else ""), c.failures),
        (f"{c.episodes:,}", c.episodes),
        (short(c.tokens), c.tokens),
        (duration(c.rollout_seconds), c.rollout_seconds),
        (duration(c.train_seconds), c.train_seconds),
    ]
    if own:
        cells.append((f"{_percent(c.own)} {_range(c.own)}" if c.own else "–", c.own.value if c.own else None))
    return "<tr>" + "".join(f'<td data-v="{attribute("" if v is None else v)}">{text}</td>' for text, v in cells) + "</tr>"


def _time(data: ReportData, tables: Tables) -> str:
    if not data.columns:
        return section("time", "Where the time goes", empty("No round has finished yet."))
    tables["time"] = {"columns": ["round", *data.phases], "rows": [[b.name, *b.values] for b in data.columns]}
    sums = [sum(b.values[i] for b in data.columns) for i in range(len(data.phases))]
    total = sum(sums)
    parts, keys = [], []
    for i, (phase, seconds) in enumerate(zip(data.phases, sums, strict=True)):
        share = seconds / total if total else 0.0
        tip = attribute(f"{phase}: {duration(seconds)}, {100 * share:.0f}%")
        parts.append(f'<span class="part b{i % 8}" style="flex-grow:{share:.4f}" data-tip="{tip}"></span>')
        keys.append(f'<span class="key"><span class="swatch b{i % 8}"></span>{escape(phase)} {duration(seconds)}</span>')
    wall = data.totals.get("round_seconds")
    note = "Seconds of work, summed over clients."
    if wall is not None and total > 1.05 * wall:
        note += f" Clients roll out and train side by side: the sum ({duration(total)}) exceeds the rounds' wall clock ({duration(wall)})."
    colors = [i % 8 for i in range(len(data.phases))]
    drawn = [stacked_columns(data.columns, data.phases, colors, w, h, "Seconds per round and phase") for w, h in ((940, 240), (350, 220))]
    body = f'<div class="stack">{"".join(parts)}</div><p class="legend">{"".join(keys)}</p>{both_widths(*drawn)}{_note(note, "time")}'
    return section("time", "Where the time goes", body)


def _signals(data: ReportData, tables: Tables) -> str:
    if not data.signals:
        return section("signals", "Learning signals by round", empty("No round has finished yet."))
    figures = []
    for chart, unit in data.signals:
        _table(tables, chart)
        last = number(chart.series[0].points[-1].y)
        caption = f"<b>{escape(chart.title)}</b><span>{last}</span><small>{escape(unit) or '&nbsp;'}</small>"
        figures.append(f"<figure><figcaption>{caption}</figcaption>{line_chart(chart, 300, 130)}{_csv(chart.id)}</figure>")
    first, rest = "".join(figures[:MAIN_SIGNALS]), "".join(figures[MAIN_SIGNALS:])
    spikes = (
        "The KL is an estimate per token (algorithm.kl_estimator): where the policy has all but given up a token that the anchor liked, "
        "a few tokens can lift the mean of a whole round. It is weighted by algorithm.kl_coef, and gradients are clipped."
    )
    more = f'<details><summary>More signals</summary><div class="grid3">{rest}</div></details>' if rest else ""
    return section("signals", "Learning signals by round", f'<div class="grid3">{first}</div><p class="note">{escape(spikes)}</p>{more}')


def _failures(data: ReportData) -> str:
    if not data.failures:
        return ""
    items = []
    for f in data.failures:
        attempts = "" if f.attempts is None else f", {f.attempts} attempts"
        link = f', <a href="{attribute(f.traceback)}">traceback</a>' if f.traceback else ""
        items.append(f"<li>round {f.round}, <b>{escape(f.client)}</b>{attempts}{link}<pre>{escape(f.error)}</pre></li>")
    note = "They were left out of the average of that round. The first line of the first attempt's error:"
    return section("failures", "Clients that failed", f'<p class="note">{note}</p><ul class="errors">{"".join(items)}</ul>')


def _cost(data: ReportData) -> str:
    totals, start = data.totals, data.history.start

    def count(key: str, show: Callable[[float], str]) -> str:
        value = totals.get(key)
        return "not recorded" if value is None else show(value)

    resumed = [f"after round {s['resumed_from']}" for s in data.history.starts if s.get("resumed_from") is not None]
    seed = (data.config.get("run") or {}).get("seed")
    pairs = [
        ("Training episodes", count("episodes", lambda v: f"{v:,.0f}")),
        ("Held-out episodes", count("heldout_episodes", lambda v: f"{v:,.0f}")),
        ("Tokens read and written in training", count("tokens", lambda v: f"{v:,.0f}")),
        ("From clients to the aggregator", count("bytes_up", _bytes)),
        ("From the aggregator to clients", count("bytes_down", _bytes)),
        ("Wall clock", count("seconds", duration)),
        ("Seed", "not recorded" if seed is None else str(seed)),
        ("Resumed", ", ".join(resumed) or "no"),
    ]
    overlap = (start.get("plan") or {}).get("overlap") or {}
    pairs += [(f"Overlap of splits: {str(name).replace('_', ' ')}", f"{value:,}") for name, value in overlap.items()]
    versions = [(str(k), str(v)) for k, v in (start.get("versions") or {}).items()]
    shown = "\n".join(_command(s) for s in data.history.starts) or _command({})
    body = f'<div class="two">{facts("Cost", pairs)}{facts("Versions", versions) if versions else ""}</div>'
    return section("cost", "What it took", f"{body}<h3 class='gap'>Command</h3><pre>{escape(shown)}</pre>")


def _command(start: Mapping[str, Any]) -> str:
    command = start.get("command") or "python -m pipeline.run --config config.resolved.json"
    return shlex.join(str(c) for c in command) if isinstance(command, list) else str(command)


def _configuration(data: ReportData) -> str:
    if not data.config:
        return section("configuration", "Configuration", empty("Not recorded."))
    parts = []
    for name, values in data.config.items():
        fields = values if isinstance(values, dict) else {"": values}
        parts.append(facts(str(name), [(str(k), _value(v)) for k, v in fields.items()]))
    summary = "<summary>All settings of this run</summary>"
    return section("configuration", "Configuration", f'<details>{summary}<div class="two">{"".join(parts)}</div></details>')


def _foot() -> str:
    text = "fedagent-ray. Intervals are at 95 %; success rates: Wilson (1927), differences: Newcombe (1998), method 10."
    return f"<footer><p>{text}</p></footer>"


def _note(text: str, table_name: str) -> str:
    return f'<p class="note">{escape(text)} {_csv(table_name)}</p>'


def _table(tables: Tables, chart: Chart) -> None:
    tables[chart.id] = {"columns": ["series", chart.x_label or "round", "value", "low", "high"], "rows": chart.rows()}


def _csv(name: str) -> str:
    return f'<button type="button" class="csv" data-csv="{attribute(name)}">CSV</button>'


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f}%"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}%"


def _range(rate: Rate) -> str:
    low, high = rate.interval
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
