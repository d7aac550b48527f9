"""The account of a partition: what was asked, what was got, and every client's tasks, as plain data. Draws no picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.partition.expected import label_test, preference_knob
from envs.partition.invariants import Finding, check, violations
from envs.partition.measures import Measures, measure
from envs.partition.spec import KNOBS, Partition, concentration, settings

BINS = 20


@dataclass(frozen=True)
class Asked:
    """A knob: the value asked for, the one that the outcome amounts to, and the measure behind both. None: knob off, or not measurable.

    ``chance``: between which values the outcome may fall where the knob sets a distribution that clients are drawn from.
    """

    knob: str
    asked: float | None
    got: float | None
    measure: float | None
    concentration: float | None
    chance: tuple[float, float] | None = None


@dataclass(frozen=True)
class Histogram:
    """Counts between ``edges`` (one more than counts); values beyond the last edge count in the last bin."""

    edges: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True)
class PartitionReport:
    """Everything that table and page show."""

    partition: Partition
    measures: Measures
    asked: Sequence[Asked]
    findings: Sequence[Finding]
    sizes: Histogram
    overlaps: Histogram
    label_test: tuple[float, int, float] | None

    @property
    def violations(self) -> list[Finding]:
        """Findings that contradict the knobs."""
        return violations(list(self.findings))

    @property
    def limits(self) -> list[str]:
        """Where clients or tasks do not allow what a knob asks, in words."""
        return [f"{finding.measure}: {finding.note}" for finding in self.findings if finding.level == "limit"]

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        partition, m = self.partition, self.measures
        most, first, second = m.overlap.most
        return {
            "kind": partition.source or partition.spec.kind,
            "settings": dict(settings(partition.spec)),
            "seed": partition.seed,
            "tasks": len(partition.tasks),
            "categories": list(partition.categories),
            "pool_mix": _round(m.pool_mix),
            "mean_mix": _round(m.mean_mix),
            "pool_easy": m.pool_easy,
            "measures": {"preference": m.preference, "coverage": m.coverage, "hardness": m.hardness},
            "asked": [vars(line) for line in self.asked],
            "union": m.union,
            "overlap": {
                "mean": m.overlap.mean,
                "max": most,
                "pair": [partition.clients[first], partition.clients[second]],
                "compared": len(m.overlap.clients),
            },
            "chi2": _summary(m.chi2),
            "tv": _summary(m.tv),
            "sizes": {**_summary(m.sizes), "histogram": {"edges": list(self.sizes.edges), "counts": list(self.sizes.counts)}},
            "easy": None if m.easy is None else _summary(m.easy),
            "label_test": None if self.label_test is None else dict(zip(("chi2", "df", "p"), self.label_test, strict=True)),
            "findings": [finding.plain() for finding in self.findings],
            "notes": list(partition.notes),
            "clients": [self.client(i) for i in range(len(partition.clients))],
        }

    def client(self, place: int) -> dict[str, Any]:
        """One client as JSON values."""
        partition, m = self.partition, self.measures
        return {
            "client": partition.clients[place],
            "tasks": int(m.sizes[place]),
            "categories": dict(zip(partition.categories, partition.counts[place].tolist(), strict=True)),
            "chi2": float(m.chi2[place]),
            "tv": float(m.tv[place]),
            "easy": None if m.easy is None else float(m.easy[place]),
        }


def partition_report(partition: Partition) -> PartitionReport:
    """Measure and check a partition."""
    m = measure(partition)
    easy = partition.easy
    test = None if easy is None or len(partition.categories) < 2 or not 0 < easy.mean() < 1 else label_test(partition, easy)
    counts, edges = np.histogram(m.sizes, bins=_bins(int(m.sizes.min()), int(m.sizes.max())))
    pairs = m.overlap.pairs
    # A few pairs that share nearly everything would leave one bar for all others: they go to the last bin.
    reach = max(0.05, 1.5 * float(np.quantile(pairs, 0.995))) if len(pairs) else 0.05
    shared, levels = np.histogram(np.minimum(pairs, reach), bins=BINS, range=(0.0, reach))
    findings = check(partition, m)
    return PartitionReport(
        partition=partition,
        measures=m,
        asked=asked(partition, m, findings),
        findings=findings,
        sizes=Histogram(edges.tolist(), counts.tolist()),
        overlaps=Histogram(levels.tolist(), shared.tolist()),
        label_test=test,
    )


def asked(partition: Partition, m: Measures, findings: Sequence[Finding] = ()) -> list[Asked]:
    """Every knob in its own units: the measure divided by the largest value that the finite-size form allows."""
    spec, clients = partition.spec, len(partition.clients)
    many = 1 - 1 / clients
    got: Mapping[str, float | None] = {
        "preference": preference_knob(m.preference, m.pool_mix, m.sizes),
        "coverage": _got_coverage(partition, m, many),
        "hardness": _got_hardness(m, many),
    }
    lines = []
    for knob in KNOBS:
        value = getattr(spec, knob)
        beta = None if value is None or knob == "preference" else concentration(value)
        chance = _chance(partition, m, findings) if knob == "preference" and value is not None else None
        lines.append(Asked(knob, value, got[knob], getattr(m, knob), beta, chance))
    return lines


def _chance(partition: Partition, m: Measures, findings: Sequence[Finding]) -> tuple[float, float] | None:
    band = next(((f.low, f.high) for f in findings if f.rule == "D1" and f.measure == "preference"), None)
    ends = None if band is None else [preference_knob(value, m.pool_mix, m.sizes) for value in band]
    return None if ends is None or None in ends else (max(0.0, float(ends[0] or 0.0)), min(1.0, float(ends[1] or 0.0)))


def _got_coverage(partition: Partition, m: Measures, many: float) -> float | None:
    spec = partition.spec
    if spec.coverage is None:
        return 0.0 if m.coverage == 0 else None
    low, mean, high = spec.bounds()
    high = min(high, len(partition.tasks))
    return _share(m.coverage * mean**2, many * (mean - low) * (high - mean))


def _got_hardness(m: Measures, many: float) -> float | None:
    if m.easy is None or m.hardness is None:
        return None
    mean = float(m.easy.mean())
    return _share(m.hardness, many * mean * (1 - mean))


def _share(value: float, most: float) -> float | None:
    return value / most if most > 0 else None


def _bins(low: int, high: int) -> list[float]:
    """Edges of at most ``BINS`` bins of whole width, so that no bin holds more whole numbers than another."""
    width = max(1, -(-(high - low + 1) // BINS))
    number = -(-(high - low + 1) // width)
    return [low - 0.5 + width * i for i in range(number + 1)]


def _summary(values: np.ndarray[Any, Any]) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "min": float(values.min()),
        "max": float(values.max()),
        "sd": float(values.std()),
    }


def _round(values: np.ndarray[Any, Any]) -> list[float]:
    return [round(float(value), 6) for value in values]
