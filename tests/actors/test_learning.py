"""One learner, one process, real DeepSpeed: what an update does to a state, and that it is what plain PyTorch would do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.config import AlgorithmConfig, LearnerConfig, ModelConfig
from pipeline.config.model import LoraConfig
from pipeline.episodes import Episode
from pipeline.errors import ConfigError, LearnerError
from pipeline.models import build_model, get_state, load_model, set_state, state_hash, state_parameters
from tests.episode_cases import episode, random_episodes, turn
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

LORA = ModelConfig(lora=LoraConfig(rank=4))
FULL = ModelConfig(adapter="full")
EPISODES = random_episodes(4, 4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("learning") / "tiny", scale=0.1)


@pytest.fixture(scope="module")
def make(tiny: Path) -> Iterator[Callable[..., Any]]:
    """Builds learners in this process; leaves its environment and process group as they were."""
    from actors.learning import LearnerSettings, LearnerWorker

    kept = dict(os.environ)

    def build(
        model: ModelConfig = LORA, *, learner: LearnerConfig | None = None, algorithm: AlgorithmConfig | None = None, **settings: Any
    ) -> LearnerWorker:
        small = learner or LearnerConfig(mini_batch=16)
        return LearnerWorker(LearnerSettings(tiny, model, small, algorithm or AlgorithmConfig(), **settings))

    # The process group stays: DeepSpeed keeps handles to it, and later tests in this process build learners too.
    yield build
    os.environ.clear()
    os.environ.update(kept)


def request(seed: int = 0) -> Any:
    from actors.learning import UpdateRequest

    return UpdateRequest("client-3", 2, 1, seed)


def distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    return max(float(np.abs(a[k] - b[k]).max()) for k in a)


def test_an_update_is_bitwise_reproducible_and_leaves_no_trace_for_the_next_client(make: Callable[..., Any], tiny: Path) -> None:
    worker = make()
    start, other = random_adapter(tiny, LORA.lora, 1), random_adapter(tiny, LORA.lora, 2)
    first = worker.update(request(), start, EPISODES)
    worker.update(request(5), other, random_episodes(2, 4, seed=9))
    again = worker.update(request(), start, EPISODES)
    assert state_hash(first.state) == state_hash(again.state) == first.report.content != state_hash(start)
    assert first.optimizer is None
    assert state_hash(make().update(request(), start, EPISODES).state) == first.report.content
    assert state_hash(worker.update(request(1), start, EPISODES).state) != first.report.content


@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_one_step_is_the_step_that_plain_pytorch_takes(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    """Loss, clipping and AdamW written out over the whole logits, without DeepSpeed, micro-batches or tricks."""
    algorithm = AlgorithmConfig(kl_coef=0.1, entropy_coef=0.01, std_floor=1.0)
    learner = LearnerConfig(mini_batch=10_000, lr=1e-3, grad_clip=0.05, micro_batch_tokens=256)
    start = random_adapter(tiny, config.lora, 1) if config.adapter == "lora" else random_weights(tiny, 1)
    got = make(config, learner=learner, algorithm=algorithm).update(request(), start, EPISODES)

    from pipeline.algorithms.grpo import GRPO

    rows = GRPO(algorithm).rows(EPISODES)
    model, base = build_model(tiny, config, 0), load_model(tiny)
    set_state(model, start)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.999), weight_decay=0.01)
    total = torch.zeros(())
    for ids, n, old, advantage in zip(rows.tokens, rows.response_lengths.tolist(), rows.logprobs, rows.advantages.tolist(), strict=True):
        tokens = torch.from_numpy(ids)[None]
        new = torch.log_softmax(model(tokens).logits[0, -n - 1 : -1], -1)
        with torch.no_grad():
            ref = torch.log_softmax(base(tokens).logits[0, -n - 1 : -1], -1)
        picked, anchor = new.gather(-1, tokens[0, -n:, None])[:, 0], ref.gather(-1, tokens[0, -n:, None])[:, 0]
        ratio = (picked - torch.from_numpy(old)).exp()
        loss = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2))
        if advantage < 0:
            loss = loss.clamp(max=-3 * advantage)
        k3 = (anchor - picked).exp() - (anchor - picked) - 1
        total = total + (loss + 0.1 * k3 + 0.01 * (new.exp() * new).sum(-1)).sum()
    total = total / rows.n_response_tokens
    total.backward()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 0.05)
    optimizer.step()
    assert got.report.metrics["loss"] == pytest.approx(total.item(), rel=1e-4)
    assert got.report.metrics["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)
    assert norm > 0.05
    assert got.report.metrics["steps"] == 1
    # AdamW's first step moves every weight by about lr, whatever its gradient: compare where the gradient is not rounding noise.
    wanted = get_state(model)
    for name, parameter in state_parameters(model).items():
        assert parameter.grad is not None
        clear = parameter.grad.abs().numpy() > 1e-6
        np.testing.assert_allclose(got.state[name][clear], wanted[name][clear], atol=1e-5)
    assert sum(int((p.grad.abs() > 1e-6).sum()) for p in parameters if p.grad is not None) > 1000


def test_micro_batches_and_padding_do_not_change_the_update(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    results = [
        make(learner=LearnerConfig(mini_batch=10_000, micro_batch_tokens=budget)).update(request(), start, EPISODES)
        for budget in (64, 1_000_000)
    ]
    assert results[0].report.metrics["grad_norm"] == pytest.approx(results[1].report.metrics["grad_norm"], rel=1e-4)
    assert results[0].report.metrics["padding_waste"] < results[1].report.metrics["padding_waste"]
    assert distance(results[0].state, results[1].state) < 1e-5


def test_scores_are_the_models_own_log_probabilities(make: Callable[..., Any], tiny: Path) -> None:
    prompts, responses = [[5, 6, 7], [8, 9], [5, 6, 7]], [[10, 11], [12, 13, 14], [10, 11]]
    for config, state in ((LORA, random_adapter(tiny, LORA.lora, 3)), (FULL, random_weights(tiny, 3))):
        model = build_model(tiny, config, 0)
        set_state(model, state)
        scores = make(config, temperature=0.7).score(state, prompts, responses)
        for prompt, response, got in zip(prompts, responses, scores, strict=True):
            with torch.no_grad():
                logp = torch.log_softmax(model(torch.tensor([prompt + response])).logits[0], -1)
            wanted = [logp[len(prompt) - 1 + i, t].item() for i, t in enumerate(response)]
            np.testing.assert_allclose(got, wanted, atol=1e-4)


def test_the_gap_between_sampler_and_learner_is_measured_before_the_first_step(make: Callable[..., Any], tiny: Path) -> None:
    worker = make(learner=LearnerConfig(mini_batch=4, lr=0.1))
    start = random_adapter(tiny, LORA.lora, 1)
    turns = [t for e in EPISODES for t in e.turns]
    scores = worker.score(start, [t.prompt_ids for t in turns], [t.response_ids for t in turns])
    exact = iter(scores)

    def with_gap(gap: float) -> list[Episode]:
        return [
            episode(
                [turn(t.prompt_ids, t.response_ids, logprobs=[x + gap for x in next(exact)], valid=t.valid) for t in e.turns],
                e.ret,
                task=e.task_id,
                group=e.group,
            )
            for e in EPISODES
        ]

    metrics = worker.update(request(), start, with_gap(0.0)).report.metrics
    assert metrics["steps"] > 5
    assert metrics["logprob_gap"] < 1e-4
    exact = iter(scores)
    metrics = worker.update(request(), start, with_gap(0.25)).report.metrics
    assert metrics["logprob_gap"] == pytest.approx(0.25, abs=1e-3)
    assert metrics["logprob_gap_max"] == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize("config", [LORA, FULL], ids=["lora", "full"])
def test_kl_anchors(make: Callable[..., Any], tiny: Path, config: ModelConfig) -> None:
    start = random_adapter(tiny, LORA.lora, 1) if config is LORA else random_weights(tiny, 1)
    fresh = get_state(build_model(tiny, config, 0))
    # With a learning rate of nearly nothing the policy stays at its start, so the KL is that of the start to the anchor.
    still = LearnerConfig(mini_batch=1000, lr=1e-12)
    base = make(config, learner=still, algorithm=AlgorithmConfig(kl_coef=1.0))
    assert base.update(request(), fresh, EPISODES).report.metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    assert base.update(request(), start, EPISODES).report.metrics["kl"] > 1e-3
    round_ = make(config, learner=still, algorithm=AlgorithmConfig(kl_coef=1.0, kl_anchor="round"))
    assert round_.update(request(), start, EPISODES, None, start).report.metrics["kl"] == pytest.approx(0.0, abs=1e-6)
    to_fresh = round_.update(request(), start, EPISODES, None, fresh).report.metrics["kl"]
    assert to_fresh == pytest.approx(base.update(request(), start, EPISODES).report.metrics["kl"], rel=1e-3)
    with pytest.raises(LearnerError, match=r"client client-3, round 2.*round's start"):
        round_.update(request(), start, EPISODES)


def test_prox_pulls_towards_the_round_start(make: Callable[..., Any], tiny: Path) -> None:
    """A batch without any advantage leaves only the proximal gradient mu * (w - center), before clipping."""
    flat = [episode([turn([5, 6], [7, 8])], 10.0), episode([turn([5, 6], [9])], 10.0)]
    algorithm = AlgorithmConfig(kl_coef=0, entropy_coef=0)
    start, center = random_adapter(tiny, LORA.lora, 1), random_adapter(tiny, LORA.lora, 2)
    learner = LearnerConfig(weight_decay=0.0, lr=1e-3, grad_clip=1e6)
    got = make(learner=learner, algorithm=algorithm, prox_mu=0.3).update(request(), start, flat, None, center)
    squared = sum(float(np.square(start[k] - center[k], dtype=np.float64).sum()) for k in start)
    assert got.report.metrics["grad_norm"] == pytest.approx(0.3 * np.sqrt(squared), rel=1e-4)
    assert got.report.metrics["prox"] == pytest.approx(0.15 * squared, rel=1e-4)
    name = next(iter(start))
    np.testing.assert_allclose(got.state[name] - start[name], -1e-3 * np.sign(start[name] - center[name]), atol=2e-5)
    without = make(learner=learner, algorithm=algorithm).update(request(), start, flat)
    assert without.report.metrics["update_norm"] == 0.0


def test_kept_moments_continue_and_reset_ones_do_not(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    worker = make(learner=LearnerConfig(mini_batch=16, optimizer_state="keep"))
    first = worker.update(request(), start, EPISODES)
    assert first.optimizer is not None
    steps = int(first.report.metrics["steps"])
    assert first.optimizer.step == steps
    worker.update(request(3), random_adapter(tiny, LORA.lora, 2), EPISODES)
    continued = worker.update(request(1), first.state, EPISODES, first.optimizer)
    fresh = worker.update(request(1), first.state, EPISODES, None)
    assert continued.optimizer is not None
    assert continued.optimizer.step == 2 * steps
    assert fresh.optimizer.step == steps
    assert distance(continued.state, fresh.state) > 1e-4
    assert state_hash(
        make(learner=LearnerConfig(mini_batch=16, optimizer_state="keep")).update(request(1), first.state, EPISODES, first.optimizer).state
    ) == (continued.report.content)


@pytest.mark.parametrize("stage", [1, 2])
def test_zero_stages_agree(make: Callable[..., Any], tiny: Path, stage: int) -> None:
    start = random_adapter(tiny, LORA.lora, 1)

    def run(zero: Any) -> list[Any]:
        worker = make(learner=LearnerConfig(mini_batch=16, zero_stage=zero, optimizer_state="keep", grad_clip=0.05))
        first = worker.update(request(), start, EPISODES)
        second = worker.update(request(1), first.state, EPISODES, first.optimizer)
        assert worker.update(request(), start, EPISODES).report.content == first.report.content, "the client before left a trace"
        return [first, second]

    for mine, wanted in zip(run(stage), run(0), strict=True):
        assert mine.report.metrics["grad_norm"] == pytest.approx(wanted.report.metrics["grad_norm"], rel=1e-5)
        assert mine.report.metrics["grad_norm"] > 0.05
        assert distance(mine.state, wanted.state) < 1e-6
        assert distance(mine.optimizer.exp_avg, wanted.optimizer.exp_avg) < 1e-6
        assert mine.optimizer.step == wanted.optimizer.step


def test_frozen_a_stays_where_it_was(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    after = make(freeze_a=True).update(request(), start, EPISODES).state
    for name, value in after.items():
        assert np.array_equal(value, start[name]) is (".lora_A." in name), name


def test_nothing_to_learn_from_leaves_the_state_alone(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    flat = [episode([turn([5, 6], [7])], 0.0), episode([turn([5, 6], [8])], 0.0)]
    got = make(algorithm=AlgorithmConfig(drop_zero_variance=True)).update(request(), start, flat)
    assert got.report.content == state_hash(start)
    assert got.report.metrics["steps"] == 0
    assert got.report.metrics["zero_variance"] == 1.0
    assert np.isfinite(list(got.report.metrics.values())).all()


def test_a_loss_that_is_not_finite_names_the_client(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    worker = make()
    broken = dict(start)
    name = next(iter(broken))
    broken[name] = np.full_like(broken[name], np.nan)
    with pytest.raises(LearnerError, match=r"client client-3, round 2, epoch 1: the loss .* nan"):
        worker.update(request(), broken, EPISODES)
    assert worker.update(request(), start, EPISODES).report.content == make().update(request(), start, EPISODES).report.content


def test_a_state_of_another_adapter_is_refused(make: Callable[..., Any], tiny: Path) -> None:
    with pytest.raises(LearnerError, match="shape"):
        make().update(request(), random_adapter(tiny, LoraConfig(rank=2), 1), EPISODES)


def test_gradient_checkpointing_changes_memory_not_numbers(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    plain = make().update(request(), start, EPISODES)
    recomputed = make(learner=LearnerConfig(mini_batch=16, gradient_checkpointing=True)).update(request(), start, EPISODES)
    assert recomputed.report.metrics["grad_norm"] == pytest.approx(plain.report.metrics["grad_norm"], rel=1e-4)
    assert distance(recomputed.state, plain.state) < 1e-4


def test_bfloat16_keeps_what_it_trains_in_float32(make: Callable[..., Any], tiny: Path) -> None:
    config = ModelConfig(dtype="bfloat16", lora=LoraConfig(rank=4))
    start = random_adapter(tiny, config.lora, 1)
    worker = make(config, learner=LearnerConfig(mini_batch=16, lr=1e-6))
    got = worker.update(request(), start, EPISODES)
    assert 0 < distance(got.state, start) < 1e-4
    exact = make().score(start, [[5, 6, 7]], [[8, 9]])[0]
    np.testing.assert_allclose(worker.score(start, [[5, 6, 7]], [[8, 9]])[0], exact, atol=0.1)


@pytest.mark.parametrize(("stage", "model", "prox"), [(3, LORA, 0.0), (3, FULL, 0.1)])
def test_combinations_that_cannot_work_are_refused_before_loading(tmp_path: Path, stage: int, model: ModelConfig, prox: float) -> None:
    from actors.learning import LearnerSettings, LearnerWorker

    learner = LearnerConfig(zero_stage=stage)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="zero_stage 3"):
        LearnerWorker(LearnerSettings(tmp_path / "absent", model, learner, AlgorithmConfig(), prox_mu=prox))


def test_changes_folded_into_the_base_are_under_the_adapter_and_never_trained(make: Callable[..., Any], tiny: Path) -> None:
    from actors.merging import Densifier

    adapter = random_adapter(tiny, LORA.lora, 1)
    module = "model.layers.0.self_attn.q_proj.weight"
    change = np.random.default_rng(3).normal(0, 0.1, get_state(load_model(tiny))[module].shape).astype(np.float32)
    state = {**adapter, f"merged.{module}": change}
    prompts, responses = [[5, 6, 7], [9, 8]], [[10, 11], [12, 13, 14]]
    worker = make()
    plain = worker.score(adapter, prompts, responses)
    merged = worker.score(state, prompts, responses)
    assert max(abs(a - b) for x, y in zip(plain, merged, strict=True) for a, b in zip(x, y, strict=True)) > 1e-3

    dense = load_model(tiny)
    set_state(dense, Densifier(tiny, LORA.lora).dense(state))
    with torch.no_grad():
        for prompt, response, scores in zip(prompts, responses, merged, strict=True):
            logits = dense(input_ids=torch.tensor([[*prompt, *response]])).logits[0].log_softmax(-1)
            expected = [float(logits[len(prompt) - 1 + i, token]) for i, token in enumerate(response)]
            assert scores == pytest.approx(expected, abs=1e-5)

    result = worker.update(request(), state, EPISODES)
    assert np.array_equal(result.state[f"merged.{module}"], change)
    assert worker.score(adapter, prompts, responses) == plain, "the base is restored for a state without changes"


def test_at_another_temperature_the_first_ratio_is_still_one(make: Callable[..., Any], tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    one_step = LearnerConfig(mini_batch=10_000)
    result = make(learner=one_step, algorithm=AlgorithmConfig(kl_coef=0.0), temperature=0.5).update(request(), start, EPISODES)
    assert result.report.metrics["clip_fraction"] == 0.0
    assert result.report.metrics["logprob_gap"] < 1e-5


PROMPTS = [[5, 6, 7, 8, 9], [10, 11, 12]]
RESPONSES = [[13, 14], [15, 16, 17]]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_distributions_are_those_of_the_whole_logits(make: Callable[..., Any], tiny: Path, temperature: float) -> None:
    state = random_adapter(tiny, LORA.lora, 3)
    worker = make(temperature=temperature)
    found = worker.distributions(state, PROMPTS, RESPONSES)
    model = build_model(tiny, LORA, seed=0)
    set_state(model, state)
    expected = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *response]])).logits[0] / temperature
        expected.append(torch.log_softmax(logits[len(prompt) - 1 : -1], -1).numpy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-4)
    scored = worker.score(state, PROMPTS, RESPONSES)
    if temperature == 1.0:
        np.testing.assert_allclose(found[np.arange(5), np.concatenate(RESPONSES)], np.concatenate(scored), atol=1e-5)


def test_two_clients_drift_apart_and_equal_ones_do_not(make: Callable[..., Any], tiny: Path) -> None:
    """Real updates and real policies through the real aggregator."""
    from actors.learning import difference
    from pipeline.aggregation import make_aggregator
    from pipeline.episodes import ClientUpdate, GlobalState

    worker = make(learner=LearnerConfig(mini_batch=16, lr=1e-2))
    start = random_adapter(tiny, LORA.lora, 1)
    look = worker.distributions(start, PROMPTS, RESPONSES)

    def measured(*batches: list[Episode]) -> dict[str, float]:
        aggregator = make_aggregator("factors")
        names = [f"c{i}" for i in range(len(batches))]
        aggregator.begin(GlobalState("start", 0, start), names, look)
        for name, batch in zip(names, batches, strict=True):
            state = worker.update(request(), start, batch).state
            policy = worker.distributions(state, PROMPTS, RESPONSES)
            aggregator.add(ClientUpdate(name, 1, "start", difference(start, state), 1, 1, 1, policy=policy))
        return dict(aggregator.finish().metrics)

    other = random_episodes(4, 4, seed=9)
    alike, apart = measured(EPISODES, EPISODES), measured(EPISODES, other)
    assert alike["drift_cosine"] == pytest.approx(1, abs=1e-6)
    assert alike["drift_ratio"] == pytest.approx(1, abs=1e-6)
    assert alike["policy_divergence"] == pytest.approx(0, abs=1e-6)
    assert alike["policy_shift"] > 1e-4
    deltas = [
        np.concatenate([d[k].ravel() for k in sorted(d)]).astype(np.float64)
        for d in (difference(start, worker.update(request(), start, batch).state) for batch in (EPISODES, other))
    ]
    cosine = float(deltas[0] @ deltas[1] / np.linalg.norm(deltas[0]) / np.linalg.norm(deltas[1]))
    assert apart["drift_cosine"] == pytest.approx(cosine, abs=1e-6)
    assert cosine < 0.9
    assert apart["policy_divergence"] > 1e-5
    # A mixture of two is at most as far from either as half of what they could differ in.
    assert apart["policy_divergence"] < np.log(2)
