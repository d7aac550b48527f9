"""Aggregation rule ``merge`` outside the server: adapters over a base that changes every round.

A state of that rule holds an adapter and dense changes of base weights (``pipeline.aggregation.lora``). The learner puts the changes
under its adapter; the engine, whose base is fixed while it serves adapters, serves the sum as whole weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.aggregation.lora import factor_pairs, split_merged
from pipeline.config.model import LoraConfig, ModelConfig
from pipeline.episodes import FloatArray, State
from pipeline.models import get_state, load_model, set_base


class MergedBase:
    """The base weights under a peft model: as loaded, or with dense changes added."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._original: dict[str, FloatArray] = {}
        self._changed = False

    def set(self, changes: Mapping[str, FloatArray]) -> None:
        """Make the base the original plus ``changes`` (by the plain model's names); empty restores the original."""
        if not changes and not self._changed:
            return
        for name in changes:
            if name not in self._original:
                self._original[name] = _base_weight(self._model, name)
        weights = {name: value + changes[name] if name in changes else value for name, value in self._original.items()}
        set_base(self._model, weights)
        self._changed = bool(changes)


class Densifier:
    """Turns states of rule ``merge`` into whole weights: base + changes + (alpha / r) B A."""

    def __init__(self, base_path: Path, lora: LoraConfig) -> None:
        self._lora = lora
        self._base = get_state(load_model(base_path, ModelConfig(adapter="full").dtype))

    def dense(self, state: State) -> dict[str, FloatArray]:
        """Whole weights by the plain model's names, float32."""
        adapter, changes = split_merged(state)
        weights = dict(self._base)
        for name, change in changes.items():
            weights[name] = weights[name] + change
        scale = np.float32(self._lora.alpha / self._lora.rank)
        for pair in factor_pairs(adapter, "merge"):
            name = f"{pair.module}.weight"
            weights[name] = weights[name] + scale * (adapter[pair.b] @ adapter[pair.a])
        return weights


def _base_weight(model: Any, name: str) -> FloatArray:
    base = {n.replace(".base_layer.", "."): p for n, p in model.get_base_model().named_parameters() if ".lora_" not in n}
    weight: FloatArray = base[name].detach().float().cpu().numpy().copy()
    return weight
