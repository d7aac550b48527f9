"""PPO on a learner, one process, real DeepSpeed: what an update does to policy and critic, and who keeps what."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.algorithms.ppo import PPO
from pipeline.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig
from pipeline.config.model import LoraConfig
from pipeline.episodes import FloatArray, State
from pipeline.errors import LearnerError
from pipeline.models import build_critic, critic_parameters, initial_state, join_critic, split_critic, state_hash
from tests.episode_cases import random_episodes
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

LORA = ModelConfig(lora=LoraConfig(rank=4))
FULL = ModelConfig(adapter="full")
EPISODES = random_episodes(8, 2)
BOTH = pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("critic") / "tiny", scale=0.1)


@pytest.fixture(scope="module")
def make(tiny: Path) -> Iterator[Callable[..., Any]]:
    """Builds PPO learners in this process; leaves its environment and process group as they were."""
    from actors.learning import LearnerSettings, LearnerWorker

    kept = dict(os.environ)

    def build(
        model: ModelConfig = LORA, *, learner: dict[str, Any] | None = None, critic: dict[str, Any] | None = None, **algorithm: Any
    ) -> LearnerWorker:
        settings = LearnerSettings(
            tiny,
            model,
            LearnerConfig(**{"mini_batch": 16, **(learner or {})}),
            AlgorithmConfig(name="ppo", **algorithm),
            critic=CriticConfig(**(critic or {})),
        )
        return LearnerWorker(settings)

    # The process group stays: DeepSpeed keeps handles to it, and later tests in this process build learners too.
    yield build
    os.environ.clear()
    os.environ.update(kept)


def request(seed: int = 0, round: int = 2) -> Any:
    from actors.learning import UpdateRequest

    return UpdateRequest("client-3", round, 1, seed)


def start_of(tiny: Path, config: ModelConfig, seed: int = 1) -> dict[str, FloatArray]:
    """A policy that has moved, and a critic whose values are not all zero."""
    policy = random_adapter(tiny, config.lora, seed) if config.adapter == "lora" else random_weights(tiny, seed)
    _, critic = split_critic(initial_state(tiny, config, 0, critic=True))
    rng = np.random.default_rng(seed)
    moved = {n: (v + 0.05 * rng.standard_normal(v.shape)).astype(np.float32) if "lora_A" not in n else v for n, v in critic.items()}
    return join_critic(policy, moved)


def distance(a: State, b: State) -> float:
    assert a.keys() == b.keys()
    return max(float(np.abs(a[k] - b[k]).max()) for k in a)


@BOTH
def test_an_update_trains_both_is_reproducible_and_leaves_no_trace(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    worker, start = make(config), start_of(tiny, config)
    first = worker.update(request(), start, EPISODES)
    assert first.optimizer is None
    policy, critic = split_critic(first.state)
    before_policy, before_critic = split_critic(start)
    assert distance(policy, before_policy) > 1e-4
    assert distance(critic, before_critic) > 1e-4
    for name, value in critic.items():
        # The adapter's A stays as it was drawn: else the mean of critics would not be the mean of what they say.
        assert np.array_equal(value, before_critic[name]) is ("lora_A" in name), name
    worker.update(request(5), start_of(tiny, config, 2), random_episodes(3, 2, seed=9))
    again = worker.update(request(), start, EPISODES)
    assert state_hash(again.state) == first.report.content == state_hash(first.state)
    assert state_hash(make(config).update(request(), start, EPISODES).state) == first.report.content
    assert np.isfinite(list(first.report.metrics.values())).all()


@BOTH
def test_a_fresh_critic_values_everything_at_zero(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    metrics = make(config).update(request(), initial_state(tiny, config, 0, critic=True), EPISODES).report.metrics
    assert metrics["value_mean"] == 0.0
    assert metrics["explained_variance"] == 0.0
    assert metrics["value_loss"] > 0


@BOTH
def test_one_step_of_the_critic_is_the_step_that_plain_pytorch_takes(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    """Values, targets, clipped loss, gradient clipping and AdamW written out over whole hidden states, without DeepSpeed or tricks."""
    start = start_of(tiny, config)
    learner = {"mini_batch": 10_000, "grad_clip": 0.05, "micro_batch_tokens": 256}
    worker = make(config, learner=learner, critic={"lr": 1e-3, "value_clip": 1e-4}, passes=2, kl_coef=0, gamma=0.9, lam=0.8)
    got = worker.update(request(), start, EPISODES)

    model, head = build_critic(tiny, config, 0)
    named = critic_parameters(model, head)
    _, critic = split_critic(start)
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(torch.from_numpy(critic[name]))
    trained = [p for p in named.values() if p.requires_grad]
    plain = model.get_base_model().model if config.adapter == "lora" else model
    algorithm = PPO(AlgorithmConfig(name="ppo", kl_coef=0, gamma=0.9, lam=0.8), CriticConfig())
    rows = algorithm.rows(EPISODES)

    def values() -> list[torch.Tensor]:
        found = []
        for ids, n in zip(rows.tokens, rows.response_lengths.tolist(), strict=True):
            hidden = plain(input_ids=torch.from_numpy(ids)[None]).last_hidden_state[0]
            found.append(head(hidden[-n - 1 : -1]).squeeze(-1))
        return found

    with torch.no_grad():
        old = values()
    rows = algorithm.credit(rows, [v.numpy() for v in old], None)
    targets = torch.from_numpy(np.concatenate(rows.value_targets or []))
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.01)
    losses, norms, before = [], [], torch.cat(old)
    for _ in range(2):
        new = torch.cat(values())
        near = before + (new - before).clamp(-1e-4, 1e-4)
        loss = 0.5 * torch.maximum((new - targets).square(), (near - targets).square()).mean()
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(trained, 0.05).item())
        optimizer.step()
    assert got.report.metrics["value_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert got.report.metrics["critic_grad_norm"] == pytest.approx(np.mean(norms), rel=1e-3)
    assert 0 < got.report.metrics["value_clip_fraction"] < 0.5
    assert max(norms) > 0.05
    _, after = split_critic(got.state)
    clear = 0
    for name, parameter in named.items():
        if parameter.grad is not None:
            # AdamW moves every weight by about lr, whatever its gradient: compare where that is not rounding noise.
            large = parameter.grad.abs().numpy() > 1e-5
            clear += int(large.sum())
            np.testing.assert_allclose(after[name][large], parameter.detach().numpy()[large], atol=1e-5)
    assert clear > 100


@BOTH
def test_micro_batches_and_padding_change_neither_policy_nor_critic(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    start = start_of(tiny, config)
    one, many = (
        make(config, learner={"mini_batch": 10_000, "micro_batch_tokens": budget, "lr": 1e-4}, critic={"lr": 1e-4}, passes=2).update(
            request(), start, EPISODES
        )
        for budget in (1_000_000, 64)
    )
    assert many.report.metrics["padding_waste"] < one.report.metrics["padding_waste"]
    for name in ("grad_norm", "critic_grad_norm", "value_loss", "value_mean", "explained_variance", "approx_kl", "loss"):
        assert many.report.metrics[name] == pytest.approx(one.report.metrics[name], rel=1e-4, abs=1e-6), name
    assert distance(one.state, many.state) < 1e-5


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_stages_agree(make: Callable[..., Any], tiny: Path, stage: int) -> None:
    start = start_of(tiny, LORA)

    def run(zero: int) -> list[Any]:
        worker = make(learner={"zero_stage": zero, "optimizer_state": "keep", "grad_clip": 0.05}, passes=2)
        first = worker.update(request(), start, EPISODES)
        second = worker.update(request(1), first.state, EPISODES, first.optimizer)
        assert worker.update(request(), start, EPISODES).report.content == first.report.content, "the client before left a trace"
        return [first, second]

    for mine, wanted in zip(run(stage), run(0), strict=True):
        for name in ("grad_norm", "critic_grad_norm"):
            assert mine.report.metrics[name] == pytest.approx(wanted.report.metrics[name], rel=1e-5)
        assert distance(mine.state, wanted.state) < 1e-6
        assert distance(mine.optimizer.exp_avg, wanted.optimizer.exp_avg) < 1e-6
        assert mine.optimizer.critic_step == wanted.optimizer.critic_step == mine.optimizer.step


def test_kept_moments_of_both_optimizers_continue(make: Callable[..., Any], tiny: Path) -> None:
    start, worker = start_of(tiny, FULL), make(FULL, learner={"optimizer_state": "keep"})
    first = worker.update(request(), start, EPISODES)
    assert first.optimizer.critic_step == first.optimizer.step == first.report.metrics["steps"]
    assert {name for name in first.optimizer.exp_avg if name.startswith("critic.")} == {n for n in start if n.startswith("critic.")}
    assert not first.optimizer.kept
    continued = worker.update(request(1), first.state, EPISODES, first.optimizer)
    fresh = worker.update(request(1), first.state, EPISODES)
    assert continued.optimizer.critic_step == 2 * first.optimizer.critic_step
    for part in (0, 1):
        assert distance(split_critic(continued.state)[part], split_critic(fresh.state)[part]) > 1e-4


@pytest.mark.parametrize("optimizer_state", ["reset", "keep"])
@BOTH
def test_a_critic_that_stays_with_its_client(make: Callable[..., Any], tiny: Path, config: ModelConfig, optimizer_state: str) -> None:
    worker = make(config, learner={"optimizer_state": optimizer_state}, critic={"federate": False})
    policy, _ = split_critic(start_of(tiny, config))
    first = worker.update(request(), policy, EPISODES)
    assert not any(name.startswith("critic.") for name in first.state)
    assert first.report.metrics["value_mean"] == 0.0
    assert {f"critic.{name}" for name in first.optimizer.kept} == {n for n in start_of(tiny, config) if n.startswith("critic.")}
    assert bool(first.optimizer.exp_avg) is (optimizer_state == "keep")
    # It goes on from its own, and another client begins with a fresh one.
    second = worker.update(request(1), policy, EPISODES, first.optimizer)
    assert second.report.metrics["value_mean"] != 0.0
    assert worker.update(request(), policy, EPISODES).report.metrics["value_mean"] == 0.0
    shared = make(config, learner={"optimizer_state": optimizer_state})
    state = join_critic(policy, first.optimizer.kept)
    moments = first.optimizer if optimizer_state == "keep" else None
    assert distance(split_critic(shared.update(request(1), state, EPISODES, moments).state)[0], second.state) < 1e-7


def test_a_state_without_the_critic_that_it_should_have_is_refused(make: Callable[..., Any], tiny: Path) -> None:
    with pytest.raises(LearnerError, match=r"critic\.federate"):
        make().update(request(), random_adapter(tiny, LORA.lora, 1), EPISODES)


def test_the_critic_warms_up_alone(make: Callable[..., Any], tiny: Path) -> None:
    worker, start = make(critic={"warmup_rounds": 2}), start_of(tiny, LORA)
    policy, critic = split_critic(start)
    early = worker.update(request(round=2), start, EPISODES)
    assert distance(split_critic(early.state)[0], policy) == 0
    assert distance(split_critic(early.state)[1], critic) > 1e-4
    assert early.report.metrics["steps"] == 0
    assert distance(split_critic(worker.update(request(round=3), start, EPISODES).state)[0], policy) > 1e-4


def test_steps_end_once_the_policy_is_further_from_the_sampler_than_asked(make: Callable[..., Any], tiny: Path) -> None:
    start = start_of(tiny, FULL)
    own, steps = make(FULL, learner={"lr": 3e-3}), {}
    turns = [t for e in EPISODES for t in e.turns]
    exact = own.score(start, [t.prompt_ids for t in turns], [t.response_ids for t in turns])
    scores = iter(exact)

    honest = [replace(e, turns=tuple(replace(t, logprobs=tuple(next(scores))) for t in e.turns)) for e in EPISODES]
    for target in (None, 0.05, 1e-6):
        found = make(FULL, learner={"lr": 3e-3}, target_kl=target, passes=8).update(request(), start, honest).report.metrics
        steps[target] = found["steps"]
    # The first step begins where the sampler stood; the second sees that the first has moved, and is the last.
    assert steps[1e-6] == 2
    assert 2 <= steps[0.05] < steps[None]


def test_the_kl_in_the_reward(make: Callable[..., Any], tiny: Path) -> None:
    start = start_of(tiny, LORA)
    found = make(kl_in="reward", kl_coef=0.5, kl_estimator="k1").update(request(), start, EPISODES)
    without = make(kl_coef=0).update(request(), start, EPISODES)
    assert found.report.metrics["kl"] != 0
    assert distance(found.state, without.state) > 1e-5


def test_bfloat16_and_gradient_checkpointing(make: Callable[..., Any], tiny: Path) -> None:
    start = start_of(tiny, LORA)
    plain = make().update(request(), start, EPISODES)
    recomputed = make(learner={"gradient_checkpointing": True}).update(request(), start, EPISODES)
    assert distance(recomputed.state, plain.state) < 1e-4
    narrow = make(ModelConfig(dtype="bfloat16", lora=LoraConfig(rank=4))).update(request(), start, EPISODES)
    assert narrow.report.metrics["value_mean"] == pytest.approx(plain.report.metrics["value_mean"], abs=0.1)
    assert all(value.dtype == np.float32 for value in narrow.state.values())
