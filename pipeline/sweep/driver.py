"""A sweep on Ray Tune: starting or restoring it, the end of it, and what is left in its folder.

Owns the order: everything that can be refused is refused before Ray starts; the sweep's description is written before its first trial; the
summary and the MLflow tree are settled from the trials' own folders when Tune is done, however it ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from actors.placement import cluster_nodes, connect
from pipeline.config import Config
from pipeline.errors import ConfigError
from pipeline.sweep.manifest import Manifest, locked
from pipeline.sweep.summary import CSV, SUMMARY, Row, arms_table, failures, rows_of, write_summary
from pipeline.sweep.trials import Trial, check_room
from pipeline.sweep.writer import PARENT, RemoteWriter
from pipeline.tracking import tracking_uri

METRIC = "objective"
WIDTH = 120
"""Columns of the table where nobody looks at a terminal."""

REDUCTION = 3
"""ASHA keeps one trial in so many at every rung (Li et al. 2020)."""

SETTLED: Mapping[str, str] = {"finished": "finished", "stopped": "stopped", "failed": "failed", "unfinished": "stopped"}
"""How a trial's run is closed in MLflow, by its outcome."""


@dataclass(frozen=True)
class Sweep:
    """A checked sweep: its folder, description, base and every trial's configuration."""

    folder: Path
    manifest: Manifest
    base: Config
    configs: Sequence[Config]
    restored: bool

    @property
    def trials(self) -> Sequence[Trial]:
        """The trials, in order."""
        return self.manifest.trials


def run_sweep(sweep: Sweep) -> int:
    """Run all trials that have not ended; the exit code: 0, 1 when trials failed, 130 when it was stopped. Raises ``FedAgentError``."""
    if (done := _whole(sweep)) is not None:
        _tell(sweep, done, False)
        return 0
    print(f"{sweep.folder}: {len(sweep.trials)} trials; {'joining' if _joins(sweep.base) else 'starting'} Ray ...", file=sys.stderr)
    # Tune would move every trial into its folder; relative paths of a user's own code would break.
    os.environ["RAY_CHDIR_TO_TRIAL_DIR"] = "0"
    # Its tables would mix with ours, and name a folder that ends with the cluster.
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    # A sweep that is stopped does not wait for rounds in the middle: they are done again.
    os.environ.setdefault("TUNE_FORCE_TRIAL_CLEANUP_S", "30")
    with locked(sweep.folder), connect(sweep.base), terminable():
        check_room(sweep.trials, sweep.configs, cluster_nodes())
        tracking = sweep.base.tracking.model_copy(update={"uri": tracking_uri(sweep.folder, sweep.base.tracking.uri)})
        writer = RemoteWriter.start(sweep.folder, tracking)
        parent = writer.of(PARENT)
        parent.record(_start_record(sweep))
        errors: dict[str, str] = {}
        interrupted = False
        try:
            errors = _tune(sweep)
        except KeyboardInterrupt:
            interrupted = True
        rows = rows_of(sweep.folder, sweep.trials, errors, sweep.manifest.asha)
        interrupted = interrupted or any(row.status == "unfinished" for row in rows)
        _close(sweep, writer, rows)
    _tell(sweep, rows, interrupted)
    if interrupted:
        return 130
    return 1 if any(row.status == "failed" for row in rows) else 0


def _joins(base: Config) -> bool:
    return (base.resources.address or os.environ.get("RAY_ADDRESS") or "local") != "local"


def _whole(sweep: Sweep) -> list[Row] | None:
    """The outcomes of a restored sweep that has nothing left to do; else None."""
    if not sweep.restored or not (sweep.folder / SUMMARY).is_file():
        return None
    rows = rows_of(sweep.folder, sweep.trials, {}, sweep.manifest.asha)
    return rows if all(row.status in ("finished", "stopped") for row in rows) else None


def _tune(sweep: Sweep) -> dict[str, str]:
    """Fit; the last error of every trial that failed, by trial name."""
    from ray import tune

    from pipeline.sweep.screen import SweepScreen
    from pipeline.sweep.trainable import KEY, Job, described, trainable_for

    quiet_tune()
    trainable = trainable_for(Job(sweep.folder, sweep.manifest.base))
    if sweep.restored and _has_state(sweep.folder):
        tuner = tune.Tuner.restore(str(sweep.folder), trainable=trainable, resume_unfinished=True, resume_errored=True)
    else:
        rounds = {trial.name: config.federation.rounds for trial, config in zip(sweep.trials, sweep.configs, strict=True)}
        tuner = tune.Tuner(
            trainable,
            param_space={KEY: tune.grid_search([described(trial) for trial in sweep.trials])},
            tune_config=tune.TuneConfig(
                scheduler=asha(sweep.configs) if sweep.manifest.asha else None,
                reuse_actors=True,
                trial_name_creator=name_of,
                trial_dirname_creator=name_of,
            ),
            run_config=tune.RunConfig(
                name=sweep.folder.name,
                storage_path=str(sweep.folder.parent),
                failure_config=tune.FailureConfig(max_failures=sweep.manifest.retries),
                # The trial's run folder is its checkpoint.
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                callbacks=[SweepScreen(rounds)],
                verbose=0,
            ),
        )
    results = tuner.fit()
    return {result.config[KEY]["name"]: first_line(result.error) for result in results if result.error is not None}


def name_of(trial: Any) -> str:
    """A Tune trial's name, which is also its folder's."""
    from pipeline.sweep.trainable import KEY

    return str(trial.config[KEY]["name"])


def first_line(error: BaseException) -> str:
    """The cause of a trial's failure in one line: the last line of the remote traceback that is no traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:500]


def asha(configs: Sequence[Config]) -> Any:
    """Asynchronous successive halving over rounds. Its first rung is the first evaluation after training began.

    Raises ``ConfigError`` where there is nothing to compare before the last round.
    """
    from ray.tune.schedulers import ASHAScheduler

    rounds = max(config.federation.rounds for config in configs)
    check_asha(configs)
    grace = max(config.evaluation.every for config in configs)
    return ASHAScheduler(time_attr="round", metric=METRIC, mode="max", max_t=rounds, grace_period=grace, reduction_factor=REDUCTION)


def check_asha(configs: Sequence[Config]) -> None:
    """Raise ``ConfigError`` where trials are not measured before their last round."""
    for config in configs:
        if not 0 < config.evaluation.every < config.federation.rounds:
            raise ConfigError(
                f"--asha compares trials on the way, but evaluation.every = {config.evaluation.every} measures none before round "
                f"{config.federation.rounds}; allowed: 1 to {config.federation.rounds - 1}"
            )


def _has_state(folder: Path) -> bool:
    return (folder / "tuner.pkl").is_file() and any(folder.glob("experiment_state-*.json"))


def quiet_tune() -> None:
    """Tune's own remarks (how to resume, that a trial has no checkpoint) are about another way of doing things. Tracebacks of trials stay
    in their folders (``error.txt``); the summary has their last line."""
    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    logging.getLogger("ray.train").setLevel(logging.ERROR)
    logging.getLogger("ray.tune.execution.tune_controller").setLevel(logging.CRITICAL)
    logging.getLogger("ray.tune.tune").addFilter(_not_of_trials)


def _not_of_trials(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Trials did not complete")


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Within the block SIGTERM (``ray job stop``) ends the sweep as Ctrl-C does: Tune stores its state, the sweep stays resumable."""

    def stop(number: int, frame: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _start_record(sweep: Sweep) -> dict[str, Any]:
    manifest = sweep.manifest
    seeds = list(manifest.seeds) if manifest.seeds is not None else "of the space"
    about = {"space": manifest.space, "seeds": seeds, "samples": manifest.samples, "asha": manifest.asha, "trials": len(manifest.trials)}
    versions = {name: value for name, value in manifest.code.items() if not name.endswith(".py")}
    return {"kind": "start", "config": {"sweep": about, "base": dict(manifest.base.given)}, "versions": versions, "resumed_from": None}


def _close(sweep: Sweep, writer: RemoteWriter, rows: Sequence[Row]) -> None:
    """The MLflow tree and the summary say what the folders say. The summary comes late: with it the sweep counts as whole."""
    lost = [summary for row in rows if (summary := writer.settle(row.trial.name, SETTLED[row.status])).warning() is not None]
    write_summary(sweep.folder, sweep.manifest, rows)
    parent = writer.of(PARENT)
    for name in (SUMMARY, CSV):
        parent.artifact(sweep.folder / name)
    states = {row.status for row in rows}
    status = "stopped" if "unfinished" in states else "failed" if "failed" in states else "finished"
    whole = writer.finish(PARENT, status)
    for summary in [*lost, whole]:
        if (warning := summary.warning()) is not None:
            print(f"warning: {warning}", file=sys.stderr)
            break


def _tell(sweep: Sweep, rows: Sequence[Row], interrupted: bool) -> None:
    counts = {status: sum(row.status == status for row in rows) for status in ("finished", "stopped", "failed", "unfinished")}
    words = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(arms_table(rows, f"Sweep {sweep.folder.name}: {words} of {len(rows)} trials"))
    for line in failures(rows):
        print(line)
    print(f"trials: {sweep.folder / SUMMARY}, {sweep.folder / CSV}")
    if interrupted or counts["failed"]:
        print(f"continue with: fedagent sweep --resume {sweep.folder}")
