"""Which rows go together: mini-batches (one optimizer step each), shares of data-parallel workers, and padded micro-batches.

A pure function of row lengths and a seed, so that every worker of a group works out the same plan without talking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.algorithms.base import IntArray, MicroBatch, Rows
from pipeline.episodes import FloatArray

_WORTH_A_PASS = 1024
_MUCH_SHORTER = 0.8


@dataclass(frozen=True)
class MicroPlan:
    """Rows of one forward pass of one worker. ``counted`` is False for a filler that only keeps workers in step."""

    rows: IntArray
    counted: bool = True


@dataclass(frozen=True)
class StepPlan:
    """One optimizer step: ``workers[w]`` lists the micro-batches of worker w, equally many for each. ``tokens`` is the denominator."""

    workers: tuple[tuple[MicroPlan, ...], ...]
    tokens: int


def minibatches(n_rows: int, size: int, rng: np.random.Generator) -> list[IntArray]:
    """A permutation of the rows cut into the fewest parts of at most ``size`` rows, their sizes within one of each other.

    Equal parts, so that no step is taken on a small remainder with the weight of a full one.
    """
    if n_rows == 0:
        return []
    return [np.asarray(part, np.int64) for part in np.array_split(rng.permutation(n_rows), -(-n_rows // size))]


def micro_batches(rows: IntArray, lengths: IntArray, budget: int) -> list[IntArray]:
    """Rows sorted by length (longest first) and cut so that rows times longest row stays within ``budget`` tokens.

    A batch that is already worth a forward pass is also cut where rows get much shorter than its first, to save padding.
    A row longer than the budget stands alone.
    """
    order = rows[np.lexsort((rows, -lengths[rows]))]
    parts: list[IntArray] = []
    start = 0
    while start < len(order):
        longest = int(lengths[order[start]])
        end = min(len(order), start + max(1, budget // longest))
        worth = start - (-_WORTH_A_PASS // longest)
        shorter = start + int(np.count_nonzero(lengths[order[start:]] > _MUCH_SHORTER * longest))
        if worth < end and len(order) - max(worth, shorter) >= -(-_WORTH_A_PASS // longest):
            end = min(end, max(worth, shorter))
        parts.append(order[start:end])
        start = end
    return parts


def plan_step(rows: IntArray, lengths: IntArray, response_lengths: IntArray, *, workers: int, budget: int) -> StepPlan:
    """Deal the rows of a mini-batch to workers (alike in number and length) and cut each share into micro-batches."""
    order = rows[np.lexsort((rows, -lengths[rows]))]
    shares = [micro_batches(order[w::workers], lengths, budget) for w in range(workers)]
    count = max(len(share) for share in shares)
    filler = MicroPlan(order[-1:], counted=False)
    plans = tuple(tuple([MicroPlan(r) for r in share] + [filler] * (count - len(share))) for share in shares)
    return StepPlan(plans, int(response_lengths[rows].sum()))


def plan_update(rows: Rows, *, passes: int, mini_batch: int, workers: int, budget: int, seed: int) -> list[StepPlan]:
    """All optimizer steps of an update, in order. Every pass has its own permutation."""
    lengths = rows.lengths
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x6D696E69]))
    return [
        plan_step(part, lengths, rows.response_lengths, workers=workers, budget=budget)
        for _ in range(passes)
        for part in minibatches(len(rows), mini_batch, rng)
    ]


def padding_waste(plans: Sequence[StepPlan], lengths: IntArray) -> float:
    """Share of the tokens of all forward passes that is padding."""
    used = padded = 0
    for plan in plans:
        for micro in (m for worker in plan.workers for m in worker):
            used += int(lengths[micro.rows].sum())
            padded += len(micro.rows) * int(lengths[micro.rows].max())
    return 1.0 - used / padded if padded else 0.0


def collate(
    rows: Rows, micro: MicroPlan, ref_logprobs: Sequence[FloatArray] | None = None, device: str | torch.device = "cpu"
) -> MicroBatch:
    """Tensors of a micro-batch on ``device``; padding is token 0, which nothing looks at."""
    index = micro.rows
    tokens = [rows.tokens[i] for i in index]
    responses = rows.response_lengths[index]
    width = max(len(t) for t in tokens)
    input_ids = np.zeros((len(tokens), width), np.int64)
    positions = np.empty(int(responses.sum()), np.int64)
    at = 0
    for row, (ids, n) in enumerate(zip(tokens, responses.tolist(), strict=True)):
        input_ids[row, : len(ids)] = ids
        first = row * width + len(ids) - n - 1
        positions[at : at + n] = np.arange(first, first + n)
        at += n
    old = np.concatenate([rows.logprobs[i] for i in index])

    def tokenwise(values: Sequence[FloatArray] | None) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(np.concatenate([values[i] for i in index])).to(device)

    own = tokenwise(rows.token_advantages)
    return MicroBatch(
        input_ids=torch.from_numpy(input_ids).to(device),
        positions=torch.from_numpy(positions).to(device),
        targets=torch.from_numpy(np.concatenate([t[len(t) - n :] for t, n in zip(tokens, responses.tolist(), strict=True)])).to(device),
        old_logprobs=torch.from_numpy(old).to(device),
        advantages=torch.from_numpy(np.repeat(rows.advantages[index], responses)).to(device) if own is None else own,
        rows=index,
        ref_logprobs=tokenwise(ref_logprobs),
        old_values=tokenwise(rows.old_values),
        value_targets=tokenwise(rows.value_targets),
        weight=1.0 if micro.counted else 0.0,
    )
