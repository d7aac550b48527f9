"""The tale as one HTML page: frame, captions, tables. The widgets themselves are drawn by the scripts from the embedded data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pipeline.report.document import attribute, document, facts, section
from pipeline.report.tale.story import Story
from pipeline.report.tale.tables import arms_table, published_table
from pipeline.report.tale.widgets import FAMILIES

STYLES = ("page.css", "tale.css")
SCRIPTS = ("vendor/plotly-basic.license.js", "vendor/plotly-basic.min.js", "report.js", "tale.js", "tale_training.js", "tale_more.js")

CAPTIONS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "uniform": (
        "Alike clients: federated, centralized, local",
        "Clients whose tasks and worlds are alike train one agent by averaging its parameters (federated), by pooling everything in one "
        "place (centralized), or each for itself (local): drag the slider to follow their success, training or held out.",
        ("uniform",),
    ),
    "task": (
        "Different tasks: does it hurt when clients ask for different things?",
        "Each client's tasks are a random draw (near-uniform) or as one-sided as can be (extreme) in one respect; switch between the two "
        "and see whether the shared agent, scored on all kinds of tasks, suffers (theorem 2: by the bound factor at most).",
        ("task", "task-differences"),
    ),
    "ladder": (
        "Different worlds: what happens when the same action has different results?",
        "Step down a ladder of worlds that contradict each other more and more while tasks and budget stay the same: bars are the success "
        "of the shared agent, and the hatched area is out of reach for any single agent, because the worlds contradict each other.",
        ("ladder", "ladder-curve"),
    ),
    "bandit": (
        "The smallest case: two clients, one best choice each",
        "One client's best choice is the other's worst, by an amount δ: an agent that cannot tell the two apart must leave one of them at "
        "least δ/2 below its own best, however it is trained; memory or a visible cue lifts that floor.",
        ("bandit",),
    ),
    "hatches": (
        "Escape hatches: when different worlds do no harm",
        "Each row pairs a federation of hidden, contradicting worlds with one whose worlds differ too, but where no good policy meets the "
        "difference, or it changes no best action, or it can be read.",
        ("hatches", "hatches-curve"),
    ),
    "matrix": (
        "Who does well where",
        "Every client's own parameters, and the shared agent's, tried in every world: a dark diagonal in a pale table means that clients "
        "learned their own world and nothing that carries over.",
        ("matrix",),
    ),
    "drift": (
        "How far clients drift apart within a round",
        "Before each averaging, how much the clients' updates agree and how far their agents differ on the same prompts, by algorithm.",
        ("drift",),
    ),
    "cost": (
        "What it cost",
        "Where the time went, how many tokens were read and written, and what clients and server exchanged.",
        ("cost",),
    ),
    "compare": (
        "Any arms side by side",
        "Tick arms to draw their training curves over each other.",
        ("compare",),
    ),
}
"""Title, what to see in one sentence, and the drawings of each widget."""

SHOWN_COMMANDS = 4
PAIRS = {"ladder-curve": "rung-title"}


def render(story: Story) -> str:
    """The page."""
    order = [name for name in CAPTIONS if name in story.widgets]
    if "uniform" not in order and "compare" in order:
        order = ["compare", *(name for name in order if name != "compare")]
    numbers = {name: i for i, name in enumerate(order, 1)}
    sections = [_widget(name, numbers[name], story) for name in order]
    absent = [_absent(name, story) for name in CAPTIONS if name not in story.widgets and story.lacks.get(name)]
    body = "\n".join(
        [
            "<main>",
            _header(story),
            _missing(story),
            _headlines(story, numbers),
            _navigation(order, story),
            *sections,
            *absent,
            _arms(story),
            _published(story),
            _foot(story),
            "</main>",
            '<div id="tip" role="tooltip" hidden></div>',
        ]
    )
    data = {
        "name": story.name,
        "groups": [group.plain() for group in story.groups],
        "widgets": story.widgets,
        "algorithms": story.algorithms,
        "families": FAMILIES,
        "tables": {"arms": story.arms_csv, "published": story.published_csv},
    }
    return document(story.title, body, STYLES, SCRIPTS, data)


def _widget(name: str, number: int, story: Story) -> str:
    title, caption, plots = CAPTIONS[name]
    drawn = []
    for plot in plots:
        heading = f'<h3 id="{PAIRS[plot]}"></h3>' if plot in PAIRS else ""
        kind = "scroll" if plot == "matrix" else "plot"
        drawn.append(f'<div>{heading}<div class="{kind}" id="plot-{plot}"></div></div>')
    pair = " pair" if len(plots) > 1 else ""
    return (
        f'<section id="{name}" class="widget"><h2><span class="num">{number}</span><span>{escape(title)}</span></h2>'
        f'<p class="caption">{escape(caption)}</p><div class="controls"></div><div class="plots{pair}">{"".join(drawn)}</div>'
        f'<div class="readout" aria-live="polite"></div>{_lacks(story.lacks.get(name, []))}{_source(name, story)}</section>'
    )


def _lacks(lacks: Sequence[str]) -> str:
    if not lacks:
        return ""
    if len(lacks) == 1:
        return f'<p class="lacks">Missing: {escape(lacks[0])}</p>'
    items = "".join(f"<li>{escape(text)}</li>" for text in lacks)
    return f'<details class="lacks"><summary>Missing here: {len(lacks)}</summary><ul>{items}</ul></details>'


def _source(name: str, story: Story) -> str:
    groups = story.groups_of(name)
    seeds = sorted({seed for g in groups for seed in g.seeds})
    counts = sorted({int(run["n_eval"]) for g in groups for run in g.runs if run.get("n_eval")})
    parts = [f"{sum(len(g.runs) for g in groups)} runs", f"seeds {_listed(seeds)}" if len(seeds) > 1 else f"seed {_listed(seeds)}"]
    if counts and name not in ("bandit", "cost", "drift"):
        span = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
        parts.append(f"{span} held-out tasks per world")
    if name not in ("cost", "matrix"):
        parts.append(
            "bands and whiskers: 95 % t interval over seeds"
            if any(len(g.runs) > 1 for g in groups)
            else "one seed; whiskers: 95 % Wilson interval of its held-out tasks"
        )
    commands = dict.fromkeys(str(run["command"]) for g in groups for run in g.runs if run.get("command"))
    made = "".join(f"<code>{escape(command)}</code>" for command in list(commands)[:SHOWN_COMMANDS])
    button = f'<button type="button" class="csv" data-save title="Download the data as CSV">CSV<span hidden> of {name}</span></button>'
    return f'<div class="source"><span>{escape("; ".join(parts))}</span>{made}{button}</div>'


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > 4 and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"


def _absent(name: str, story: Story) -> str:
    lines = "".join(f"<li>{escape(text)}</li>" for text in story.lacks[name])
    nothing = '<p class="empty">These results hold nothing for it yet. Missing:</p>'
    body = f'<p class="caption">{escape(CAPTIONS[name][1])}</p>{nothing}<ul class="empty">{lines}</ul>'
    return section(f"{name}-missing", CAPTIONS[name][0], body)


def _header(story: Story) -> str:
    seeds = sorted({seed for g in story.groups for seed in g.seeds})
    runs = sum(len(g.runs) for g in story.groups)
    count = f"{runs} run" + ("s" if runs != 1 else "") + f" of {len(story.groups)} arm" + ("s" if len(story.groups) != 1 else "")
    facts_line = [count, f"seed{'s' if len(seeds) != 1 else ''} {_listed(seeds)}", story.date, story.machine]
    return (
        f"<header><h1>{escape(story.title)}</h1><p>{escape('; '.join(f for f in facts_line if f))}</p>"
        f'<p class="lead">{escape(story.lead)}</p></header>'
    )


def _missing(story: Story) -> str:
    if not story.missing:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in story.missing[:30])
    more = f"<li>and {len(story.missing) - 30} more</li>" if len(story.missing) > 30 else ""
    head = "What these results do not hold yet"
    summary = f"<summary><b>{head} ({len(story.missing)})</b></summary>"
    opened = " open" if len(story.missing) < 6 else ""
    return f'<section class="banner" id="missing"><details{opened}>{summary}<ul>{items}{more}</ul></details></section>'


def _headlines(story: Story, numbers: Mapping[str, int]) -> str:
    tiles = []
    for line in story.headlines:
        link = f'<a href="#{line.widget}">Section {numbers[line.widget]}</a>' if line.widget in numbers else ""
        tiles.append(
            f'<div class="tile"><h3>{escape(line.title)}</h3><p class="big">{escape(line.big)}</p><p>{escape(line.small)}</p>{link}</div>'
        )
    return f'<section class="tiles five" id="headlines">{"".join(tiles)}</section>' if tiles else ""


SHORT = {
    "uniform": "Alike clients", "task": "Different tasks", "ladder": "Different worlds", "bandit": "Two clients",
    "hatches": "Escape hatches", "matrix": "Who, where", "drift": "Drift", "cost": "Cost", "compare": "Compare arms",
}  # fmt: skip


def _navigation(order: Sequence[str], story: Story) -> str:
    links = [f'<a href="#{name}">{escape(SHORT[name])}</a>' for name in order]
    links += ['<a href="#arms">All numbers</a>'] if story.groups else []
    links += ['<a href="#published">Published numbers</a>'] if story.published_csv["rows"] else []
    return f'<nav aria-label="Parts of this page">{"".join(links)}</nav>'


def _arms(story: Story) -> str:
    note = (
        "Success in percent; in brackets the 95 % t interval over seeds, with one seed Wilson's interval of its held-out tasks. The limit "
        "is the best mean over worlds that any shared policy could reach; floor: worlds contradict each other, so that no shared policy "
        "can pass it; slack: one shared policy could serve all."
    )
    return section("arms", "All arms and their numbers", arms_table(story.groups) + _note(note, "arms"))


def _published(story: Story) -> str:
    if not story.published_csv["rows"]:
        return ""
    note = (
        "L10 is the mean of the last ten points of a curve. Published numbers are success on the unperturbed world with 1.5 B parameters; "
        f"ours are a small model's, so compare the shares of the uniform arm rather than the levels. Quoted from {story.source}."
    )
    return section("published", "Our numbers beside the published ones", published_table(story.published) + _note(note, "published"))


def _foot(story: Story) -> str:
    versions = [(str(k), str(v)) for k, v in story.versions.items()]
    made = "".join(f"<pre>{escape(command)}</pre>" for command in story.commands)
    body = f"<h3>Command</h3>{made}" + (facts("Versions", versions) if versions else "")
    text = (
        "fedagent-ray. Intervals are at 95 %: over seeds Student's t (the bootstrap over seeds is in the CSV files), differences paired by "
        "seed, single runs Wilson (1927). Charts: plotly.js, MIT licence, within this file; the page loads nothing."
    )
    return section("source", "How this was made", body) + f"<footer><p>{escape(text)}</p></footer>"


def _note(text: str, name: str) -> str:
    button = f'<button type="button" class="csv" data-csv="{attribute(name)}">CSV</button>'
    return f'<p class="note">{escape(text)} {button}</p>'
