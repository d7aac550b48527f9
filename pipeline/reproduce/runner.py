"""Many trials on few workers: who does what next, what happens when one fails or takes too long, and when it will be over.

Owns the queue, retries and deadlines. Knows a pool of workers by four calls, so that it runs the same on Ray processes and in a test.
Nothing waits without a deadline; a trial that fails twice is recorded, and the others go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipeline.reproduce.store import Outcome, Store
from pipeline.reproduce.trials import Trial

ATTEMPTS = 2
"""Times that a trial is tried."""
TICK_S = 1.0
LEAST_DEADLINE_S = 900.0
PATIENCE = 12.0
"""A trial may take so many times what it should, and ``LEAST_DEADLINE_S`` at least, before its worker is replaced."""
MOST_DEATHS = 6
"""Workers that may die one after the other without a trial coming to its end: then something is wrong with the machine."""


@dataclass(frozen=True)
class Report:
    """What a worker says of the trial it was given: ``error`` is empty when it is done; ``died`` when the worker itself is gone."""

    worker: int
    error: str = ""
    died: bool = False


class Pool(Protocol):
    """Workers 0 to ``size`` - 1, each with one trial at a time."""

    size: int

    def submit(self, worker: int, trial: Trial) -> None:
        """Give a trial to an idle worker; one that died is started anew."""

    def wait(self, seconds: float) -> Sequence[Report]:
        """Reports of workers that have finished, after ``seconds`` at most."""

    def end(self, worker: int) -> None:
        """End a worker at once."""


class Display(Protocol):
    """Where progress is shown."""

    def update(self, state: State) -> None:
        """Show where things stand."""

    def say(self, text: str) -> None:
        """A line that stays."""


@dataclass
class Running:
    """A trial on a worker."""

    trial: Trial
    worker: int
    began: float
    deadline: float


@dataclass
class State:
    """Where a reproduction stands. ``began`` and ``now`` are of the same clock, ``left`` is in seconds."""

    total: int
    done: int = 0
    failed: int = 0
    running: list[Running] = field(default_factory=list)
    waiting: list[Trial] = field(default_factory=list)
    began: float = 0.0
    now: float = 0.0
    left: float = 0.0


class Forecast:
    """How long trials take: what they should, times what finished ones of their kind took against that."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, str], list[float]] = {}

    def learn(self, trial: Trial, seconds: float) -> None:
        """A trial took so long."""
        if seconds > 0:
            total = self._took.setdefault((trial.arm.world, trial.arm.algorithm), [0.0, 0.0])
            total[0] += seconds
            total[1] += trial.estimate

    def seconds(self, trial: Trial) -> float:
        """Wall seconds of a worker that a trial should take."""
        own = self._took.get((trial.arm.world, trial.arm.algorithm))
        totals = [own] if own else list(self._took.values())
        took, thought = sum(t for t, _ in totals), sum(e for _, e in totals)
        return trial.estimate * (took / thought if thought else 1.0)

    def rest(self, trial: Trial, had: float, done: float) -> float:
        """Seconds that a running trial still needs, after ``had`` seconds and with a share of ``done`` in [0, 1] of its rounds."""
        return had * (1 - done) / done if done > 0 else max(self.seconds(trial) - had, 0.1 * self.seconds(trial))

    def left(self, waiting: Sequence[Trial], rest: Sequence[float], workers: int) -> float:
        """Seconds until all is done; ``rest`` are those of the trials that run."""
        alone = max([*rest, *(self.seconds(trial) for trial in waiting)], default=0.0)
        return max(alone, (sum(rest) + sum(self.seconds(trial) for trial in waiting)) / max(1, workers))


def run_trials(
    trials: Sequence[Trial],
    store: Store,
    pool: Pool,
    display: Display,
    *,
    finished: Callable[[Trial], None] = lambda trial: None,
    clock: Callable[[], float] = time.monotonic,
) -> State:
    """Do what is not done yet, in order. Failed trials of an earlier session are tried again. Returns how it ended.

    ``finished`` is called after every trial that came to an end.
    """
    forecast, state = Forecast(), State(len(trials), began=clock())
    queue: deque[Trial] = deque()
    for trial in trials:
        outcome = store.outcome(trial)
        if outcome is not None and outcome.done:
            state.done += 1
            forecast.learn(trial, float(outcome.numbers.get("wall_seconds") or 0.0))
        else:
            queue.append(trial)
    tries: dict[str, int] = {}
    errors: dict[str, str] = {}
    running: dict[int, Running] = {}
    deaths = 0

    def rest(slot: Running) -> float:
        underway = store.underway(slot.trial)
        done = underway.round / underway.rounds if underway.rounds else 0.0
        return forecast.rest(slot.trial, state.now - slot.began, done)

    def show() -> None:
        state.now, state.running, state.waiting = clock(), list(running.values()), list(queue)
        state.left = forecast.left(queue, [rest(slot) for slot in running.values()], pool.size)
        display.update(state)

    def settle(slot: Running, error: str) -> None:
        trial = slot.trial
        if not error:
            state.done += 1
            outcome = store.outcome(trial)
            took = float(outcome.numbers.get("wall_seconds") or 0.0) if outcome is not None else clock() - slot.began
            forecast.learn(trial, took)
        elif tries[trial.id] < ATTEMPTS:
            display.say(f"{trial.arm.name}, seed {trial.seed}: {error}; trying again")
            errors[trial.id] = error
            queue.appendleft(trial)
            return
        else:
            state.failed += 1
            first = errors.get(trial.id, error)
            told = error if first == error else f"{error} (before: {first})"
            display.say(f"{trial.arm.name}, seed {trial.seed}: failed: {told}")
            store.save(trial, Outcome(False, {}, told, tries[trial.id]))
        finished(trial)

    while queue or running:
        for worker in range(pool.size):
            if queue and worker not in running:
                trial = queue.popleft()
                tries[trial.id] = tries.get(trial.id, 0) + 1
                patience = max(LEAST_DEADLINE_S, PATIENCE * forecast.seconds(trial))
                running[worker] = Running(trial, worker, clock(), clock() + patience)
                pool.submit(worker, trial)
        show()
        for report in pool.wait(TICK_S):
            if (slot := running.pop(report.worker, None)) is not None:
                deaths = deaths + 1 if report.died else 0
                settle(slot, report.error)
        for slot in [slot for slot in running.values() if clock() > slot.deadline]:
            pool.end(slot.worker)
            del running[slot.worker]
            settle(slot, f"passed its deadline of {slot.deadline - slot.began:.0f} s")
        if deaths > MOST_DEATHS:
            display.say(f"{deaths} workers died one after the other: stopping; is there memory left?")
            for slot in running.values():
                pool.end(slot.worker)
            running.clear()
            break
    show()
    return state
