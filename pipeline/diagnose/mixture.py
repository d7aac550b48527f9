"""The task side: how far the clients' mixtures of tasks are apart. Counts only; no world is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from envs.base import Task
from pipeline.theory.bounds import chi_square, heterogeneity_factor


@dataclass(frozen=True)
class Spread:
    """Chi-square divergence of clients from their mean mixture (equal weights): ``mean`` and ``worst`` over clients, and the factor
    sqrt(1 + chi^2) of the worst, by which the task bound grows. The most there can be is the number of clients minus 1."""

    mean: float
    worst: float
    client: str
    factor: float


@dataclass(frozen=True)
class TaskSide:
    """How tasks differ between clients, by category and by single task.

    ``p_value``: chance of mixtures of categories at least this far apart when all clients draw from one (chi-square test); None where
    there is nothing to compare.
    """

    clients: int
    tasks: int
    categories: Mapping[str, float]
    by_category: Spread
    by_task: Spread
    p_value: float | None

    @property
    def differ(self) -> bool:
        """Whether the mixtures of categories differ by more than chance."""
        return self.p_value is not None and self.p_value < 0.01


def task_side(owned: Mapping[str, Sequence[Task]]) -> TaskSide:
    """Measure the mixtures. Every client needs a task."""
    categories = {client: Counter(task.category for task in tasks) for client, tasks in owned.items()}
    ids = {client: Counter(task.id for task in tasks) for client, tasks in owned.items()}
    mean = _mean(categories)
    return TaskSide(
        clients=len(owned),
        tasks=len({name for counts in ids.values() for name in counts}),
        categories=dict(sorted(mean.items())),
        by_category=_spread(categories),
        by_task=_spread(ids),
        p_value=_homogeneity(categories),
    )


def _mean(counts: Mapping[str, Counter[str]]) -> dict[str, float]:
    mean: dict[str, float] = {}
    for own in counts.values():
        for name, count in own.items():
            mean[name] = mean.get(name, 0.0) + count / own.total() / len(counts)
    return mean


def _spread(counts: Mapping[str, Counter[str]]) -> Spread:
    reference = _mean(counts)
    found = {client: chi_square({name: count / own.total() for name, count in own.items()}, reference) for client, own in counts.items()}
    client = max(found, key=found.__getitem__)
    return Spread(sum(found.values()) / len(found), found[client], client, heterogeneity_factor(found[client]))


def _homogeneity(counts: Mapping[str, Counter[str]]) -> float | None:
    from scipy.stats import chi2_contingency

    names = sorted({name for own in counts.values() for name in own})
    if len(names) < 2 or len(counts) < 2:
        return None
    return float(chi2_contingency([[own[name] for name in names] for own in counts.values()], correction=False).pvalue)
