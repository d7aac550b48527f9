"""A trial as Ray Tune sees it: one step a round, the run itself in a thread, engine and learner kept for the next trial.

Owns the hand-over between the run and Tune. The run folder lies in the trial's own folder and is the truth: a trial that died, or that a
restored sweep begins again, goes on after its last whole round, whatever Tune remembers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ray import tune

from actors.placement import bundles, trial_needs
from pipeline.config import Config
from pipeline.errors import FedAgentError
from pipeline.job import hand_over
from pipeline.run_folder import RunFolder
from pipeline.runlog import read_history
from pipeline.sweep.curve import Curve
from pipeline.sweep.manifest import TRIAL_RUN
from pipeline.sweep.trials import Base, Trial
from pipeline.sweep.writer import RemoteWriter

STOP_WAIT_S = 60.0
"""Seconds that a stopped run may take to close its log."""

KEY = "trial"
"""The key of Tune's own configuration under which a trial's description lies."""


@dataclass(frozen=True)
class Job:
    """What every trial of a sweep must know."""

    folder: Path
    base: Base


class SweepTrial(tune.Trainable):  # type: ignore[misc]
    """Trains one point of the space. ``job`` is set by ``trainable_for``; Tune's configuration describes the trial."""

    job: ClassVar[Job]

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        """The trial's placement group: its process, and the actors of its run."""
        return tune.PlacementGroupFactory(bundles(trial_needs(cls._config(config))), strategy="PACK")

    @classmethod
    def _config(cls, config: Mapping[str, Any]) -> Config:
        trial = _trial(config)
        return cls.job.base.trial(trial, cls.job.folder / trial.name)

    def setup(self, config: dict[str, Any]) -> None:
        """Start the run, or go on with what an earlier attempt left."""
        from pipeline.inside import Kept

        self._kept = Kept()
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Another trial in the same process, on the same engine where the model is the same."""
        self._end()
        self._begin(new_config)
        return True

    def step(self) -> dict[str, Any]:
        """The next round's numbers; with the last of them the run has ended and ``done`` is set."""
        if self._run is None:
            self._close()
            return {**self._tune_row(), "done": True}
        round = self._run.next_round()
        if round is None or round >= self._run.config.federation.rounds:
            self._run.join()
            self._close()
            return {**self._tune_row(), "done": True}
        return self._tune_row()

    def cleanup(self) -> None:
        """Stop a run that waits and let go of the engine; a round in the middle ends with the process, and is done again."""
        busy = self._run is not None and self._run.busy
        self._end()
        if not busy:
            self._kept.close()

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._trial = _trial(config)
        self._curve = Curve()
        self._run: _Run | None = None
        folder = RunFolder(self.job.folder / self._trial.name / TRIAL_RUN)
        self._folder = folder
        self._tracker = RemoteWriter.find(self.job.folder).of(self._trial.name)
        wanted = self._config(config)
        if folder.metrics.exists():
            history = read_history(folder.metrics)
            for record in (*history.starts[-1:], *history.evaluations, *history.rounds):
                self._curve.feed(record)
                # The writer of the attempt before may have died with some of them.
                self._tracker.record(record)
            ended = history.end is not None and history.end.get("status") == "finished"
            if ended and self._curve.round >= wanted.federation.rounds:
                # It ended, but Tune did not hear of it.
                return
        self._run = _Run(wanted, folder.path, self._kept, self._told)

    def _told(self, record: Mapping[str, Any]) -> None:
        self._curve.feed(record)
        if record["kind"] != "end":
            self._tracker.record(record)

    def _tune_row(self) -> dict[str, Any]:
        row = self._curve.row()
        return {**row, "training_iteration": row["round"], "trial_name": self._trial.name, "seed": self._trial.seed}

    def _close(self) -> None:
        """Give the tracker what a person looks for first."""
        hand_over(self._folder, self._tracker)
        self._tracker.finish("finished")

    def _end(self) -> None:
        """A run that Tune has stopped early closes its log as stopped; its engine and learner stay fit for use."""
        run, self._run = self._run, None
        if run is not None and run.stop():
            self._tracker.finish("stopped")


class _Run:
    """The run in its thread. It waits after every round until the next is asked for, so that a stop falls between two rounds."""

    def __init__(self, config: Config, folder: Path, kept: Any, tell: Any) -> None:
        self.config = config
        self._folder, self._kept, self._tell = folder, kept, tell
        self._rounds: queue.Queue[int | None] = queue.Queue()
        self._go_on = threading.Semaphore(0)
        self._stopping = False
        self._error: BaseException | None = None
        self._waiting = False
        self._thread = threading.Thread(target=self._work, name="run", daemon=True)
        self._thread.start()

    def next_round(self) -> int | None:
        """Let the run go on and wait for its next round; None when it ended without one. Raises what the run raised."""
        if self._waiting:
            self._waiting = False
            self._go_on.release()
        round = self._rounds.get()
        if round is None:
            self.join()
        else:
            self._waiting = True
        return round

    def join(self) -> None:
        """Wait for the end of the run. Raises what it raised."""
        if self._waiting:
            self._waiting = False
            self._go_on.release()
        self._thread.join()
        if self._error is not None:
            raise self._error

    @property
    def busy(self) -> bool:
        """Whether it is in the middle of a round."""
        return self._thread.is_alive() and not self._waiting

    def stop(self) -> bool:
        """End a run that waits between two rounds; whether there was one."""
        if not self._waiting:
            return False
        self._waiting = False
        self._stopping = True
        self._go_on.release()
        self._thread.join(STOP_WAIT_S)
        return True

    def _work(self) -> None:
        from pipeline.trial import run_trial

        try:
            run_trial(self.config, self._folder, on_record=self._on_record, kept=self._kept, resume=True)
        except BaseException as error:
            self._error = error if isinstance(error, Exception) else FedAgentError(f"the run ended with {type(error).__name__}: {error}")
        finally:
            self._rounds.put(None)

    def _on_record(self, record: Mapping[str, Any]) -> None:
        self._tell(record)
        if record["kind"] == "round":
            self._rounds.put(int(record["round"]))
            self._go_on.acquire()
            if self._stopping:
                # The run closes its log as stopped and stays resumable.
                raise KeyboardInterrupt


def _trial(config: Mapping[str, Any]) -> Trial:
    described = config[KEY]
    return Trial(described["number"], described["name"], described["arm"], dict(described["point"]))


def described(trial: Trial) -> dict[str, Any]:
    """A trial as Tune's configuration carries it."""
    return {"number": trial.number, "name": trial.name, "arm": trial.arm, "point": dict(trial.point)}


def trainable_for(job: Job) -> type[SweepTrial]:
    """The trainable of one sweep. Tune takes its name for the identity of the code, so it is always the same."""
    return type("SweepTrial", (SweepTrial,), {"job": job, "__module__": __name__, "__doc__": SweepTrial.__doc__})
