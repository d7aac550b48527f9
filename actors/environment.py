"""Environment slots: an object that steps many environments in one process, its Ray shell, and the pools that the episode driver talks to.

Owns deadlines, restarts and the isolation of a failing environment. Knows nothing of models, tokens or training.
One process per worker and one thread in it: text games share parser globals within a process.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from envs.base import Task, TextEnv, World, WorldSpec
from pipeline.errors import EnvironmentFailure

if TYPE_CHECKING:
    from ray.rllib.utils.actor_manager import FaultTolerantActorManager

Status = Literal["ok", "failed", "lost"]
"""``failed``: this operation raised, or was part of a call that died or hung. ``lost``: the slot's state went down with a neighbour."""


@dataclass(frozen=True)
class Reset:
    """Start a task in a slot. ``ticket`` comes back with the outcome; ``alone`` keeps the operation out of shared calls."""

    slot: int
    ticket: int
    task: Task
    variant: str
    seed: int
    alone: bool = False


@dataclass(frozen=True)
class Step:
    """Act in a slot."""

    slot: int
    ticket: int
    action: str
    alone: bool = False


Operation = Reset | Step


@dataclass(frozen=True)
class Outcome:
    """What an operation led to. ``error`` is set unless ``status`` is ``ok``."""

    slot: int
    ticket: int
    status: Status = "ok"
    observation: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    admissible: tuple[str, ...] = ()
    score: float = 0.0
    success: bool = False
    error: str = ""


@dataclass
class _Slot:
    env: TextEnv | None = None
    variant: str = ""
    steps: int = 0
    active: bool = False


class EnvironmentWorker:
    """Environments of one world in one process. The world is built once; environments are kept by slot and rebuilt for another variant."""

    def __init__(self, world: WorldSpec | World, slots: int) -> None:
        self._world = world.build() if isinstance(world, WorldSpec) else world
        self._slots = [_Slot() for _ in range(slots)]

    def step_many(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Outcomes in the order of ``operations``. An exception of one slot is an outcome of that slot."""
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> Outcome:
        slot = self._slots[operation.slot]
        if isinstance(operation, Step) and not slot.active:
            return Outcome(operation.slot, operation.ticket, status="lost", error="the slot holds no running episode")
        try:
            if isinstance(operation, Reset):
                return self._reset(slot, operation)
            return self._step(slot, operation)
        except Exception as error:
            # Whatever the environment raised, it may have left itself half-changed: the next episode gets a fresh one.
            slot.env, slot.active = None, False
            return Outcome(operation.slot, operation.ticket, status="failed", error=f"{type(error).__name__}: {error}")

    def _reset(self, slot: _Slot, operation: Reset) -> Outcome:
        if slot.env is None or slot.variant != operation.variant:
            slot.env, slot.variant = self._world.make(operation.variant), operation.variant
        observation, info = slot.env.reset(seed=operation.seed, options={"task": operation.task})
        slot.steps, slot.active = 0, True
        return Outcome(operation.slot, operation.ticket, observation=observation, admissible=tuple(info.get("admissible", ())))

    def _step(self, slot: _Slot, operation: Step) -> Outcome:
        assert slot.env is not None
        observation, reward, terminated, truncated, info = slot.env.step(operation.action)
        slot.steps += 1
        truncated = not terminated and (truncated or slot.steps >= self._world.max_steps)
        if terminated or truncated:
            slot.active = False
        return Outcome(
            operation.slot,
            operation.ticket,
            observation=observation,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            admissible=tuple(info.get("admissible", ())),
            score=float(info.get("score", 0.0)),
            success=bool(info.get("success", False)),
        )


class Pool(Protocol):
    """Slots in some number of processes. Outcomes carry the ticket of their operation and come in any order."""

    slots: int

    @property
    def pending(self) -> int:
        """Operations submitted whose outcomes have not been polled."""
        ...

    def submit(self, operations: Sequence[Operation]) -> None:
        """Queue operations; at most one per slot may be outstanding."""
        ...

    def poll(self, timeout: float) -> list[Outcome]:
        """Outcomes that are ready; waits up to ``timeout`` seconds for the first."""
        ...

    def close(self) -> None:
        """End the pool's processes."""
        ...


class LocalPool:
    """A pool in this process: no deadline, no isolation. For tests and for debugging a world."""

    def __init__(self, world: WorldSpec | World, slots: int) -> None:
        self.slots = slots
        self._worker = EnvironmentWorker(world, slots)
        self._queue: list[Operation] = []

    @property
    def pending(self) -> int:
        """Operations queued."""
        return len(self._queue)

    def submit(self, operations: Sequence[Operation]) -> None:
        """Queue operations until the next poll."""
        self._queue.extend(operations)

    def poll(self, timeout: float) -> list[Outcome]:
        """Carry out what is queued."""
        operations, self._queue = self._queue, []
        return self._worker.step_many(operations)

    def close(self) -> None:
        """Nothing to end."""


@dataclass
class _Call:
    operations: list[Operation]
    started: float
    tag: str


@dataclass
class _WorkerQueue:
    shared: list[Operation] = field(default_factory=list)
    alone: deque[Operation] = field(default_factory=deque)
    call: _Call | None = None
    last_alone: bool = False
    healthy: bool = True


class EnvironmentPool:
    """Worker actors behind RLlib's ``FaultTolerantActorManager``: one batched call in flight per worker, with a deadline.

    A worker that dies or hangs is restarted by Ray; the operations of its call come back ``failed`` and the running episodes of its other
    slots come back ``lost`` at their next step. An operation marked ``alone`` gets its own call, so a task that always hangs is found out
    without costing its neighbours more than a restart.
    """

    def __init__(
        self,
        actors: Sequence[Any],
        slots_per_worker: int,
        deadline_s: float,
        *,
        start_timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from ray.rllib.utils.actor_manager import FaultTolerantActorManager

        self._actors = list(actors)
        self._per_worker = slots_per_worker
        self._deadline, self._start_timeout, self._clock = deadline_s, start_timeout_s, clock
        self._manager: FaultTolerantActorManager = FaultTolerantActorManager(self._actors, max_remote_requests_in_flight_per_actor=1)
        self._queues = [_WorkerQueue() for _ in self._actors]
        self._ready: list[Outcome] = []
        # Workers count as down until they answer: loading a world is not measured against the deadline of a step.
        self._down: dict[int, float | None] = {}
        self._pings: dict[int, Any] = {}
        self._started: set[int] = set()
        self._calls = 0
        for worker in range(len(self._actors)):
            self._mark_down(worker)
        self.slots = slots_per_worker * len(self._actors)
        self.restarts = 0

    @property
    def pending(self) -> int:
        """Operations queued, in flight, or done and not polled."""
        queued = sum(len(q.shared) + len(q.alone) + (len(q.call.operations) if q.call else 0) for q in self._queues)
        return queued + len(self._ready)

    def submit(self, operations: Sequence[Operation]) -> None:
        """Queue operations and send what can be sent."""
        for operation in operations:
            queue = self._queues[operation.slot // self._per_worker]
            (queue.alone if operation.alone else queue.shared).append(operation)
        self._send()

    def poll(self, timeout: float) -> list[Outcome]:
        """Collect ready outcomes, restart what died or passed its deadline, send what waits.

        Raises ``EnvironmentFailure`` when a worker cannot build its world, or does not within the start timeout.
        """
        until = self._clock() + timeout
        while True:
            wait = 0.0 if self._ready else max(0.0, min(until - self._clock(), 0.05))
            self._collect(wait)
            self._enforce_deadlines()
            self._revive()
            self._send()
            if self._ready or self._clock() >= until:
                ready, self._ready = self._ready, []
                return ready

    def close(self) -> None:
        """Kill the workers of this pool."""
        import ray

        for actor in self._actors:
            ray.kill(actor)

    def _send(self) -> None:
        for worker, queue in enumerate(self._queues):
            if queue.call is not None or not queue.healthy:
                continue
            # Turn and turn about, so that neither kind starves the other.
            if queue.alone and not (queue.shared and queue.last_alone):
                operations, queue.last_alone = [queue.alone.popleft()], True
            elif queue.shared:
                operations, queue.shared, queue.last_alone = queue.shared, [], False
            else:
                continue
            local = [_on_worker(operation, self._per_worker) for operation in operations]
            self._calls += 1
            tag = str(self._calls)
            if self._manager.foreach_actor_async("step_many", tag, kwargs={"operations": local}, remote_actor_ids=[worker]):
                queue.call = _Call(operations, self._clock(), tag)
            else:
                self._fail(worker, operations, "the actor is down")

    def _collect(self, wait: float) -> None:
        if all(queue.call is None for queue in self._queues):
            if wait:
                time.sleep(min(wait, 0.01))
            return
        for result in self._manager.fetch_ready_async_reqs(timeout_seconds=wait):
            queue = self._queues[result.actor_id]
            call = queue.call
            if call is None or call.tag != result.tag:
                # The last word of a call whose deadline passed before; its operations have been answered for.
                continue
            queue.call = None
            if result.ok:
                self._ready.extend(_from_worker(o, op) for o, op in zip(result.get(), call.operations, strict=True))
            else:
                self._fail(result.actor_id, call.operations, _first_line(result.get()))

    def _fail(self, worker: int, operations: Sequence[Operation], error: str) -> None:
        self._ready.extend(Outcome(o.slot, o.ticket, status="failed", error=f"environment worker {worker}: {error}") for o in operations)
        self._mark_down(worker)

    def _mark_down(self, worker: int) -> None:
        self._queues[worker].healthy = False
        # The clock of the restart runs from the first ping: nobody may be polling now.
        self._down.setdefault(worker, None)
        self._manager.set_actor_state(worker, healthy=False)

    def _enforce_deadlines(self) -> None:
        import ray

        for worker, queue in enumerate(self._queues):
            if queue.call is not None and self._clock() - queue.call.started > self._deadline:
                call, queue.call = queue.call, None
                ray.kill(self._actors[worker], no_restart=False)
                self._fail(worker, call.operations, f"no answer within {self._deadline:g} s to {len(call.operations)} operations")

    def _revive(self) -> None:
        # Not the manager's own probe: that one waits for its ping, and the engine's next step with it.
        for worker, since in list(self._down.items()):
            if self._answers(worker):
                del self._down[worker]
                self._manager.set_actor_state(worker, healthy=True)
                self._queues[worker].healthy = True
                self.restarts += worker in self._started
                self._started.add(worker)
            elif since is None:
                self._down[worker] = self._clock()
            elif self._clock() - since > self._start_timeout:
                raise EnvironmentFailure(
                    f"environment worker {worker} did not load its world within {self._start_timeout:g} s; "
                    "look at its log in Ray's session folder, or raise resources.start_timeout_s"
                )

    def _answers(self, worker: int) -> bool:
        import ray

        if worker not in self._pings:
            self._pings[worker] = self._actors[worker].ping.remote()
        ready, _ = ray.wait([self._pings[worker]], timeout=0)
        if not ready:
            return False
        try:
            ray.get(self._pings.pop(worker))
        except ray.exceptions.RayActorError as error:
            if "creation task" in str(error):
                raise EnvironmentFailure(
                    f"environment worker {worker} cannot build its world: {str(error).strip().splitlines()[-1]}"
                ) from error
            return False
        return True


def _on_worker(operation: Operation, per_worker: int) -> Operation:
    slot = operation.slot % per_worker
    if isinstance(operation, Reset):
        return Reset(slot, operation.ticket, operation.task, operation.variant, operation.seed)
    return Step(slot, operation.ticket, operation.action)


def _from_worker(outcome: Outcome, operation: Operation) -> Outcome:
    return replace(outcome, slot=operation.slot)


def _first_line(error: object) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


class EnvironmentActor:
    """Ray shell of ``EnvironmentWorker`` in the form that ``FaultTolerantActorManager`` expects. Made an actor by ``start_workers``."""

    def __init__(self, world: WorldSpec, slots: int) -> None:
        self._worker = EnvironmentWorker(world, slots)

    def ping(self) -> str:
        """Answer that the world is loaded."""
        return "pong"

    def step_many(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Forward to the worker."""
        return self._worker.step_many(operations)

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call ``func`` on this object; how the actor manager calls everything."""
        return func(self, *args, **kwargs)


def start_workers(world: WorldSpec, workers: int, slots: int, *, cpus: float, **options: Any) -> list[Any]:
    """Start ``workers`` actors with ``slots`` environments each. ``options`` go to Ray (scheduling strategy, runtime environment)."""
    import ray

    remote = ray.remote(EnvironmentActor).options(num_cpus=cpus, max_restarts=-1, max_task_retries=0, **options)
    return [remote.remote(world, slots) for _ in range(workers)]
