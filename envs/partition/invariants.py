"""Did a knob do what it says, and nothing else? The check of D1-D4 that runs on every partition that was built.

D1: a knob moves its own measure by the amount asked. D2: measures without a knob stay at the level of blind picking. D3: means stay (sizes,
category mix, share of easy tasks). D4: layers are independent of each other, and clients of each other. A finding compares what was got
with what is expected and the band of chance around it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from envs.partition.expected import (
    Forecast,
    attainable,
    dispersion_form,
    label_test,
    preference_form,
    preference_knob,
    simulated_easy,
    simulated_mixes,
    union_of_draws,
)
from envs.partition.measures import Measures
from envs.partition.spec import FloatArray, Partition, examples
from envs.partition.streams import stream

Level = Literal["ok", "limit", "violation"]

SDS = 5.0
"""Half the width of a band in standard deviations; redraws of small federations have long tails."""
ROUNDING = 0.6
"""What rounding to whole tasks costs at worst, as a standard deviation in tasks."""
TINY = 1e-9
"""Rounding of sums of floating-point numbers."""
FEW = 8
"""Fewer clients than this say nothing about correlations."""
REACHED = 0.8
"""Share of the asked effect from which a knob counts as reached where tasks run out."""
MANY = 20
"""From so many clients on, category mixes far from what was asked are no accident."""
SURELY = 1e-3


@dataclass(frozen=True)
class Finding:
    """One comparison. ``level``: inside the band; outside it because fewer clients or tasks cannot do better; or outside it."""

    rule: str
    measure: str
    got: float
    expected: float
    low: float
    high: float
    level: Level
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def check(partition: Partition, measures: Measures) -> list[Finding]:
    """All findings on a partition, in order of the rules. An explicit file asks for nothing, so there is nothing to compare."""
    if partition.source:
        return []
    preference, mean_mix = simulated_mixes(partition, stream(partition.seed, "redraw", "mixes"))
    findings = [_sizes(partition, measures), _mixes(partition, measures, preference)]
    easy_mean: Finding | None = None
    if partition.easy is not None:
        dispersion, easy_mean = _easy(partition, measures)
        findings.append(dispersion)
    findings += [_mean_size(partition, measures), _mean_mix(measures, mean_mix, bool(_tied(partition)))]
    findings += [easy_mean] if easy_mean is not None else []
    findings.append(_union(partition, measures))
    findings += _layers(partition)
    return sorted(findings, key=lambda finding: finding.rule)


def violations(findings: list[Finding]) -> list[Finding]:
    """Those outside their band without an excuse."""
    return [finding for finding in findings if finding.level == "violation"]


def _judged(
    rule: str, measure: str, got: float, forecast: Forecast, slack: float = 0.0, note: str = "", excuse: bool = False, most: float = np.inf
) -> Finding:
    """``most`` is the largest value that the measure can have; ``excuse`` makes a value outside the band a limit."""
    low, high = forecast.band(SDS, slack)
    high = min(high, max(most, forecast.mean))
    level: Level = "ok" if low - TINY <= got <= high + TINY else "limit" if excuse else "violation"
    return Finding(rule, measure, got, forecast.mean, low, high, level, note)


def _sizes(partition: Partition, measures: Measures) -> Finding:
    spec = partition.spec
    if spec.coverage is None:
        return _judged("D2", "coverage", measures.coverage, Forecast(0.0, 0.0))
    low, mean, high = spec.bounds()
    high = min(high, len(partition.tasks)) if not spec.reference else high
    center, width = (mean - low) / (high - low), (high - low) ** 2 / mean**2
    wanted = dispersion_form(spec.coverage, center, len(partition.clients))
    most = attainable(center, len(partition.clients))
    note = _few("coverage", spec.coverage, len(partition.clients)) if wanted > most else ""
    if spec.reference:
        # Drawn, not set: chance of so many Beta draws, and clipping.
        return _judged("D1", "coverage", measures.coverage, Forecast(width * wanted, 0.05 * width * wanted), note=note)
    slack = _rounding(width * wanted, ROUNDING / mean)
    return _judged("D1", "coverage", measures.coverage, Forecast(width * min(wanted, most), 0.0), slack, note)


def _rounding(variance: float, error: float) -> float:
    """How far a variance that is set, not drawn, may be off when every value is rounded with an error of this standard deviation."""
    return 2 * error * float(np.sqrt(variance)) + error**2


def _few(knob: str, asked: float, clients: int) -> str:
    return f"{clients} clients cannot differ as much as {knob} = {asked:g} asks; this is the most they can"


def _mixes(partition: Partition, measures: Measures, forecast: Forecast) -> Finding:
    omega = partition.spec.preference
    tied, most = _tied(partition), 1 - 1 / len(partition.categories)
    if omega is None:
        return _judged("D2", "preference", measures.preference, forecast, note=tied or "chance alone", excuse=bool(tied), most=most)
    form = preference_form(omega, partition.pool_mix, partition.sizes)
    note = tied
    if forecast.mean < 0.95 * form:
        note = f"some categories are too small for a client to live in: {form:.4f} with unlimited tasks"
    finding = _judged("D1", "preference", measures.preference, forecast, note=note, excuse=bool(tied), most=most)
    if finding.level == "ok" and forecast.mean < REACHED * form:
        return replace(finding, level="limit", note=_out_of_reach(partition, omega, forecast.mean))
    if finding.level == "violation" and len(partition.clients) < MANY and partition.drawn is not None:
        return replace(finding, note=f"so few as {len(partition.clients)} clients may be drawn to the same categories; choose another seed")
    return finding


def _out_of_reach(partition: Partition, omega: float, mean: float) -> str:
    held = np.bincount(partition.category_of, minlength=len(partition.categories))
    expected = max(0.0, preference_knob(mean, partition.pool_mix, partition.sizes) or 0.0)
    return (
        f"preference = {omega:g} cannot be reached with {partition.sizes.mean():.0f} tasks per client, {expected:.2f} is what can "
        f"be expected: a client fills up categories that hold {held.min()} to {held.max()} of the {len(partition.tasks)} tasks; "
        f"the full effect needs {held.min()} tasks per client or fewer"
    )


def _tied(partition: Partition) -> str:
    """Why ``hardness`` must move categories too; empty where it need not: no category lacks tasks of a kind for its clients."""
    if partition.spec.hardness is None or partition.easy is None or partition.spec.reference:
        return ""
    largest = int(partition.sizes.max())
    kinds = [np.bincount(partition.category_of[kind], minlength=len(partition.categories)) for kind in (partition.easy, ~partition.easy)]
    short = [name for i, name in enumerate(partition.categories) if min(int(kind[i]) for kind in kinds) < largest * partition.pool_mix[i]]
    return f"hardness moves categories where labels depend on them: too few tasks of a kind in {examples(short)}" if short else ""


def _easy(partition: Partition, measures: Measures) -> tuple[Finding, Finding]:
    spec, easy = partition.spec, partition.easy
    assert easy is not None
    assert measures.easy is not None
    assert measures.hardness is not None
    mean = float(measures.easy.mean())
    if spec.hardness is None:
        variance, share = simulated_easy(partition, easy, stream(partition.seed, "redraw", "easy"))
        chi2, degrees, tail = label_test(partition, easy)
        note = "chance alone"
        if spec.preference is not None and tail < SURELY:
            note = f"labels depend on the category (chi-square {chi2:.0f}, {degrees} df), so preference moves difficulty with it"
        return _judged("D2", "hardness", measures.hardness, variance, note=note, most=0.25), _judged(
            "D3", "mean easy share", mean, share, 1e-9
        )
    asked = spec.easy_mean if spec.easy_mean is not None else float(easy.mean())
    if spec.reference:
        asked = (spec.size // 2) / spec.size
    wanted, most = dispersion_form(spec.hardness, asked, len(partition.clients)), attainable(asked, len(partition.clients))
    small = float((1 / partition.sizes).mean())
    note = _few("hardness", spec.hardness, len(partition.clients)) if wanted > most else ""
    limited = any(text.startswith("hardness") for text in partition.notes)
    note = "too few tasks of a kind" if limited else note
    spread = 0.05 * wanted if spec.reference else 0.0
    dispersion = Forecast(min(wanted, most), spread)
    slack = _rounding(wanted, ROUNDING * float(np.sqrt((1 / partition.sizes**2).mean())))
    d1 = _judged("D1", "hardness", measures.hardness, dispersion, slack, note, excuse=limited)
    return d1, _judged("D3", "mean easy share", mean, Forecast(asked, 0.0), small, excuse=limited)


def _mean_size(partition: Partition, measures: Measures) -> Finding:
    mean = partition.spec.bounds()[1]
    return _judged("D3", "mean size", float(measures.sizes.mean()), Forecast(mean, 0.0), 0.5 / len(partition.clients))


def _mean_mix(measures: Measures, forecast: Forecast, excuse: bool) -> Finding:
    got = float(((measures.mean_mix - measures.pool_mix) ** 2).sum())
    worst = int(np.abs(measures.mean_mix - measures.pool_mix).argmax())
    note = f"largest difference {100 * (measures.mean_mix - measures.pool_mix)[worst]:+.1f} points"
    return _judged("D3", "mean mix, squared distance", got, forecast, note=note, excuse=excuse)


def _union(partition: Partition, measures: Measures) -> Finding:
    total, given = len(partition.tasks), int(partition.sizes.sum())
    if partition.spec.knobs in ((), ("coverage",)):
        # The published slices leave out less than one of them at the end of the list.
        published = partition.spec.given_order or partition.spec.reference
        slack = len(partition.clients) / total if published else 0.001
        return _judged("D4", "tasks with an owner", measures.union, Forecast(min(1.0, given / total), 0.0), slack)
    note = "what independent draws cover"
    return _judged("D4", "tasks with an owner", measures.union, union_of_draws(partition), 0.002, note)


def _layers(partition: Partition) -> list[Finding]:
    """Correlation between what two layers drew for the same clients."""
    drawn, clients = partition.drawn, len(partition.clients)
    if drawn is None or clients < FEW:
        return []
    layers: dict[str, FloatArray] = {"coverage": drawn.sizes.astype(np.float64)} if partition.spec.coverage is not None else {}
    if drawn.mixes is not None:
        layers["preference"] = drawn.mixes[:, int(partition.pool_mix.argmax())]
    if drawn.easy is not None:
        layers["hardness"] = drawn.easy
    found, names = [], [name for name, values in layers.items() if values.std() > 0]
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            got = abs(float(np.corrcoef(layers[first], layers[second])[0, 1]))
            found.append(_judged("D4", f"correlation of {first} and {second}", got, Forecast(0.0, 1 / np.sqrt(clients - 1)), most=1.0))
    return found
