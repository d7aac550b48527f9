"""Which arms fill which state of which widget, and what is missing for the rest.

Owns the reading of families, variants and modes of a results file; the drawing is the scripts'. Knows nothing of HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.report.tale.groups import ALGORITHMS, Group, Plain, difference
from pipeline.report.tale.published import ENVIRONMENT, LOCAL, TASK, UNIFORM, Citation

FAMILIES: Mapping[str, str] = {
    "uniform": "Alike clients",
    "task": "Different tasks",
    "environment": "Different worlds",
    "escape": "Escape hatches",
    "bandit": "Two-client bandit",
    "alfworld": "ALFWorld",
    "run": "Runs",
}
AXES: Mapping[str, str] = {"preference": "preference", "coverage": "coverage", "hardness": "hardness", "joint": "all three at once"}
WORLDS = {"webshop": "WebShop", "alfworld": "ALFWorld"}
BANDITS = {"hidden": "hidden", "memory": "hidden, with memory", "revealed": "revealed by a cue"}


@dataclass
class Plan:
    """The widgets that have something to show, by name, and for each name what is missing, in sentences."""

    widgets: dict[str, Plain] = field(default_factory=dict)
    lacks: dict[str, list[str]] = field(default_factory=dict)

    def add(self, name: str, spec: Plain | None, lacks: Iterable[str]) -> None:
        """Keep a widget, or only what it lacks."""
        if spec is not None:
            self.widgets[name] = spec
        self.lacks[name] = list(lacks)


def plan_widgets(groups: Sequence[Group], runs_only: bool = False) -> Plan:
    """The widgets of all groups. With ``runs_only`` parts of the tale that no run can fill are not called missing."""
    plan = Plan()
    for name, build in BUILDERS.items():
        spec, lacks = build(groups)
        if spec is not None or not runs_only:
            plan.add(name, spec, lacks)
    return plan


def of_family(groups: Sequence[Group], family: str) -> list[Group]:
    """Groups of a family."""
    return [g for g in groups if g.text("family") == family]


def by_algorithm(groups: Iterable[Group]) -> dict[str, int]:
    """The first group's id by algorithm."""
    found: dict[str, int] = {}
    for g in groups:
        found.setdefault(g.text("algorithm"), g.id)
    return found


def is_control(g: Group) -> bool:
    """Whether the arm is a control beside the main ones."""
    return bool(g.text("twist"))


def counterpart(g: Group, groups: Sequence[Group]) -> Group | None:
    """The arm of the same algorithm that this one is meant to be compared with.

    An arm may name its counterpart through its own twin of another algorithm: ``hint-ppo`` versus ``hint``, and that versus ``hidden``.
    """
    seen: set[int] = set()
    other: Group | None = g
    while other is not None and other.id not in seen and _same_but_algorithm(other, g):
        seen.add(other.id)
        name = other.text("versus")
        other = next((x for x in groups if name and x.text("name") == name), None)
    if other is None or other.id in seen or other.text("algorithm") == g.text("algorithm"):
        return other if other is not None and other.id not in seen else None
    return next((x for x in groups if x.text("algorithm") == g.text("algorithm") and _same_but_algorithm(x, other)), None)


def _same_but_algorithm(a: Group, b: Group) -> bool:
    shared = ("family", "variant", "severity", "mode", "reveal", "twist", "delta")
    return plain_label(a.label) == plain_label(b.label) and all(a.text(k) == b.text(k) for k in shared)


def uniform_arm(groups: Sequence[Group], algorithm: str, mode: str = "federated") -> Group | None:
    """The arm of alike clients in WebShop."""
    found = of_family(groups, "uniform")
    return next((g for g in found if g.text("algorithm") == algorithm and g.text("mode") == mode and not is_control(g)), None)


def _uniform(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    worlds, lacks = [], []
    for key, label in WORLDS.items():
        found = (
            of_family(groups, "uniform") if key == "webshop" else [g for g in of_family(groups, "alfworld") if not g.first.get("variant")]
        )
        algorithms: dict[str, list[Plain]] = {}
        differences: dict[str, list[Plain]] = {}
        for algorithm in dict.fromkeys(g.text("algorithm") for g in found):
            arms = [g for g in found if g.text("algorithm") == algorithm]
            arms.sort(key=lambda g: ("federated", "centralized", "local").index(g.text("mode")))
            algorithms[algorithm] = [{"mode": g.text("mode"), "label": _mode_label(g, arms), "group": g.id} for g in arms]
            differences[algorithm] = []
            for twist in dict.fromkeys(g.text("twist") for g in arms):
                alike = [g for g in arms if g.text("twist") == twist]
                federated = next((g for g in alike if g.text("mode") == "federated"), None)
                others = [g for g in alike if g.text("mode") != "federated"]
                made = [difference(federated, g, label=f"federated minus {_mode_label(g, arms)}") for g in others]
                differences[algorithm] += [d for d in made if d]
        worlds.append(
            {"key": key, "label": label, "algorithms": algorithms, "differences": differences, "published": _published_uniform(key)}
        )
        if not found:
            lacks.append(f"{label}: no arm of alike clients.")
        for algorithm, listed in algorithms.items():
            modes = {a["mode"] for a in listed}
            lacks += [f"{label}, {_algorithm(algorithm)}: {mode}." for mode in ("federated", "centralized", "local") if mode not in modes]
        lacks += [f"{label}: {_algorithm(a)}." for a in ("grpo", "ppo") if found and a not in algorithms]
    return ({"worlds": worlds} if any(w["algorithms"] for w in worlds) else None), lacks


def _mode_label(g: Group, arms: Sequence[Group]) -> str:
    """The mode; where several arms of the same length share it, which one."""
    mode, label, twist = g.text("mode"), plain_label(g.label), g.text("twist")
    alone = sum(a.text("mode") == mode and a.text("twist") == twist for a in arms) == 1
    told = mode if alone else label if label.startswith(mode) else f"{mode}, {label}"
    return f"{told}, longer" if twist == "long" else told


def _algorithm(name: str) -> str:
    return ALGORITHMS.get(name, name)


def _published_uniform(world: str) -> list[str]:
    quoted = [c for c in UNIFORM if c.world == world and c.figure != "Figure 4"]
    told = ", ".join(f"{_algorithm(c.algorithm)} {c.mode} {c.value:.1f} ± {c.spread:.1f}" for c in quoted)
    return [f"Published, {WORLDS[world]} success in % (Tables 1 and 3, 1.5B, mean over three seeds): {told}.", LOCAL[world, "grpo"]]


def splits(groups: Sequence[Group]) -> dict[str, dict[str, dict[str, Group]]]:
    """``[axis][near or extreme][algorithm]`` of the arms whose clients' tasks differ: the largest severity of an axis is its extreme."""
    axes: dict[str, list[Group]] = {}
    for g in of_family(groups, "task"):
        if not is_control(g) and g.text("mode") == "federated":
            axes.setdefault(g.text("variant"), []).append(g)
    found: dict[str, dict[str, dict[str, Group]]] = {}
    for axis, arms in axes.items():
        sides = found.setdefault(axis, {"near": {}, "extreme": {}})
        for g in arms:
            side = "extreme" if (g.first.get("severity") or 0.0) > 0.5 else "near"
            kept = sides[side].setdefault(g.text("algorithm"), g)
            further = (g.first.get("severity") or 0.0) > (kept.first.get("severity") or 0.0)
            if further == (side == "extreme"):
                sides[side][g.text("algorithm")] = g
    return found


def _task(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    found = splits(groups)
    axes, lacks = [], []
    for key in [*AXES, *(axis for axis in found if axis not in AXES)]:
        sides = found.get(key, {"near": {}, "extreme": {}})
        label = AXES.get(key, key)
        differences = {a: d for a, g in sides["extreme"].items() if (d := difference(g, sides["near"].get(a)))}
        published = [
            f"Published ({extreme.figure}, {_algorithm(a)}, mean of the last ten points, one run each): "
            f"near-uniform {near.value:.1f}, extreme {extreme.value:.1f} %."
            for a in ALGORITHMS
            for near in TASK
            for extreme in TASK
            if near.variant == extreme.variant == key
            and near.algorithm == extreme.algorithm == a
            and near.split == "near"
            and extreme.split == "extreme"
        ]
        ids = {side: {a: g.id for a, g in by.items()} for side, by in sides.items()}
        axes.append(
            {"key": key, "label": label, "arms": {k: v for k, v in ids.items() if v}, "differences": differences, "published": published}
        )
        lacks += [f"{label}: {side}." for side, name in (("near-uniform", "near"), ("extreme", "extreme")) if not sides[name]]
    return ({"axes": axes} if any(a["arms"] for a in axes) else None), lacks


LADDERS: Mapping[str, tuple[str, Callable[[Group], bool]]] = {
    "webshop": ("WebShop", lambda g: g.text("family") == "environment" and not _as_published(g)),
    "published": ("WebShop, as published", lambda g: g.text("family") == "environment" and _as_published(g)),
    "alfworld": ("ALFWorld", lambda g: g.text("family") == "alfworld" and bool(g.first.get("variant"))),
}
"""Label of each ladder, and which arms are on it."""


def _as_published(g: Group) -> bool:
    return bool((g.first.get("settings") or {}).get("world.variant.reference"))


def _ladder(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    ladders, lacks = [], []
    for key, (label, belongs) in LADDERS.items():
        rungs = _rungs([g for g in groups if belongs(g)])
        if not rungs:
            lacks.append(f"{label}: no arms.")
            continue
        first = _first_rung(groups, key)
        ladders.append({"key": key, "label": label, "rungs": [first, *rungs] if first else rungs})
        names = dict.fromkeys(a for rung in rungs for a in rung["arms"])
        lacks += [f"{label}, {rung['label']}: {_algorithm(a)}." for rung in rungs for a in names if a not in rung["arms"]]
        lacks += [] if first else [f"{label}: the alike clients that the ladder starts from."]
        lacks += [f"{label}: {_algorithm(a)} on any rung." for a in ALGORITHMS if a not in names]
    return ({"ladders": ladders} if ladders else None), lacks


def _first_rung(groups: Sequence[Group], ladder: str) -> Plain | None:
    if ladder == "alfworld":
        homes = [g for g in of_family(groups, "alfworld") if not g.first.get("variant")]
        arms = [g for g in homes if g.text("mode") == "federated" and not is_control(g)]
    else:
        arms = [g for a in ALGORITHMS if (g := uniform_arm(groups, a))]
    return _rung("alike worlds", arms, [], []) if arms else None


def is_rung(g: Group) -> bool:
    """Whether the arm is a federation in differing worlds, not a control beside one."""
    return g.text("mode") == "federated" and not is_control(g)


def rung_key(g: Group) -> tuple[str, str, str]:
    """What the arms of a rung share: the worlds, not the algorithm."""
    return g.text("variant"), g.text("severity"), plain_label(g.label)


def _rungs(found: Sequence[Group]) -> list[Plain]:
    """A rung for all federated main arms in the same worlds, in the order of the file, with the controls that name one of them."""
    main: dict[tuple[str, str, str], list[Group]] = {}
    for g in found:
        if is_rung(g):
            main.setdefault(rung_key(g), []).append(g)
    rungs = []
    for key, arms in main.items():
        names = {g.text("name") for g in arms}
        extra = [g for g in found if not is_rung(g) and g.text("versus") in names]
        rungs.append(_rung(arms[0].label, arms, extra, [c for c in ENVIRONMENT if c.variant == key[0]]))
    return rungs


def _rung(label: str, arms: Sequence[Group], extra: Sequence[Group], published: Sequence[Citation]) -> Plain:
    label = plain_label(label)
    of = {g.text("algorithm"): g for g in arms}
    by_name = {g.text("name"): g for g in arms}
    made = [difference(of.get("ppo"), of.get("grpo"), label="PPO minus GRPO")]
    made += [difference(of.get("ppo"), of.get("grpo"), "after_local", "PPO minus GRPO, clients after local training")]
    beside = [(g, g.title.removeprefix(f"{label}: ").removeprefix(f"{label}, ")) for g in extra]
    made += [difference(g, by_name[g.text("versus")], label=f"{name} minus the rung itself") for g, name in beside]
    limits = [g.floor for g in arms if g.floor is not None]
    return {
        "label": label,
        "note": arms[0].text("floor_how"),
        "kind": arms[0].kind,
        "limit": limits[0] if limits else None,
        "arms": by_algorithm(arms),
        "extra": [{"label": name, "group": g.id} for g, name in beside],
        "differences": [d for d in made if d],
        "published": _published_rung(published),
    }


def plain_label(label: str) -> str:
    """A label without the algorithm, which a switch says."""
    for word in (", GRPO", ", PPO", " GRPO", " PPO", " (GRPO)", " (PPO)"):
        label = label.removesuffix(word)
    return label


def _published_rung(citations: Sequence[Citation]) -> list[str]:
    if not citations:
        return []
    told = ", ".join(f"{_algorithm(c.algorithm)} {c.value:.1f} ± {c.spread:.1f}" for c in citations)
    return [
        f"Published for this family, control world (Figure 6, mean of the last ten points, one run each): {told} %; "
        "uniform 57.7 and 59.0 %."
    ]


def _bandit(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    found = [g for g in of_family(groups, "bandit") if g.first.get("delta") is not None and "worst_gap" in g.values]
    kinds: dict[str, dict[str, dict[str, int]]] = {key: {} for key in BANDITS}
    for g in found:
        kinds[bandit_kind(g)].setdefault(g.text("algorithm"), {}).setdefault(_delta(g), g.id)
    deltas = sorted({float(_delta(g)) for g in found})
    lacks = [f"{label}." for key, label in BANDITS.items() if not kinds[key]]
    for key, by in kinds.items():
        lacks += [f"{BANDITS[key]}: {_algorithm(a)}." for a in ALGORITHMS if by and a not in by]
        lacks += [f"{BANDITS[key]}, {_algorithm(a)}: δ = {d:g}." for a, ids in by.items() for d in deltas if d and f"{d:g}" not in ids]
    spec = [{"key": key, "label": BANDITS[key], "arms": by} for key, by in kinds.items()]
    return ({"deltas": deltas, "kinds": spec} if found else None), lacks


def bandit_kind(g: Group) -> str:
    """``hidden``, ``memory`` or ``revealed``."""
    if g.text("reveal") not in ("", "none"):
        return "revealed"
    return "memory" if g.text("twist") == "memory" else "hidden"


def _delta(g: Group) -> str:
    return f"{float(g.first['delta']):g}"


def _hatches(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    hatches: dict[str, Plain] = {}
    lacks = []
    for g in of_family(groups, "escape"):
        twin = hidden_twin(g, groups)
        label = plain_label(g.label)
        made = {"key": g.text("name"), "label": label, "caption": "", "hatch": {}, "twin": {}, "differences": {}}
        hatch = hatches.setdefault(label, made)
        algorithm = g.text("algorithm")
        hatch["hatch"].setdefault(algorithm, g.id)
        if twin is None:
            lacks.append(f"{g.title}: its hidden twin{' ' + g.text('versus') if g.text('versus') else ''}.")
            continue
        hatch["caption"] = f"Hidden twin: {plain_label(twin.label)}."
        hatch["twin"].setdefault(algorithm, twin.id)
        if d := difference(g, twin):
            hatch["differences"].setdefault(algorithm, d)
    if not hatches:
        lacks.append("every escape hatch.")
    return ({"hatches": list(hatches.values())} if hatches else None), lacks


def hidden_twin(g: Group, groups: Sequence[Group]) -> Group | None:
    """The arm that a hatch is compared with: the one it names, else the same worlds without the cue."""
    named = counterpart(g, groups)
    if named is not None or g.text("versus"):
        return named
    alike = ("variant", "severity", "algorithm", "mode", "twist")
    same = [x for x in groups if x is not g and all(x.text(k) == g.text(k) for k in alike)]
    return next((x for x in same if x.text("reveal") in ("", "none")), None)


def _matrix(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    found = [g.id for g in groups if any(run.get("matrix") for run in g.runs)]
    return ({"groups": found} if found else None), [] if found else ["a client-by-world evaluation (evaluation.clients = true)."]


def _drift(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    rows: dict[tuple[str, ...], Plain] = {}
    for g in groups:
        if not any(run.get("drift") for run in g.runs):
            continue
        told = ("family", "variant", "severity", "mode", "reveal", "twist", "delta")
        key = (*(g.text(k) for k in told), g.text("name") if g.text("family") == "run" else plain_label(g.label))
        label = plain_label(g.label) + ("" if g.text("mode") == "federated" else f", {g.text('mode')}")
        block = FAMILIES.get(g.text("family"), g.text("family"))
        rows.setdefault(key, {"label": label, "block": block, "arms": {}})["arms"].setdefault(g.text("algorithm"), g.id)
    lacks = [] if rows else ["drift of clients' updates in the rounds' records."]
    return ({"rows": list(rows.values())} if rows else None), lacks


def _cost(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    families = []
    for key, label in FAMILIES.items():
        if found := [g.id for g in of_family(groups, key)]:
            families.append({"key": key, "label": label, "groups": found})
    return ({"families": families} if families else None), []


def _compare(groups: Sequence[Group]) -> tuple[Plain | None, list[str]]:
    found = [g for g in groups if any(len(run.get("curve") or []) > 1 for run in g.runs)]
    runs = [g.id for g in found if g.text("family") == "run"]
    shown = runs[:6] or [g.id for g in found if g.text("family") in ("uniform", "environment")][:3] or [g.id for g in found[:3]]
    return ({"groups": [g.id for g in found], "shown": shown} if found else None), []


Builder = Callable[[Sequence[Group]], tuple[Plain | None, list[str]]]
BUILDERS: Mapping[str, Builder] = {
    "uniform": _uniform,
    "task": _task,
    "ladder": _ladder,
    "bandit": _bandit,
    "hatches": _hatches,
    "matrix": _matrix,
    "drift": _drift,
    "cost": _cost,
    "compare": _compare,
}


def group_ids(spec: Any) -> set[int]:
    """Every group that a widget's plan names."""
    if isinstance(spec, Mapping):
        found: set[int] = set()
        for key, value in spec.items():
            if key == "group" and isinstance(value, int):
                found.add(value)
            elif key in ("arms", "hatch", "twin"):
                found |= _numbers(value)
            elif key in ("groups", "shown"):
                found |= set(value)
            else:
                found |= group_ids(value)
        return found
    if isinstance(spec, list | tuple):
        return set().union(*(group_ids(item) for item in spec)) if spec else set()
    return set()


def _numbers(value: Any) -> set[int]:
    if isinstance(value, Mapping):
        return set().union(*(_numbers(v) for v in value.values())) if value else set()
    return {value} if isinstance(value, int) else set()
