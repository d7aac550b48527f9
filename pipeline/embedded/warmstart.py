"""Supervised training of the embedded model on demonstrated turns.

Owns the architecture and the optimizer loop. Knows nothing of worlds: it gets (prompt, response) texts and a tokenizer.
The loss is on response tokens only (Adam with decoupled weight decay: Loshchilov and Hutter, arXiv 1711.05101; cosine decay).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

HEAD = 32
"""vLLM's CPU attention needs heads of at least 32."""
MAX_POSITIONS = 4096
INITIAL_STD = 0.1
"""About 1 / sqrt(width). The usual 0.02 of large models costs hundreds of updates at this width before anything is copied."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the warm start.

    ``bucket`` is how many turns are sorted by length at once. Buckets of many batches save a fifth of the time, but their batches hold
    one kind of page each and learning is slower per update: with 4096 a model does not copy a word after 400 updates, with 64 it does.
    """

    batch: int = 64
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.01
    clip: float = 1.0
    bucket: int = 64


@dataclass(frozen=True)
class Shape:
    """Size of the model: ``width`` is ``heads`` times ``HEAD``."""

    layers: int = 2
    heads: int = 2
    inner: int = 160

    @property
    def width(self) -> int:
        """Dimensions of the residual stream."""
        return self.heads * HEAD


@dataclass(frozen=True)
class Row:
    """One turn as token ids; ``response`` ends with the stop token."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]


def new_model(vocabulary: int, stop: int, pad: int, seed: int, shape: Shape | None = None) -> Any:
    """A fresh float32 ``LlamaForCausalLM`` with an untied output head; by default 64 wide, 2 layers, 2 heads of 32 (0.19 M parameters with
    768 tokens).

    vLLM's whole-weight updates need an output head of its own. Llama rather than Qwen2, because ``AutoTokenizer`` replaces the tokenizer of
    a folder whose model is a Qwen2 by Qwen's own.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = shape or Shape()
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=MAX_POSITIONS,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=stop,
        pad_token_id=pad,
        use_cache=True,
        initializer_range=INITIAL_STD,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).float()


def train(model: Any, rows: Sequence[Row], recipe: Recipe, seed: int, progress: Callable[[int, int, float], None] | None = None) -> float:
    """One pass over ``rows`` in length-bucketed batches. Calls ``progress(update, updates, loss)``; returns the last smoothed loss."""
    updates = -(-len(rows) // recipe.batch)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": recipe.weight_decay}, {"params": plain, "weight_decay": 0.0}], lr=recipe.lr, betas=(0.9, 0.99)
    )
    model.train()
    smooth = math.nan
    for update, batch in enumerate(batches(rows, recipe, random.Random(seed))):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, update, updates)
        loss = response_loss(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        value = loss.item()
        smooth = value if math.isnan(smooth) else 0.98 * smooth + 0.02 * value
        if progress is not None:
            progress(update + 1, updates, smooth)
    model.eval()
    return smooth


def learning_rate(recipe: Recipe, update: int, updates: int) -> float:
    """Linear warm-up, then a cosine from ``recipe.lr`` down to zero."""
    if update < recipe.warmup:
        return recipe.lr * (update + 1) / recipe.warmup
    return recipe.lr * 0.5 * (1.0 + math.cos(math.pi * (update - recipe.warmup) / max(1, updates - recipe.warmup)))


def batches(rows: Sequence[Row], recipe: Recipe, rng: random.Random) -> Iterator[list[Row]]:
    """Each row once: shuffled, sorted by length inside buckets so that padding is small, batches of a bucket in random order."""
    order = list(range(len(rows)))
    rng.shuffle(order)
    for start in range(0, len(order), recipe.bucket):
        bucket = sorted(order[start : start + recipe.bucket], key=lambda i: len(rows[i].prompt) + len(rows[i].response))
        cut = [bucket[k : k + recipe.batch] for k in range(0, len(bucket), recipe.batch)]
        rng.shuffle(cut)
        for part in cut:
            yield [rows[i] for i in part]


def response_loss(model: Any, batch: Sequence[Row]) -> torch.Tensor:
    """Mean cross-entropy over the response tokens of a batch. Right padding under a causal mask needs no attention mask."""
    longest = max(len(row.prompt) + len(row.response) for row in batch) - 1
    ids = torch.zeros((len(batch), longest), dtype=torch.long)
    where_row: list[int] = []
    where_column: list[int] = []
    targets: list[int] = []
    for r, row in enumerate(batch):
        tokens = (*row.prompt, *row.response)
        ids[r, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        first = len(row.prompt) - 1
        where_row += [r] * len(row.response)
        where_column += range(first, first + len(row.response))
        targets += row.response
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # [batch, longest, width]
    logits = model.lm_head(hidden[torch.tensor(where_row), torch.tensor(where_column)])  # [response tokens, vocabulary]
    return torch.nn.functional.cross_entropy(logits, torch.tensor(targets))
