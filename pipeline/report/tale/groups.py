"""Arms over seeds: the rows of a results file that differ in nothing but the seed become one group with means and intervals.

Owns what is averaged over what. The intervals come from ``pipeline.reproduce.statistics``; knows nothing of HTML.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipeline.report.rates import as_number
from pipeline.reproduce.statistics import Summary, over_seeds, paired, pooled

Arm = Mapping[str, Any]
Plain = dict[str, Any]

VALUES = ("mean_worlds", "worst_world", "control", "after_local", "alone", "start", "worst_gap")
COUNTED = ("mean_worlds", "worst_world", "control", "start")
CURVE = ("mean_worlds", "worst_world", "control", "train")
DRIFT = ("cosine", "norm", "ratio", "divergence", "shift", "clip_fraction")
COST = ("rollout_seconds", "train_seconds", "aggregate_seconds", "evaluate_seconds", "other_seconds", "tokens", "bytes")
SHARED = "shared agent"
ALGORITHMS = {"grpo": "GRPO", "ppo": "PPO"}


@dataclass(frozen=True)
class Group:
    """The seeds of one arm. ``runs`` are its rows in the order of their seeds; ``first`` stands for what they share."""

    id: int
    runs: Sequence[Arm]
    values: Mapping[str, Summary] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Arm:
        """Any of the runs, for what all share."""
        return self.runs[0]

    @property
    def seeds(self) -> list[int]:
        """Their seeds."""
        return [int(run["seed"]) for run in self.runs]

    @property
    def n(self) -> int:
        """Held-out tasks over all seeds."""
        return sum(int(run.get("n_eval") or 0) for run in self.runs)

    @property
    def floor(self) -> float | None:
        """The best mean over worlds that any shared policy could reach, averaged over seeds."""
        return mean_of([run.get("floor") for run in self.runs])

    @property
    def kind(self) -> str:
        """``floor``, ``slack`` or ``none``; where seeds disagree, what most say."""
        kinds = [str(run.get("kind") or "none") for run in self.runs]
        return max(dict.fromkeys(kinds), key=kinds.count)

    def text(self, key: str) -> str:
        """A field that all seeds share, as text."""
        value = self.first.get(key)
        return "" if value is None else str(value)

    @property
    def label(self) -> str:
        """For people."""
        return self.text("label") or self.text("name")

    @property
    def title(self) -> str:
        """Label with algorithm and mode, which tell arms of one label apart."""
        return ", ".join([self.label, *_told_apart(self)])

    def plain(self) -> Plain:
        """What the page's scripts draw from."""
        return {
            "id": self.id,
            "name": self.text("name"),
            "label": self.label,
            "title": self.title,
            "family": self.text("family"),
            "variant": self.first.get("variant"),
            "severity": self.first.get("severity"),
            "bound": mean_of([run.get("bound") for run in self.runs]),
            "algorithm": self.text("algorithm"),
            "mode": self.text("mode"),
            "reveal": self.first.get("reveal"),
            "delta": as_number(self.first.get("delta")),
            "seeds": self.seeds,
            "n": self.n,
            "floor": rounded(self.floor),
            "kind": self.kind,
            "floorGap": rounded(mean_of([run.get("floor_gap") for run in self.runs])),
            "values": {key: plain_summary(summary) for key, summary in self.values.items()},
            "curve": _curve(self.runs, "curve", CURVE),
            "drift": _curve(self.runs, "drift", DRIFT),
            "matrices": _matrices(self.runs),
            "cost": _cost(self.runs),
        }


def group_arms(arms: Sequence[Arm]) -> list[Group]:
    """Groups in the order in which their first run appears."""
    found: dict[tuple[str, ...], list[Arm]] = {}
    for arm in arms:
        found.setdefault(group_key(arm), []).append(arm)
    groups: list[Group] = []
    for runs in found.values():
        ordered = sorted(runs, key=lambda run: int(run["seed"]))
        values = {key: s for key in VALUES if (s := _summary(ordered, key)) is not None}
        groups.append(Group(len(groups), ordered, values))
    return groups


def _summary(runs: Sequence[Arm], key: str) -> Summary | None:
    """Over seeds; of a single run Wilson's interval of its held-out tasks stands in for the one over seeds, where they are counted."""
    summary = over_seeds(numbers(runs, key))
    if summary is None or summary.n > 1 or len(runs) > 1 or key not in COUNTED or not runs[0].get("n_eval"):
        return summary
    tasks = int(runs[0]["n_eval"]) * (len(runs[0].get("worlds") or [0]) if key in ("mean_worlds", "start") else 1)
    low, high = pooled([summary.mean], [tasks])
    return replace(summary, low=low, high=high)


def group_key(arm: Arm) -> tuple[str, ...]:
    """What runs share that differ in nothing but the seed."""
    return tuple(str(arm.get(k)) for k in ("name", "family", "variant", "severity", "algorithm", "mode", "reveal", "delta"))


def numbers(rows: Sequence[Mapping[str, Any]], key: str) -> list[float | None]:
    """``key`` of every row, None for what is no number."""
    return [as_number(row.get(key)) for row in rows]


def plain_summary(summary: Summary) -> Plain:
    """For JSON."""
    names = ("mean", "low", "high", "boot_low", "boot_high")
    return {"n": summary.n, **{name: rounded(getattr(summary, name)) for name in names}}


def difference(a: Group | None, b: Group | None, metric: str = "mean_worlds", label: str = "") -> Plain | None:
    """``a - b`` seed by seed, for JSON; None where they share no seed."""
    if a is None or b is None:
        return None
    by_seed = [{int(run["seed"]): as_number(run.get(metric)) for run in group.runs} for group in (a, b)]
    summary = paired(by_seed[0], by_seed[1])
    return None if summary is None else {"label": label, "paired": summary.n > 1, **plain_summary(summary)}


def mean_of(values: Sequence[object]) -> float | None:
    """The mean of the numbers among ``values``."""
    numbers = [v for value in values if (v := as_number(value)) is not None]
    return sum(numbers) / len(numbers) if numbers else None


def rounded(value: float | None, digits: int = 5) -> float | None:
    """To ``digits`` significant digits: what a drawing can show."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def _told_apart(group: Group) -> list[str]:
    label = group.label.lower()
    algorithm = ALGORITHMS.get(group.text("algorithm"), group.text("algorithm"))
    parts = [algorithm] if algorithm and algorithm.lower() not in label else []
    mode = group.text("mode")
    return [*parts, mode] if mode and mode != "federated" and mode not in label else parts


def _curve(runs: Sequence[Arm], key: str, metrics: Sequence[str]) -> Plain:
    """``{round, episodes, metrics: {name: {mean, low, high}}}``, lists over rounds; a metric nobody measured is left out."""
    by_round: dict[int, list[Mapping[str, Any]]] = {}
    for run in runs:
        for point in run.get(key) or []:
            by_round.setdefault(int(point["round"]), []).append(point)
    rounds = sorted(by_round)
    out: Plain = {"round": rounds, "episodes": [_whole(mean_of([p.get("episodes") for p in by_round[r]])) for r in rounds], "metrics": {}}
    for metric in metrics:
        summaries = [over_seeds(numbers(by_round[r], metric), boot=False) for r in rounds]
        if any(summaries):
            out["metrics"][metric] = {
                name: [rounded(getattr(s, name)) if s else None for s in summaries] for name in ("mean", "low", "high")
            }
    return out


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _matrices(runs: Sequence[Arm]) -> list[Plain]:
    """The client-by-world matrix of each seed, and before them their mean where clients and worlds are the same."""
    found = [{"seed": int(run["seed"]), **_matrix(run, run["matrix"])} for run in runs if run.get("matrix")]
    shapes = {(tuple(m["clients"]), tuple(m["worlds"]), tuple(m.get("homes", ()))) for m in found}
    if len(found) < 2 or len(shapes) != 1:
        return found
    cells = [(i, j) for i in range(len(found[0]["clients"])) for j in range(len(found[0]["worlds"]))]
    mean = {cell: rounded(mean_of([m["rates"][cell[0]][cell[1]] for m in found])) for cell in cells}
    rates = [[mean[i, j] for j in range(len(found[0]["worlds"]))] for i in range(len(found[0]["clients"]))]
    return [{**found[0], "seed": "mean", "rates": rates}, *found]


def _matrix(run: Arm, matrix: Mapping[str, Any]) -> Plain:
    """The clients' rows, and below them the shared agent's where it was measured in these worlds."""
    worlds = list(matrix["worlds"])
    kept: Plain = {"clients": list(matrix["clients"]), "worlds": worlds}
    if matrix.get("homes"):
        kept["homes"] = list(matrix["homes"])
    rates = [[rounded(as_number(v)) for v in row] for row in matrix["rates"]]
    shared = run.get("worlds") or {}
    if any(world in shared for world in worlds) and SHARED not in kept["clients"]:
        kept["clients"].append(SHARED)
        rates.append([rounded(as_number(shared.get(world))) for world in worlds])
    return {**kept, "rates": rates}


def _cost(runs: Sequence[Arm]) -> Plain:
    """Means per run of what was recorded."""
    cost: Plain = {"runs": len(runs)}
    for key in COST:
        cost[key] = rounded(mean_of([(run.get("cost") or {}).get(key) for run in runs]), 6)
    for key in ("cpu_seconds", "wall_seconds"):
        cost[key] = rounded(mean_of([run.get(key) for run in runs]), 6)
    return cost
