"""The services of ``pipeline.services`` on Ray: starts the actors of a plan, routes work to them, and ends them.

Owns which engine serves which client and which learner group trains it. Parameters and episodes stay object references; the
controller sees names and scalars.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError

from actors.aggregator import AggregatorActor
from actors.environment import start_workers
from actors.learner import LearnerGroup
from actors.learning import UpdateRequest
from actors.placement import Placement
from actors.rollout import SaveEpisodes, start_rollout
from actors.tracker import RemoteTracker
from pipeline.config import Config
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EngineError
from pipeline.parts import Beginning, learner_settings, make_prompter, rollout_spec
from pipeline.planning import Prepared
from pipeline.selftest import make_probe, require_agreement, tolerance
from pipeline.services import EpisodeLogTarget, Handle, Published, Trained, UpdateMeta, within
from pipeline.tracking import NoTracker, Tracker


async def resolve(reference: Any) -> Any:
    """Await a Ray object reference as a coroutine, so that deadlines apply."""
    return await reference


class RayRollouts:
    """Engines behind one name space. A version is loaded by an engine when its first episode gets there."""

    def __init__(self, actors: Sequence[Any], deadline_s: float, restart_s: float) -> None:
        self._actors = list(actors)
        self._deadline_s, self._restart_s = deadline_s, restart_s
        self._states: dict[str, Handle] = {}
        self._loaded: list[dict[str, asyncio.Task[None]]] = [{} for _ in actors]
        self._load = [0] * len(self._actors)

    async def publish(self, name: str, state: Handle) -> None:
        """Register a version; with one engine it is loaded now, else where it is needed."""
        if name in self._states:
            raise EngineError(f"adapter {name!r} is published already; names are never used twice")
        self._states[name] = state
        if len(self._actors) == 1:
            await self._ensure(0, name)

    async def drop(self, name: str) -> None:
        """Forget a version everywhere."""
        self._states.pop(name, None)
        waits = [self._unload(engine, name, task) for engine, loaded in enumerate(self._loaded) if (task := loaded.pop(name, None))]
        for gone in await asyncio.gather(*waits, return_exceptions=True):
            # An engine that died has forgotten everything anyway.
            if isinstance(gone, BaseException) and not isinstance(gone, RayActorError):
                raise gone

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        """Run on the engine with the least to do. Raises ``EngineError`` when the adapter is unknown."""
        if adapter not in self._states:
            raise EngineError(f"adapter {adapter!r} is not published")
        engine = min(range(len(self._actors)), key=self._load.__getitem__)
        self._load[engine] += len(specs)
        try:
            await self._ensure(engine, adapter)
            save = None if log is None else SaveEpisodes(log.path, log.round, log.epoch, log.limit)
            run = self._actors[engine].run.options(num_returns=2)
            episodes, scalars = run.remote(list(specs), adapter, sampling, save, self._deadline_s)
            try:
                return episodes, await resolve(scalars)
            except asyncio.CancelledError:
                # Else the engine would work these episodes off before those of the next attempt.
                ray.cancel(scalars)
                raise
        except RayActorError as error:
            await self._revive(engine)
            raise EngineError(
                f"rollout engine {engine} died while it ran {len(specs)} episodes of {adapter!r} and was restarted"
            ) from error
        except Exception:
            await self._restart_if_broken(engine)
            raise
        finally:
            self._load[engine] -= len(specs)

    async def score(self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], adapter: str) -> list[list[list[float]]]:
        """Log-probabilities under ``adapter`` from every engine."""
        for engine in range(len(self._actors)):
            await self._ensure(engine, adapter)
        return list(await asyncio.gather(*(resolve(actor.score.remote(prompts, responses, adapter)) for actor in self._actors)))

    async def _unload(self, engine: int, name: str, loading: asyncio.Task[None]) -> None:
        try:
            await asyncio.shield(loading)
        except Exception:
            return
        await resolve(self._actors[engine].drop.remote(name))

    async def _restart_if_broken(self, engine: int) -> None:
        """An engine that failed beyond repair answers, but refuses everything: end it, so that Ray starts it anew."""
        try:
            if await resolve(self._actors[engine].healthy.remote()):
                return
            ray.kill(self._actors[engine], no_restart=False)
        except RayActorError:
            pass
        await self._revive(engine)

    async def _revive(self, engine: int) -> None:
        """Wait until Ray has restarted a dead engine, which then holds no version."""
        self._loaded[engine] = {}
        until = time.monotonic() + self._restart_s
        while True:
            try:
                await within(
                    self._restart_s, resolve(self._actors[engine].ready.remote()), f"rollout engine {engine} to restart", EngineError
                )
                return
            except RayActorError as error:
                if time.monotonic() > until:
                    raise EngineError(f"rollout engine {engine} did not come back within {self._restart_s:g} s after it died") from error
                await asyncio.sleep(1.0)

    async def _ensure(self, engine: int, name: str) -> None:
        for attempt in (0, 1):
            loaded = self._loaded[engine]
            if name not in loaded:
                loaded[name] = asyncio.ensure_future(resolve(self._actors[engine].publish.remote(name, self._states[name])))
            task = loaded[name]
            try:
                await asyncio.shield(task)
                return
            except RayActorError:
                if attempt:
                    raise
                await self._revive(engine)
            except Exception:
                # A refusal is not for ever: the next attempt asks again.
                if loaded.get(name) is task:
                    del loaded[name]
                raise


class RayLearners:
    """A pool of learner groups; a group serves one client at a time."""

    def __init__(self, groups: Sequence[LearnerGroup]) -> None:
        self._free: asyncio.Queue[LearnerGroup] = asyncio.Queue()
        for group in groups:
            self._free.put_nowait(group)

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator[LearnerGroup]:
        """A group for the length of the block."""
        group = await self._free.get()
        try:
            yield group
        finally:
            self._free.put_nowait(group)

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
        """Train on the next free group."""
        async with self.lease() as group:
            refs = await group.update(UpdateRequest(client, round, epoch, seed), start, episodes, optimizer, anchor)
            return Trained(refs.state, refs.optimizer, refs.report.content, refs.report.metrics)

    async def difference(self, before: Handle, after: Handle) -> Handle:
        """Worked out where the parameters are."""
        async with self.lease() as group:
            return await group.difference(before, after)

    async def distributions(self, state: Handle, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Handle:
        """Worked out where the parameters are."""
        async with self.lease() as group:
            return await group.distributions(state, prompts, responses)


class RayAggregator:
    """The aggregator actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def begin(self, version: Published, clients: Sequence[str], policy: Handle | None = None) -> None:
        """Open a round."""
        await resolve(self._actor.begin.remote(version.name, version.round, list(clients), version.state, policy))

    async def add(self, meta: UpdateMeta, delta: Handle, moments: Handle | None, policy: Handle | None = None) -> None:
        """Fold a client in; tensors go to the actor by reference."""
        await resolve(self._actor.add.remote(meta, delta, moments, policy))

    async def skip(self, client: str) -> None:
        """A client will not report."""
        await resolve(self._actor.skip.remote(client))

    async def finish(self) -> tuple[Published, Handle]:
        """Close the round; the state stays in the object store, and so do the mean optimizer moments."""
        state, head = self._actor.finish.options(num_returns=2).remote()
        name, round, metrics = await resolve(head)
        return Published(name, round, state, metrics), self._actor.mean_moments.remote()


class Cluster(Beginning):
    """All actors of a run. Needs a connected Ray; ``close`` ends everything that it started."""

    def __init__(self, prepared: Prepared, run_dir: Path) -> None:
        config: Config = prepared.config
        super().__init__(prepared)
        self._env_actors: list[Any] = []
        self._placement = Placement(config)
        try:
            self.tracker: Tracker = self._start_tracker(run_dir)
            self._aggregator = self._start_aggregator()
            self._engines = [self._start_engine(i) for i in range(config.rollout.engines)]
            self._groups = [self._make_group(i) for i in range(config.learner.groups)]
        except BaseException:
            self._placement.remove()
            raise
        self.rollouts = RayRollouts(self._engines, config.federation.client_deadline_s, config.resources.start_timeout_s)
        self.learners = RayLearners(self._groups)
        self.aggregator = RayAggregator(self._aggregator)
        self._probe = make_probe(prepared.world, make_prompter(config, prepared.model))
        self._probes = 0

    async def ready(self) -> None:
        """Wait until engines and learners have loaded; both load at the same time."""
        timeout = self._config.resources.start_timeout_s
        engines = [
            within(timeout, resolve(actor.ready.remote()), f"rollout engine {i} to load", EngineError)
            for i, actor in enumerate(self._engines)
        ]
        await asyncio.gather(*engines, *(asyncio.to_thread(group.start) for group in self._groups))

    def put(self, value: Any) -> Handle:
        """A handle to a value."""
        return ray.put(value)

    async def fetch(self, handle: Handle) -> Any:
        """The value behind a handle."""
        return await resolve(handle)

    async def self_test(self, state: Handle, when: str) -> float:
        """Compare engine and learner under ``state``. Raises ``SelfTestError``; the largest gap otherwise."""
        self._probes += 1
        name = f"probe-{self._probes}"
        await self.rollouts.publish(name, state)
        try:
            scores = await self.rollouts.score(self._probe.prompts, self._probe.responses, name)
        finally:
            await self.rollouts.drop(name)
        async with self.learners.lease() as group:
            learner = await group.score(state, self._probe.prompts, self._probe.responses)
        return max(require_agreement(engine, learner, tolerance(self._config), when) for engine in scores)

    def close(self) -> None:
        """End the actors of this run and give their resources back."""
        for group in self._groups:
            group.stop()
        for actor in (*self._engines, *self._env_actors, self._aggregator):
            ray.kill(actor)
        self._placement.remove()

    def _start_tracker(self, run_dir: Path) -> Tracker:
        config = self._config
        if not config.tracking.mlflow:
            return NoTracker()
        options = {"num_cpus": self._placement.cpus("tracker"), "scheduling_strategy": self._placement.strategy("tracker", 0)}
        return RemoteTracker(
            run_dir,
            config.run.name,
            experiment=config.tracking.experiment,
            uri=config.tracking.uri,
            clients=config.tracking.clients,
            options=options,
        )

    def _start_aggregator(self) -> Any:
        config, place = self._config, self._placement
        assert config.aggregation.rule is not None, "the configuration is resolved"
        actor = ray.remote(AggregatorActor).options(num_cpus=place.cpus("aggregator"), scheduling_strategy=place.strategy("aggregator", 0))
        rule = config.aggregation
        return actor.remote(rule.rule, rule.weighting, config.model.lora.alpha, rule.options, config.run.plugins)

    def _start_engine(self, index: int) -> Any:
        config, place = self._config, self._placement
        rollout = config.rollout
        names = [f"environment-{uuid.uuid4().hex[:12]}" for _ in range(rollout.env_workers)]
        for i, name in enumerate(names):
            strategy = place.strategy("environment", index * rollout.env_workers + i)
            cpus = place.cpus("environment")
            self._env_actors += start_workers(self._prepared.spec, 1, rollout.env_slots, cpus=cpus, scheduling_strategy=strategy, name=name)
        return start_rollout(
            rollout_spec(self._prepared),
            cpus=place.cpus("rollout"),
            gpus=place.gpus("rollout"),
            env_actors=names,
            scheduling_strategy=place.strategy("rollout", index),
            max_restarts=-1,
        )

    def _make_group(self, index: int) -> LearnerGroup:
        config, place = self._config, self._placement
        workers = config.learner.workers
        return LearnerGroup(
            learner_settings(config, self._prepared.model),
            index=index,
            cpus=place.cpus("learner"),
            gpus=place.gpus("learner"),
            placement_group=place.group,
            bundles=[place.bundle("learner", index * workers + rank) for rank in range(workers)],
            start_timeout_s=config.resources.start_timeout_s,
            timeout_s=config.federation.client_deadline_s,
        )
