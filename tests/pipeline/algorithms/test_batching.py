"""Mini-batches, shares of workers and micro-batches cover every row once, and the cut does not change the gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.algorithms.base import Rows
from pipeline.algorithms.batching import MicroPlan, collate, micro_batches, minibatches, padding_waste, plan_step, plan_update
from pipeline.algorithms.grpo import GRPO
from pipeline.algorithms.losses import token_logprobs
from pipeline.config.algorithm import AlgorithmConfig
from tests.episode_cases import random_episodes


def rows_of_lengths(lengths: list[int]) -> Rows:
    n = len(lengths)
    return Rows(
        tokens=[np.arange(length) for length in lengths],
        response_lengths=np.ones(n, np.int64),
        logprobs=[np.zeros(1, np.float32)] * n,
        advantages=np.zeros(n, np.float32),
        episodes=np.zeros(n, np.int64),
        groups=np.zeros(n, np.int64),
    )


def test_minibatches_are_even() -> None:
    parts = minibatches(130, 64, np.random.default_rng(0))
    assert [len(p) for p in parts] == [44, 43, 43]
    assert sorted(np.concatenate(parts).tolist()) == list(range(130))
    assert minibatches(0, 64, np.random.default_rng(0)) == []


def test_micro_batches_stay_within_the_budget_and_a_long_row_stands_alone() -> None:
    lengths = np.array([10, 500, 20, 30, 40])
    parts = micro_batches(np.arange(5), lengths, 100)
    assert [p.tolist() for p in parts] == [[1], [4, 3], [2, 0]]


def test_micro_batches_cut_where_rows_get_much_shorter() -> None:
    lengths = np.array([100] * 20 + [50] * 40)
    parts = micro_batches(np.arange(60), lengths, 100_000)
    assert [len(p) for p in parts] == [20, 40]
    few = micro_batches(np.arange(6), np.array([100, 100, 100, 50, 50, 50]), 100_000)
    assert [len(p) for p in few] == [6]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 300), min_size=1, max_size=150),
    workers=st.integers(1, 5),
    mini_batch=st.integers(1, 70),
    passes=st.integers(1, 3),
    budget=st.integers(64, 4096),
)
def test_every_row_is_trained_once_per_pass_and_workers_stay_in_step(
    lengths: list[int], workers: int, mini_batch: int, passes: int, budget: int
) -> None:
    rows = rows_of_lengths(lengths)
    plans = plan_update(rows, passes=passes, mini_batch=mini_batch, workers=workers, budget=budget, seed=3)
    counted: list[int] = []
    for plan in plans:
        mine = [r for worker in plan.workers for m in worker if m.counted for r in m.rows.tolist()]
        counted += mine
        assert len(mine) <= mini_batch
        assert plan.tokens == len(mine)
        assert len({len(worker) for worker in plan.workers}) == 1
        for worker in plan.workers:
            for m in worker:
                assert len(m.rows) == 1 or len(m.rows) * max(lengths[r] for r in m.rows) <= budget
    assert sorted(counted) == sorted(list(range(len(lengths))) * passes)
    assert 0 <= padding_waste(plans, rows.lengths) < 1


def test_the_plan_depends_on_the_seed_alone_and_passes_differ() -> None:
    rows = rows_of_lengths(list(range(10, 110)))

    def order(seed: int) -> list[list[int]]:
        plans = plan_update(rows, passes=2, mini_batch=10, workers=1, budget=4096, seed=seed)
        return [sorted(r for m in p.workers[0] for r in m.rows.tolist()) for p in plans]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert order(1)[:10] != order(1)[10:]


def test_padding_waste_by_hand() -> None:
    rows = rows_of_lengths([4, 2])
    plan = plan_step(np.arange(2), rows.lengths, rows.response_lengths, workers=1, budget=64)
    assert padding_waste([plan], rows.lengths) == pytest.approx(1 - 6 / 8)


def test_one_times_eight_is_eight_times_one() -> None:
    """The gradient of a mini-batch is the same in one micro-batch, in eight, and over workers: one global denominator."""
    torch.manual_seed(0)
    embed, head = torch.nn.Embedding(300, 16), torch.nn.Linear(16, 300)
    algorithm = GRPO(AlgorithmConfig(kl_coef=0, entropy_coef=0.01))
    rows = algorithm.rows(random_episodes(2, 4))
    everything = np.arange(len(rows))

    def gradient(micros: list[MicroPlan]) -> torch.Tensor:
        embed.zero_grad()
        for micro in micros:
            batch = collate(rows, micro)
            logp, entropy = token_logprobs(
                embed(batch.input_ids).flatten(0, 1)[batch.positions], head, batch.targets, entropy_gradient=True
            )
            (algorithm.loss(batch, logp, entropy, None).total * (batch.weight / rows.n_response_tokens)).backward()
        assert embed.weight.grad is not None
        return embed.weight.grad.clone()

    whole = gradient([MicroPlan(everything)])
    assert whole.abs().max() > 1e-3
    for parts in (8, len(rows)):
        torch.testing.assert_close(gradient([MicroPlan(p) for p in np.array_split(everything, parts)]), whole, atol=1e-7, rtol=1e-5)
    plan = plan_step(everything, rows.lengths, rows.response_lengths, workers=3, budget=64)
    assert any(not m.counted for w in plan.workers for m in w)
    torch.testing.assert_close(gradient([m for w in plan.workers for m in w]), whole, atol=1e-7, rtol=1e-5)
