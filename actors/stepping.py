"""What the training of a policy and of a critic share: optimizer steps of accumulated micro-batches, and passes without a gradient that
workers share.

Owns accumulation and the checks that a step must pass. What a loss is belongs to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from actors.zero import ZeroParameters
from pipeline.algorithms.base import MicroBatch, Rows
from pipeline.algorithms.batching import MicroPlan, StepPlan, collate, plan_step
from pipeline.episodes import FloatArray
from pipeline.errors import LearnerError


@dataclass(frozen=True)
class Place:
    """A worker's place in its group, and how it works."""

    rank: int
    world_size: int
    device: torch.device
    budget: int
    """Padded tokens per forward pass."""


@dataclass(frozen=True)
class Steps:
    """Optimizer steps taken: how many, over how many response tokens, and the mean gradient norm before clipping."""

    count: int
    tokens: int
    grad_norm: float


def take_steps(
    engine: Any,
    parameters: ZeroParameters,
    plans: Sequence[StepPlan],
    loss: Callable[[int, MicroPlan, bool], torch.Tensor],
    *,
    place: Place,
    grad_clip: float,
    who: str,
    setting: str,
    enough: Callable[[StepPlan], bool] = lambda _: False,
) -> Steps:
    """One optimizer step per plan. ``loss`` takes the step's number, a micro-batch of this worker, and whether it is the step's last.

    Ends early after a step at which ``enough`` says so, which must say the same on all workers. Raises ``LearnerError`` that names ``who``
    for a loss or a gradient that is not finite, and proposes to lower ``setting``.
    """
    norms = tokens = 0.0
    count = 0
    for step, plan in enumerate(plans):
        mine = plan.workers[place.rank]
        for at, micro in enumerate(mine):
            last = at + 1 == len(mine)
            engine.set_gradient_accumulation_boundary(last)
            value = loss(step, micro, last)
            if not math.isfinite(value.item()):
                raise LearnerError(f"{who}: the loss of step {step + 1} of {len(plans)} is {value.item()}; lower {setting} or clip more")
            engine.backward(value)
        norm = parameters.step(grad_clip)
        if not math.isfinite(norm):
            raise LearnerError(f"{who}: the gradient norm of step {step + 1} of {len(plans)} is {norm}")
        norms, tokens, count = norms + norm, tokens + plan.tokens, count + 1
        if enough(plan):
            break
    return Steps(count, int(tokens), norms / count if count else 0.0)


def over_rows(rows: Rows, forward: Callable[[MicroBatch], torch.Tensor], place: Place) -> list[FloatArray]:
    """One number per response token of every row, by ``forward`` ([n] for a micro-batch), without a gradient.

    Rows with equal tokens are computed once, and workers share the work.
    """
    if len(rows) == 0:
        return []
    first: dict[bytes, int] = {}
    owner = [
        first.setdefault(t.tobytes() + n.to_bytes(4), i)
        for i, (t, n) in enumerate(zip(rows.tokens, rows.response_lengths.tolist(), strict=True))
    ]
    unique = np.array(sorted(set(owner)), np.int64)
    plan = plan_step(unique, rows.lengths, rows.response_lengths, workers=place.world_size, budget=place.budget)
    found: dict[int, FloatArray] = {}
    with torch.no_grad():
        for micro in plan.workers[place.rank]:
            values = forward(collate(rows, micro, device=place.device))
            ends = np.cumsum(rows.response_lengths[micro.rows])
            found.update(zip(micro.rows.tolist(), np.split(values.float().cpu().numpy(), ends[:-1]), strict=True))
    if place.world_size > 1:
        parts: list[Any] = [None] * place.world_size
        torch.distributed.all_gather_object(parts, found)
        found = {row: value for part in parts for row, value in part.items()}
    return [found[i] for i in owner]
