"""What an update did, in numbers: sums and maxima over micro-batches and workers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from actors.stepping import Steps
from pipeline.algorithms.base import Rows
from pipeline.algorithms.batching import StepPlan


class Totals:
    """Sums and maxima over an update, added up over workers at the end."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self._world_size, self._device = world_size, device
        self._sums: dict[str, torch.Tensor] = {}
        self._maxima: dict[str, torch.Tensor] = {}
        self.prox = 0.0

    def add(self, sums: Mapping[str, torch.Tensor], maxima: Mapping[str, torch.Tensor]) -> None:
        """Take in a micro-batch."""
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        for name, value in maxima.items():
            self._maxima[name] = torch.maximum(self._maxima[name], value) if name in self._maxima else value

    def moved_enough(self, target_kl: float | None) -> Callable[[StepPlan], bool]:
        """Whether the step just taken began with a policy further from the sampler than ``target_kl`` (mean over the step's tokens of all
        workers, so that they all end together). Never without a target."""
        before = torch.zeros((), device=self._device)

        def enough(plan: StepPlan) -> bool:
            nonlocal before
            if target_kl is None:
                return False
            total = self._sums["approx_kl"].detach() if "approx_kl" in self._sums else torch.zeros((), device=self._device)
            moved, before = total - before, total
            if self._world_size > 1:
                moved = moved.clone()
                torch.distributed.all_reduce(moved)
            return float(moved) / plan.tokens > target_kl

        return enough

    def means(self, tokens: int) -> dict[str, float]:
        """Means over ``tokens`` response tokens of all steps, and maxima."""
        sums, maxima = self._reduced(self._sums, max=False), self._reduced(self._maxima, max=True)
        return {name: value / tokens if tokens else 0.0 for name, value in sums.items()} | maxima

    def metrics(self, rows: Rows, taken: Steps) -> dict[str, float]:
        """Means per response token (of all steps), maxima, and counts."""
        steps, metrics = taken.count, self.means(taken.tokens)
        # Of the first step alone: means over its tokens, not over those of all steps.
        first_tokens, gap = metrics.pop("_first_tokens", 0.0), metrics.pop("logprob_gap", 0.0)
        metrics["logprob_gap"] = gap / first_tokens if first_tokens else 0.0
        metrics["grad_norm"] = taken.grad_norm
        metrics["prox"] = self.prox / steps if steps else 0.0
        metrics |= {
            "rows": float(len(rows)),
            "tokens": float(rows.n_response_tokens),
            "tokens_total": float(rows.lengths.sum()),
            "steps": float(steps),
        }
        return metrics | dict(rows.metrics)

    def _reduced(self, values: Mapping[str, torch.Tensor], *, max: bool) -> dict[str, float]:
        if self._world_size == 1:
            return {name: float(value) for name, value in values.items()}
        # A worker whose share was empty has seen no names, so names travel with values.
        parts: list[Any] = [None] * self._world_size
        torch.distributed.all_gather_object(parts, {name: float(value) for name, value in values.items()})
        names = sorted({name for part in parts for name in part})
        combine: Callable[[list[float]], float] = _largest if max else math.fsum
        return {name: combine([part[name] for part in parts if name in part]) for name in names}


def _largest(values: list[float]) -> float:
    return max(values)
