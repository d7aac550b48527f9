"""Rules for LoRA adapters, whose weight change is ``(alpha / r) * B A``: averaging the factors is not averaging the product.

Names are peft's: ``base_model.model.<module>.lora_A.weight`` [r, in] and ``base_model.model.<module>.lora_B.weight`` [out, r]. What else
a policy's state holds is averaged as in FedAvg.

``merge`` keeps a second kind of entry in the global state, which clients do not send: ``merged.<module>.weight`` [out, in], the dense
float32 change of the base weight ``<module>.weight`` (scale included) folded in so far, absent before the first round. Whoever loads
such a state must add it to the base model; ``split_merged`` takes it apart. Downstream traffic of ``merge`` is therefore that of the
adapted matrices in full, upstream it is that of an adapter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pipeline.aggregation.base import Rule
from pipeline.aggregation.drift import policy_norm
from pipeline.aggregation.lowrank import ProductMean
from pipeline.aggregation.mean import Float64Array, StreamingMean
from pipeline.episodes import FloatArray, State
from pipeline.errors import AggregationError

MERGED = "merged."
"""Prefix of dense weight changes in the global state of ``merge``."""

_ADAPTER = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True)
class Factors:
    """Names of the two factors of one adapted module."""

    module: str
    a: str
    b: str

    @property
    def merged(self) -> str:
        """Name of the module's dense weight change in a state of ``merge``."""
        return f"{MERGED}{self.module}.weight"


def is_factor_a(name: str) -> bool:
    """Whether ``name`` is a factor A."""
    return name.endswith(_A)


def split_merged(state: State) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """A state of any rule taken apart: what clients train and send, and dense changes of base weights by the base model's own names."""
    adapter = {name: value for name, value in state.items() if not name.startswith(MERGED)}
    return adapter, {name.removeprefix(MERGED): value for name, value in state.items() if name.startswith(MERGED)}


def factor_pairs(names: Iterable[str], rule: str) -> tuple[Factors, ...]:
    """Adapted modules among ``names``, sorted. Raises ``AggregationError`` when there are none, or a factor lacks its partner."""
    present = set(names)
    modules = sorted({name.rsplit(".lora_", 1)[0] for name in present if name.endswith((_A, _B))})
    if not modules:
        raise AggregationError(f"rule {rule!r} averages LoRA adapters, but the global state has no *{_A} and *{_B}; use rule `full`")
    for module in modules:
        for suffix in (_A, _B):
            if module + suffix not in present:
                raise AggregationError(f"the global state has one factor of {module} but lacks {module + suffix}")
    return tuple(Factors(module.removeprefix(_ADAPTER), module + _A, module + _B) for module in modules)


def _without_merged(state: State, rule: str) -> State:
    merged = [name for name in state if name.startswith(MERGED)]
    if merged:
        raise AggregationError(f"the global state holds {merged[0]!r}, which only rule `merge` continues, but the rule is {rule!r}")
    return state


class LoraRule(Rule):
    """What the rules below share: the plain mean of every array that clients send."""

    adapters: ClassVar[frozenset[str]] = frozenset({"lora"})

    def begin(self, state: State) -> None:
        """See ``Rule``."""
        self.start = _without_merged(state, self.name)
        self.sent = {name: tuple(value.shape) for name, value in self.start.items()}
        self.pairs = factor_pairs(self.sent, self.name)
        for pair in self.pairs:
            (rank, _), (_, columns) = self.sent[pair.a], self.sent[pair.b]
            if rank != columns:
                raise AggregationError(f"{pair.module}: A has shape {self.sent[pair.a]}, B has {self.sent[pair.b]}; their ranks differ")
        self.mean = StreamingMean(self.sent)

    def fold(self, delta: State, weight: float) -> None:
        """See ``Rule``."""
        self.mean.add(delta, weight)

    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """See ``Rule``."""
        state, squares = self.mean.added_to(self.start)
        return state, {"update_norm": policy_norm(squares)}

    def _factors(self, pair: Factors, delta: State) -> tuple[Float64Array, Float64Array]:
        """A client's own B and A."""
        return (
            np.add(self.start[pair.b], delta[pair.b], dtype=np.float64),
            np.add(self.start[pair.a], delta[pair.a], dtype=np.float64),
        )


class FactorsRule(LoraRule):
    """A and B averaged apart. Not the mean of the agents: mean(B) mean(A) is not mean(B A). For comparison."""

    name: ClassVar[str] = "factors"


class FrozenARule(LoraRule):
    """A is the same for everyone and never moves, so that the mean of B gives the mean of B A exactly (Sun et al. 2024, FFA-LoRA)."""

    name: ClassVar[str] = "frozen_a"

    def check(self, who: str, delta: State) -> None:
        """Raise ``AggregationError`` when a factor A moved."""
        for pair in self.pairs:
            if np.any(delta[pair.a]):
                raise AggregationError(
                    f"{who}: {pair.a} moved by up to {float(np.abs(delta[pair.a]).max()):.3g}, but rule `frozen_a` keeps A fixed; "
                    "the learner must not train it"
                )

    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """See ``Rule``."""
        state, metrics = super().finish()
        return {**state, **{pair.a: self.start[pair.a] for pair in self.pairs}}, metrics


class ProductRule(LoraRule):
    """The mean of B A, brought back to rank r by a singular value decomposition.

    ``residual_mean`` and ``residual_max`` are, over matrices, the norm of what does not fit in rank r relative to the norm of the mean.
    A single client's factors are passed on as they are.
    """

    name: ClassVar[str] = "product"

    def begin(self, state: State) -> None:
        """See ``Rule``."""
        super().begin(state)
        self.products = {pair.module: ProductMean(self.sent[pair.b][0], self.sent[pair.a][1]) for pair in self.pairs}

    def fold(self, delta: State, weight: float) -> None:
        """See ``Rule``."""
        super().fold(delta, weight)
        for pair in self.pairs:
            b, a = self._factors(pair, delta)
            self.products[pair.module].add(b, a, weight)

    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """See ``Rule``."""
        state, metrics = super().finish()
        residuals = []
        for pair in self.pairs:
            product = self.products.pop(pair.module)
            if product.terms == 1:
                residuals.append(0.0)
                continue
            found = product.project(self.sent[pair.a][0], state[pair.a].astype(np.float64))
            state[pair.a], state[pair.b] = found.a.astype(np.float32), found.b.astype(np.float32)
            residuals.append(found.residual)
        return state, {**metrics, "residual_mean": float(np.mean(residuals)), "residual_max": max(residuals)}


class MergeRule(LoraRule):
    """The mean of ``(alpha / r) * B A``, all of it, folded into the base weights kept by the server; the adapter starts again.

    B returns to zero; A goes on from its mean, which does not change what the agent does and keeps what clients found worth looking at.
    """

    name: ClassVar[str] = "merge"

    def __init__(self, lora_alpha: float) -> None:
        self.lora_alpha = lora_alpha

    def begin(self, state: State) -> None:
        """See ``Rule``."""
        adapter, self.merged = split_merged(state)
        super().begin(adapter)
        self.products = {pair.module: ProductMean(self.sent[pair.b][0], self.sent[pair.a][1]) for pair in self.pairs}
        for pair in self.pairs:
            dense = self.merged.get(f"{pair.module}.weight")
            if dense is not None and dense.shape != self.products[pair.module].shape:
                raise AggregationError(f"{pair.merged} has shape {dense.shape}, expected {self.products[pair.module].shape}")

    def fold(self, delta: State, weight: float) -> None:
        """See ``Rule``."""
        super().fold(delta, weight)
        for pair in self.pairs:
            b, a = self._factors(pair, delta)
            self.products[pair.module].add(b, a, weight)

    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """See ``Rule``."""
        state, metrics = super().finish()
        for pair in self.pairs:
            dense = self.products.pop(pair.module).dense() * (self.lora_alpha / self.sent[pair.a][0])
            before = self.merged.get(f"{pair.module}.weight")
            state[pair.merged] = (dense if before is None else dense + before).astype(np.float32)
            state[pair.b] = np.zeros_like(state[pair.b])
        return state, metrics
