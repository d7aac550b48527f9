"""The round loop: publish, let the sampled clients train concurrently, fold their updates in, measure, save, repeat.

Owns the order of events and what happens when a client fails. Knows services, not actors: it runs the same on Ray and on plain
objects. Nothing waits without a deadline.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from envs.base import Task
from envs.variants import DEFAULT
from pipeline.client import ClientFailure, ClientResult, ClientWork, Means, failure, train_client
from pipeline.config import Config
from pipeline.config.critic import clients_keep_critics
from pipeline.episodes import Sampling
from pipeline.errors import AggregationError, EngineError, LearnerError, QuorumError, SelfTestError
from pipeline.evaluation import Measurement, evaluate
from pipeline.services import AggregatorService, EpisodeLogTarget, Handle, Learners, Published, Rollouts, within

if TYPE_CHECKING:
    from pipeline.selftest import Probe

PUBLISH_DEADLINE_S = 900.0
AGGREGATE_DEADLINE_S = 600.0


class Recorder(Protocol):
    """Where records go: the run folder, the tracker, the terminal."""

    def record(self, record: Mapping[str, object]) -> None:
        """Take a record of kind ``evaluation``, ``client`` or ``round``."""

    def failed(self, failed: ClientFailure) -> None:
        """Keep a client's traceback."""

    def batch(self, scalars: Mapping[str, float]) -> None:
        """A rollout batch of the running round ended."""

    def phase(self, text: str) -> None:
        """Say what is happening now."""

    def episode_log(self, kind: str, client: str, round: int, epoch: int) -> EpisodeLogTarget | None:
        """Where the client side keeps these episodes, if at all."""


class Store(Protocol):
    """Where whole rounds are kept."""

    async def save(
        self, version: Published, record: Mapping[str, object], optimizers: Mapping[str, Handle], average: Handle | None
    ) -> None:
        """Write a whole round atomically. ``optimizers`` holds all clients' moments, ``average`` the server's."""


@dataclass
class Federation:
    """A run in progress. ``plan`` is a pure function of the round; ``optimizers`` holds handles to clients' kept moments."""

    config: Config
    plan: Callable[[int], Sequence[ClientWork]]
    heldout: Sequence[Task]
    rollouts: Rollouts
    learners: Learners
    aggregator: AggregatorService
    recorder: Recorder
    store: Store
    in_flight: int
    worlds: Sequence[str] = ()
    """Names of the clients' worlds in which the shared agent is measured beside the unperturbed one."""
    optimizers: dict[str, Handle] = field(default_factory=dict)
    average: Handle | None = None
    """The server's mean optimizer moments, with ``learner.optimizer_state = "average"``."""
    shared: Probe | None = None
    """Prompts on which the clients' policies are compared at the end of every round."""
    after_update: Callable[[Handle], Awaitable[None]] | None = None
    """Called once with the first trained parameters: the engine's self-test after an update."""

    async def run(self, start: Published) -> Published:
        """Rounds ``start.round + 1`` to the last; the final version. ``start`` is published already."""
        current = start
        if start.round == 0:
            await self.measure(current, final=True)
        for round in range(start.round + 1, self.config.federation.rounds + 1):
            current = await self.run_round(current, round)
        return current

    async def run_round(self, start: Published, round: int) -> Published:
        """One round. Raises ``QuorumError`` when too few clients report."""
        began = time.monotonic()
        phases: dict[str, float] = {}
        plan = list(self.plan(round))
        self.recorder.phase(f"round {round}: training {len(plan)} clients")
        clients = [work.client for work in plan]
        begin = self.aggregator.begin(start, clients, await self.look(start))
        await within(AGGREGATE_DEADLINE_S, begin, "the aggregator to open the round", AggregationError)
        gate = asyncio.Semaphore(self.in_flight)
        outcomes = await asyncio.gather(*(self.client_round(work, start, gate) for work in plan))
        results = [o for o in outcomes if isinstance(o, ClientResult)]
        failures = [o for o in outcomes if isinstance(o, ClientFailure)]
        self.require_quorum(round, len(results), failures, len(clients))
        trained = time.monotonic()

        version, moments = await within(
            AGGREGATE_DEADLINE_S, self.aggregator.finish(), "the aggregator to close the round", AggregationError
        )
        if self.config.learner.optimizer_state == "average":
            self.average = moments
        phases["aggregate"] = time.monotonic() - trained
        await self.publish(version, start)
        phases["publish"] = time.monotonic() - trained - phases["aggregate"]
        last = round == self.config.federation.rounds
        every = self.config.evaluation.every
        if last or (every and round % every == 0):
            phases["evaluate"] = await self.measure(version, final=last)
        if last and self.config.evaluation.clients:
            phases["evaluate"] = phases.get("evaluate", 0.0) + await self.measure_clients(results, round)

        record = round_record(version, round, clients, results, failures)
        saved = time.monotonic()
        if last or round % self.config.run.checkpoint_every == 0:
            self.recorder.phase(f"round {round}: saving")
            await self.store.save(version, record, self.optimizers, self.average)
        phases["checkpoint"] = time.monotonic() - saved
        for name in ("rollout", "train"):
            phases[name] = sum(float(str(r.record[f"{name}_seconds"])) for r in results)
        self.recorder.record({**record, "phases": phases, "seconds": time.monotonic() - began, **version.metrics})
        return version

    async def look(self, version: Published) -> Handle | None:
        """The version's distributions on the shared prompts; a learner that dies over it is replaced as often as for a client."""
        if self.shared is None:
            return None
        for left in reversed(range(self.config.federation.client_retries + 1)):
            work = self.learners.distributions(version.state, self.shared.prompts, self.shared.responses)
            try:
                return await within(
                    self.config.federation.client_deadline_s, work, f"the policy of {version.name} on the shared prompts", LearnerError
                )
            except LearnerError:
                if not left:
                    raise
        return None

    async def client_round(self, work: ClientWork, start: Published, gate: asyncio.Semaphore) -> ClientResult | ClientFailure:
        """A client's attempts, and the report to the aggregator either way."""
        federation = self.config.federation
        errors: list[BaseException] = []
        async with gate:
            for _ in range(federation.client_retries + 1):
                try:
                    result = await within(
                        federation.client_deadline_s, self.attempt(work, start), f"client {work.client} in round {work.round}", EngineError
                    )
                    await self.report(result)
                except (AggregationError, SelfTestError):
                    raise
                except Exception as error:
                    errors.append(error)
                    continue
                self.recorder.record({**result.record, "attempts": len(errors) + 1})
                return result
            failed = failure(work.client, work.round, errors)
            self.recorder.failed(failed)
            await within(AGGREGATE_DEADLINE_S, self.aggregator.skip(work.client), "the aggregator to skip a client", AggregationError)
            return failed

    async def attempt(self, work: ClientWork, start: Published) -> ClientResult:
        """One attempt of a client."""
        config = self.config
        result = await train_client(
            work,
            start,
            self.rollouts,
            self.learners,
            Sampling(config.rollout.temperature, 1.0, config.rollout.max_new_tokens),
            optimizer=self.average if config.learner.optimizer_state == "average" else self.optimizers.get(work.client),
            needs_anchor=config.aggregation.prox_mu > 0 or (config.algorithm.kl_coef > 0 and config.algorithm.kl_anchor == "round"),
            log=lambda epoch: self.recorder.episode_log("train", work.client, work.round, epoch),
            on_batch=self.recorder.batch,
            shared=self.shared,
        )
        if self.after_update is not None:
            check, self.after_update = self.after_update, None
            try:
                await check(result.state)
            except SelfTestError:
                raise
            except BaseException:
                # The test was cut short: the next client's update takes it.
                self.after_update = check
                raise
        return result

    async def report(self, result: ClientResult) -> None:
        """Hand a client's update to the aggregator. An update that does not fit is a bug, not a failed client."""
        moments = result.optimizer if self.config.learner.optimizer_state == "average" else None
        add = self.aggregator.add(result.meta, result.delta, moments, result.policy)
        await within(AGGREGATE_DEADLINE_S, add, f"the aggregator to add {result.meta.client}", AggregationError)
        keeps = self.config.learner.optimizer_state == "keep" or clients_keep_critics(self.config.algorithm, self.config.critic)
        if keeps and result.optimizer is not None:
            self.optimizers[result.meta.client] = result.optimizer

    def require_quorum(self, round: int, reported: int, failures: Sequence[ClientFailure], sampled: int) -> None:
        """Raise ``QuorumError`` when fewer than the quorum reported."""
        quorum = self.config.federation.quorum
        if reported < max(1, math.ceil(quorum * sampled - 1e-9)):
            first = failures[0]
            raise QuorumError(
                f"round {round}: {reported} of {sampled} clients reported, federation.quorum = {quorum:g} asks for {quorum * sampled:g}. "
                f"First failure: client {first.client} after {first.attempts} attempts: {first.error}"
            )

    async def publish(self, version: Published, previous: Published) -> None:
        """Make the new version available and forget the one before."""
        await within(
            PUBLISH_DEADLINE_S, self.rollouts.publish(version.name, version.state), "the engines to load the new version", EngineError
        )
        if previous.name != version.name:
            await within(PUBLISH_DEADLINE_S, self.rollouts.drop(previous.name), "the engines to drop the old version", EngineError)

    async def measure(self, version: Published, *, final: bool) -> float:
        """Evaluate sampled, and greedily where asked; seconds spent. ``final`` marks the first and the last evaluation."""
        began = time.monotonic()
        settings = self.config.evaluation
        temperatures = [settings.temperature] + ([0.0] if settings.greedy and final else [])
        for temperature in temperatures:
            self.recorder.phase(f"evaluating on {len(self.heldout)} held-out tasks")
            measured = await self._measure(version.name, version.round, temperature, client=None)
            self.recorder.record(measured.record())
        await self._measure_worlds(version.name, version.round, client=None)
        return time.monotonic() - began

    async def measure_clients(self, results: Sequence[ClientResult], round: int) -> float:
        """Evaluate the clients' own parameters after their last local epoch."""
        began = time.monotonic()
        for result in results:
            name = f"{result.meta.client}-{round}-end-{id(result):x}"
            await within(PUBLISH_DEADLINE_S, self.rollouts.publish(name, result.state), f"the engines to load {name}", EngineError)
            try:
                measured = await self._measure(name, round, self.config.evaluation.temperature, client=result.meta.client)
                self.recorder.record(measured.record())
                await self._measure_worlds(name, round, client=result.meta.client)
            finally:
                await within(PUBLISH_DEADLINE_S, self.rollouts.drop(name), f"the engines to drop {name}", EngineError)
        return time.monotonic() - began

    async def _measure_worlds(self, adapter: str, round: int, client: str | None) -> None:
        """One row of the client-by-world matrix: the same tasks in each of the clients' worlds, sampled."""
        for world in self.worlds:
            self.recorder.phase(f"evaluating in world {world}")
            measured = await self._measure(adapter, round, self.config.evaluation.temperature, client, world)
            self.recorder.record(measured.record())

    async def _measure(self, adapter: str, round: int, temperature: float, client: str | None, world: str = DEFAULT) -> Measurement:
        settings = self.config.evaluation
        sampling = Sampling(temperature, 1.0, self.config.rollout.max_new_tokens)
        who = f"{client or 'global'}" if world == DEFAULT else f"{client or 'global'}-in-{self.worlds.index(world)}"
        log = self.recorder.episode_log("heldout", who, round, 0 if temperature else 1)
        tasks = self.heldout if world == DEFAULT else self.heldout[: settings.world_tasks]
        if client is not None:
            tasks = tasks[: settings.client_tasks]
        work = evaluate(self.rollouts, adapter, round, tasks, sampling, self.config.run.seed, client=client, world=world, log=log)
        return await within(self.config.federation.client_deadline_s, work, f"the evaluation of {adapter}", EngineError)


def round_record(
    version: Published, round: int, clients: Sequence[str], results: Sequence[ClientResult], failures: Sequence[ClientFailure]
) -> dict[str, object]:
    """The deterministic part of a round's record: no times in it."""
    means = Means()
    for result in results:
        counts = ("episodes", "failed_episodes", "tokens", "epochs")
        scalars = {k: v for k, v in result.meta.metrics.items() if not k.endswith("_seconds") and k not in counts}
        means.add(scalars, result.meta.n_episodes)
    return {
        "kind": "round",
        "round": round,
        "version": version.name,
        "clients": list(clients),
        "failed": [{"client": f.client, "error": f.error, "attempts": f.attempts} for f in failures],
        "episodes": sum(r.meta.n_episodes for r in results),
        "failed_episodes": int(sum(r.meta.metrics.get("failed_episodes", 0) for r in results)),
        "tokens": sum(r.meta.n_tokens for r in results),
        **means.means(),
    }
