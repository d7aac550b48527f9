"""Learner groups: W Ray actors that train one client at a time, data-parallel, behind one handle.

Owns actors, their rendezvous and their recovery. What an update is belongs to ``actors.learning``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from pipeline.episodes import Episode, FloatArray, State
from pipeline.errors import FedAgentError, LearnerError

if TYPE_CHECKING:
    from actors.learning import LearnerSettings, UpdateReport, UpdateRequest
    from pipeline.moments import Moments


class LearnerActor:
    """One worker of a group, in its own process. A shell over ``actors.learning.LearnerWorker``."""

    def __init__(self, settings: LearnerSettings, rank: int, world_size: int) -> None:
        self._settings, self._rank, self._world_size = settings, rank, world_size
        self._store: Any = None
        self._worker: Any = None

    def open(self, timeout_s: float) -> tuple[str, int]:
        """Rank 0: bind a free port for the group's rendezvous and say where it is. The port is bound here, so nobody can take it."""
        from datetime import timedelta

        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, self._world_size, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s))
        return host, int(self._store.port)

    def start(self, address: tuple[str, int] | None, timeout_s: float) -> int:
        """Join the group and load the model. Returns the number of trained parameters."""
        from datetime import timedelta

        import torch
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        timeout = timedelta(seconds=timeout_s)
        if self._world_size > 1:
            assert address is not None
            host, port = address
            os.environ.update({"MASTER_ADDR": host, "MASTER_PORT": str(port)})
            store = self._store or TCPStore(host, port, self._world_size, is_master=False, timeout=timeout)
            backend = "nccl" if self._settings.gpu else "gloo"
            torch.distributed.init_process_group(backend, store=store, rank=self._rank, world_size=self._world_size, timeout=timeout)
        from actors.learning import LearnerWorker

        self._worker = LearnerWorker(self._settings, rank=self._rank, world_size=self._world_size)
        return sum(p.numel() for p in self._worker.policy.parameters() if p.requires_grad)

    def update(
        self, request: UpdateRequest, start: State, episodes: Sequence[Episode], optimizer: Moments | None, anchor: State | None
    ) -> tuple[dict[str, FloatArray] | None, Moments | None, UpdateReport | None]:
        """See ``LearnerWorker.update``. Only rank 0 returns something."""
        result = self._worker.update(request, start, episodes, optimizer, anchor)
        return (result.state, result.optimizer, result.report) if self._rank == 0 else (None, None, None)

    def score(self, state: State, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[list[float]]:
        """See ``LearnerWorker.score``."""
        scores: list[list[float]] = self._worker.score(state, prompts, responses)
        return scores

    def distributions(
        self, state: State, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]
    ) -> tuple[FloatArray | None, None]:
        """See ``LearnerWorker.distributions``. Only rank 0 returns something; the second value only says that it is done."""
        found = self._worker.distributions(state, prompts, responses)
        return (found if self._rank == 0 else None), None

    def difference(self, before: State, after: State) -> tuple[dict[str, FloatArray], None]:
        """See ``actors.learning.difference``. The second value only says that it is done."""
        from actors.learning import difference

        return difference(before, after), None


@dataclass(frozen=True)
class UpdateRefs:
    """Handles to a client's new parameters and optimizer moments (None unless they are kept), and the report itself."""

    state: ray.ObjectRef[Any]
    optimizer: ray.ObjectRef[Any] | None
    report: UpdateReport


class LearnerGroup:
    """W learner actors that act as one. Calls must not overlap: a pool leases a group to one client at a time.

    ``start``, ``episodes``, ``optimizer`` and ``anchor`` may be object references: the caller need not hold the values.
    After a call that failed, passed its deadline or was cancelled the actors are replaced at the next call: workers may be
    waiting for each other, and DeepSpeed may hold half-accumulated gradients.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        *,
        index: int = 0,
        cpus: float = 0.5,
        gpus: float = 0.0,
        placement_group: Any = None,
        bundles: Sequence[int] | None = None,
        start_timeout_s: float = 600.0,
        timeout_s: float = 3600.0,
    ) -> None:
        self._settings, self.index = settings, index
        self.workers = settings.learner.workers
        self._cpus, self._gpus = cpus, gpus
        self._placement_group, self._bundles = placement_group, bundles
        self._start_timeout_s, self._timeout_s = start_timeout_s, timeout_s
        self._actors: list[Any] = []
        self._broken = False
        self._restarting: asyncio.Future[None] | None = None
        self.trained_parameters = 0

    def start(self) -> None:
        """Create the actors and load the model in each. Raises ``LearnerError`` when that takes too long or fails."""
        deadline = time.monotonic() + self._start_timeout_s
        self._create()
        try:
            address = (
                self._get([self._actors[0].open.remote(self._start_timeout_s)], deadline, "bind a port")[0] if self.workers > 1 else None
            )
            self.trained_parameters = self._get(self._starting(address), deadline, "load the model")[0]
        except BaseException:
            self.stop()
            raise

    async def restart(self) -> None:
        """Replace the actors, without blocking the event loop. A caller that is cut short leaves the restart running for the next one."""
        if self._restarting is None or self._restarting.done():
            self.stop()
            self._restarting = asyncio.ensure_future(asyncio.to_thread(self.start))
        await asyncio.shield(self._restarting)

    def stop(self) -> None:
        """Kill the actors."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors, self._broken = [], False

    async def update(self, request: UpdateRequest, start: Any, episodes: Any, optimizer: Any = None, anchor: Any = None) -> UpdateRefs:
        """Train a client. Raises ``LearnerError`` that names the client, whatever happened to the actors."""
        await self._ensure()
        parts = [a.update.options(num_returns=3).remote(request, start, episodes, optimizer, anchor) for a in self._actors]
        reports = await self._all([p[2] for p in parts], f"{request}")
        state, moments, _ = parts[0]
        return UpdateRefs(state, moments if self._settings.clients_keep else None, reports[0])

    async def score(self, state: Any, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of given responses under ``state`` at temperature 1, to compare with an engine's."""
        await self._ensure()
        results = await self._all([a.score.remote(state, prompts, responses) for a in self._actors], "scoring")
        scores: list[list[float]] = results[0]
        return scores

    async def distributions(self, state: Any, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Any:
        """A reference to the log-probabilities of the whole vocabulary under ``state`` at every token of given responses."""
        await self._ensure()
        parts = [a.distributions.options(num_returns=2).remote(state, prompts, responses) for a in self._actors]
        await self._all([done for _, done in parts], "looking at a policy")
        return parts[0][0]

    async def difference(self, before: Any, after: Any) -> Any:
        """A reference to ``after - before``, worked out by rank 0 so that the values need not travel."""
        await self._ensure()
        delta, done = self._actors[0].difference.options(num_returns=2).remote(before, after)
        await self._all([done], "taking a difference")
        return delta

    def _create(self) -> None:
        options: dict[str, Any] = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_restarts": 0}
        actor = ray.remote(LearnerActor)
        self._actors = []
        for rank in range(self.workers):
            placed = dict(options)
            if self._placement_group is not None:
                from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

                bundle = self._bundles[rank] if self._bundles is not None else -1
                placed["scheduling_strategy"] = PlacementGroupSchedulingStrategy(self._placement_group, placement_group_bundle_index=bundle)
            self._actors.append(actor.options(**placed).remote(self._settings, rank, self.workers))

    def _starting(self, address: tuple[str, int] | None) -> list[Any]:
        return [a.start.remote(address, self._start_timeout_s) for a in self._actors]

    def _get(self, refs: list[Any], deadline: float, what: str) -> list[Any]:
        """Results of all refs; the first failure is raised at once, since the others would wait for a dead worker."""
        pending = list(refs)
        while pending:
            left = deadline - time.monotonic()
            ready, pending = ray.wait(pending, timeout=max(0.0, left))
            if not ready:
                raise LearnerError(
                    f"learner group {self.index}: waited {self._start_timeout_s:g} s for {len(pending)} of {self.workers} workers "
                    f"to {what}; raise resources.start_timeout_s or ask for fewer resources"
                )
            try:
                ray.get(ready)
            except RayError as error:
                raise self._error(error, f"while its workers were to {what}") from error
        return list(ray.get(refs))

    async def _ensure(self) -> None:
        if self._broken or not self._actors or (self._restarting is not None and not self._restarting.done()):
            await self.restart()

    async def _all(self, refs: list[Any], who: str) -> list[Any]:
        tasks = [asyncio.ensure_future(_awaited(ref)) for ref in refs]
        healthy = False
        try:
            done, pending = await asyncio.wait(tasks, timeout=self._timeout_s, return_when=asyncio.FIRST_EXCEPTION)
            failed = [error for task in done if (error := task.exception()) is not None]
            if failed:
                # Workers whose peer failed complain of lost connections: the peer's own error says more.
                error = min(failed, key=lambda e: (not isinstance(e, FedAgentError), not isinstance(e, RayActorError)))
                raise self._error(error, f"at {who}") from error
            if pending:
                raise LearnerError(
                    f"learner group {self.index}: waited {self._timeout_s:g} s for {len(pending)} of {len(refs)} workers at {who}"
                )
            healthy = True
            return [task.result() for task in tasks]
        finally:
            self._broken = self._broken or not healthy
            for task in tasks:
                task.cancel()

    def _error(self, error: BaseException, where: str) -> BaseException:
        if isinstance(error, RayActorError):
            return LearnerError(f"learner group {self.index}: a worker died {where}: {str(error).strip().splitlines()[0]}")
        shown = (getattr(error, "cause", None) if isinstance(error, RayTaskError) else None) or error
        if isinstance(shown, FedAgentError):
            return shown
        # Not its text: a foreign message may quote an episode. The traceback, which stays on the client's side, has it.
        return LearnerError(f"learner group {self.index} failed {where}: {type(shown).__name__}")


async def _awaited(ref: Awaitable[Any]) -> Any:
    return await ref
