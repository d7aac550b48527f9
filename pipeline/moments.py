"""AdamW's moments as they travel between a learner, the server and the disk. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pipeline.episodes import FloatArray, State

_FIRST, _SECOND, _STEP = "exp_avg/", "exp_avg_sq/", "step"


class MomentsLike(Protocol):
    """Whatever holds moments by state name, and the number of steps that made them."""

    @property
    def step(self) -> int:
        """Optimizer steps taken."""

    @property
    def exp_avg(self) -> Mapping[str, FloatArray]:
        """First moments."""

    @property
    def exp_avg_sq(self) -> Mapping[str, FloatArray]:
        """Second moments."""


@dataclass(frozen=True)
class Moments:
    """AdamW's moments by state name, and the number of steps that made them."""

    step: int
    exp_avg: Mapping[str, FloatArray]
    exp_avg_sq: Mapping[str, FloatArray]


def flatten(moments: MomentsLike) -> dict[str, FloatArray]:
    """One mapping of float32 arrays: ``exp_avg/<name>``, ``exp_avg_sq/<name>`` and ``step`` (exact up to 2 ** 24)."""
    return {
        **{_FIRST + name: value for name, value in moments.exp_avg.items()},
        **{_SECOND + name: value for name, value in moments.exp_avg_sq.items()},
        _STEP: np.array([moments.step], np.float32),
    }


def unflatten(arrays: State) -> Moments:
    """The inverse of ``flatten``. A mean number of steps is rounded."""
    return Moments(
        step=round(float(arrays[_STEP][0])),
        exp_avg={name.removeprefix(_FIRST): value for name, value in arrays.items() if name.startswith(_FIRST)},
        exp_avg_sq={name.removeprefix(_SECOND): value for name, value in arrays.items() if name.startswith(_SECOND)},
    )
