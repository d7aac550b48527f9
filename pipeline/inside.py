"""The services of ``pipeline.services`` on plain objects in this process: one engine, one learner, one aggregator, no Ray.

For small models, where starting actors costs more than training: trials of a sweep, tests, a laptop. The objects are those that the
actors wrap, so both layouts learn the same. Handles are the values themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from actors.aggregator import AggregatorActor
from actors.engines.base import Engine, make_engine
from actors.learning import LearnerSettings, LearnerWorker, UpdateRequest, difference
from actors.rollout import RolloutActor, RolloutSpec, SaveEpisodes
from pipeline.aggregation import version_name
from pipeline.config import Config
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EngineError
from pipeline.loops import run_to_end
from pipeline.parts import Beginning, learner_settings, make_prompter, rollout_spec
from pipeline.planning import Prepared
from pipeline.selftest import make_probe, require_agreement, tolerance
from pipeline.services import EpisodeLogTarget, Handle, Published, Trained, UpdateMeta, within
from pipeline.tracking import GuardedTracker, MlflowWriter, NoTracker, Tracker


@dataclass
class Kept:
    """What the next run in this process may use again: engines and learners, by what they were built from. Loading them takes longer
    than a small model trains. ``close`` ends them."""

    engines: dict[str, Engine] = field(default_factory=dict)
    learners: dict[str, LearnerWorker] = field(default_factory=dict)

    def engine(self, spec: RolloutSpec) -> Engine:
        """The engine of ``spec``, built at first use. It stays open when a run that used it ends."""
        # Not by seed: requests bring their own.
        key = _key(replace(spec.engine, seed=0))
        if key not in self.engines:
            self._free_memory()
            self.engines[key] = make_engine(spec.engine)
        return _Borrowed(self.engines[key])

    def learner(self, settings: LearnerSettings) -> LearnerWorker:
        """The learner of ``settings``, built at first use."""
        key = _key(settings)
        if key not in self.learners:
            self.learners.clear()
            self.learners[key] = LearnerWorker(settings)
        return self.learners[key]

    def close(self) -> None:
        """End all of them."""
        self._free_memory()
        self.learners.clear()

    def _free_memory(self) -> None:
        # One engine at a time: two would hold two key-value caches.
        for engine in self.engines.values():
            engine.close()
        self.engines.clear()


def _key(settings: object) -> str:
    return json.dumps(settings, default=lambda o: o.model_dump(mode="json") if hasattr(o, "model_dump") else getattr(o, "__dict__", str(o)))


class _Borrowed:
    """An engine whose ``close`` leaves it open for the next run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        """Left to ``Kept``."""


class InsideRollouts:
    """One engine with its environments."""

    def __init__(self, actor: RolloutActor, deadline_s: float) -> None:
        self.actor, self._deadline_s = actor, deadline_s

    async def publish(self, name: str, state: Handle) -> None:
        """Load a version."""
        await self.actor.publish(name, state)

    async def drop(self, name: str) -> None:
        """Forget a version."""
        await self.actor.drop(name)

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        """Run episodes. Raises ``EngineError`` when the adapter is unknown."""
        save = None if log is None else SaveEpisodes(log.path, log.round, log.epoch, log.limit)
        return await self.actor.run(specs, adapter, sampling, save, self._deadline_s)


class InsideLearners:
    """One learner, in a thread so that deadlines keep running; it trains one client at a time."""

    def __init__(self, worker: LearnerWorker) -> None:
        self.worker = worker
        self._one = asyncio.Lock()

    async def update(
        self,
        client: str,
        round: int,
        epoch: int,
        seed: int,
        start: Handle,
        episodes: Handle,
        optimizer: Handle | None,
        anchor: Handle | None,
    ) -> Trained:
        """Train ``start`` on ``episodes``."""
        async with self._one:
            request = UpdateRequest(client, round, epoch, seed)
            done = await asyncio.to_thread(self.worker.update, request, start, episodes, optimizer, anchor)
        return Trained(done.state, done.optimizer, done.report.content, done.report.metrics)

    async def difference(self, before: Handle, after: Handle) -> Handle:
        """What leaves the client."""
        return difference(before, after)

    async def distributions(self, state: Handle, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Handle:
        """A policy at given responses."""
        async with self._one:
            return await asyncio.to_thread(self.worker.distributions, state, prompts, responses)

    async def score(self, state: Handle, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[list[float]]:
        """The learner's log-probabilities of given responses."""
        async with self._one:
            return await asyncio.to_thread(self.worker.score, state, prompts, responses)


class InsideAggregator:
    """The parameter server's plain object."""

    def __init__(self, aggregator: AggregatorActor) -> None:
        self._aggregator = aggregator

    async def begin(self, version: Published, clients: Sequence[str], policy: Handle | None = None) -> None:
        """Open a round."""
        self._aggregator.begin(version.name, version.round, clients, version.state, policy)

    async def add(self, meta: UpdateMeta, delta: Handle, moments: Handle | None, policy: Handle | None = None) -> None:
        """Fold a client in."""
        await asyncio.to_thread(self._aggregator.add, meta, delta, moments, policy)

    async def skip(self, client: str) -> None:
        """A client will not report."""
        self._aggregator.skip(client)

    async def finish(self) -> tuple[Published, Handle]:
        """Close the round."""
        state, (name, round, metrics) = await asyncio.to_thread(self._aggregator.finish)
        return Published(name, round, state, metrics), self._aggregator.mean_moments()


class Inside(Beginning):
    """All parts of a run in this process (``pipeline.services.Parts``). With ``kept`` the engine and the learner outlive it."""

    def __init__(self, prepared: Prepared, run_dir: Path, kept: Kept | None = None) -> None:
        super().__init__(prepared)
        config: Config = prepared.config
        assert config.aggregation.rule is not None, "the configuration is resolved"
        self._kept = kept
        self._own = Kept() if kept is None else kept
        os.environ["OMP_NUM_THREADS"] = str(config.resources.engine_threads)
        self.tracker: Tracker = NoTracker()
        if config.tracking.mlflow:
            tracking = config.tracking
            writer = MlflowWriter(run_dir.resolve(), config.run.name, tracking.experiment, tracking.uri, clients=tracking.clients)
            self.tracker = GuardedTracker(writer)
        # The learner first: the engine uses its process group, and leaves it when it closes.
        self.learners = InsideLearners(self._own.learner(learner_settings(config, prepared.model)))
        spec = replace(rollout_spec(prepared), env_workers=0)
        self.rollouts = InsideRollouts(RolloutActor(spec, engine=lambda: self._own.engine(spec)), config.federation.client_deadline_s)
        rule = config.aggregation
        self.aggregator = InsideAggregator(AggregatorActor(config.aggregation.rule, rule.weighting, config.model.lora.alpha, rule.options))
        self._probe = make_probe(prepared.world, make_prompter(config, prepared.model))

    async def ready(self) -> None:
        """Wait until the engine has loaded."""
        await within(self._config.resources.start_timeout_s, self.rollouts.actor.ready(), "the rollout engine to load", EngineError)

    def put(self, value: Any) -> Handle:
        """The value itself."""
        return value

    async def fetch(self, handle: Handle) -> Any:
        """The value itself."""
        return handle

    async def self_test(self, state: Handle, when: str) -> float:
        """Compare engine and learner under ``state``."""
        name = version_name(0, state).replace("global", "probe")
        await self.rollouts.publish(name, state)
        try:
            engine = await self.rollouts.actor.score(self._probe.prompts, self._probe.responses, name)
        finally:
            await self.rollouts.drop(name)
        learner = await self.learners.score(state, self._probe.prompts, self._probe.responses)
        return require_agreement(engine, learner, tolerance(self._config), when)

    def close(self) -> None:
        """End what the run started; ``kept`` parts stay."""
        run_to_end(self.rollouts.actor.close())
        if self._kept is None:
            self._own.close()
        # Every run has threads of its own, whose heaps glibc would keep: 100 MB a run.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
