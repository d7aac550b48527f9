"""Learner groups as they run: Ray actors, DeepSpeed over gloo, one and two workers, all ZeRO stages, death and deadlines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig
from pipeline.config.model import LoraConfig
from pipeline.errors import LearnerError
from pipeline.models import initial_state, split_critic, state_hash
from tests.conftest import ROOT
from tests.episode_cases import random_episodes
from tests.tiny_model import make_tiny_model, random_adapter, random_weights

pytestmark = pytest.mark.slow

LORA = ModelConfig(lora=LoraConfig(rank=4))
FULL = ModelConfig(adapter="full")
EPISODES = random_episodes(4, 4)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("learner") / "tiny", scale=0.1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}})
    yield ray
    ray.shutdown()


def make_group(
    tiny: Path,
    model: ModelConfig,
    learner: LearnerConfig,
    algorithm: AlgorithmConfig | None = None,
    critic: CriticConfig | None = None,
    **options: Any,
) -> Any:
    from actors.learner import LearnerGroup
    from actors.learning import LearnerSettings

    group = LearnerGroup(LearnerSettings(tiny, model, learner, algorithm or AlgorithmConfig(), critic or CriticConfig()), **options)
    group.start()
    return group


def train(cluster: Any, group: Any, start: Any, optimizer: Any = None, episodes: Any = EPISODES) -> tuple[dict[str, Any], Any, Any]:
    from actors.learning import UpdateRequest

    refs = asyncio.run(group.update(UpdateRequest("c", 1, 0, 5), start, cluster.put(episodes), optimizer))
    return cluster.get(refs.state), refs.optimizer and cluster.get(refs.optimizer), refs.report


def largest_gap(a: Any, b: Any) -> float:
    return max(float(np.abs(a[k] - b[k]).max()) for k in a)


def test_two_workers_make_the_update_of_one(cluster: Any, tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    found = {}
    looks: dict[int, Any] = {}
    for workers in (1, 2):
        # Fewer rows in the last mini-batches than micro-batches of a worker: fillers are exercised too.
        learner = LearnerConfig(workers=workers, mini_batch=9, micro_batch_tokens=64, optimizer_state="keep", lr=1e-4)
        group = make_group(tiny, LORA, learner)
        found[workers] = train(cluster, group, cluster.put(start))
        again = train(cluster, group, cluster.put(start))
        assert again[2].content == found[workers][2].content == state_hash(found[workers][0])
        scores = asyncio.run(group.score(cluster.put(start), [[5, 6, 7], [8, 9], [10]], [[10, 11], [12], [13, 14]]))
        found[workers] += (scores,)  # type: ignore[assignment]
        look = group.distributions(cluster.put(start), [[5, 6, 7], [8, 9], [10]], [[10, 11], [12], [13, 14]])
        looks[workers] = cluster.get(asyncio.run(look))
        delta = cluster.get(asyncio.run(group.difference(cluster.put(start), cluster.put(found[workers][0]))))
        assert largest_gap(delta, {k: found[workers][0][k] - start[k] for k in start}) == 0
        group.stop()
    one, two = found[1], found[2]
    assert largest_gap(one[0], start) > 1e-4
    assert largest_gap(one[0], two[0]) < 1e-5
    assert largest_gap(one[1].exp_avg, two[1].exp_avg) < 1e-5
    assert one[1].step == two[1].step
    for name in (
        "loss",
        "pg_loss",
        "kl",
        "entropy",
        "clip_fraction",
        "ratio_max",
        "grad_norm",
        "logprob_gap",
        "logprob_gap_max",
        "update_norm",
    ):
        assert one[2].metrics[name] == pytest.approx(two[2].metrics[name], rel=1e-3, abs=1e-5), name
    np.testing.assert_allclose(np.concatenate(one[3]), np.concatenate(two[3]), atol=1e-5)
    assert len(looks[1]) == 5
    np.testing.assert_allclose(looks[1], looks[2], atol=1e-5)
    np.testing.assert_allclose(looks[1][np.arange(5), [10, 11, 12, 13, 14]], np.concatenate(one[3]), atol=1e-5)


def test_partitioned_parameters_and_moments_give_the_same_updates(cluster: Any, tiny: Path) -> None:
    start, few = random_weights(tiny, 1), random_episodes(2, 3)
    found = {}
    for stage in (0, 2, 3):
        learner = LearnerConfig(workers=2 if stage else 1, zero_stage=stage, mini_batch=8, optimizer_state="keep", lr=1e-4)  # type: ignore[arg-type]
        group = make_group(tiny, FULL, learner, AlgorithmConfig(kl_coef=0))
        first = train(cluster, group, start, None, few)
        second = train(cluster, group, first[0], first[1], few)
        assert train(cluster, group, start, None, few)[2].content == first[2].content, "the client before left a trace"
        group.stop()
        found[stage] = (first, second)
    assert found[0][0][2].metrics["steps"] > 1
    for stage in (2, 3):
        for mine, wanted in zip(found[stage], found[0], strict=True):
            assert largest_gap(mine[0], wanted[0]) < 1e-5, stage
            assert largest_gap(mine[1].exp_avg_sq, wanted[1].exp_avg_sq) < 1e-5, stage
            assert mine[1].step == wanted[1].step
            assert mine[2].metrics["grad_norm"] == pytest.approx(wanted[2].metrics["grad_norm"], rel=1e-4)


def test_two_workers_train_policy_and_critic_as_one_and_end_together(cluster: Any, tiny: Path) -> None:
    """With partitioned parameters, and with a critic that does not travel in the state."""
    start, found = initial_state(tiny, FULL, 0, critic=True), []
    for workers, stage in ((1, 0), (2, 3)):
        learner = LearnerConfig(workers=workers, zero_stage=stage, mini_batch=9, micro_batch_tokens=64, optimizer_state="keep", lr=3e-3)  # type: ignore[arg-type]
        # The policy ends after its first step, on both workers: one that went on would wait for the other for ever.
        algorithm = AlgorithmConfig(name="ppo", passes=3, kl_coef=0, target_kl=1e-5)
        group = make_group(tiny, FULL, learner, algorithm, CriticConfig(lr=1e-4, federate=stage == 0), timeout_s=120)
        state, moments, report = train(cluster, group, cluster.put(start))
        found.append((*(split_critic(state) if stage == 0 else (state, moments.kept)), moments, report.metrics))
        group.stop()
    one, two = found
    assert two[3]["steps"] == one[3]["steps"] == 1
    assert one[2].critic_step == two[2].critic_step > 5
    assert largest_gap(one[0], two[0]) < 2e-5
    assert largest_gap(one[1], two[1]) < 2e-5
    for name in ("value_loss", "explained_variance", "critic_grad_norm", "pg_loss", "approx_kl", "grad_norm"):
        assert one[3][name] == pytest.approx(two[3][name], rel=1e-3, abs=1e-5), name


def test_a_worker_that_dies_is_reported_by_name_and_replaced(cluster: Any, tiny: Path) -> None:
    start = random_adapter(tiny, LORA.lora, 1)
    group = make_group(tiny, LORA, LearnerConfig(mini_batch=16))
    before = train(cluster, group, start)[2].content

    class Killer:
        """Kills the process that unpickles it: a worker dying in the middle of an update."""

        def __reduce__(self) -> tuple[Any, ...]:
            return os._exit, (1,)

    from actors.learning import UpdateRequest

    with pytest.raises(LearnerError, match=r"worker died at client c7, round 3"):
        asyncio.run(group.update(UpdateRequest("c7", 3, 0, 5), start, cluster.put([Killer()])))
    assert train(cluster, group, start)[2].content == before
    group.stop()


def test_an_error_in_a_worker_arrives_as_it_was(cluster: Any, tiny: Path) -> None:
    group = make_group(tiny, LORA, LearnerConfig(mini_batch=16))
    with pytest.raises(LearnerError, match="shape") as caught:
        train(cluster, group, random_adapter(tiny, LoraConfig(rank=2), 1))
    assert type(caught.value) is LearnerError
    assert "Traceback" not in str(caught.value)
    group.stop()


def test_a_missed_deadline_names_who_was_waited_for(cluster: Any, tiny: Path) -> None:
    group = make_group(tiny, LORA, LearnerConfig(mini_batch=1), timeout_s=0.05)
    with pytest.raises(LearnerError, match=r"waited 0.05 s for 1 of 1 workers at client c, round 1"):
        train(cluster, group, random_adapter(tiny, LORA.lora, 1))
    group.stop()


def test_a_group_that_cannot_be_placed_says_so(cluster: Any, tiny: Path) -> None:
    with pytest.raises(LearnerError, match=r"waited 2 s for 1 of 1 workers to load the model"):
        make_group(tiny, LORA, LearnerConfig(), cpus=64, start_timeout_s=2)


def test_a_model_that_is_not_there_fails_at_start(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(LearnerError, match="while its workers were to load the model"):
        make_group(tmp_path / "absent", LORA, LearnerConfig())
