"""The rollout actor end to end on Ray: concurrent runs over one engine, environments in other processes, files, restarts, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.engines.base import EngineSpec
from actors.rollout import RolloutActor, RolloutSpec, SaveEpisodes, start_rollout, summarize
from envs.base import WorldSpec
from envs.prompts import PromptSpec
from pipeline.config.model import LoraConfig
from pipeline.episode_log import read_episodes
from pipeline.episodes import Episode, EpisodeSpec, Sampling, Turn
from pipeline.errors import EngineError
from tests.tiny_model import make_tiny_model, random_adapter
from tests.worlds import guess_task

LORA = LoraConfig(rank=4)
SAMPLING = Sampling(max_new_tokens=4)


def test_summary_numbers_by_hand() -> None:
    def episode(success: bool, turns: int, stop: Any, invalid: int = 0, retries: int = 0) -> Episode:
        made = tuple(Turn((1, 2, 3), (4, 5), (-1.0, -1.0), "x", i >= invalid, 0.0) for i in range(turns))
        return Episode("t", "c", "default", "a", made, 10.0 * success, float(success), success, stop, retries=retries)

    episodes = [
        episode(True, 2, "done"),
        episode(False, 4, "steps", invalid=3),
        episode(False, 0, "failed", retries=2),
        episode(False, 2, "length"),
    ]
    assert summarize(episodes, 1.5) == {
        "episodes": 4.0,
        "tokens_prompt": 24.0,
        "tokens_response": 16.0,
        "success": 0.25,
        "score": 0.25,
        "ret": 2.5,
        "turns": 2.0,
        "invalid": 0.375,
        "retries": 2.0,
        "failed": 1.0,
        "length_stops": 1.0,
        "seconds": 1.5,
    }
    assert summarize([], 0.0)["success"] == 0.0


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    import ray

    root = str(Path(__file__).resolve().parents[2])
    environment = {
        "env_vars": {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        "worker_process_setup_hook": "tests.actors.test_environment.register",
    }
    ray.init(address="local", num_cpus=2, include_dashboard=False, runtime_env=environment, log_to_driver=False)
    yield ray
    ray.shutdown()


def rollout_spec(model: Path, backend: Any, workers: int = 1) -> RolloutSpec:
    engine = EngineSpec(
        backend, model, lora=LORA, adapter_slots=4, max_context=256, max_num_seqs=32, max_batched_tokens=2048, kv_cache_gb=0.2
    )
    return RolloutSpec(
        engine,
        WorldSpec("guess-test", {"max_steps": 3}),
        PromptSpec("short", history=1, list_actions=False),
        env_workers=workers,
        env_slots=16,
        env_cpus=0.1,
        env_deadline_s=5.0,
    )


def specs(count: int, client: str = "shop") -> list[EpisodeSpec]:
    return [EpisodeSpec(client, guess_task(i), group=i // 4, seed=i) for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "workers"), [("vllm", 2), ("transformers", 1), ("transformers", 0)])
def test_concurrent_runs_keep_order_tokens_and_files(ray_cluster: Any, tiny: Path, tmp_path: Path, backend: str, workers: int) -> None:
    ray = ray_cluster
    actor = start_rollout(rollout_spec(tiny, backend, workers), cpus=0.5)
    assert ray.get(actor.ready.remote(), timeout=300)
    for i in range(2):
        ray.get(actor.publish.remote(f"a{i}", random_adapter(tiny, LORA, i)))
    path = tmp_path / "episodes.jsonl"
    calls = [
        actor.run.options(num_returns=2).remote(specs(20, f"shop-{i}"), f"a{i}", SAMPLING, SaveEpisodes(path, round=3, epoch=i, limit=5))
        for i in range(2)
    ]
    for i, (episodes_ref, summary_ref) in enumerate(calls):
        summary = ray.get(summary_ref, timeout=300)
        episodes = ray.get(episodes_ref)
        assert [e.task_id for e in episodes] == [f"guess-{k}" for k in range(20)]
        assert {(e.client, e.adapter) for e in episodes} == {(f"shop-{i}", f"a{i}")}
        assert summary["episodes"] == 20
        assert summary["tokens_response"] == sum(len(t.response_ids) for e in episodes for t in e.turns) > 0
        assert all(len(t.logprobs) == len(t.response_ids) for e in episodes for t in e.turns)
        # What the engine says about the tokens it sampled is what it said when it sampled them.
        turns = [t for e in episodes[:4] for t in e.turns]
        scores = ray.get(actor.score.remote([t.prompt_ids for t in turns], [t.response_ids for t in turns], f"a{i}"))
        assert max(abs(x - y) for t, s in zip(turns, scores, strict=True) for x, y in zip(t.logprobs, s, strict=True)) < 5e-5
    records = list(read_episodes(path))
    assert sorted((r["client"], r["task_id"]) for r in records) == [(f"shop-{i}", f"guess-{k}") for i in range(2) for k in range(5)]
    assert all(r["turns"][0]["prompt"].startswith("<|user|>find") for r in records)
    stats = ray.get(actor.stats.remote())
    assert (stats["published"], stats["pending"], stats["running"]) == (2.0, 0.0, 0.0)
    ray.get(actor.drop.remote("a1"))
    with pytest.raises(EngineError, match="'a1' was dropped; live adapters: a0"):
        ray.get(actor.run.options(num_returns=2).remote(specs(1), "a1", SAMPLING)[1])
    ray.get(actor.close.remote())
    ray.kill(actor)


@pytest.mark.slow
def test_reference_backend_gives_the_same_episodes_whatever_the_environments_timing(ray_cluster: Any, tiny: Path) -> None:
    ray = ray_cluster
    results = []
    for workers in (0, 2):
        actor = start_rollout(rollout_spec(tiny, "transformers", workers), cpus=0.5)
        ray.get(actor.publish.remote("a0", random_adapter(tiny, LORA, 0)), timeout=300)
        ray.get(actor.publish.remote("a1", random_adapter(tiny, LORA, 1)), timeout=300)
        calls = [actor.run.options(num_returns=2).remote(specs(24), name, SAMPLING)[0] for name in ("a0", "a1")]
        results.append(ray.get(calls, timeout=300))
        ray.kill(actor)
    assert results[0] == results[1]


@pytest.mark.slow
def test_an_environment_that_kills_its_process_costs_a_retry_and_a_deadline_costs_the_run(
    ray_cluster: Any, tiny: Path, tmp_path: Path
) -> None:
    ray = ray_cluster
    actor = start_rollout(rollout_spec(tiny, "transformers"), cpus=0.5)
    ray.get(actor.publish.remote("a0", random_adapter(tiny, LORA, 0)), timeout=300)
    troubled = specs(8)
    troubled[3] = EpisodeSpec("shop", guess_task(3, trouble="die", flag=str(tmp_path / "flag")), seed=3)
    summary = ray.get(actor.run.options(num_returns=2).remote(troubled, "a0", SAMPLING)[1], timeout=300)
    assert (summary["episodes"], summary["failed"]) == (8.0, 0.0)
    assert summary["retries"] >= 1
    hanging = [EpisodeSpec("shop", guess_task(1, trouble="hang"))]
    with pytest.raises(EngineError, match="deadline with 0 of 1 episodes finished"):
        ray.get(actor.run.options(num_returns=2).remote(hanging, "a0", SAMPLING, None, 2.0)[1], timeout=300)
    assert ray.get(actor.run.options(num_returns=2).remote(specs(4), "a0", SAMPLING)[1], timeout=300)["episodes"] == 4.0
    ray.kill(actor)


@pytest.mark.slow
def test_an_engine_that_cannot_load_reports_why(ray_cluster: Any, tiny: Path, tmp_path: Path) -> None:
    ray = ray_cluster
    broken = make_tiny_model(tmp_path / "broken")
    (broken / "config.json").write_text((broken / "config.json").read_text().replace('"hidden_size": 64', '"hidden_size": 62'))
    actor = start_rollout(rollout_spec(broken, "vllm", 0), cpus=0.5)
    with pytest.raises(EngineError, match="vLLM cannot serve"):
        ray.get(actor.ready.remote(), timeout=300)
    ray.kill(actor)


def test_episodes_whose_environment_failed_are_kept_beyond_the_limit(tmp_path: Path) -> None:
    stops: list[Any] = ["done", "failed", "done", "failed"]
    whole = [Episode(f"guess-{i}", "shop", "default", "a", (), 0, 0, False, stop, observations=("hung",)) for i, stop in enumerate(stops)]
    actor = object.__new__(RolloutActor)
    actor._prompter = SimpleNamespace(text=str)  # type: ignore[assignment]
    actor._save(specs(4), whole, SaveEpisodes(tmp_path / "episodes.jsonl", limit=1))
    kept = list(read_episodes(tmp_path / "episodes.jsonl"))
    assert [(record["task_id"], record["final_observation"]) for record in kept] == [(f"guess-{i}", "hung") for i in (0, 1, 3)]
