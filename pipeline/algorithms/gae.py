"""Generalized advantage estimation (Schulman et al. 2016, https://arxiv.org/abs/1506.02438) over chains of steps. numpy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.algorithms.base import IntArray

_EPSILON = 1e-8

Float64Array = npt.NDArray[np.float64]


def gae(rewards: Float64Array, values: Float64Array, lengths: IntArray, gamma: Float64Array, lam: Float64Array) -> Float64Array:
    """Advantage of every step, A[t] = r[t] + gamma[t] V[t+1] - V[t] + gamma[t] lam[t] A[t+1] (eq. 16), V and A being 0 after a chain's end.

    All arrays but ``lengths`` are [steps], chains one after the other; ``lengths`` are the chains' steps, each at least 1. ``gamma[t]`` and
    ``lam[t]`` belong to what lies between step t and the next one. An end is an end, a step limit too: agents are measured under the same
    limit. Computed in float64.
    """
    chains, longest = len(lengths), int(lengths.max(initial=0))
    starts = np.cumsum(lengths) - lengths
    advantages = np.zeros(len(rewards), np.float64)
    value_after, advantage_after = np.zeros(chains), np.zeros(chains)
    # Backwards from each chain's end, all chains at once; at distance d only chains of more than d steps are left.
    for distance in range(longest):
        left = np.flatnonzero(lengths > distance)
        at = starts[left] + lengths[left] - 1 - distance
        g = gamma[at] if distance else np.zeros(len(at))
        delta = rewards[at] + g * value_after[left] - values[at]
        advantages[at] = delta + g * lam[at] * advantage_after[left]
        value_after[left], advantage_after[left] = values[at], advantages[at]
    return advantages


def whiten(advantages: Float64Array, std_floor: float) -> Float64Array:
    """(A - mean) / max(sqrt(variance + 1e-8), floor) over all tokens, the variance unbiased. A batch of one token has no spread."""
    if len(advantages) == 0:
        return advantages
    variance = float(advantages.var(ddof=1)) if len(advantages) > 1 else 0.0
    whitened: Float64Array = (advantages - advantages.mean()) / max((variance + _EPSILON) ** 0.5, std_floor)
    return whitened


def explained_variance(predicted: Float64Array, targets: Float64Array) -> float:
    """1 - var(targets - predicted) / var(targets), at least -1: 1 is perfect, 0 as good as a constant. 0 where targets do not vary."""
    variance = float(targets.var()) if len(targets) else 0.0
    # Bounded below, for a batch in which nearly all went alike has next to no variance to explain.
    return max(-1.0, 1.0 - float((targets - predicted).var()) / variance) if variance > 0 else 0.0
