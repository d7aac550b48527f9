"""What a worker does with a trial: train it, or go on where it was left, and keep its numbers. Knows the store, no other worker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from envs.bandit import BanditWorld
from pipeline.config import Config
from pipeline.diagnose.mixture import task_side
from pipeline.errors import CheckpointError, FedAgentError
from pipeline.heterogeneity import set_up
from pipeline.reproduce.extract import numbers
from pipeline.reproduce.floors import find_floor
from pipeline.reproduce.store import Outcome, Store, Underway
from pipeline.reproduce.trials import Trial
from pipeline.runlog import read_history

if TYPE_CHECKING:
    from pipeline.inside import Kept

RunTrial = Callable[..., Any]
"""``pipeline.trial.run_trial``."""


class TrialStopped(FedAgentError):
    """A trial ended before its last round."""


def do_trial(store: Store, trial: Trial, kept: Kept | None = None, run: RunTrial | None = None) -> None:
    """Bring a trial to its end and save its outcome; nothing is done for one that is done. Raises what a run raises."""
    finished = store.outcome(trial)
    if finished is not None and finished.done:
        return
    config = trial.config(store.labels)
    if trial.arm.rule != "none" and store.floor(trial) is None:
        store.save_floor(trial, find_floor(trial.arm.rule, config))
    try:
        used = _train(store, trial, config, kept, run)
    except CheckpointError:
        # Of another version of the program, or torn: what is there cannot be trusted, and a trial is short.
        store.start_over(trial)
        used = _train(store, trial, config, kept, run)
    history = read_history(store.run(trial))
    found = numbers(history, metric="score" if trial.arm.world == "bandit" else "success")
    found |= _extras(trial, config, found)
    plain = {name: _plain(value) for name, value in found.items()}
    attempts = 1 if finished is None else finished.attempts + 1
    store.save(trial, Outcome(True, {**plain, "cpu_seconds": used.cpu, "wall_seconds": used.wall}, attempts=attempts))


def _train(store: Store, trial: Trial, config: Config, kept: Kept | None, run: RunTrial | None) -> Underway:
    if run is None:
        from pipeline.trial import run_trial

        run = run_trial
    before = store.underway(trial)
    wall, cpu = time.monotonic(), time.process_time()
    rounds = config.federation.rounds

    def now(round: int) -> Underway:
        return Underway(round, rounds, before.cpu + time.process_time() - cpu, before.wall + time.monotonic() - wall, os.getpid())

    def tell(record: Mapping[str, Any]) -> None:
        if record.get("kind") in ("round", "evaluation"):
            store.note(trial, now(int(record["round"])))

    result = run(config, store.run(trial), on_record=tell, kept=kept, resume=True)
    if result.status != "finished":
        raise TrialStopped(f"arm {trial.arm.name}, seed {trial.seed}: the run ended as {result.status}")
    used = now(rounds)
    store.note(trial, used)
    return used


def _extras(trial: Trial, config: Config, found: Mapping[str, Any]) -> dict[str, Any]:
    """What follows from an arm's worlds and tasks rather than from its log."""
    extras: dict[str, Any] = {}
    if trial.arm.family == "task":
        extras["bound"] = task_side(set_up(config).tasks).by_category.factor
    if trial.arm.world == "bandit":
        made = set_up(config)
        assert isinstance(made.world, BanditWorld)
        extras["worst_gap"] = max(max(made.world.values(world)) - rate for world, rate in found["worlds"].items())
    return extras


def _plain(value: Any) -> Any:
    """Dataclasses of the results as JSON values."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
