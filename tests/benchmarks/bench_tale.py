"""The tale's table and figure in README.md, from the committed results: nothing is trained here.

``python -m tests.benchmarks tale`` prints the table; ``python -m tests.benchmarks.bench_tale FILE.png`` draws the ladder as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.reproduce.arms import RUNGS
from pipeline.reproduce.results import Arm, Results, load_results
from pipeline.reproduce.statistics import Summary, by_seed, difference, over_seeds, paired

RESULTS = Path(__file__).parents[2] / "notebooks" / "results" / "tale.json"
COMPARED = (
    ("federated, against centralized", "uniform", "central"),
    ("the same after twice the rounds", "uniform-long", "central-long"),
    ("category mixes, extreme against near-uniform", "preference-extreme", "preference-near"),
    ("numbers of tasks, extreme against near-uniform", "coverage-extreme", "coverage-near"),
    ("shares of easy tasks, extreme against near-uniform", "hardness-extreme", "hardness-near"),
    ("all three, extreme against near-uniform", "joint-extreme", "joint-near"),
    ("four buttons, named on the page against hidden", "escape-hint", "buy4"),
    ("four buttons, an arbitrary name or mark against hidden", "escape-name", "buy4"),
)
"""Words, arm and the arm that it stands against."""
DRIFTS = (
    ("cosine of two clients' updates", "cosine", 3),
    ("divergence of two clients' policies, nats per token", "divergence", 4),
    ("KL from the round's start, nats per token", "shift", 4),
    ("share of clipped tokens", "clip_fraction", 4),
)
"""Words, measure and digits."""


def markdown(results: Results) -> str:
    """README's tables: differences first, then the ladder."""
    return "\n".join([*_differences(results.arms), "", *_ladder(results.arms), "", _drift(results.arms)])


def _differences(arms: Sequence[Arm]) -> Iterator[str]:
    yield "| difference in points, paired by seed [95 % t interval] | GRPO | PPO |"
    yield "|---|---|---|"
    for words, name, versus in COMPARED:
        cells = [_points(difference(arms, f"{name}{end}", f"{versus}{end}")) for end in ("", "-ppo")]
        yield f"| {words} | {' | '.join(cells)} |"


def _ladder(arms: Sequence[Arm]) -> Iterator[str]:
    yield "| worlds (success in %, mean over the clients' own) | GRPO | worst world | PPO | PPO - GRPO | best shared policy | alone |"
    yield "|---|---|---|---|---|---|---|"
    rungs = [("alike", "uniform"), *sorted(((rung.label, rung.name) for rung in RUNGS), key=lambda rung: -_mean_of(arms, rung[1]))]
    for label, name in rungs:
        cells = (
            _rate(arms, name, "mean_worlds"),
            _rate(arms, name, "worst_world", bare=True),
            _rate(arms, f"{name}-ppo", "mean_worlds"),
            _points(difference(arms, f"{name}-ppo", name)),
            _limit(arms, name),
            _rate(arms, name, "alone", bare=True),
        )
        yield f"| {label} | {' | '.join(cells)} |"


def _drift(arms: Sequence[Arm]) -> str:
    """Means over rounds, then over the arms that both algorithms have; the difference is taken seed by seed."""
    names = ["uniform", *(rung.name for rung in RUNGS if rung.ppo)]
    told = []
    for words, measure, digits in DRIFTS:
        both = [{seed: _drift_of(arms, names, end, seed, measure) for seed in _seeds(arms)} for end in ("", "-ppo")]
        grpo, ppo = (over_seeds(list(values.values()), boot=False) for values in both)
        gap = paired(both[1], both[0])
        if grpo is None or ppo is None or gap is None:
            continue
        between = "" if gap.interval is None else f" [{gap.interval.low:+.{digits}f}, {gap.interval.high:+.{digits}f}]"
        told.append(f"{words} {grpo.mean:.{digits}f} under GRPO, {ppo.mean:.{digits}f} under PPO ({gap.mean:+.{digits}f}{between})")
    return f"Drift within a round, mean over alike worlds and {len(names) - 1} rungs, difference paired by seed: {'; '.join(told)}."


def _seeds(arms: Sequence[Arm]) -> list[int]:
    return sorted({arm.seed for arm in arms})


def _drift_of(arms: Sequence[Arm], names: Sequence[str], end: str, seed: int, measure: str) -> float | None:
    """The mean of a measure over rounds and arms under a seed; None where one of them is not there."""
    means = []
    for name in names:
        points = [getattr(p, measure) for arm in arms if (arm.name, arm.seed) == (f"{name}{end}", seed) for p in arm.drift]
        known = [point for point in points if point is not None]
        if not known:
            return None
        means.append(sum(known) / len(known))
    return sum(means) / len(means)


def _mean_of(arms: Sequence[Arm], name: str) -> float:
    found = over_seeds(list(by_seed(arms, name).values()), boot=False)
    return 0.0 if found is None else found.mean


def _rate(arms: Sequence[Arm], name: str, metric: str, *, bare: bool = False) -> str:
    found = over_seeds(list(by_seed(arms, name, metric).values()), boot=False)
    if found is None:
        return "-"
    mean = f"{100 * found.mean:.1f}" if not bare else f"{100 * found.mean:.0f}"
    return mean if bare or found.interval is None else f"{mean} [{100 * found.interval.low:.0f}, {100 * found.interval.high:.0f}]"


def _limit(arms: Sequence[Arm], name: str) -> str:
    """What no shared policy can pass; where one could serve all worlds alike, that."""
    own = [arm for arm in arms if arm.name == name]
    if not own or own[0].kind == "none":
        return "-"
    return _rate(arms, name, "floor", bare=True) if own[0].kind == "floor" else "slack"


def _points(found: Summary | None) -> str:
    if found is None:
        return "-"
    mean = f"{100 * found.mean:+.1f}"
    return mean if found.interval is None else f"{mean} [{100 * found.interval.low:+.0f}, {100 * found.interval.high:+.0f}]"


def main(names: Sequence[str]) -> None:
    """Print the tables; draw the ladder into the file that is named."""
    results = load_results(RESULTS)
    print(f"{results.command}; {results.date[:10]}; {results.machine}")
    print(markdown(results))
    for name in names:
        from pipeline.report import figures
        from pipeline.report.tale import source_of
        from pipeline.report.tale.story import tell

        figures.ladder(tell([source_of(results)])).savefig(name, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1:])
