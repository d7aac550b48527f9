"""Group-relative advantages: how much better a turn's outcome was than that of its group. numpy only."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipeline.algorithms.base import IntArray
from pipeline.episodes import FloatArray

_EPSILON = 1e-6


def group_advantages(
    scores: FloatArray, groups: IntArray, episodes: IntArray, *, unit: Literal["turn", "trajectory"], normalize_std: bool, std_floor: float
) -> FloatArray:
    """(score - mean) / (max(std, floor) + 1e-6) per row, mean and unbiased std over the row's group (Shao et al. 2024, 4.1.2).

    ``scores`` [rows] is the episode's return less the turn's penalty. ``unit`` ``turn`` takes the statistics over all rows of the
    group, so that long episodes weigh more (published behaviour); ``trajectory`` over episodes, each by the mean of its rows.
    A group of one unit has no spread: its std is the floor. ``groups`` and ``episodes`` are integer labels per row.
    """
    scores64 = np.asarray(scores, np.float64)
    advantages = np.zeros_like(scores64)
    for group in np.unique(groups):
        member = groups == group
        values = scores64[member]
        if unit == "trajectory":
            values = np.array([scores64[member & (episodes == e)].mean() for e in np.unique(episodes[member])])
        centred = scores64[member] - values.mean()
        if normalize_std:
            std = values.std(ddof=1) if len(values) > 1 else 0.0
            centred = centred / (max(std, std_floor) + _EPSILON)
        advantages[member] = centred
    return advantages.astype(np.float32)


def zero_variance_groups(returns: FloatArray, groups: IntArray) -> IntArray:
    """Labels of groups whose episodes all had the same raw return: there is nothing to learn from them but formatting.

    ``returns`` and ``groups`` are per episode. The spread (max - min) decides, not a standard deviation.
    """
    same = [g for g in np.unique(groups) if np.ptp(returns[groups == g]) == 0]
    return np.array(same, np.int64)
