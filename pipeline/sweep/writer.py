"""The one hand that writes a sweep to MLflow: a parent run, a nested run per trial, in one store, from one process.

Trials hand their records over and go on; SQLite never sees two writers. Ids are kept in the folders of sweep and trials, and a run that
was made without its id being kept is found by its tags, so that a restored sweep goes on in the same runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.config import TrackingConfig
from pipeline.errors import DataError
from pipeline.run_folder import RunFolder
from pipeline.runlog import jsonable, read_history
from pipeline.sweep.manifest import TRIAL_RUN
from pipeline.tracking import PARENT_TAG, STATUS, GuardedTracker, MlflowWriter, TrackingSummary, evaluation_prefix, tracking_uri

SWEEP_TAG, TRIAL_TAG = "fedagent.sweep", "fedagent.trial"
PARENT = ""
"""The name under which records of the sweep itself are sent."""

DEADLINE_S = 120.0


class SweepWriter:
    """A guarded writer per trial and one for the sweep. Never raises."""

    def __init__(self, folder: str, tracking: TrackingConfig) -> None:
        self._folder = Path(folder)
        self._tracking = tracking
        self._uri = tracking_uri(self._folder, tracking.uri)
        # Nested runs of clients too only where they were asked for: a sweep of 100 trials would have 1,000 runs.
        self._clients = tracking.clients and "clients" in tracking.model_fields_set
        self._parent = MlflowWriter(
            self._folder,
            self._folder.name,
            tracking.experiment,
            self._uri,
            clients=False,
            tags={SWEEP_TAG: str(self._folder), TRIAL_TAG: "(parent)"},
        )
        self._writers: dict[str, MlflowWriter] = {PARENT: self._parent}
        self._trackers: dict[str, GuardedTracker] = {PARENT: GuardedTracker(self._parent)}
        self._known: dict[tuple[str, str], dict[int, float]] = {}

    def record(self, trial: str, record: Mapping[str, Any]) -> None:
        """Write a record of a trial, or of the sweep (``PARENT``). One that the store has already is left out."""
        tracker = self._of(trial)
        if not self._repeats(trial, record):
            tracker.record(record)

    def artifact(self, trial: str, path: str, folder: str | None = None) -> None:
        """Store a file or a folder with a trial's run."""
        self._of(trial).artifact(Path(path), folder)

    def finish(self, trial: str, status: str) -> TrackingSummary:
        """End a trial's run as ``finished``, ``stopped`` or ``failed``."""
        return self._of(trial).finish(status)

    def settle(self, trial: str, status: str) -> TrackingSummary:
        """Make the store say of a trial what its folder says, where a killed writer had not come so far, and end its run."""
        from pipeline.job import hand_over

        tracker, folder = self._of(trial), RunFolder(self._folder / trial / TRIAL_RUN)
        try:
            if self._writers[trial].status() == STATUS[status]:
                return tracker.summary()
            history = read_history(folder.metrics)
        except DataError:
            # Nothing to tell of a trial that never began, or whose log is damaged: the summary names it.
            return tracker.summary()
        except Exception:
            # A store that does not answer: ``finish`` tries once more, and counts.
            return tracker.finish(status)
        clients = history.clients if self._clients else ()
        for record in (*history.starts[-1:], *history.evaluations, *clients, *history.rounds):
            self.record(trial, record)
        hand_over(folder, tracker)
        return tracker.finish(status)

    def _of(self, trial: str) -> GuardedTracker:
        if trial not in self._trackers:
            tags = {SWEEP_TAG: str(self._folder), TRIAL_TAG: trial}
            if self._parent.run_id is not None:
                tags[PARENT_TAG] = self._parent.run_id
            folder = self._folder / trial / TRIAL_RUN
            writer = MlflowWriter(folder, trial, self._tracking.experiment, self._uri, clients=self._clients, tags=tags)
            self._writers[trial], self._trackers[trial] = writer, GuardedTracker(writer)
        return self._trackers[trial]

    def _repeats(self, trial: str, record: Mapping[str, Any]) -> bool:
        """Whether the store has this record: a trial that goes on in a new process tells again what it found in its folder."""
        kind = record.get("kind")
        if kind not in ("round", "evaluation") or record.get("client") is not None or record.get("success") is None:
            return False
        key = "round/success" if kind == "round" else f"{evaluation_prefix(record)}success"
        if (trial, key) not in self._known:
            try:
                self._known[trial, key] = self._writers[trial].history(key)
            except Exception:
                # A store that does not answer will be told twice rather than not at all.
                return False
        known, round = self._known[trial, key], int(record["round"])
        if known.get(round) == record["success"]:
            return True
        known[round] = float(record["success"])
        return False


def writer_name(folder: Path) -> str:
    """The name of a sweep's writer actor."""
    return f"sweep-writer-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


class RemoteWriter:
    """The writer actor of a sweep as seen from the driver and from trials. Calls return at once and never raise, but for ``finish``'s
    wait."""

    def __init__(self, actor: Any | None) -> None:
        self._actor = actor

    @classmethod
    def start(cls, folder: Path, tracking: TrackingConfig) -> RemoteWriter:
        """Start the actor; with tracking off, a writer that does nothing. It ends with the driver."""
        if not tracking.mlflow:
            return cls(None)
        import ray

        options = {"num_cpus": 0, "name": writer_name(folder), "get_if_exists": True}
        return cls(ray.remote(SweepWriter).options(**options).remote(str(folder), tracking))

    @classmethod
    def find(cls, folder: Path) -> RemoteWriter:
        """The actor that the sweep's driver started, if there is one."""
        import ray

        if not ray.is_initialized():
            return cls(None)
        try:
            return cls(ray.get_actor(writer_name(folder)))
        except ValueError:
            return cls(None)

    def of(self, trial: str) -> TrialTracker:
        """One trial's view."""
        return TrialTracker(self, trial)

    def settle(self, trial: str, status: str) -> TrackingSummary:
        """Wait until the store says of a trial what its folder says."""
        return self._ask("settle", trial, status)

    def finish(self, trial: str, status: str) -> TrackingSummary:
        """Wait for the writes of a trial, at most the deadline, and end its run."""
        return self._ask("finish", trial, status)

    def send(self, method: str, *arguments: Any) -> None:
        """Call a method of the writer and go on."""
        if self._actor is None:
            return
        import ray

        try:
            getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayError:
            # A dead writer is reported once, by who waits for it.
            pass

    def _ask(self, method: str, *arguments: Any) -> TrackingSummary:
        if self._actor is None:
            return TrackingSummary()
        import ray

        try:
            summary: TrackingSummary = ray.get(getattr(self._actor, method).remote(*arguments), timeout=DEADLINE_S)
        except Exception as error:
            text = (str(error).strip() or "no message").splitlines()[0]
            first = f"the sweep's writer did not answer in {DEADLINE_S:g} s: {type(error).__name__}: {text}"
            return TrackingSummary(errors=1, lost=1, first_error=first)
        return summary


class TrialTracker:
    """A ``pipeline.tracking.Tracker`` for one trial of a sweep."""

    def __init__(self, writer: RemoteWriter, trial: str) -> None:
        self._writer, self._trial = writer, trial

    def record(self, record: Mapping[str, Any]) -> None:
        """Hand a record over."""
        self._writer.send("record", self._trial, jsonable(record))

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Hand a file or a folder over."""
        self._writer.send("artifact", self._trial, str(path.resolve()), folder)

    def finish(self, status: str) -> TrackingSummary:
        """Wait for the writes, and end the run."""
        return self._writer.finish(self._trial, status)
