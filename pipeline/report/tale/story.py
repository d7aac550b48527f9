"""What the tale page says: groups, widgets, headlines and what is missing, put together from results and runs. Knows nothing of HTML."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.report.tale.groups import ALGORITHMS, Arm, Group, Plain, difference, group_arms
from pipeline.report.tale.published import CITATIONS, SOURCE, Citation
from pipeline.report.tale.tables import Beside, arms_csv, published_csv
from pipeline.report.tale.widgets import (
    bandit_kind,
    group_ids,
    hidden_twin,
    is_control,
    is_rung,
    of_family,
    plain_label,
    plan_widgets,
    rung_key,
    splits,
    uniform_arm,
)

LEAD = (
    "Clients in different places train one shared agent by averaging its parameters. They may ask it for different things: a task can be "
    "read in the prompt. Their worlds may also answer the same action differently: nothing in the prompt says so, it can only be felt. "
    "How much does either cost? Every number here comes from training runs made by the command under it."
)
LEAD_RUNS = "Runs beside each other: their curves, success in every world, drift of the clients and cost."


@dataclass(frozen=True)
class Headline:
    """One number that answers one question, and the widget that shows it."""

    widget: str
    title: str
    big: str
    small: str


@dataclass(frozen=True)
class Source:
    """Where arms come from, for the page's head and foot. ``missing`` are sentences."""

    arms: Sequence[Arm]
    command: str = ""
    machine: str = ""
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class Story:
    """Everything on the page."""

    name: str
    title: str
    lead: str
    groups: Sequence[Group]
    widgets: Mapping[str, Plain]
    lacks: Mapping[str, Sequence[str]]
    headlines: Sequence[Headline]
    published: Sequence[Beside]
    commands: Sequence[str]
    machine: str
    date: str
    versions: Mapping[str, str]
    missing: Sequence[str]

    source = SOURCE

    @property
    def algorithms(self) -> list[str]:
        """Algorithms of the arms, GRPO first."""
        names = dict.fromkeys(g.text("algorithm") for g in self.groups)
        return [a for a in ALGORITHMS if a in names] + [a for a in names if a not in ALGORITHMS]

    @property
    def arms_csv(self) -> Plain:
        """All arms for CSV."""
        return arms_csv(self.groups)

    @property
    def published_csv(self) -> Plain:
        """Published numbers and ours for CSV."""
        return published_csv(self.published)

    def groups_of(self, widget: str) -> list[Group]:
        """The arms that a widget draws."""
        ids = group_ids(self.widgets[widget])
        return [g for g in self.groups if g.id in ids]


def tell(sources: Sequence[Source], name: str = "tale") -> Story:
    """The story of these arms."""
    groups = group_arms([{**arm, "command": source.command} for source in sources for arm in source.arms])
    runs_only = bool(groups) and all(g.text("family") == "run" for g in groups)
    plan = plan_widgets(groups, runs_only)
    joined = {key: _joined([getattr(s, key) for s in sources]) for key in ("machine", "date")}
    versions: dict[str, str] = {}
    for source in sources:
        for part, version in source.versions.items():
            told = versions.get(part)
            versions[part] = version if told in (None, version) or version in str(told).split(" / ") else f"{told} / {version}"
    return Story(
        name=name,
        title="Runs compared" if runs_only else "The asymmetric tale, trained anew",
        lead=LEAD_RUNS if runs_only else LEAD,
        groups=groups,
        widgets=plan.widgets,
        lacks=plan.lacks,
        headlines=[] if runs_only else headlines(groups),
        published=[] if runs_only else beside(groups),
        commands=list(dict.fromkeys(s.command for s in sources if s.command)),
        machine=joined["machine"],
        date=joined["date"],
        versions=versions,
        missing=[text for source in sources for text in source.missing],
    )


def _joined(values: Sequence[str]) -> str:
    return " / ".join(dict.fromkeys(v for v in values if v))


def headlines(groups: Sequence[Group]) -> list[Headline]:
    """The questions of the tale that these arms can answer."""
    made = [_federated(groups), _tasks(groups), _worlds(groups), _revealed(groups), _bandit(groups), _algorithms(groups)]
    return [line for line in made if line]


def _federated(groups: Sequence[Group]) -> Headline | None:
    federated, central = (uniform_arm(groups, "grpo", mode) for mode in ("federated", "centralized"))
    d = difference(federated, central)
    if d is None or federated is None or central is None:
        return None
    return Headline(
        "uniform", "Alike clients: federated minus centralized", _points(d), f"{_of(federated)} against {_of(central)}, {_seeds(d)}"
    )


def _tasks(groups: Sequence[Group]) -> Headline | None:
    found = [
        (axis, d) for axis, sides in splits(groups).items() if (d := difference(sides["extreme"].get("grpo"), sides["near"].get("grpo")))
    ]
    if not found:
        return None
    axis, d = min(found, key=lambda pair: pair[1]["mean"])
    return Headline(
        "task", "Extreme task split minus near-uniform, worst axis", _points(d), f"{axis}, the lowest of {len(found)}, {_seeds(d)}"
    )


def _worlds(groups: Sequence[Group]) -> Headline | None:
    rungs = [g for g in of_family(groups, "environment") if g.text("algorithm") == "grpo" and is_rung(g) and "mean_worlds" in g.values]
    ceiling = uniform_arm(groups, "grpo")
    if not rungs or ceiling is None or "mean_worlds" not in ceiling.values:
        return None
    last = min(rungs, key=lambda g: g.values["mean_worlds"].mean)
    limit = "" if last.floor is None else f"; no shared policy can pass {100 * last.floor:.0f}%"
    title = "Contradicting worlds: from alike to the lowest rung"
    return Headline("ladder", title, f"{_of(ceiling)} → {_of(last)}", f"{plain_label(last.label)}, GRPO{limit}")


def _revealed(groups: Sequence[Group]) -> Headline | None:
    shown = [g for g in of_family(groups, "escape") if g.text("reveal") not in ("", "none") and g.text("algorithm") == "grpo"]
    found = [(g, d) for g in shown if (d := difference(g, hidden_twin(g, groups)))]
    if not found:
        return None
    g, d = max(found, key=lambda pair: pair[1]["mean"])
    return Headline(
        "hatches", "The same worlds, revealed minus hidden", _points(d), f"{plain_label(g.label)}, the largest of {len(found)}, {_seeds(d)}"
    )


def _bandit(groups: Sequence[Group]) -> Headline | None:
    arms = [g for g in of_family(groups, "bandit") if g.first.get("delta") and "worst_gap" in g.values and g.text("algorithm") == "grpo"]
    if not arms:
        return None
    delta = max(float(g.first["delta"]) for g in arms)
    hidden, shown = (
        next((g for g in arms if bandit_kind(g) == k and float(g.first["delta"]) == delta), None) for k in ("hidden", "revealed")
    )
    if hidden is None:
        return None
    cue = "" if shown is None else f"; with a cue {shown.values['worst_gap'].mean:.2f}"
    small = f"floor {delta / 2:.2f} at disagreement {delta:g}{cue}, GRPO"
    return Headline("bandit", "Two clients: the worst one's gap", f"{hidden.values['worst_gap'].mean:.2f}", small)


def _algorithms(groups: Sequence[Group]) -> Headline | None:
    by_rung: dict[tuple[str, str, str], dict[str, Group]] = {}
    for g in of_family(groups, "environment"):
        if is_rung(g):
            by_rung.setdefault(rung_key(g), {}).setdefault(g.text("algorithm"), g)
    found = [d for arms in by_rung.values() if (d := difference(arms.get("ppo"), arms.get("grpo")))]
    if not found:
        return None
    low, high = (f(d["mean"] for d in found) for f in (min, max))
    above, below = sum((d["low"] or 0) > 0 for d in found), sum((d["high"] or 0) < 0 for d in found)
    span = f"{_signed(low)} to {_signed(high)}" if len(found) > 1 else _signed(low)
    count = f"{len(found)} rung{'s' if len(found) > 1 else ''}"
    small = (
        f"over {count}; interval above 0 on {above}, below 0 on {below}" if found[0]["n"] > 1 else f"over {count}, one seed, no interval"
    )
    return Headline("ladder", "PPO minus GRPO on contradicting worlds", f"{span} points", small)


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{abs(100 * value):.1f}"


def _points(d: Plain) -> str:
    return f"{_signed(d['mean'])} points"


def _seeds(d: Plain) -> str:
    if d["low"] is None:
        return "one seed, no interval"
    return f"95 % interval {_signed(d['low'])} to {_signed(d['high'])}, {d['n']} seeds"


def _of(g: Group) -> str:
    return f"{100 * g.values['mean_worlds'].mean:.0f}%" if "mean_worlds" in g.values else "not measured"


def beside(groups: Sequence[Group]) -> list[Beside]:
    """Every published number with the arm of ours that is closest to it."""
    found = splits(groups)
    finders: Mapping[str, Callable[[Citation], Group | None]] = {
        "uniform": lambda c: _uniform_of(groups, c),
        "task": lambda c: found.get(c.variant, {}).get(c.split, {}).get(c.algorithm),
        "environment": lambda c: _published_variant(groups, c),
    }
    return [Beside(c, finders[c.family](c), uniform_arm(groups, c.algorithm)) for c in CITATIONS]


def _uniform_of(groups: Sequence[Group], c: Citation) -> Group | None:
    if c.world == "webshop":
        return uniform_arm(groups, c.algorithm, c.mode)
    arms = [g for g in of_family(groups, "alfworld") if not g.first.get("variant") and not is_control(g)]
    return next((g for g in arms if (g.text("algorithm"), g.text("mode")) == (c.algorithm, c.mode)), None)


def _published_variant(groups: Sequence[Group], c: Citation) -> Group | None:
    """The federated arm of the variant: with the published settings where there is one, else the severest."""
    arms = [g for g in of_family(groups, "environment") if g.text("variant") == c.variant and g.text("algorithm") == c.algorithm]
    arms = [g for g in arms if g.text("mode") == "federated" and not is_control(g)]
    as_published = [g for g in arms if (g.first.get("settings") or {}).get("world.variant.reference")]
    return max(as_published or arms, key=lambda g: g.first.get("severity") or 0.0, default=None)
