"""A success rate of a report, read from an evaluation record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.statistics import Interval, wilson


@dataclass(frozen=True)
class Rate:
    """A success rate with its 95 % interval: ``successes`` of ``n`` tasks after ``round``."""

    round: int
    successes: int
    n: int
    score: float | None = None

    @property
    def value(self) -> float:
        """The rate, in [0, 1]."""
        return self.successes / self.n

    @property
    def interval(self) -> Interval:
        """Wilson's interval."""
        return wilson(self.successes, self.n)


def rate_of(record: Mapping[str, Any]) -> Rate | None:
    """The rate of an evaluation record; None where it holds none."""
    n, success = as_number(record.get("n")), as_number(record.get("success"))
    if not n or n < 1 or success is None:
        return None
    return Rate(int(record["round"]), min(int(success * n + 0.5), int(n)), int(n), as_number(record.get("score")))


def as_number(value: object) -> float | None:
    """A number, or None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
