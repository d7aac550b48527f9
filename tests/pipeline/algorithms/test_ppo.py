"""PPO: what a turn earns, what a token is credited with, and the critic's loss however a batch is cut."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pipeline.algorithms import make_algorithm
from pipeline.algorithms.base import Rows
from pipeline.algorithms.batching import MicroPlan, collate
from pipeline.algorithms.ppo import PPO
from pipeline.config import AlgorithmConfig, CriticConfig
from pipeline.episodes import Episode, FloatArray
from pipeline.errors import ConfigError, LearnerError
from tests.episode_cases import episode, random_episodes, turn


def ppo(scale: float = 1.0, **settings: object) -> PPO:
    return PPO(AlgorithmConfig(name="ppo", **settings), CriticConfig(value_scale=scale))  # type: ignore[arg-type]


def three_turns() -> Episode:
    """Two tokens and reward 1, one token and reward 2 (invalid), two tokens and reward 4."""
    return episode(
        [turn([1], [2, 3], reward=1.0), turn([1, 4], [5], reward=2.0, valid=False), turn([1], [6, 7], reward=4.0)],
        7.0,
    )


def zeros(rows: Rows) -> list[FloatArray]:
    return [np.zeros(n, np.float32) for n in rows.response_lengths]


def test_the_algorithm_is_found_by_name_with_defaults_of_its_own() -> None:
    made = make_algorithm(AlgorithmConfig(name="ppo"))
    assert isinstance(made, PPO)
    assert made.needs_critic
    config = AlgorithmConfig(name="ppo")
    assert (config.tasks_per_epoch, config.group_size) == (64, 1)
    assert (AlgorithmConfig(name="ppo", group_size=8).group_size, AlgorithmConfig().group_size) == (8, 8)
    with pytest.raises(ConfigError, match="reinforce"):
        make_algorithm(AlgorithmConfig(name="reinforce"))


def test_what_a_turn_earns() -> None:
    # Its own reward less the penalty; or (published) the whole return at the end of every turn, less its own penalty.
    np.testing.assert_allclose(ppo(invalid_penalty=0.5).rows([three_turns()]).rewards, [1, 1.5, 4])  # type: ignore[arg-type]
    published = ppo(invalid_penalty=0.5, gae_unit="turn").rows([three_turns()])
    np.testing.assert_allclose(published.rewards, [7, 6.5, 7])  # type: ignore[arg-type]


def test_the_reward_of_a_turn_without_a_response_counts_for_the_turn_before() -> None:
    silent = episode([turn([1], [], reward=9.0), turn([1], [2], reward=1.0), turn([1], [], reward=2.0), turn([1], [3], reward=4.0)], 16.0)
    rows = ppo().rows([silent, three_turns()])
    assert rows.rewards is not None
    np.testing.assert_allclose(rows.rewards, [3, 4, 1, 1.9, 4])
    assert rows.episodes.tolist() == [0, 0, 1, 1, 1]


def test_credit_over_a_trajectory_by_hand() -> None:
    algorithm = ppo(invalid_penalty=0.0, whiten=False, gamma=0.5, lam=0.5, kl_coef=0)
    rows = algorithm.rows([three_turns()])
    values = [np.array(v, np.float32) for v in ([1, 2], [3], [0, 1])]
    done = algorithm.credit(rows, values, None)
    assert done.token_advantages is not None
    # Backwards: 4 - 1 = 3; inside a turn nothing is discounted: 1 - 0 + 3 = 4. Before it 2 + 0.5 * 0 - 3 + 0.25 * 4 = 0;
    # then 1 + 0.5 * 3 - 2 + 0.25 * 0 = 0.5, and 0 + 2 - 1 + 0.5 = 1.5.
    np.testing.assert_allclose(np.concatenate(done.token_advantages), [1.5, 0.5, 0, 4, 3])
    np.testing.assert_allclose(np.concatenate(done.value_targets), [2.5, 2.5, 3, 4, 4])  # type: ignore[arg-type]


def test_credit_by_turn_is_the_published_one() -> None:
    algorithm = ppo(invalid_penalty=0.0, whiten=False, gae_unit="turn", kl_coef=0)
    rows = algorithm.rows([three_turns()])
    values = [np.array(v, np.float32) for v in ([1, 2], [3], [0, 1])]
    done = algorithm.credit(rows, values, None)
    # gamma = lambda = 1: the return less the value, at every token of every turn.
    np.testing.assert_allclose(np.concatenate(done.token_advantages or []), [6, 5, 4, 7, 6])


def test_values_and_targets_are_in_units_of_the_scale() -> None:
    kwargs = {"invalid_penalty": 0.0, "whiten": False, "kl_coef": 0}
    plain, scaled = ppo(1.0, **kwargs), ppo(10.0, **kwargs)
    rows = plain.rows([three_turns()])
    values = [np.array(v, np.float32) for v in ([1, 2], [3], [0, 1])]
    a, b = plain.credit(rows, values, None), scaled.credit(rows, [v / 10 for v in values], None)
    for one, other in zip(a.token_advantages or [], b.token_advantages or [], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    for one, other in zip(a.value_targets or [], b.value_targets or [], strict=True):
        np.testing.assert_allclose(one, 10 * other, rtol=1e-5)


def test_advantages_are_whitened_over_all_tokens_of_the_batch() -> None:
    algorithm = ppo(std_floor=0.0)
    done = algorithm.credit(rows := algorithm.rows(random_episodes(4, 4)), zeros(rows), None)
    flat = np.concatenate(done.token_advantages or [])
    assert flat.mean() == pytest.approx(0, abs=1e-6)
    assert flat.std(ddof=1) == pytest.approx(1, abs=1e-5)
    assert done.metrics["explained_variance"] == 0.0


def test_a_batch_in_which_all_went_alike_is_not_blown_up() -> None:
    algorithm = ppo()
    rows = algorithm.rows([episode([turn([1], [2, 3])], 0.0, task=f"t{i}") for i in range(8)])
    values = [np.array([0.001 * i, 0.0], np.float32) for i in range(8)]
    done = algorithm.credit(rows, values, None)
    assert np.abs(np.concatenate(done.token_advantages or [])).max() < 0.1


def test_the_kl_in_the_reward_is_a_penalty_on_every_token() -> None:
    algorithm = ppo(kl_in="reward", kl_coef=0.5, kl_estimator="k1", whiten=False, invalid_penalty=0.0)
    rows = algorithm.rows([episode([turn([1], [2, 3], logprobs=[-1.0, -2.0]), turn([1], [4], logprobs=[-1.0])], 10.0)])
    reference = [np.array([-1.5, -2.0], np.float32), np.array([-0.8], np.float32)]
    done = algorithm.credit(rows, zeros(rows), reference)
    # k1 is 0.5, 0 and -0.2: penalties of 0.25, 0 and -0.1 on the way to 10.
    np.testing.assert_allclose(np.concatenate(done.token_advantages or []), [9.85, 10.1, 10.1], rtol=1e-6)
    assert done.metrics["kl"] == pytest.approx(0.1, rel=1e-5)
    batch = collate(done, MicroPlan(np.arange(2)), reference)
    out = algorithm.loss(batch, batch.old_logprobs, torch.zeros(3), batch.ref_logprobs)
    assert "kl" not in out.sums
    with pytest.raises(LearnerError, match="anchor"):
        algorithm.credit(rows, zeros(rows), None)


def test_policy_and_value_loss_do_not_depend_on_how_a_batch_is_cut_or_padded() -> None:
    algorithm = ppo(10.0, kl_coef=0)
    rng = np.random.default_rng(0)
    rows = algorithm.rows(random_episodes(2, 4))
    values = [rng.normal(0, 0.3, n).astype(np.float32) for n in rows.response_lengths]
    rows = algorithm.credit(rows, values, None)
    moved = [rng.normal(0, 0.5, n).astype(np.float32) for n in rows.response_lengths]

    def losses(parts: list[list[int]]) -> tuple[float, float]:
        policy = value = 0.0
        for part in parts:
            batch = collate(rows, MicroPlan(np.array(part)))
            new = torch.from_numpy(np.concatenate([moved[i] for i in part]))
            policy += algorithm.loss(batch, batch.old_logprobs + new, torch.zeros_like(new), None).total.item()
            value += algorithm.value_loss(batch, new).total.item()
        return policy, value

    n = len(rows)
    assert losses([list(range(n))]) == pytest.approx(losses([[i] for i in reversed(range(n))]), rel=1e-5)
    shuffled = rng.permutation(n).tolist()
    assert losses([shuffled[:5], shuffled[5:]]) == pytest.approx(losses([list(range(n))]), rel=1e-5)


def test_failed_episodes_and_none_at_all() -> None:
    algorithm = ppo()
    rows = algorithm.rows([episode([turn([1], [2])], 0.0, stop="failed")])
    assert len(rows) == 0
    assert rows.metrics["failed_episodes"] == 1
    assert len(algorithm.credit(rows, [], None)) == 0
    with pytest.raises(LearnerError, match="return nan"):
        algorithm.rows([episode([turn([1], [2])], float("nan"))])
