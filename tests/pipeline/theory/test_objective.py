"""Theorem 1 (i) in parameters: with one plain gradient step and all clients, FedAvg is training on the pooled tasks; and where it is not.

Tabular softmax policy, exact gradients, and the project's aggregator. Parameters travel as float32; so that rounding does not hide what is
equal and what is not, every float64 array goes as pieces of 12 bits, which the aggregator adds up and averages exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from pipeline.aggregation import make_aggregator
from pipeline.algorithms.advantages import group_advantages
from pipeline.algorithms.gae import whiten
from pipeline.episodes import ClientUpdate, GlobalState

CLIENTS, TASKS, ARMS, LR = 8, 6, 3, 0.5
BITS, PIECES = 12, 6

Array = np.ndarray
Step = Callable[[Array, Array], Array]
"""From parameters [tasks, arms] and a task distribution to new parameters."""

RNG = np.random.default_rng(0)
MIXTURES = RNG.dirichlet(np.full(TASKS, 0.3), size=CLIENTS)
REWARDS = RNG.random((TASKS, ARMS))
START = RNG.normal(0, 0.5, (TASKS, ARMS))
TOKENS = np.array([1, 2, 3, 5, 8, 13])
"""Response tokens of a turn, by task."""


def policy(theta: Array) -> Array:
    shares: Array = np.exp(theta - theta.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def gradient(theta: Array, mixture: Array) -> Array:
    """Of J = sum over tasks of D(task) sum over arms of pi(arm) r(task, arm)."""
    pi = policy(theta)
    own = (pi * REWARDS).sum(axis=1, keepdims=True)
    found: Array = mixture[:, None] * pi * (REWARDS - own)
    return found


def pieces(value: Array) -> dict[str, Array]:
    """``value`` as float32 arrays of 12 significant bits each at a common scale: sums of eight of them, and their eighths, are exact."""
    found, rest, scale = {}, value.astype(np.float64), 2.0 ** math.ceil(math.log2(np.abs(value).max()))
    for i in range(PIECES):
        scale /= 2**BITS
        piece = np.trunc(rest / scale) * scale
        found[f"piece{i}"] = piece.astype(np.float32)
        rest = rest - piece
    assert np.abs(rest).max() < 1e-16
    return found


def fedavg(changes: list[Array]) -> Array:
    """The mean change, as the project's parameter server works it out."""
    names = [f"c{i}" for i in range(len(changes))]
    aggregator = make_aggregator("full", "uniform")
    zero = {f"piece{i}": np.zeros((TASKS, ARMS), np.float32) for i in range(PIECES)}
    aggregator.begin(GlobalState("start", 0, zero), names)
    for name, change in zip(names, changes, strict=True):
        aggregator.add(ClientUpdate(name, 1, "start", pieces(change), 1, 1, 1))
    done = aggregator.finish().state
    mean: Array = np.sum([done[name].astype(np.float64) for name in sorted(done, reverse=True)], axis=0)
    return mean


def gap(step: Step) -> float:
    """Largest difference between federated and pooled parameters, relative to the largest pooled change."""
    federated = fedavg([step(START, mixture) - START for mixture in MIXTURES])
    pooled = step(START, MIXTURES.mean(axis=0)) - START
    return float(np.abs(federated - pooled).max() / np.abs(pooled).max())


def sgd(theta: Array, mixture: Array) -> Array:
    return theta + LR * gradient(theta, mixture)


def adam(theta: Array, mixture: Array) -> Array:
    parameter = torch.nn.Parameter(torch.from_numpy(theta.copy()))
    parameter.grad = torch.from_numpy(-gradient(theta, mixture))
    torch.optim.Adam([parameter], lr=0.01).step()
    moved: Array = parameter.detach().numpy()
    return moved


def clipped(theta: Array, mixture: Array) -> Array:
    found = gradient(theta, mixture)
    return theta + LR * found * min(1.0, 0.05 / float(np.linalg.norm(found)))


def loose_clip(theta: Array, mixture: Array) -> Array:
    found = gradient(theta, mixture)
    return theta + LR * found * min(1.0, 10 / float(np.linalg.norm(found)))


def token_mean(theta: Array, mixture: Array) -> Array:
    """The loss summed over response tokens and divided by their number in the batch."""
    pi = policy(theta)
    own = (pi * REWARDS).sum(axis=1, keepdims=True)
    return theta + LR * (mixture * TOKENS)[:, None] * pi * (REWARDS - own) / float(mixture @ TOKENS)


def two_steps(theta: Array, mixture: Array) -> Array:
    return sgd(sgd(theta, mixture), mixture)


def test_one_plain_step_of_all_clients_is_the_pooled_step() -> None:
    federated = START + fedavg([sgd(START, mixture) - START for mixture in MIXTURES])
    pooled = sgd(START, MIXTURES.mean(axis=0))
    assert np.abs(federated - pooled).max() < 1e-12
    assert gap(sgd) < 1e-12
    assert gap(loose_clip) < 1e-12, "a bound that nobody meets changes nothing"


def test_the_gradient_is_that_of_the_objective() -> None:
    mixture, step = MIXTURES[0], 1e-6
    numeric = np.zeros_like(START)
    for index in np.ndindex(*START.shape):
        shifted = [START + sign * step * (np.indices(START.shape) == np.array(index)[:, None, None]).all(axis=0) for sign in (1, -1)]
        high, low = (float(mixture @ (policy(theta) * REWARDS).sum(axis=1)) for theta in shifted)
        numeric[index] = (high - low) / (2 * step)
    np.testing.assert_allclose(gradient(START, mixture), numeric, atol=1e-9)


@pytest.mark.parametrize(("step", "size"), [(adam, 0.1126), (clipped, 0.2969), (token_mean, 0.2688), (two_steps, 0.006885)])
def test_the_identity_fails_where_the_paper_says_nothing_of_it(step: Step, size: float) -> None:
    assert gap(step) == pytest.approx(size, rel=1e-3)


def batch(tasks: Array) -> tuple[Array, Array, Array]:
    """Every arm once for each of ``tasks``: under a uniform policy the batch mean is the expectation. (tasks, arms, rewards) by row."""
    rows, arms = np.repeat(tasks, ARMS), np.tile(np.arange(ARMS), len(tasks))
    return rows, arms, REWARDS[rows, arms].astype(np.float32)


def score_gradient(rows: Array, arms: Array, advantages: Array) -> Array:
    """Mean over rows of the advantage times the gradient of log pi(arm), at the uniform policy."""
    found = np.zeros((TASKS, ARMS))
    for task, arm, advantage in zip(rows, arms, advantages, strict=True):
        found[task] += float(advantage) * (np.eye(ARMS)[arm] - 1 / ARMS)
    mean: Array = found / len(rows)
    return mean


def batch_gap(advantages_of: Callable[[Array, Array], Array]) -> float:
    """As ``gap``, for clients with four tasks each and an estimator of advantages from (task by row, rewards)."""
    owned = np.random.default_rng(1).integers(0, TASKS, (CLIENTS, 4))
    steps = []
    for tasks in (*owned, owned.reshape(-1)):
        rows, arms, rewards = batch(tasks)
        steps.append(LR * score_gradient(rows, arms, advantages_of(rows, rewards)))
    federated = fedavg(steps[:-1])
    return float(np.abs(federated - steps[-1]).max() / np.abs(steps[-1]).max())


@pytest.mark.parametrize("normalize_std", [True, False])
def test_group_normalisation_keeps_the_identity(normalize_std: bool) -> None:
    def grouped(rows: Array, rewards: Array) -> Array:
        groups = np.repeat(np.arange(len(rows) // ARMS), ARMS)
        return group_advantages(rewards, groups, np.arange(len(rows)), unit="turn", normalize_std=normalize_std, std_floor=0.0)

    assert batch_gap(grouped) < 1e-12


def test_whitening_over_the_batch_breaks_it() -> None:
    assert batch_gap(lambda rows, rewards: whiten(rewards.astype(np.float64), 0.0)) == pytest.approx(0.1097, rel=1e-3)


def test_weights_must_be_those_of_the_pool() -> None:
    # Clients of different size, averaged alike, are not their pool: a tenth of the tasks gets half the say.
    large, small = MIXTURES[0], MIXTURES[1]
    pooled = sgd(START, 0.9 * large + 0.1 * small) - START
    federated = fedavg([sgd(START, mixture) - START for mixture in (large, small)])
    assert np.abs(federated - pooled).max() / np.abs(pooled).max() > 0.1
