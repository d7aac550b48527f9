"""The training loop, on hand-made rows."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch

from pipeline.embedded.warmstart import Recipe, Row, batches, learning_rate, new_model, response_loss, train


def rows(n: int) -> list[Row]:
    """Prompts of differing lengths that end in a word, which the response repeats."""
    rng = random.Random(0)
    words = [rng.randrange(9, 19) for _ in range(n)]
    return [Row((*(rng.randrange(2, 9) for _ in range(rng.randrange(1, 6))), word), (word, 1)) for word in words]


def test_the_model_has_the_documented_shape_and_seed() -> None:
    model = new_model(768, 1, 0, seed=3)
    config = model.config
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.head_dim) == (64, 2, 2, 32)
    assert not config.tie_word_embeddings
    assert 185_000 < sum(p.numel() for p in model.parameters()) < 200_000
    assert all(p.dtype == torch.float32 for p in model.parameters())
    state = torch.random.get_rng_state()
    same, other = new_model(768, 1, 0, seed=3), new_model(768, 1, 0, seed=4)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(model.lm_head.weight, same.lm_head.weight)
    assert not torch.equal(model.lm_head.weight, other.lm_head.weight)


def test_loss_is_the_mean_over_response_tokens_only_whatever_the_padding() -> None:
    model = new_model(32, 1, 0, seed=0)
    batch = [Row((5, 6, 7), (8, 1)), Row((9,), (10, 11, 1))]
    expected = []
    for row in batch:
        logits = model(torch.tensor([[*row.prompt, *row.response]])).logits[0].log_softmax(-1)
        expected += [-logits[len(row.prompt) - 1 + i, token] for i, token in enumerate(row.response)]
    assert response_loss(model, batch).item() == pytest.approx(torch.stack(expected).mean().item(), abs=1e-5)


def test_every_row_is_used_once_and_buckets_save_padding() -> None:
    data = rows(1000)
    recipe = Recipe(batch=10, bucket=100)
    assert Counter(row for batch in batches(data, recipe, random.Random(1)) for row in batch) == Counter(data)

    def padding(bucket: int) -> int:
        parts = batches(data, Recipe(batch=10, bucket=bucket), random.Random(1))
        return sum(max(len(r.prompt) for r in b) * len(b) - sum(len(r.prompt) for r in b) for b in parts)

    assert padding(500) < 0.5 * padding(10)


def test_learning_rate_warms_up_then_falls_along_a_cosine() -> None:
    recipe = Recipe(lr=1.0, warmup=10)
    assert learning_rate(recipe, 0, 110) == pytest.approx(0.1)
    assert learning_rate(recipe, 9, 110) == pytest.approx(1.0)
    assert learning_rate(recipe, 60, 110) == pytest.approx(0.5)
    assert learning_rate(recipe, 109, 110) == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.99)))


def test_a_small_copying_task_is_learned_and_repeats_for_a_seed() -> None:
    recipe = Recipe(batch=32, warmup=10)
    losses = []
    for _ in range(2):
        model = new_model(20, 1, 0, seed=0)
        before = response_loss(model, rows(64)).item()
        train(model, rows(3200), recipe, seed=5)
        losses.append(response_loss(model, rows(64)).item())
        assert losses[-1] < 0.5 * before
    assert losses[0] == losses[1]
