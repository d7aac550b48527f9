"""What a client may keep between its visits, AdamW's moments first of all, as it travels between learner, server and disk. numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from pipeline.episodes import FloatArray, State

_FIRST, _SECOND, _STEP = "exp_avg/", "exp_avg_sq/", "step"
_CRITIC_STEP, _KEPT, _CRITIC = "critic_step", "kept/", "critic."


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

    @property
    def critic_step(self) -> int:
        """Steps of the critic's optimizer."""

    @property
    def kept(self) -> Mapping[str, FloatArray]:
        """Parameters that never leave the client."""


@dataclass(frozen=True)
class Moments:
    """AdamW's moments by state name, and the number of steps that made them: all that a client keeps between its visits.

    A critic's optimizer has moments under names that begin with ``critic.`` and steps of its own. ``kept`` are the critic's parameters
    where the client keeps those as well (by their own names, without the prefix).
    """

    step: int
    exp_avg: Mapping[str, FloatArray]
    exp_avg_sq: Mapping[str, FloatArray]
    critic_step: int = 0
    kept: Mapping[str, FloatArray] = field(default_factory=dict)


def join(policy: Moments | None, critic: Moments | None, kept: Mapping[str, FloatArray]) -> Moments:
    """Moments of both optimizers, and parameters that the client keeps. None stands for moments that are not kept."""
    first: dict[str, FloatArray] = dict(policy.exp_avg) if policy else {}
    second: dict[str, FloatArray] = dict(policy.exp_avg_sq) if policy else {}
    if critic is not None:
        first |= {_CRITIC + name: value for name, value in critic.exp_avg.items()}
        second |= {_CRITIC + name: value for name, value in critic.exp_avg_sq.items()}
    return Moments(policy.step if policy else 0, first, second, critic.step if critic else 0, kept)


def split(moments: Moments | None) -> tuple[Moments | None, Moments | None]:
    """The inverse of ``join``: the policy's moments and the critic's, by their own names; None where there are none."""
    if moments is None:
        return None, None
    parts = []
    for own, step in ((False, moments.step), (True, moments.critic_step)):
        names = [name for name in moments.exp_avg if name.startswith(_CRITIC) is own]
        first = {name.removeprefix(_CRITIC): moments.exp_avg[name] for name in names}
        second = {name.removeprefix(_CRITIC): moments.exp_avg_sq[name] for name in names}
        parts.append(Moments(step, first, second) if names else None)
    return parts[0], parts[1]


def flatten(moments: MomentsLike) -> dict[str, FloatArray]:
    """One mapping of float32 arrays: ``exp_avg/<name>``, ``exp_avg_sq/<name>``, ``step`` (exact up to 2 ** 24), and where there is a critic
    ``critic_step`` and ``kept/<name>``."""
    flat = {
        **{_FIRST + name: value for name, value in moments.exp_avg.items()},
        **{_SECOND + name: value for name, value in moments.exp_avg_sq.items()},
        _STEP: np.array([moments.step], np.float32),
        **{_KEPT + name: value for name, value in moments.kept.items()},
    }
    if any(name.startswith(_CRITIC) for name in moments.exp_avg):
        flat[_CRITIC_STEP] = np.array([moments.critic_step], np.float32)
    return flat


def unflatten(arrays: State) -> Moments:
    """The inverse of ``flatten``. A mean number of steps is rounded."""

    def under(prefix: str) -> dict[str, FloatArray]:
        return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}

    return Moments(
        step=round(float(arrays[_STEP][0])),
        exp_avg=under(_FIRST),
        exp_avg_sq=under(_SECOND),
        critic_step=round(float(arrays[_CRITIC_STEP][0])) if _CRITIC_STEP in arrays else 0,
        kept=under(_KEPT),
    )
