"""Workers as Ray processes, one processor each; engine and learner stay loaded between trials. One that dies is started anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from pipeline.reproduce.runner import Report
from pipeline.reproduce.store import Store
from pipeline.reproduce.trials import Trial

if TYPE_CHECKING:
    from pipeline.inside import Kept


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
"""Of a worker process: one thread, and one heap, which keeps its memory from growing with every trial."""


class Worker:
    """The object in a worker process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: Kept | None = None

    def do(self, trial: Trial) -> str:
        """Do a trial; the error in a line, "" when it is done. The traceback stays in the trial's run folder."""
        from pipeline.inside import Kept
        from pipeline.reproduce.work import do_trial

        if self._kept is None:
            self._kept = Kept()
        try:
            do_trial(self._store, trial, self._kept)
        except Exception as error:
            self._store.keep_traceback(trial, error)
            # What was kept may be what broke.
            kept, self._kept = self._kept, None
            kept.close()
            lines = str(error).strip().splitlines() or ["no message"]
            return f"{type(error).__name__}: {lines[0]}"
        return ""


class RayPool:
    """``pipeline.reproduce.runner.Pool`` on a Ray cluster that is connected already."""

    def __init__(self, store: Store, size: int) -> None:
        self.size = size
        self._store = store
        self._make = ray.remote(num_cpus=1, max_restarts=0, max_concurrency=1, runtime_env={"env_vars": dict(ENVIRONMENT)})(Worker)
        self._workers: dict[int, Any] = {}
        self._busy: dict[Any, int] = {}

    def submit(self, worker: int, trial: Trial) -> None:
        """Give a trial to an idle worker."""
        if worker not in self._workers:
            self._workers[worker] = self._make.remote(self._store)
        self._busy[self._workers[worker].do.remote(trial)] = worker

    def wait(self, seconds: float) -> Sequence[Report]:
        """Reports of workers that have finished."""
        if not self._busy:
            return []
        ready, _ = ray.wait(list(self._busy), num_returns=1, timeout=seconds)
        reports = []
        for answer in ready:
            worker = self._busy.pop(answer)
            try:
                reports.append(Report(worker, ray.get(answer, timeout=30.0)))
            except RayError as error:
                # Dead, or out of memory, or unable to load what it needs: in any case another process has to take over.
                self.end(worker)
                reports.append(Report(worker, f"its worker died: {str(error).strip().splitlines()[0]}", died=True))
        return reports

    def end(self, worker: int) -> None:
        """End a worker at once."""
        if (actor := self._workers.pop(worker, None)) is not None:
            ray.kill(actor)
        self._busy = {answer: number for answer, number in self._busy.items() if number != worker}

    def close(self) -> None:
        """End all workers."""
        for worker in list(self._workers):
            self.end(worker)
