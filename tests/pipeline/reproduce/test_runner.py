"""The queue: order, retries, deadlines, dead workers; and that nothing finished is done again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pipeline.reproduce.arms import tale
from pipeline.reproduce.runner import ATTEMPTS, LEAST_DEADLINE_S, MOST_DEATHS, Forecast, Report, State, run_trials
from pipeline.reproduce.store import Outcome, Store
from pipeline.reproduce.trials import Trial, in_order


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class PlayPool:
    """Workers that take a hundred seconds a trial, and whose answers ``answer`` decides: a report, or None for one that hangs."""

    store: Store
    clock: Clock
    size: int = 2
    answer: Callable[[Trial, int], Report | None] = lambda trial, worker: Report(worker)
    given: list[tuple[int, str]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    busy: dict[int, Trial] = field(default_factory=dict)

    def submit(self, worker: int, trial: Trial) -> None:
        assert worker not in self.busy
        self.given.append((worker, trial.id))
        self.busy[worker] = trial

    def wait(self, seconds: float) -> Sequence[Report]:
        self.clock.now += 100
        for worker, trial in list(self.busy.items()):
            report = self.answer(trial, worker)
            if report is not None:
                del self.busy[worker]
                if not report.error:
                    self.store.save(trial, Outcome(True, {"wall_seconds": 2 * trial.estimate}))
                return [report]
        return []

    def end(self, worker: int) -> None:
        self.ended.append(worker)
        self.busy.pop(worker, None)


@dataclass
class Seen:
    lines: list[str] = field(default_factory=list)
    most_running: int = 0
    lefts: list[float] = field(default_factory=list)

    def update(self, state: State) -> None:
        self.most_running = max(self.most_running, len(state.running))
        self.lefts.append(state.left)

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    made.prepare(resume=False)
    return made


def trials(*names: str, seeds: int = 2) -> list[Trial]:
    return in_order([arm for arm in tale() if arm.name in names], seeds)


def test_all_are_done_in_order(store: Store) -> None:
    wanted, clock, seen = trials("uniform", "buy4", "buy2"), Clock(), Seen()
    pool, finished = PlayPool(store, clock), list[str]()
    state = run_trials(wanted, store, pool, seen, finished=lambda t: finished.append(t.id), clock=clock)
    assert (state.done, state.failed, state.left) == (6, 0, 0.0)
    assert [name for _, name in pool.given] == [trial.id for trial in wanted]
    assert sorted(finished) == sorted(trial.id for trial in wanted)
    assert seen.most_running == 2
    assert seen.lefts[0] > seen.lefts[-2]


def test_finished_trials_are_not_done_again(store: Store) -> None:
    wanted = trials("uniform", "buy4")
    store.save(wanted[1], Outcome(True, {"wall_seconds": 50.0}))
    store.save(wanted[2], Outcome(False, {}, "broke"))
    pool = PlayPool(store, Clock())
    state = run_trials(wanted, store, pool, Seen(), clock=pool.clock)
    assert state.done == 4
    assert wanted[1].id not in [name for _, name in pool.given]
    assert wanted[2].id in [name for _, name in pool.given], "what failed is tried again"


def test_a_failing_arm_is_recorded_and_the_others_go_on(store: Store) -> None:
    wanted, seen = trials("uniform", "buy4"), Seen()
    pool = PlayPool(store, Clock(), answer=lambda t, w: Report(w, "EngineError: no engine") if t.arm.name == "buy4" else Report(w))
    state = run_trials(wanted, store, pool, seen, clock=pool.clock)
    assert (state.done, state.failed) == (2, 2)
    assert [name for _, name in pool.given].count(wanted[0].id) == (ATTEMPTS if wanted[0].arm.name == "buy4" else 1)
    outcome = store.outcome(next(t for t in wanted if t.arm.name == "buy4"))
    assert outcome is not None
    assert (outcome.done, outcome.error, outcome.attempts) == (False, "EngineError: no engine", ATTEMPTS)
    assert any("buy4, seed 1: failed: EngineError: no engine" in line for line in seen.lines)


def test_a_dead_worker_is_replaced_and_its_trial_tried_again(store: Store) -> None:
    died: list[str] = []

    def answer(trial: Trial, worker: int) -> Report:
        if trial.arm.name == "buy4" and trial.id not in died:
            died.append(trial.id)
            return Report(worker, "its worker died: killed", died=True)
        return Report(worker)

    pool = PlayPool(store, Clock(), answer=answer)
    seen = Seen()
    state = run_trials(trials("uniform", "buy4"), store, pool, seen, clock=pool.clock)
    assert (state.done, state.failed, len(died)) == (4, 0, 2)
    assert any("its worker died: killed; trying again" in line for line in seen.lines)


def test_a_trial_that_hangs_meets_its_deadline(store: Store) -> None:
    pool = PlayPool(store, Clock(), answer=lambda t, w: None if t.arm.name == "buy4" else Report(w))
    state = run_trials(trials("uniform", "buy4", seeds=1), store, pool, Seen(), clock=pool.clock)
    assert (state.done, state.failed) == (1, 1)
    assert len(pool.ended) == ATTEMPTS
    assert pool.clock.now >= ATTEMPTS * LEAST_DEADLINE_S
    outcome = store.outcome(trials("buy4", seeds=1)[0])
    assert outcome is not None
    assert "passed its deadline of" in outcome.error


def test_workers_that_keep_dying_stop_it(store: Store) -> None:
    pool = PlayPool(store, Clock(), size=1, answer=lambda t, w: Report(w, "its worker died: no memory", died=True))
    seen = Seen()
    state = run_trials(trials("uniform", "buy4", "buy2", "rank", "field"), store, pool, seen, clock=pool.clock)
    assert state.failed < 10
    assert len(pool.given) == MOST_DEATHS + 1
    assert "workers died one after the other" in seen.lines[-1]


def test_forecast_follows_what_was_measured() -> None:
    grpo, ppo, bandit = (trials(name, seeds=1)[0] for name in ("buy4", "buy4-ppo", "bandit-1-silent"))
    forecast = Forecast()
    assert forecast.seconds(grpo) == grpo.estimate
    forecast.learn(grpo, 3 * grpo.estimate)
    assert forecast.seconds(grpo) == pytest.approx(3 * grpo.estimate)
    assert forecast.seconds(ppo) == pytest.approx(3 * ppo.estimate), "of another kind: as others went"
    forecast.learn(bandit, bandit.estimate)
    assert forecast.seconds(bandit) == pytest.approx(bandit.estimate)
    assert forecast.rest(grpo, grpo.estimate, 0.0) == pytest.approx(2 * grpo.estimate)
    assert forecast.rest(grpo, 30.0, 0.25) == pytest.approx(90.0), "as its own rounds go"
    assert forecast.rest(grpo, 1e6, 0.0) > 0
    left = forecast.left([grpo, grpo, grpo], [forecast.rest(grpo, grpo.estimate, 0.0)], 2)
    assert left == pytest.approx((3 * 3 + 2) * grpo.estimate / 2)
    assert forecast.left([], [], 2) == 0.0
