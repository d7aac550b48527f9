"""From episodes to rows, and the loss of a batch however it is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.algorithms.base import MicroBatch
from pipeline.algorithms.batching import MicroPlan, collate
from pipeline.algorithms.grpo import GRPO
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.errors import LearnerError
from tests.episode_cases import episode, random_episodes, turn


def test_rows_of_two_episodes_by_hand() -> None:
    # Scores: 10, 10 - 0.1, 0. Mean 6.6333, unbiased std 5.7449.
    won = episode([turn([1, 2], [3], logprobs=[-0.5]), turn([1, 2, 4], [5, 6], logprobs=[-0.1, -0.2], valid=False)], 10.0)
    lost = episode([turn([1, 2], [7])], 0.0)
    rows = GRPO(AlgorithmConfig(std_floor=0.0)).rows([won, lost])
    assert [t.tolist() for t in rows.tokens] == [[1, 2, 3], [1, 2, 4, 5, 6], [1, 2, 7]]
    assert rows.response_lengths.tolist() == [1, 2, 1]
    assert rows.episodes.tolist() == [0, 0, 1]
    np.testing.assert_allclose(rows.logprobs[1], [-0.1, -0.2])
    scores = np.array([10, 9.9, 0])
    np.testing.assert_allclose(rows.advantages, (scores - scores.mean()) / scores.std(ddof=1), rtol=1e-5)
    assert rows.metrics["zero_variance"] == 0.0


def test_every_token_of_a_response_is_trained_the_last_one_included() -> None:
    rows = GRPO(AlgorithmConfig()).rows([episode([turn([1, 2], [3, 4, 99])], 10.0), episode([turn([1], [99])], 0.0)])
    batch = collate(rows, MicroPlan(np.array([0, 1])))
    assert batch.targets.tolist() == [3, 4, 99, 99]
    # Hidden states at the flattened positions predict the token one to the right.
    flat = batch.input_ids.flatten()
    assert flat[batch.positions + 1].tolist() == batch.targets.tolist()


def test_groups_are_task_and_label() -> None:
    episodes = [
        episode([turn([1], [2])], ret, task=task, group=group)
        for task, group, ret in [("a", 0, 10), ("a", 0, 0), ("a", 1, 10), ("b", 1, 10)]
    ]
    rows = GRPO(AlgorithmConfig()).rows(episodes)
    assert rows.groups.tolist() == [0, 0, 1, 2]
    assert rows.metrics["zero_variance"] == pytest.approx(2 / 3)


def test_zero_variance_groups_are_dropped_on_request_and_judged_by_raw_returns() -> None:
    flat = [episode([turn([1], [2], valid=valid)], 10.0, task="flat") for valid in (True, False)]
    spread = [episode([turn([1], [2])], ret, task="spread") for ret in (0.0, 10.0)]
    kept = GRPO(AlgorithmConfig()).rows([*flat, *spread])
    assert len(kept) == 4
    assert np.abs(kept.advantages[:2]).max() > 0
    dropped = GRPO(AlgorithmConfig(drop_zero_variance=True)).rows([*flat, *spread])
    assert len(dropped) == 2
    assert dropped.metrics["zero_variance"] == 0.5
    assert len(GRPO(AlgorithmConfig(drop_zero_variance=True)).rows(flat)) == 0


def test_failed_episodes_are_left_out() -> None:
    rows = GRPO(AlgorithmConfig()).rows([episode([turn([1], [2])], 10.0), episode([turn([1], [2])], 0.0, stop="failed")])
    assert len(rows) == 1
    assert rows.metrics["failed_episodes"] == 1


def test_a_return_that_is_not_finite_is_refused_by_name() -> None:
    with pytest.raises(LearnerError, match=r"client-0.*return nan"):
        GRPO(AlgorithmConfig()).rows([episode([turn([1], [2])], float("nan"))])


def test_loss_by_hand() -> None:
    batch = MicroBatch(
        input_ids=torch.zeros(1, 3, dtype=torch.long),
        positions=torch.tensor([0, 1]),
        targets=torch.tensor([1, 1]),
        old_logprobs=torch.tensor([-1.0, -1.0]),
        advantages=torch.tensor([2.0, 2.0]),
        rows=np.array([0]),
    )
    config = AlgorithmConfig(kl_coef=0.1, entropy_coef=0.01)
    out = GRPO(config).loss(batch, torch.tensor([-1.0, 0.0]), torch.tensor([0.7, 0.3]), torch.tensor([-1.0, -1.0]))
    # Token 1: ratio 1, loss -2, no KL. Token 2: ratio e clipped to 1.2, loss -2.4, k3 = e^-1 + 1 - 1.
    kl = np.exp(-1.0)
    assert out.total.item() == pytest.approx(-2 - 2.4 + 0.1 * kl - 0.01 * 1.0, rel=1e-5)
    # KL(sampler || policy) by k3: the ratio less one less its logarithm.
    wanted = {"pg_loss": -4.4, "entropy": 1.0, "clip_fraction": 1.0, "approx_kl": np.e - 2, "kl": kl, "loss": out.total.item()}
    assert {k: v.item() for k, v in out.sums.items()} == pytest.approx(wanted, rel=1e-5)
    assert out.maxima["ratio_max"].item() == pytest.approx(np.e, rel=1e-5)


def test_a_missing_reference_is_an_error_and_none_is_needed_without_kl() -> None:
    rows = GRPO(AlgorithmConfig()).rows(random_episodes(1, 2))
    batch = collate(rows, MicroPlan(np.arange(len(rows))))
    zeros = torch.zeros_like(batch.old_logprobs)
    with pytest.raises(LearnerError, match="anchor"):
        GRPO(AlgorithmConfig()).loss(batch, zeros, zeros, None)
    assert not GRPO(AlgorithmConfig(kl_coef=0)).needs_reference
    assert torch.isfinite(GRPO(AlgorithmConfig(kl_coef=0)).loss(batch, zeros, zeros, None).total)
