"""What may leave a client: parameters that the server already has by name, scalars from a closed list, and, where the federation
measures how far policies drift apart, a policy's log-probabilities on shared prompts. Nothing else.

Observations, actions, prompts and task texts have no way through: names are compared with the list, values must be plain finite
numbers, and tensors must be float32 arrays under names of the global state. The shared prompts are held-out tasks of the unperturbed
world, the same for all, so that log-probabilities on them tell nothing that the parameters do not tell the server. They must be
distributions at the positions that the round asks for, and so cannot carry another tensor. Knows nothing of transport.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from pipeline.errors import AggregationError

if TYPE_CHECKING:
    from pipeline.episodes import ClientUpdate

EPISODE_COUNTS = frozenset({"episodes", "failed", "failed_episodes"})
ROLLOUT_METRICS = frozenset({"success", "score", "turns", "invalid", "ret", "retries", "tokens", "truncated", *EPISODE_COUNTS})
TRAINING_METRICS = frozenset(
    {
        "loss", "pg_loss", "kl", "entropy", "clip_fraction", "grad_norm", "logprob_gap", "zero_variance", "padding_waste",
        "ratio_max", "advantage_std", "prox", "rows", "steps", "epochs",
        "approx_kl", "value_loss", "value_clip_fraction", "value_mean", "explained_variance", "critic_grad_norm",
    }
)  # fmt: skip
COST_METRICS = frozenset({"rollout_seconds", "train_seconds", "seconds", "attempts"})

ALLOWED_METRICS: frozenset[str] = ROLLOUT_METRICS | TRAINING_METRICS | COST_METRICS
"""Names of the scalars that a client may report: means and counts over a whole client-round, never anything about one episode."""

POLICY_TOLERANCE = 1e-3
"""How far from 1 the probabilities at a position may add up to: float32 log-probabilities of large vocabularies stay within 1e-4."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,200}")


def _shown(name: object) -> str:
    """A name for a message, unless it may be text from an episode."""
    return repr(name) if isinstance(name, str) and _IDENTIFIER.fullmatch(name) else "with a name that is no identifier"


def check_metrics(metrics: Mapping[str, float], who: str = "a client") -> dict[str, float]:
    """The same scalars as Python floats.

    Raises ``AggregationError`` for a name that is not allow-listed, and for a value that is not a finite number. The message shows
    names, never values, for a value that does not belong here may be the very text that must not leave.
    """
    checked: dict[str, float] = {}
    for name, value in metrics.items():
        if name not in ALLOWED_METRICS:
            raise AggregationError(
                f"{who}: metric {_shown(name)} is not in privacy_boundary.ALLOWED_METRICS, so it does not leave the client; "
                "add it there if it is a mean or a count over a whole client-round"
            )
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise AggregationError(f"{who}: metric {name!r} is a {type(value).__name__}, expected a number")
        if not math.isfinite(value):
            raise AggregationError(f"{who}: metric {name!r} is {float(value)}, expected a finite number")
        checked[name] = float(value)
    return checked


def check_policy(policy: object, shape: tuple[int, ...] | None, who: str = "a client") -> None:
    """Raise ``AggregationError`` unless ``policy`` holds log-probabilities [positions, vocabulary] of ``shape``, or None without one."""
    if shape is None:
        if policy is not None:
            raise AggregationError(f"{who}: sent a policy's log-probabilities, but this round measures none: they do not leave the client")
        return
    if not isinstance(policy, np.ndarray) or policy.dtype != np.float32 or policy.shape != shape:
        found = f"{policy.dtype} {policy.shape}" if isinstance(policy, np.ndarray) else type(policy).__name__
        raise AggregationError(f"{who}: its policy on the shared prompts is {found}, expected float32 {shape}")
    for at, row in enumerate(policy):
        with np.errstate(over="ignore"):
            total = float(np.exp(row, dtype=np.float64).sum())
        if not abs(total - 1.0) <= POLICY_TOLERANCE:
            raise AggregationError(f"{who}: its policy at position {at} of the shared prompts is no distribution: it does not add up to 1")


def check(update: ClientUpdate, names: Collection[str]) -> None:
    """Raise ``AggregationError`` unless ``update`` holds float32 tensors under ``names`` of the global state and allowed scalars only."""
    who = f"client {update.client}, round {update.round}"
    for key, value in update.delta.items():
        if key not in names:
            raise AggregationError(f"{who}: tensor {_shown(key)} is not a parameter of the global state, so it does not leave the client")
        if not isinstance(value, np.ndarray) or value.dtype != np.float32:
            found = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise AggregationError(f"{who}: tensor {key!r} has type {found}, expected a float32 array")
    for field in ("n_tasks", "n_episodes", "n_tokens"):
        count = getattr(update, field)
        if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 0:
            raise AggregationError(f"{who}: {field} is {type(count).__name__}, expected a count of 0 or more")
    check_metrics(update.metrics, who)
