"""The episode driver: many episodes of many jobs over one engine and one pool of environments, event-driven, never in lock step.

A finished generation goes to its environment slot, and the next observation goes back to the engine at once. ``EpisodeLoop`` is the
state machine, advanced by hand; ``EpisodeDriver`` runs it in a thread. Knows nothing of vLLM, Ray or training.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import TypeVar

from actors.engines.base import Engine, Generation
from actors.environment import Operation, Outcome, Pool, Reset, Step
from actors.prompting import Prompter
from envs.prompts import ParsedAction
from pipeline.episodes import Episode, EpisodeSpec, Sampling, Stop, Turn
from pipeline.errors import EngineError, FedAgentError

T = TypeVar("T")


def turn_seed(episode_seed: int, turn: int) -> int:
    """Seed of the sampler for one turn: a 62-bit hash of the episode's seed and the turn's index."""
    digest = hashlib.sha256(f"{episode_seed}:{turn}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 2


@dataclass(eq=False)
class Job:
    """Episodes to run with one adapter. ``deadline`` is on the loop's clock; ``future`` receives the episodes in the order of ``specs``."""

    specs: Sequence[EpisodeSpec]
    adapter: str
    sampling: Sampling
    deadline: float | None = None
    future: Future[list[Episode]] = field(default_factory=Future)
    results: dict[int, Episode] = field(default_factory=dict)
    started: int = 0


@dataclass(eq=False)
class _Running:
    job: Job
    index: int
    slot: int
    retries: int = 0
    alone: bool = False
    turns: list[Turn] = field(default_factory=list)
    observations: list[str] = field(default_factory=list)
    prompt_ids: list[int] = field(default_factory=list)
    answer: tuple[Generation, ParsedAction] | None = None

    @property
    def spec(self) -> EpisodeSpec:
        return self.job.specs[self.index]


class EpisodeLoop:
    """Runs jobs; ``advance`` does one round of whatever is possible. Not thread-safe.

    Jobs are served first come, first served, so that the first client's rows can be trained on while the engine works for the others.
    Results depend on seeds and weights, not on the order in which environments answer.
    """

    def __init__(
        self, engine: Engine, pool: Pool, prompter: Prompter, *, env_retries: int = 2, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine, self._pool, self._prompter = engine, pool, prompter
        self._env_retries, self.clock = env_retries, clock
        # Twice the engine's capacity: while one half generates, the other half may be in its environments.
        self._free = list(range(min(pool.slots, 2 * engine.capacity)))[::-1]
        self._jobs: deque[Job] = deque()
        self._at_env: dict[int, _Running] = {}
        self._at_engine: dict[str, _Running] = {}
        self._operations: list[Operation] = []
        self._active: Counter[str] = Counter()
        self._tickets = 0
        self.lost = 0

    @property
    def busy(self) -> bool:
        """Whether any job is unfinished, or anything of a finished job is still on its way back."""
        return bool(self._jobs or self._at_env or self._at_engine)

    @property
    def running(self) -> int:
        """Episodes in flight."""
        return len(self._at_env) + len(self._at_engine)

    def submit(self, job: Job) -> Future[list[Episode]]:
        """Queue a job."""
        if job.specs:
            self._jobs.append(job)
        else:
            job.future.set_result([])
        return job.future

    def advance(self, timeout: float = 0.05) -> None:
        """Start episodes, collect environment outcomes, let the engine work once. Waits up to ``timeout`` s if nothing else can be done.

        Raises what the engine or the pool raises when either is beyond repair; call ``fail`` then.
        """
        self._expire()
        self._start()
        self._flush()
        for outcome in self._pool.poll(0.0 if self._engine.pending else timeout):
            running = self._at_env.pop(outcome.ticket, None)
            if running is not None:
                self._on_outcome(running, outcome)
        self._start()
        self._flush()
        if self._engine.pending:
            for generation in self._engine.step():
                waiting = self._at_engine.pop(generation.request_id, None)
                if waiting is not None:
                    self._on_generation(waiting, generation)
            self._flush()

    def fail(self, error: BaseException) -> None:
        """End every job with ``error``."""
        for job in list(self._jobs):
            self._end(job, error)
        self._at_env.clear()
        self._at_engine.clear()

    def _start(self) -> None:
        for job in list(self._jobs):
            while self._free and job.started < len(job.specs) and self._admits(job):
                running = _Running(job, job.started, self._free.pop())
                job.started += 1
                self._active[job.adapter] += 1
                self._reset(running)

    def _admits(self, job: Job) -> bool:
        """Whether an episode of ``job`` may start: an engine must not be asked to juggle more adapters than a batch can hold."""
        return job.adapter in self._active or len(self._active) < self._engine.adapters_at_once

    def _release(self, running: _Running) -> None:
        self._free.append(running.slot)
        self._active[running.job.adapter] -= 1
        if not self._active[running.job.adapter]:
            del self._active[running.job.adapter]

    def _reset(self, running: _Running) -> None:
        running.turns, running.observations, running.answer = [], [], None
        spec = running.spec
        ticket = self._ticket(running)
        self._operations.append(Reset(running.slot, ticket, spec.task, spec.variant, spec.seed, running.alone))

    def _ticket(self, running: _Running) -> int:
        self._tickets += 1
        self._at_env[self._tickets] = running
        return self._tickets

    def _flush(self) -> None:
        if self._operations:
            operations, self._operations = self._operations, []
            self._pool.submit(operations)

    def _on_outcome(self, running: _Running, outcome: Outcome) -> None:
        if running.job.future.done():
            self._release(running)
            return
        if outcome.status != "ok":
            self._retry(running, outcome)
            return
        running.observations.append(outcome.observation)
        if running.answer is not None:
            generation, parsed = running.answer
            running.turns.append(
                Turn(tuple(running.prompt_ids), generation.token_ids, generation.logprobs, parsed.action, parsed.valid, outcome.reward)
            )
            running.answer = None
        if outcome.terminated or outcome.truncated:
            self._finish(running, "done" if outcome.terminated else "steps", outcome.score, outcome.success)
            return
        self._ask(running, outcome)

    def _ask(self, running: _Running, outcome: Outcome) -> None:
        spec, sampling = running.spec, running.job.sampling
        history = [(seen, turn.action) for seen, turn in zip(running.observations, running.turns, strict=False)]
        running.prompt_ids = self._prompter.encode(spec.task.instruction, history, outcome.observation, outcome.admissible)
        if len(running.prompt_ids) + sampling.max_new_tokens > self._engine.max_context:
            self._finish(running, "length", outcome.score, False)
            return
        self._tickets += 1
        request = str(self._tickets)
        try:
            seed = turn_seed(spec.seed, len(running.turns))
            self._engine.add(request, running.prompt_ids, sampling, running.job.adapter, seed)
        except EngineError as error:
            self._release(running)
            self._end(running.job, error)
            return
        self._at_engine[request] = running

    def _on_generation(self, running: _Running, generation: Generation) -> None:
        if running.job.future.done():
            self._release(running)
            return
        parsed = self._prompter.decode(generation.token_ids)
        running.answer = (generation, parsed)
        self._operations.append(Step(running.slot, self._ticket(running), parsed.action, running.alone))

    def _retry(self, running: _Running, outcome: Outcome) -> None:
        if outcome.status == "lost":
            # The slot's worker went down under a neighbour's operation: not this episode's fault, so it costs no attempt.
            self.lost += 1
            self._reset(running)
            return
        if running.retries >= self._env_retries:
            running.turns, running.observations = [], [outcome.error]
            self._finish(running, "failed", 0.0, False)
            return
        running.retries += 1
        running.alone = True
        self._reset(running)

    def _finish(self, running: _Running, stop: Stop, score: float, success: bool) -> None:
        self._release(running)
        job, spec = running.job, running.spec
        job.results[running.index] = Episode(
            task_id=spec.task.id,
            client=spec.client,
            variant=spec.variant,
            adapter=job.adapter,
            turns=tuple(running.turns),
            ret=sum(turn.reward for turn in running.turns),
            score=score,
            success=success,
            stop=stop,
            group=spec.group,
            seed=spec.seed,
            retries=running.retries,
            observations=tuple(running.observations),
        )
        if len(job.results) == len(job.specs):
            self._jobs.remove(job)
            _settle(job.future, [job.results[i] for i in range(len(job.specs))])

    def _end(self, job: Job, error: BaseException) -> None:
        """Give up a job. Its episodes in flight are dropped as they come back."""
        if job in self._jobs:
            self._jobs.remove(job)
        _settle(job.future, error)

    def _expire(self) -> None:
        for job in list(self._jobs):
            if job.future.cancelled():
                # Nobody waits for it any more; its episodes in flight are dropped as they come back.
                self._jobs.remove(job)
            elif job.deadline is not None and self.clock() > job.deadline:
                done, total = len(job.results), len(job.specs)
                self._end(
                    job, EngineError(f"rollout passed its deadline with {done} of {total} episodes finished (adapter {job.adapter!r})")
                )


def _settle(future: Future[list[Episode]], outcome: list[Episode] | BaseException) -> None:
    """Give a future its outcome, unless another thread has cancelled it."""
    if future.done():
        return
    with contextlib.suppress(InvalidStateError):
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class EpisodeDriver:
    """An ``EpisodeLoop`` in a thread of its own. The engine is built in that thread and touched by no other."""

    def __init__(
        self,
        make_engine: Callable[[], Engine],
        pool: Pool,
        prompter: Prompter,
        *,
        env_retries: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_engine, self._pool, self._prompter = make_engine, pool, prompter
        self._env_retries, self._clock = env_retries, clock
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._broken: BaseException | None = None
        self.ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._main, name="episode-driver", daemon=True)
        self._thread.start()

    def submit(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, deadline_s: float | None = None
    ) -> Future[list[Episode]]:
        """Run episodes; the future yields them in the order of ``specs``, or ``EngineError``."""
        deadline = None if deadline_s is None else self._clock() + deadline_s
        job = Job(specs, adapter, sampling, deadline)

        def start() -> None:
            if self._broken is not None:
                _settle(job.future, self._refusal())
            else:
                self._loop.submit(job)

        self._inbox.put(start)
        return job.future

    def call(self, action: Callable[[Engine], T]) -> Future[T]:
        """Run ``action`` on the engine between two steps."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if self._broken is not None:
                future.set_exception(self._refusal())
                return
            try:
                future.set_result(action(self._engine))
            except BaseException as error:
                future.set_exception(error)

        self._inbox.put(run)
        return future

    @property
    def healthy(self) -> bool:
        """Whether the engine can still be used."""
        return self._broken is None

    @property
    def running(self) -> int:
        """Episodes in flight."""
        return self._loop.running if self.ready.done() and self._broken is None else 0

    def close(self) -> None:
        """Stop the thread, then the engine and the pool. Unfinished jobs end with ``EngineError``."""
        self._inbox.put(None)
        self._thread.join(timeout=60)

    def _refusal(self) -> EngineError:
        # A foreign message may quote a prompt: only its kind goes further.
        cause = f": {self._broken}" if isinstance(self._broken, FedAgentError) else ""
        return EngineError(f"the rollout engine stopped earlier ({type(self._broken).__name__}{cause}); restart the rollout actor")

    def _main(self) -> None:
        try:
            self._engine = self._make_engine()
            self._loop = EpisodeLoop(self._engine, self._pool, self._prompter, env_retries=self._env_retries, clock=self._clock)
        except BaseException as error:
            self._broken = error
            self.ready.set_exception(error)
        else:
            self.ready.set_result(None)
        while self._read_inbox():
            if self._broken is None and self._loop.busy:
                try:
                    self._loop.advance()
                except BaseException as error:
                    self._broken = error
                    self._loop.fail(error)
        if self._broken is None:
            self._loop.fail(EngineError("the rollout driver was closed"))
            self._engine.close()
        self._pool.close()

    def _read_inbox(self) -> bool:
        """Carry out what other threads asked for; waits when there is nothing else to do. False when asked to stop."""
        idle = self._broken is not None or not self._loop.busy
        while True:
            try:
                item = self._inbox.get(block=idle)
            except queue.Empty:
                return True
            if item is None:
                return False
            item()
            idle = False
