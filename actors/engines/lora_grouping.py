"""LoRA for vLLM on CPUs, with tokens grouped by adapter instead of one gathered pair of factors per token.

Owns the plan of a batch (which rows belong to which adapter slot) and the products. Long runs of one adapter, as in prompts, are
multiplied in place; scattered rows, as in decoding, are gathered into equal tiles and multiplied as one batch of small matrices.
Installed only for CPUs and only where vLLM's internals look as expected; otherwise vLLM's own operators stay, with a warning.
"""

from __future__ import annotations

import inspect
import logging
import sys
from dataclasses import dataclass
from typing import Any

import torch

_LOG = logging.getLogger(__name__)
_LONG_RUN = 24
"""Rows in a row from which a run is multiplied by itself; below, gathering is cheaper than another pair of calls."""


@dataclass(frozen=True)
class Tiles:
    """Scattered rows in tiles of one slot each. ``gather`` [tiles * height] holds row numbers (padding repeats row 0),
    ``rows`` [n] the rows in question and ``places`` [n] where each of them sits among the tiles. ``slots`` [tiles]."""

    slots: torch.Tensor
    height: int
    gather: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    covers: int | None
    """Number of rows if ``rows`` is exactly 0, 1, ..., n - 1 (then results can be added without an index), else None."""


@dataclass(frozen=True)
class Plan:
    """How to apply adapters to the rows of one step: ``runs`` of (start, stop, slot), then ``tiles``."""

    runs: tuple[tuple[int, int, int], ...]
    tiles: Tiles | None


def make_plan(slots: torch.Tensor, long_run: int = _LONG_RUN) -> Plan | None:
    """The plan for rows whose adapter slots are ``slots`` [rows]; -1 means no adapter. None when no row has one."""
    values, counts = torch.unique_consecutive(slots, return_counts=True)
    ends = torch.cumsum(counts, 0)
    long = (counts >= long_run) & (values >= 0)
    if len(values) == 1 and values[0] >= 0:
        long[:] = True
    runs = tuple(
        (end - count, end, slot) for end, count, slot in zip(ends[long].tolist(), counts[long].tolist(), values[long].tolist(), strict=True)
    )
    scattered = torch.repeat_interleave(~long & (values >= 0), counts)
    rows = torch.nonzero(scattered).flatten()
    if not len(rows):
        return Plan(runs, None) if runs else None
    return Plan(runs, _make_tiles(slots, rows))


def _make_tiles(slots: torch.Tensor, rows: torch.Tensor) -> Tiles:
    order = torch.argsort(slots[rows], stable=True)
    sorted_rows = rows[order]
    group_slots, sizes = torch.unique_consecutive(slots[sorted_rows], return_counts=True)
    largest, mean = int(sizes.max()), -(-len(rows) // len(sizes))
    # Groups of about equal size make one tile each. Otherwise tiles of the mean size keep padding below one tile per group.
    height = largest if largest <= 2 * mean else mean
    tiles_per_group = -(-sizes // height)
    group_starts = torch.cumsum(sizes, 0) - sizes
    tile_starts = (torch.cumsum(tiles_per_group, 0) - tiles_per_group) * height
    within = torch.arange(len(rows)) - torch.repeat_interleave(group_starts, sizes)
    sorted_places = torch.repeat_interleave(tile_starts, sizes) + within
    gather = torch.zeros(int(tiles_per_group.sum()) * height, dtype=torch.long)
    gather[sorted_places] = sorted_rows
    places = torch.empty_like(sorted_places)
    places[order] = sorted_places
    covers = len(rows) if int(rows[-1]) == len(rows) - 1 else None
    return Tiles(torch.repeat_interleave(group_slots, tiles_per_group), height, gather, rows, places, covers)


def apply_plan(plan: Plan, y: torch.Tensor, x: torch.Tensor, a_all: torch.Tensor, b_all: torch.Tensor, scale: float) -> None:
    """Add ``scale * x @ A[slot] @ B[slot]`` to ``y`` in place, row by row of ``plan``.

    ``y`` [rows, out], ``x`` [rows, in], ``a_all`` [slots, in, r], ``b_all`` [slots, r, out].
    """
    for start, stop, slot in plan.runs:
        low = torch.mm(x[start:stop].to(a_all.dtype), a_all[slot])
        if y.dtype == b_all.dtype:
            y[start:stop].addmm_(low, b_all[slot], alpha=scale)
        else:
            y[start:stop] += (torch.mm(low, b_all[slot]) * scale).to(y.dtype)
    tiles = plan.tiles
    if tiles is None:
        return
    gathered = x.index_select(0, tiles.gather).to(a_all.dtype).view(len(tiles.slots), tiles.height, -1)
    low = torch.bmm(gathered, a_all.index_select(0, tiles.slots))
    if scale != 1:
        low *= scale
    wide = torch.bmm(low, b_all.index_select(0, tiles.slots)).view(-1, b_all.shape[-1])
    delta = wide.index_select(0, tiles.places).to(y.dtype)
    if tiles.covers is not None:
        y[: tiles.covers] += delta
    else:
        y.index_add_(0, tiles.rows, delta)


def stack_factors(
    lora_a: tuple[torch.Tensor, ...], lora_b: tuple[torch.Tensor, ...], output_slices: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Factors of a layer with several outputs (query, key, value) as one pair: A [slots, in, n r] and block-diagonal B [slots, n r, out].

    ``lora_a`` and ``lora_b`` are vLLM's, [slots, 1, r, in] and [slots, 1, out_i, r].
    """
    dtype = torch.float32
    a_all = torch.cat([a.flatten(0, 1) if a.dim() == 4 else a for a in lora_a], dim=1).to(dtype).transpose(1, 2).contiguous()
    slots, total = lora_a[0].shape[0], sum(a.shape[-2] for a in lora_a)
    b_all = torch.zeros((slots, total, sum(output_slices)), dtype=dtype)
    row = column = 0
    for b, width in zip(lora_b, output_slices, strict=True):
        rank = b.shape[-1]
        block = (b.flatten(0, 1) if b.dim() == 4 else b)[:, :width].transpose(1, 2)
        b_all[:, row : row + rank, column : column + block.shape[-1]] = block
        row, column = row + rank, column + width
    return a_all, b_all


def _make_wrapper() -> type:
    from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

    class GroupedPunicaWrapper(PunicaWrapperCPU):  # type: ignore[misc, unused-ignore]
        """vLLM's CPU wrapper with the linear layers replaced. Stacked factors are kept until the adapters in the slots change."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._layout: tuple[int | None, ...] = ()
            self._factors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
            self._heads: dict[int, bool] = {}
            self._plan: Plan | None = None

        def update_metadata(self, mapping: Any, lora_index_to_id: Any, *args: Any, **kwargs: Any) -> None:
            super().update_metadata(mapping, lora_index_to_id, *args, **kwargs)
            # Adapter ids are never reused, so equal ids in equal slots mean equal factors.
            layout = tuple(lora_index_to_id)
            if layout != self._layout:
                self._layout = layout
                self._factors.clear()
                self._heads.clear()
            self._plan = make_plan(self.token_lora_indices)

        def add_lora_linear(
            self, y: Any, x: Any, lora_a_stacked: Any, lora_b_stacked: Any, scale: float, output_slices: Any, **kwargs: Any
        ) -> None:
            if self._plan is None:
                return
            key = lora_a_stacked[0].data_ptr()
            factors = self._factors.get(key)
            if factors is None:
                factors = self._factors[key] = stack_factors(lora_a_stacked, lora_b_stacked, output_slices)
            apply_plan(self._plan, y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1]), *factors, scale)

        def add_lora_logits(self, y: Any, x: Any, lora_a_stacked: Any, lora_b_stacked: Any, scale: float, **kwargs: Any) -> Any:
            # vLLM calls this for every model, adapted head or not, and the gathered factors are as large as the vocabulary.
            key = lora_b_stacked.data_ptr()
            if key not in self._heads:
                self._heads[key] = bool(lora_b_stacked.any())
            return super().add_lora_logits(y, x, lora_a_stacked, lora_b_stacked, scale, **kwargs) if self._heads[key] else None

    return GroupedPunicaWrapper


_EXPECTED = {
    "add_lora_linear": ["self", "y", "x", "lora_a_stacked", "lora_b_stacked", "scale", "output_slices", "buffer", "kwargs"],
    "add_lora_logits": ["self", "y", "x", "lora_a_stacked", "lora_b_stacked", "scale", "buffer", "kwargs"],
    "update_metadata": ["self", "mapping", "lora_index_to_id", "max_loras", "vocab_size", "kwargs"],
}


def install() -> bool:
    """Make vLLM's CPU platform use the grouped operators for engines built from now on in this process.

    False, with a warning, where vLLM's internals differ from what these operators were written for.
    """
    try:
        from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU
        from vllm.platforms.cpu import CpuPlatform

        for name, expected in _EXPECTED.items():
            found = list(inspect.signature(getattr(PunicaWrapperCPU, name)).parameters)
            if found != expected:
                raise TypeError(f"{name} takes {found}, expected {expected}")
        if not isinstance(PunicaWrapperCPU.token_lora_indices, property) or not hasattr(CpuPlatform, "get_punica_wrapper"):
            raise TypeError("token_lora_indices or get_punica_wrapper is missing")
        module: Any = sys.modules[__name__]
        if not hasattr(module, "GroupedPunicaWrapper"):
            module.GroupedPunicaWrapper = _make_wrapper()
        CpuPlatform.get_punica_wrapper = classmethod(lambda cls: f"{__name__}.GroupedPunicaWrapper")
    except (ImportError, AttributeError, TypeError) as error:
        _LOG.warning("this vLLM's CPU LoRA differs from the one that grouping was written for (%s); using vLLM's own, slower", error)
        return False
    return True


def uninstall() -> None:
    """Give vLLM's own CPU operators back to engines built from now on; for comparisons."""
    from vllm.platforms.cpu import CpuPlatform

    CpuPlatform.get_punica_wrapper = classmethod(lambda cls: "vllm.lora.punica_wrapper.punica_cpu.PunicaWrapperCPU")
