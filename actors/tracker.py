"""The tracker actor: the only writer to MLflow. A thin Ray shell over ``pipeline.tracking``.

The controller hands records over and goes on; it waits only at the end, with a deadline. Knows nothing of what is tracked.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from pipeline.runlog import jsonable
from pipeline.tracking import GuardedTracker, MlflowWriter, TrackingSummary


class TrackerWorker:
    """What runs inside the actor: one guarded MLflow writer."""

    def __init__(self, run_dir: str, name: str, experiment: str, uri: str | None, clients: bool) -> None:
        self._tracker = GuardedTracker(MlflowWriter(Path(run_dir), name, experiment, uri, clients=clients))

    def record(self, record: dict[str, Any]) -> None:
        """Write a record."""
        self._tracker.record(record)

    def artifact(self, path: str, folder: str | None) -> None:
        """Store a file or a folder that this node can read."""
        self._tracker.artifact(Path(path), folder)

    def finish(self, status: str) -> TrackingSummary:
        """Write what is left and end the run."""
        return self._tracker.finish(status)


class RemoteTracker:
    """A ``pipeline.tracking.Tracker`` whose writes happen in an actor. Calls return at once and never raise."""

    def __init__(
        self,
        run_dir: Path,
        name: str,
        *,
        experiment: str = "fedagent",
        uri: str | None = None,
        clients: bool = True,
        options: Mapping[str, Any] | None = None,
        deadline_s: float = 60.0,
    ) -> None:
        """``options`` are Ray actor options (resources, placement); ``deadline_s`` bounds the wait in ``finish``."""
        self._deadline_s = deadline_s
        self._uri = uri
        self._sent = 0
        actor = ray.remote(TrackerWorker).options(**{"num_cpus": 0, "max_restarts": 0, **(options or {})})
        self._actor = actor.remote(str(run_dir.resolve()), name, experiment, uri, clients)

    def record(self, record: Mapping[str, Any]) -> None:
        """Hand a record over."""
        self._send("record", jsonable(record))
        self._sent += 1

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Hand a file or a folder over."""
        self._send("artifact", str(path.resolve()), folder)

    def finish(self, status: str) -> TrackingSummary:
        """Wait for the writes, at most the deadline, and end the actor."""
        try:
            summary: TrackingSummary = ray.get(self._actor.finish.remote(status), timeout=self._deadline_s)
        except Exception as error:
            text = (str(error).strip() or "no message").splitlines()[0]
            first = f"the tracker actor did not finish in {self._deadline_s:g} s: {type(error).__name__}: {text}"
            summary = TrackingSummary(self._uri, None, 0, 1, self._sent, first)
        ray.kill(self._actor)
        return summary

    def _send(self, method: str, *arguments: Any) -> None:
        # A dead actor is reported once, by ``finish``.
        try:
            getattr(self._actor, method).remote(*arguments)
        except ray.exceptions.RayError:
            pass
