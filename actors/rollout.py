"""The rollout actor: a thin Ray shell over the episode driver, one engine, and a pool of environment workers.

Owns nothing but the wiring, and the numbers that summarize a run of episodes. Episodes themselves go from here to a learner through
the object store; the controller sees the summary only.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.driver import EpisodeDriver
from actors.engines.base import Engine, EngineSpec, make_engine
from actors.environment import EnvironmentPool, LocalPool, Pool, start_workers
from actors.merging import Densifier
from actors.prompting import ChatPrompter
from envs.base import WorldSpec
from envs.prompts import PromptSpec
from pipeline.config.model import LoraConfig
from pipeline.episode_log import append_episodes, episode_record
from pipeline.episodes import Episode, EpisodeSpec, Sampling, State
from pipeline.models import load_tokenizer, split_critic


@dataclass(frozen=True)
class RolloutSpec:
    """All that a rollout actor needs. ``env_workers`` 0 keeps environments in the actor's own process (no deadline, no isolation)."""

    engine: EngineSpec
    world: WorldSpec
    prompt: PromptSpec
    env_workers: int = 1
    env_slots: int = 256
    env_cpus: float = 0.2
    env_deadline_s: float = 60.0
    env_retries: int = 2
    env_start_timeout_s: float = 120.0
    merge: LoraConfig | None = None
    """Set for aggregation rule ``merge``: published states are adapters over a changing base, served as whole weights."""


@dataclass(frozen=True)
class SaveEpisodes:
    """Where to append the text of episodes, and what to note with them."""

    path: Path
    round: int | None = None
    epoch: int | None = None
    limit: int | None = None
    """Episodes kept of each run, the first ones, and beyond them those whose environment failed; None keeps all."""


def summarize(episodes: Sequence[Episode], seconds: float) -> dict[str, float]:
    """Scalars of a run. ``success``, ``score``, ``ret`` and ``turns`` are means over all episodes, failed ones counting as 0;
    ``invalid`` is the share of turns; ``episodes``, ``tokens_*``, ``retries``, ``failed`` and ``length_stops`` are counts."""
    turns = [turn for episode in episodes for turn in episode.turns]
    n = max(len(episodes), 1)
    return {
        "episodes": float(len(episodes)),
        "tokens_prompt": float(sum(len(turn.prompt_ids) for turn in turns)),
        "tokens_response": float(sum(len(turn.response_ids) for turn in turns)),
        "success": sum(episode.success for episode in episodes) / n,
        "score": sum(episode.score for episode in episodes) / n,
        "ret": sum(episode.ret for episode in episodes) / n,
        "turns": len(turns) / n,
        "invalid": sum(not turn.valid for turn in turns) / max(len(turns), 1),
        "retries": float(sum(episode.retries for episode in episodes)),
        "failed": float(sum(episode.stop == "failed" for episode in episodes)),
        "length_stops": float(sum(episode.stop == "length" for episode in episodes)),
        "seconds": seconds,
    }


class RolloutActor:
    """Serves many concurrent ``run`` calls from one engine. Its methods are coroutines, so any number of them may wait.

    Made a Ray actor by ``start_rollout``.
    """

    def __init__(
        self,
        spec: RolloutSpec,
        env_actors: Sequence[Any] | None = None,
        env_options: Mapping[str, Any] | None = None,
        engine: Callable[[], Engine] | None = None,
    ) -> None:
        """``env_actors`` are workers that the caller has placed (``start_workers``), or their names; without them they are started with
        ``env_options``. ``engine`` makes the engine, in place of ``spec.engine``."""
        _prepare_process(spec)
        self._prompter = ChatPrompter(load_tokenizer(spec.engine.model_path), spec.prompt)
        self._densifier = Densifier(spec.engine.model_path, spec.merge) if spec.merge else None
        pool = _make_pool(spec, env_actors, env_options or {})
        self._driver = EpisodeDriver(engine or (lambda: make_engine(spec.engine)), pool, self._prompter, env_retries=spec.env_retries)

    async def ready(self) -> bool:
        """True once the engine has loaded; raises what prevented it."""
        await asyncio.wrap_future(self._driver.ready)
        return True

    async def healthy(self) -> bool:
        """False once the engine has failed beyond repair; only a restart of the actor helps then."""
        return self._driver.healthy

    async def publish(self, name: str, state: State) -> None:
        """Make weights available under a name that is never reused. A critic, which generates nothing, is left out."""
        policy, _ = split_critic(state)
        served = policy if self._densifier is None else self._densifier.dense(policy)
        await asyncio.wrap_future(self._driver.call(lambda engine: engine.publish(name, served)))

    async def drop(self, name: str) -> None:
        """Forget weights once their last request is done."""
        await asyncio.wrap_future(self._driver.call(lambda engine: engine.drop(name)))

    async def run(
        self,
        specs: Sequence[EpisodeSpec],
        adapter: str,
        sampling: Sampling,
        save: SaveEpisodes | None = None,
        deadline_s: float | None = None,
    ) -> tuple[list[Episode], dict[str, float]]:
        """Episodes in the order of ``specs``, and their summary. Call with ``num_returns=2`` so that episodes stay in the object store.

        Raises ``EngineError`` for an unknown adapter, past ``deadline_s``, or when the engine fails.
        """
        started = time.perf_counter()
        episodes = await asyncio.wrap_future(self._driver.submit(specs, adapter, sampling, deadline_s))
        summary = summarize(episodes, time.perf_counter() - started)
        if save is not None:
            # In a thread: thousands of episodes take a while to write, and other runs wait on this loop.
            await asyncio.get_running_loop().run_in_executor(None, self._save, specs, episodes, save)
        return episodes, summary

    async def score(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], adapter: str) -> list[list[float]]:
        """The engine's log-probabilities of given responses at temperature 1."""

        def work(engine: Engine) -> list[list[float]]:
            return [engine.score(prompt, response, adapter) for prompt, response in zip(prompts, responses, strict=True)]

        return await asyncio.wrap_future(self._driver.call(work))

    async def stats(self) -> dict[str, float]:
        """Running totals of the engine, tokens per second of engine time, and episodes in flight."""

        def work(engine: Engine) -> dict[str, float]:
            s = engine.stats
            return {
                "requests": float(s.requests),
                "tokens_prompt": float(s.prompt_tokens),
                "tokens_response": float(s.response_tokens),
                "tokens_per_second": s.tokens_per_second,
                "engine_seconds": s.seconds,
                "published": float(s.published),
                "publish_seconds": s.publish_seconds,
                "pending": float(engine.pending),
            }

        totals = await asyncio.wrap_future(self._driver.call(work))
        return {**totals, "running": float(self._driver.running)}

    async def close(self) -> None:
        """Stop the driver, the engine and the environment workers."""
        await asyncio.get_running_loop().run_in_executor(None, self._driver.close)

    def _save(self, specs: Sequence[EpisodeSpec], episodes: Sequence[Episode], save: SaveEpisodes) -> None:
        append_episodes(
            save.path,
            [
                episode_record(episode, spec.task.instruction, round=save.round, epoch=save.epoch, text=self._prompter.text)
                for place, (spec, episode) in enumerate(zip(specs, episodes, strict=True))
                if save.limit is None or place < save.limit or episode.stop == "failed"
            ],
        )


def start_rollout(spec: RolloutSpec, *, cpus: float, gpus: float = 0.0, env_actors: Sequence[Any] | None = None, **options: Any) -> Any:
    """Start a rollout actor. ``options`` go to Ray (scheduling strategy, runtime environment, name)."""
    import ray

    remote = ray.remote(RolloutActor).options(num_cpus=cpus, num_gpus=gpus, max_concurrency=1000, **options)
    return remote.remote(spec, env_actors)


def _make_pool(spec: RolloutSpec, env_actors: Sequence[Any] | None, env_options: Mapping[str, Any]) -> Pool:
    if spec.env_workers == 0:
        return LocalPool(spec.world, spec.env_slots)
    actors = [_by_name(actor) for actor in env_actors or ()] or start_workers(
        spec.world, spec.env_workers, spec.env_slots, cpus=spec.env_cpus, **env_options
    )
    return EnvironmentPool(actors, spec.env_slots, spec.env_deadline_s, start_timeout_s=spec.env_start_timeout_s)


def _by_name(actor: Any) -> Any:
    """An actor handle. An actor that may be restarted is better given names: handles would be arguments in the object store."""
    import ray

    return ray.get_actor(actor) if isinstance(actor, str) else actor


def _prepare_process(spec: RolloutSpec) -> None:
    # Ray sets OMP_NUM_THREADS to the actor's share of CPUs, which may be a fraction; the engine's own setting decides.
    os.environ["OMP_NUM_THREADS"] = str(spec.engine.threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
