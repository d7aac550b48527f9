"""The figures of the tale on paper: what the page draws with its scripts, drawn with Matplotlib for notebooks and documents.

Every function takes the story or its groups and returns a figure. What fills a figure is the page's (``pipeline.report.tale.widgets``);
error bars and bands are the groups' 95 % intervals. Rates are in %.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING

from pipeline.report.tale.groups import ALGORITHMS, Group, Plain
from pipeline.report.tale.story import Story
from pipeline.report.tale.widgets import plain_label
from pipeline.reproduce.arms import PLAYS
from pipeline.theory import floor, memory_gap, swap_gaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#008f6b", "#aa4499", "#b58900", "#56a5d8", "#7a7f87", "#882255")
"""The page's, told apart by colour-blind readers too."""
OF: Mapping[str, str] = {"grpo": COLORS[0], "ppo": COLORS[1]}
SOFT = "#7a7f87"
WIDTH = 8.0
LACKS_SHOWN = 6


def curves(groups: Sequence[Group], metric: str = "mean_worlds") -> Figure:
    """``metric`` over training episodes: mean over worlds, ``worst_world``, ``control``, or ``train``."""
    figure, axes = _new(3.4)
    for place, group in enumerate(groups):
        curve = group.plain()["curve"]
        found = curve["metrics"].get(metric)
        if found is None:
            continue
        points = [(e or 0, *p) for e, *p in zip(curve["episodes"], *(found[k] for k in ("mean", "low", "high")), strict=True)]
        points = [p for p in points if p[1] is not None]
        color = COLORS[place % len(COLORS)]
        axes.plot([p[0] for p in points], [100 * p[1] for p in points], color=color, marker="o", markersize=3, label=group.title)
        sure = [p for p in points if p[2] is not None]
        axes.fill_between([p[0] for p in sure], [100 * p[2] for p in sure], [100 * p[3] for p in sure], color=color, alpha=0.15, lw=0)
    axes.set(xlabel="training episodes", ylabel="success [%]", ylim=(0, 100))
    return _legend(figure, axes)


def uniform(story: Story) -> Figure:
    """Alike clients: federated, centralized and local, by algorithm."""
    rows = [
        (f"{world['label']}, {arm['label']}", {algorithm: story.groups[arm["group"]]})
        for world in story.widgets.get("uniform", {}).get("worlds", [])
        for algorithm, arms in world["algorithms"].items()
        for arm in arms
    ]
    return _dots(_joined(rows))


def tasks(story: Story) -> Figure:
    """Every axis of the task split, near-uniform and extreme."""
    rows = [
        (f"{axis['label']}, {'near-uniform' if side == 'near' else side}", _groups(story, ids))
        for axis in story.widgets.get("task", {}).get("axes", [])
        for side, ids in axis["arms"].items()
    ]
    return _dots(rows)


def ladder(story: Story, which: str = "webshop", metric: str = "mean_worlds") -> Figure:
    """The rungs from alike worlds to contradiction; a mark is the best that any shared policy could do, where worlds have a floor."""
    rungs = [r for one in story.widgets.get("ladder", {}).get("ladders", []) if one["key"] == which for r in one["rungs"]]
    return _dots(
        [(rung["label"], _groups(story, rung["arms"])) for rung in rungs],
        metric,
        {n: r["limit"] for n, r in enumerate(rungs) if r["kind"] == "floor"},
    )


def hatches(story: Story) -> Figure:
    """Each way out of a contradiction above the same worlds without it."""
    rows = []
    for hatch in story.widgets.get("hatches", {}).get("hatches", []):
        rows.append((hatch["label"], _groups(story, hatch["hatch"])))
        if hatch["twin"]:
            rows.append(("   hidden twin", _groups(story, hatch["twin"])))
    return _dots(rows)


def bandit(story: Story, algorithm: str = "grpo", plays: int = PLAYS["memory"]) -> Figure:
    """What the worst of two clients loses, trained, beside the exact floors of a blind policy and of one that remembers its ``plays``."""
    figure, axes = _new(3.6)
    deltas = [place / 50 for place in range(51)]
    axes.plot(deltas, [floor(d) for d in deltas], color=SOFT, ls="--", lw=1, label="floor of every blind policy, δ/2")
    axes.plot(deltas, [memory_gap(d, plays) / plays for d in deltas], color=SOFT, ls=":", lw=1, label=f"best with memory of {plays} plays")
    for place, kind in enumerate(story.widgets.get("bandit", {}).get("kinds", [])):
        found = _groups(story, kind["arms"].get(algorithm, {}))
        points = [(float(delta), group.values["worst_gap"]) for delta, group in found.items()]
        color = COLORS[place]
        x, y = [p[0] + 0.008 * (place - 1) for p in points], [p[1].mean for p in points]
        bars = [[max(0.0, p[1].mean - _or(p[1].low, p[1].mean)) for p in points], [_or(p[1].high, p[1].mean) - p[1].mean for p in points]]
        if points:
            axes.errorbar(x, y, yerr=bars, color=color, marker="o", markersize=5, lw=0, elinewidth=1, label=f"trained: {kind['label']}")
    axes.set(xlabel="δ, distance between the two worlds", ylabel="worst client's gap [reward per play]", ylim=(-0.1, 1.05))
    return _legend(figure, axes)


def swap(delta: float) -> Figure:
    """Both clients' gaps for every blind policy: whatever one wins, the other loses, and the mean is flat."""
    figure, axes = _new(3.2)
    chances = [place / 50 for place in range(51)]
    both = [swap_gaps(p, delta) for p in chances]
    for client in (0, 1):
        axes.plot(chances, [gaps[client] for gaps in both], color=COLORS[client], label=f"client {client + 1}")
    axes.plot(chances, [max(gaps) for gaps in both], color=COLORS[3], lw=3, alpha=0.35, label="the worse of the two")
    axes.plot(chances, [sum(gaps) / 2 for gaps in both], color=SOFT, ls="--", label="mean of the two, δ/2")
    axes.set(xlabel="probability of playing the first arm", ylabel=f"gap [reward], δ = {delta:g}", ylim=(-0.02, None))
    return _legend(figure, axes)


def matrix(story: Story, name: str) -> Figure:
    """Success of each client's own parameters in every world, its own in bold, and below them the shared agent's: of the arm ``name``, mean
    over seeds where clients live in the same worlds under each, else of the first seed."""
    found: list[Plain] = next((g.plain()["matrices"] for g in story.groups if g.text("name") == name), [])
    if not found:
        return _legend(*_new(1.2))
    clients, worlds, homes = list(found[0]["clients"]), list(found[0]["worlds"]), list(found[0].get("homes", ()))
    figure, axes = _new(0.9 + 0.36 * len(clients))
    rates = [[float("nan") if rate is None else 100 * rate for rate in row] for row in found[0]["rates"]]
    image = axes.imshow(rates, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    for row, values in enumerate(rates):
        for column, value in enumerate(values):
            own = row < len(homes) and homes[row] == worlds[column]
            ink, told = "white" if value > 55 else "black", "-" if isnan(value) else f"{value:.0f}"
            axes.text(column, row, told, ha="center", va="center", color=ink, weight="bold" if own else None)
    axes.set_xticks(range(len(worlds)), [_short(world) for world in worlds])
    lives = [f", in {_short(home)}" if home else "" for home in homes] + [""] * (len(clients) - len(homes))
    axes.set_yticks(range(len(clients)), [client + home for client, home in zip(clients, lives, strict=True)])
    axes.set(xlabel="world")
    figure.colorbar(image, ax=axes, label="success [%]")
    return figure


def drift(groups: Sequence[Group], measure: str = "cosine") -> Figure:
    """A measure of the clients' drift by round: ``cosine``, ``norm``, ``ratio``, ``divergence``, ``shift`` or ``clip_fraction``."""
    from matplotlib.ticker import MaxNLocator

    figure, axes = _new(3.2)
    for place, group in enumerate(groups):
        plain = group.plain()["drift"]
        if (found := plain["metrics"].get(measure)) is not None:
            axes.plot(plain["round"], found["mean"], color=COLORS[place % len(COLORS)], marker="o", markersize=3, label=group.title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="round", ylabel={"cosine": "mean cosine of the clients' updates"}.get(measure, measure.replace("_", " ")))
    return _legend(figure, axes)


def severity(points: Sequence[tuple[str, float, float]], ylabel: str = "mean over worlds [%]") -> Figure:
    """Trained rates beside the best that a shared policy can reach: ``(label, trained, best)`` with rates in [0, 1]."""
    figure, axes = _new(3.2)
    places = range(len(points))
    axes.bar(places, [100 * p[1] for p in points], color=COLORS[0], width=0.6, label="trained")
    axes.hlines(
        [100 * p[2] for p in points], [n - 0.42 for n in places], [n + 0.42 for n in places], color="black", label="best shared policy"
    )
    axes.set_xticks(list(places), [p[0] for p in points])
    axes.set(ylabel=ylabel, ylim=(0, 100))
    return _legend(figure, axes)


def sentence(story: Story, widget: str) -> str:
    """What the page says above a widget, with its numbers; what the results lack where it has nothing to say."""
    told = [f"**{line.title}: {line.big}** ({line.small})." for line in story.headlines if line.widget == widget]
    lacks = [] if told else story.lacks.get(widget, ())
    return " ".join([*told, *(["Not in these results:"] if lacks else []), *lacks[:LACKS_SHOWN]])


def _dots(
    rows: Sequence[tuple[str, Mapping[str, Group]]], metric: str = "mean_worlds", limits: Mapping[int, float | None] | None = None
) -> Figure:
    """A line per row, a point with its interval per algorithm, and a bar where no shared policy can pass."""
    figure, axes = _new(max(1.6, 0.8 + 0.3 * len(rows)))
    named: set[str] = set()

    def once(label: str) -> str:
        """A label that is new to the legend; Matplotlib leaves out those that begin with an underscore."""
        told = f"_{label}" if label in named else label
        named.add(label)
        return told

    for place, (_, arms) in enumerate(rows):
        for offset, (algorithm, group) in zip(_offsets(len(arms)), arms.items(), strict=True):
            if (value := group.values.get(metric)) is None:
                continue
            color = OF.get(algorithm, COLORS[2])
            low, high = 100 * max(0.0, _or(value.low, value.mean)), 100 * min(1.0, _or(value.high, value.mean))
            axes.plot([low, high], [place + offset] * 2, color=color, lw=1.2)
            axes.plot(100 * value.mean, place + offset, "o", color=color, label=once(ALGORITHMS.get(algorithm, algorithm)))
        limit = (limits or {}).get(place)
        if limit is not None:
            axes.vlines(100 * limit, place - 0.38, place + 0.38, color="black", lw=2, label=once("best of any shared policy"))
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set(
        xlim=(0, 100),
        ylim=(max(1, len(rows)) - 0.5, -0.5),
        xlabel="success, mean over the clients' worlds [%]" if metric == "mean_worlds" else "success [%]",
    )
    axes.grid(axis="x", color="#e8eaed")
    return _legend(figure, axes)


def _joined(rows: Sequence[tuple[str, Mapping[str, Group]]]) -> list[tuple[str, Mapping[str, Group]]]:
    """Rows of one label become one, with the arms of all; a label loses the algorithm that its points show."""
    found: dict[str, dict[str, Group]] = {}
    for label, arms in rows:
        found.setdefault(plain_label(label), {}).update(arms)
    return list(found.items())


def _groups(story: Story, ids: Mapping[str, int]) -> dict[str, Group]:
    return {name: story.groups[number] for name, number in ids.items()}


def _offsets(count: int) -> Iterator[float]:
    return ((place - (count - 1) / 2) * 0.28 for place in range(count))


def _short(world: str) -> str:
    """A variant without its family: ``checkout:buy_now`` is ``buy_now``."""
    return world.partition(":")[2] or world


def _or(value: float | None, other: float) -> float:
    return other if value is None else value


def _new(height: float) -> tuple[Figure, Axes]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(WIDTH, height), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    # The notebook shows what a cell returns; an open figure would be shown twice.
    pyplot.close(figure)
    return figure, axes


def _legend(figure: Figure, axes: Axes) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        axes.text(0.5, 0.5, "not in these results", transform=axes.transAxes, ha="center", color=SOFT)
    else:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)), frameon=False, fontsize="small")
    return figure
