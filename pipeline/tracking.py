"""Records a run in MLflow: parameters, metrics by round, a nested run per client, artifacts.

Owns the mapping from run-log records to MLflow and the ids kept for a resume. Uses ``MlflowClient`` with explicit run ids only, no
active run, so that many runs and trials can be written at once. MLflow is imported on first use. Text of tasks, prompts or
observations is never sent: of a record only numbers go, and of a failed client the first line of its error.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pipeline.runlog import Record, jsonable

IDS_FILE = "mlflow.json"
PARENT_TAG = "mlflow.parentRunId"
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}
MAX_PARAM, MAX_TAG = 6000, 5000
TRIES = 3
BACKLOG = 10_000
MAX_PAUSE_S = 300.0
NOT_METRICS = frozenset({"kind", "round", "time", "client", "clients", "failed", "phases", "mode", "world", "version", "schema"})


@dataclass(frozen=True)
class TrackingSummary:
    """How the tracking went. ``errors`` counts failed writes, ``lost`` the records that never arrived."""

    uri: str | None = None
    run_id: str | None = None
    written: int = 0
    errors: int = 0
    lost: int = 0
    first_error: str | None = None

    def warning(self) -> str | None:
        """One sentence for the user when something went wrong."""
        if not self.errors and not self.lost:
            return None
        return (
            f"MLflow at {self.uri}: {self.errors} failed writes, {self.lost} records lost (the run log has them all). "
            f"First error: {self.first_error}"
        )


class Tracker(Protocol):
    """Takes records and artifacts and never raises."""

    def record(self, record: Mapping[str, Any]) -> None:
        """Take a record of the run log."""

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a folder with the run."""

    def finish(self, status: str) -> TrackingSummary:
        """Write what is left and end the run as ``finished``, ``stopped`` or ``failed``."""


class NoTracker:
    """Tracking switched off."""

    def record(self, record: Mapping[str, Any]) -> None:
        """Nothing."""

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Nothing."""

    def finish(self, status: str) -> TrackingSummary:
        """An empty summary."""
        return TrackingSummary()


def tracking_uri(run_dir: Path, uri: str | None = None) -> str:
    """The tracking server: as configured, else MLFLOW_TRACKING_URI, else a SQLite file in the run folder."""
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run_dir.resolve() / 'mlflow.db'}"


class MlflowWriter:
    """Writes one run. Every method may raise what MLflow raises; ``GuardedTracker`` is for callers that must go on."""

    def __init__(
        self,
        run_dir: Path,
        name: str,
        experiment: str = "fedagent",
        uri: str | None = None,
        *,
        clients: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """``tags`` are put on the run when it is made. Together they name it: a run that has them all is continued, not made again."""
        self.run_dir = run_dir
        self._tags = dict(tags or {})
        self.uri = tracking_uri(run_dir, uri)
        self.run_id: str | None = None
        self._name, self._experiment, self._clients = name, experiment, clients
        self._experiment_id = ""
        self._children: dict[str, str] = {}
        self._mlflow: Any = None

    def start(self, record: Mapping[str, Any]) -> str:
        """Begin the run, or continue the one whose id the run folder keeps; its id. ``record`` is the run log's start."""
        client = self._connect()
        self._find_experiment()
        known = self._known_ids()
        if known and self._is_alive(known["run_id"]):
            self.run_id, self._children = known["run_id"], dict(known.get("clients", {}))
            for run_id in (self.run_id, *self._children.values()):
                client.update_run(run_id, status="RUNNING")
        else:
            self.run_id = self._tagged() or client.create_run(self._experiment_id, run_name=self._name, tags=self._tags).info.run_id
            self._children = {}
        self._keep_ids()
        self._log_params(record.get("config") or {})
        tags = {f"version.{k}": str(v) for k, v in (record.get("versions") or {}).items()}
        if record.get("resumed_from") is not None:
            tags["resumed_from_round"] = str(record["resumed_from"])
        self._tag(tags)
        config = self.run_dir / "config.resolved.json"
        if config.exists():
            self.artifact(config)
        return str(self.run_id)

    def record(self, record: Mapping[str, Any]) -> None:
        """Write any record of the run log."""
        kind = record.get("kind")
        if kind == "start":
            self.start(record)
        elif kind == "client":
            if self._clients:
                self._log(self._child(str(record["client"])), numbers(record, "train/"), int(record["round"]))
        elif kind == "evaluation":
            prefix = evaluation_prefix(record)
            if record.get("client") is None:
                self._log(self._run(), numbers(record, prefix), int(record["round"]))
            elif self._clients:
                self._log(self._child(str(record["client"])), numbers(record, prefix), int(record["round"]))
        elif kind == "round":
            self._log_round(record)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a folder."""
        if path.is_dir():
            self._connect().log_artifacts(self._run(), str(path), folder or path.name)
        else:
            self._connect().log_artifact(self._run(), str(path), folder)

    def finish(self, status: str) -> None:
        """End the run and its clients' runs."""
        client, state = self._connect(), STATUS.get(status, "FAILED")
        for child in self._children.values():
            client.set_terminated(child, status=state)
        client.set_terminated(self._run(), status=state)

    def status(self) -> str | None:
        """MLflow's word for how the run stands; None where the folder knows of no run in this store."""
        known = self._known_ids()
        if not known or not self._is_alive(known["run_id"]):
            return None
        return str(self._connect().get_run(known["run_id"]).info.status)

    def history(self, metric: str) -> dict[int, float]:
        """The metric of this run by step, the latest value where a step has several; empty before the start."""
        if self.run_id is None:
            return {}
        found = self._connect().get_metric_history(self.run_id, metric)
        return {int(m.step): float(m.value) for m in sorted(found, key=lambda m: int(m.timestamp))}

    def _connect(self) -> Any:
        if self._mlflow is None:
            # A run must not call home, and the schema migrations' log lines would break the live display.
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            # MLflow's own patience (7 retries of 2 minutes) would outlast the run.
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
            for name in ("mlflow", "alembic"):
                logging.getLogger(name).setLevel(logging.WARNING)
            from mlflow.tracking import MlflowClient

            logging.getLogger("mlflow").setLevel(logging.WARNING)
            self._mlflow = MlflowClient(tracking_uri=self.uri)
        return self._mlflow

    def _run(self) -> str:
        if self.run_id is None:
            raise RuntimeError("the tracked run has not started: its first record must be of kind 'start'")
        return self.run_id

    def _find_experiment(self) -> None:
        """Find the experiment or make it. Another run may make it at the same moment: then theirs is used."""
        client = self._connect()
        found = client.get_experiment_by_name(self._experiment)
        if found is None:
            own = self.uri.startswith(f"sqlite:///{self.run_dir.resolve()}")
            location = (self.run_dir.resolve() / "mlartifacts").as_uri() if own else None
            try:
                self._experiment_id = client.create_experiment(self._experiment, artifact_location=location)
                return
            except Exception:
                found = client.get_experiment_by_name(self._experiment)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        self._experiment_id = found.experiment_id

    def _known_ids(self) -> dict[str, Any] | None:
        try:
            known = json.loads((self.run_dir / IDS_FILE).read_text())
        except (FileNotFoundError, ValueError):
            return None
        same = isinstance(known, dict) and known.get("uri") == self.uri and known.get("run_id")
        return known if same else None

    def _keep_ids(self) -> None:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        ids = {"uri": self.uri, "experiment_id": self._experiment_id, "run_id": self.run_id, "clients": self._children}
        aside = self.run_dir / f".{IDS_FILE}.{os.getpid()}"
        aside.write_text(json.dumps(ids, indent=1) + "\n")
        aside.replace(self.run_dir / IDS_FILE)

    def _tagged(self) -> str | None:
        """A run that an attempt made and whose id it did not live to keep."""
        if not self._tags:
            return None
        # MLflow has no escape for quotes in a filter; such a name is then not looked for.
        query = " and ".join(f"tags.`{name}` = '{value}'" for name, value in self._tags.items())
        if any("'" in value for value in self._tags.values()):
            return None
        found = self._connect().search_runs([self._experiment_id], filter_string=query, max_results=1)
        return str(found[0].info.run_id) if found else None

    def _is_alive(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._connect().get_run(run_id).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def _log_params(self, config: Mapping[str, Any]) -> None:
        """Parameters cannot change in MLflow: what a resume changed (more rounds) becomes a tag ``changed.<name>``."""
        from mlflow.entities import Param

        client, run_id = self._connect(), self._run()
        present = client.get_run(run_id).data.params
        wanted = flatten(config)
        fresh = [Param(k, v) for k, v in wanted.items() if k not in present]
        for start in range(0, len(fresh), 100):
            client.log_batch(run_id, params=fresh[start : start + 100])
        self._tag({f"changed.{k}": v for k, v in wanted.items() if k in present and present[k] != v})

    def _tag(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        items = [RunTag(_name(k), v[:MAX_TAG]) for k, v in tags.items()]
        for start in range(0, len(items), 100):
            self._connect().log_batch(self._run(), tags=items[start : start + 100])

    def _log_round(self, record: Mapping[str, Any]) -> None:
        values = numbers(record, "round/")
        values.update({f"phase/{_name(k)}_s": float(v) for k, v in (record.get("phases") or {}).items() if _is_number(v)})
        failed = record.get("failed") or []
        values["round/failed_clients"] = float(len(failed))
        if record.get("clients") is not None:
            values["round/clients"] = float(len(record["clients"]))
        self._log(self._run(), values, int(record["round"]))
        if failed:
            self._tag({f"failure.round{record['round']:04d}.{f.get('client')}": str(f.get("error", "")).split("\n")[0] for f in failed})

    def _log(self, run_id: str, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(k, v, now, step) for k, v in values.items()]
        for start in range(0, len(metrics), 1000):
            self._connect().log_batch(run_id, metrics=metrics[start : start + 1000])

    def _child(self, client: str) -> str:
        if client not in self._children:
            tags = {PARENT_TAG: self._run(), "client": client}
            run = self._connect().create_run(self._experiment_id, run_name=f"{self._name}/{client}", tags=tags)
            self._children[client] = run.info.run_id
            self._keep_ids()
        return self._children[client]


class GuardedTracker:
    """A tracker that never raises. A failed write is kept and tried again after a growing pause.

    A record that failed three times is given up (it may be the record's fault), the run's start never is.
    """

    def __init__(self, writer: MlflowWriter, clock: Callable[[], float] = time.monotonic) -> None:
        self._writer, self._clock = writer, clock
        self._waiting: deque[_Write] = deque()
        self._written = self._errors = self._lost = self._in_a_row = 0
        self._first_error: str | None = None
        self._retry_at = 0.0

    def record(self, record: Mapping[str, Any]) -> None:
        """Write the record, or keep it for later while the server does not answer."""
        self._put(_Write("record", (jsonable(record),), start=record.get("kind") == "start"))

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a folder."""
        self._put(_Write("artifact", (path, folder)))

    def finish(self, status: str) -> TrackingSummary:
        """One last try of each write that waits, until three in a row fail; then end the run."""
        self._in_a_row = 0
        while self._waiting and self._in_a_row < TRIES:
            if not self._try(self._waiting.popleft()):
                self._lost += 1
        self._lost += len(self._waiting)
        self._waiting.clear()
        if self._in_a_row < TRIES:
            self._try(_Write("finish", (status,)))
        return self.summary()

    def summary(self) -> TrackingSummary:
        """How it went so far."""
        return TrackingSummary(self._writer.uri, self._writer.run_id, self._written, self._errors, self._lost, self._first_error)

    def _put(self, write: _Write) -> None:
        if len(self._waiting) >= BACKLOG:
            self._lost += 1
            return
        self._waiting.append(write)
        while self._waiting and self._clock() >= self._retry_at:
            head = self._waiting[0]
            if self._try(head):
                self._waiting.popleft()
            elif head.tries >= TRIES and not head.start:
                self._waiting.popleft()
                self._lost += 1

    def _try(self, write: _Write) -> bool:
        try:
            getattr(self._writer, write.method)(*write.arguments)
        except Exception as error:
            write.tries += 1
            self._errors += 1
            self._in_a_row += 1
            self._retry_at = self._clock() + min(2.0 ** (self._in_a_row - 1), MAX_PAUSE_S)
            if self._first_error is None:
                text = str(error).strip().splitlines()
                self._first_error = f"{write.method}: {type(error).__name__}: {text[0][:300] if text else ''}"
            return False
        self._in_a_row, self._retry_at = 0, 0.0
        self._written += write.method == "record"
        return True


@dataclass
class _Write:
    """A call of the writer that waits to be made."""

    method: str
    arguments: tuple[Any, ...]
    start: bool = False
    tries: int = 0


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested sections as dotted names with text values; other than text is JSON. Values are cut at MLflow's limit."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{name}."))
        else:
            text = value if isinstance(value, str) else json.dumps(jsonable(value))
            flat[name] = text[:MAX_PARAM]
    return flat


def numbers(record: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The record's numeric values under ``prefix``; text, flags, lists and nulls are left out."""
    return {f"{prefix}{_name(k)}": float(v) for k, v in record.items() if k not in NOT_METRICS and _is_number(v)}


def evaluation_prefix(record: Record | Mapping[str, Any]) -> str:
    """``heldout/sampled/``, with the world in between when it is not the default."""
    world = record.get("world") or "default"
    middle = "" if world == "default" else f"{_name(str(world))}/"
    return f"heldout/{middle}{_name(str(record.get('mode') or 'sampled'))}/"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _name(text: str) -> str:
    """``text`` with what MLflow refuses in names replaced."""
    return re.sub(r"[^A-Za-z0-9_.\- /]", "_", text) or "_"
