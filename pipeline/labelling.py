"""Which tasks are easy: an agent tries every train task, and its success rates become a label file.

The agent is the scripted oracle, which needs nothing, or a model on the run's own engine (Ray and vLLM, or the transformers backend). Owns
what counts as a success and the file's account of how labels were made; the file format is ``envs.partition.hardness``'s.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.base import Task, World
from envs.partition import write_labels
from envs.variants import DEFAULT
from pipeline.config import Config, PartitionConfig
from pipeline.episodes import Episode, EpisodeSpec, Sampling
from pipeline.errors import ConfigError, DataError, EngineError
from pipeline.schedule import episode_seed
from pipeline.services import Handle, Parts, Rollouts, within

LABELLER = "label"
"""The ``client`` of the episodes."""
BATCH = 512
"""Episodes asked for at once."""

Progress = Callable[[int, int, int], None]
"""Called with tasks done, tasks in all, and easy ones so far."""


@dataclass(frozen=True)
class Tried:
    """What an agent made of a task: successes of so many episodes."""

    task: str
    successes: int
    episodes: int

    @property
    def rate(self) -> float:
        """Success rate in [0, 1]."""
        return self.successes / self.episodes


def quiet(done: int, total: int, easy: int) -> None:
    """No progress shown."""


def try_oracle(world: World, tasks: Sequence[Task], turns: int, variant: str = DEFAULT, progress: Progress = quiet) -> list[Tried]:
    """Let the oracle plan each task once and carry the plan out; a success counts within ``turns`` actions."""
    tried: list[Tried] = []
    env = world.make(variant)
    for task in tasks:
        plan = world.oracle(task, variant)
        success = False
        if 0 < len(plan) <= turns:
            _, info = env.reset(options={"task": task})
            for action in plan:
                _, _, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    break
            success = bool(info["success"])
        tried.append(Tried(task.id, int(success), 1))
        progress(len(tried), len(tasks), sum(t.successes for t in tried))
    return tried


def episode_specs(tasks: Sequence[Task], first: int, episodes: int, seed: int, variant: str) -> list[EpisodeSpec]:
    """Episodes of tasks that begin at place ``first`` of the pool: as many of each, all with seeds of their own."""
    return [
        EpisodeSpec(LABELLER, task, variant, first + i, episode_seed(seed, 0, LABELLER, 0, first + i, member))
        for i, task in enumerate(tasks)
        for member in range(episodes)
    ]


async def try_model(
    rollouts: Rollouts,
    fetch: Callable[[Handle], Any],
    version: str,
    tasks: Sequence[Task],
    episodes: int,
    turns: int,
    sampling: Sampling,
    seed: int,
    variant: str = DEFAULT,
    progress: Progress = quiet,
) -> list[Tried]:
    """Run ``episodes`` of every task under a published version; a success counts within ``turns`` turns.

    ``fetch`` resolves the handle of a batch of episodes. Raises ``DataError`` where a task's environment kept failing: it has no label.
    """
    tried: list[Tried] = []
    for part, first in _batches(tasks, max(1, BATCH // episodes)):
        handle, _ = await rollouts.run(episode_specs(part, first, episodes, seed, variant), version, sampling, None)
        done: list[Episode] = await fetch(handle)
        for i, task in enumerate(part):
            mine = done[i * episodes : (i + 1) * episodes]
            whole = [episode for episode in mine if episode.stop != "failed"]
            if not whole:
                raise DataError(f"task {task.id!r}: its environment failed in all {episodes} episodes, so it has no label; check its data")
            tried.append(Tried(task.id, sum(e.success and len(e.turns) <= turns for e in whole), len(whole)))
        progress(len(tried), len(tasks), sum(2 * t.successes >= t.episodes for t in tried))
    return tried


def _batches(tasks: Sequence[Task], size: int) -> Iterator[tuple[Sequence[Task], int]]:
    for first in range(0, len(tasks), size):
        yield tasks[first : first + size], first


def label_command(args: argparse.Namespace, episodes: int) -> int:
    """``fedagent data label`` with checked arguments."""
    from pipeline.partition_command import chosen_config, train_world

    progress = _shown(sys.stderr.isatty())
    if args.model or args.checkpoint:
        config, agent, world_name, tried = _with_model(args, episodes, progress)
    else:
        config = chosen_config(args)
        world = train_world(config)
        _check_variant(world, args.variant)
        _check_turns(world, args.within)
        agent, world_name = "oracle", config.world.name
        tried = try_oracle(world, world.tasks("train"), args.within or world.max_steps, args.variant, progress)
    easy = sum(t.rate >= args.threshold for t in tried)
    metadata = {
        "agent": agent,
        "world": world_name,
        "variant": args.variant,
        "episodes": episodes,
        "threshold": args.threshold,
        "within": args.within,
        "seed": config.run.seed,
        "easy": easy,
    }
    try:
        write_labels(args.out, ((t.task, t.rate, t.episodes) for t in tried), args.threshold, metadata)
    except OSError as error:
        raise DataError(f"--out {args.out}: cannot be written ({error.strerror or error}); choose another place") from error
    print(f"{args.out}: {easy} of {len(tried)} tasks are easy ({100 * easy / len(tried):.1f} %)")
    if easy in (0, len(tried)):
        what = "a weaker agent, or --within with fewer turns" if easy else "a stronger agent, or a lower --threshold"
        print(f"all tasks are alike, so --hardness cannot use these labels; try {what}", file=sys.stderr)
    return 0


def _with_model(args: argparse.Namespace, episodes: int, progress: Progress) -> tuple[Config, str, str, list[Tried]]:
    from pipeline.checkpoint import Checkpoint
    from pipeline.job import prepare, running
    from pipeline.partition_command import chosen_config
    from pipeline.preflight import check_cluster, check_world
    from pipeline.standalone import evaluation_config, find_checkpoint

    found: Checkpoint | None = None
    run = Path()
    if args.checkpoint is not None:
        run, found = find_checkpoint(args.checkpoint)
        config = evaluation_config(run, None, args.data, None)
        if args.seed is not None:
            config = config.model_copy(update={"run": config.run.model_copy(update={"seed": args.seed})})
    else:
        args.overrides = [*args.overrides, "--tracking.mlflow=false"]
        config = chosen_config(args)
    config = _bare(config)
    check_world(config)
    check_cluster(config)
    prepared = prepare(config)
    _check_variant(prepared.world, args.variant)
    _check_turns(prepared.world, args.within)
    tasks, turns = prepared.world.tasks("train"), args.within or prepared.world.max_steps
    sampling = Sampling(args.temperature, 1.0, prepared.config.rollout.max_new_tokens)

    async def work(cluster: Parts) -> list[Tried]:
        start = await cluster.initial() if found is None else cluster.restore(found)
        loading = cluster.rollouts.publish(start.name, start.state)
        await within(prepared.config.resources.start_timeout_s, loading, "the rollout engine to load", EngineError)
        seed = prepared.config.run.seed
        return await try_model(cluster.rollouts, cluster.fetch, start.name, tasks, episodes, turns, sampling, seed, args.variant, progress)

    with running(prepared, run) as parts:
        tried = asyncio.run(work(parts))
    agent = prepared.config.model.name if found is None else f"{run.name}, {found.state.version}"
    return prepared.config, agent, prepared.config.world.name, tried


def _bare(config: Config) -> Config:
    """The configuration with one client that owns anything: labels come before the partition that may need them."""
    federation = config.federation.model_copy(
        update={"partition": PartitionConfig(), "clients": 1, "clients_per_round": 1, "tasks_per_client": 1, "mode": "federated"}
    )
    algorithm = config.algorithm.model_copy(update={"tasks_per_epoch": 1})
    evaluation = config.evaluation.model_copy(update={"tasks": 1})
    return config.model_copy(update={"federation": federation, "algorithm": algorithm, "evaluation": evaluation})


def _check_variant(world: World, text: str) -> None:
    try:
        world.variant(text)
    except ValueError as error:
        raise ConfigError(f"--variant {text}: {error}") from error


def _check_turns(world: World, within: int | None) -> None:
    if within is not None and within > world.max_steps:
        raise ConfigError(f"--within {within}: an episode ends after {world.max_steps} turns; allowed: 1 to {world.max_steps}")


def _shown(terminal: bool) -> Progress:
    """A line that counts up in a terminal; a line every tenth of the way elsewhere."""
    last = [-1]

    def show(done: int, total: int, easy: int) -> None:
        step = 100 * done // total if terminal else 10 * done // total
        if step != last[0]:
            last[0] = step
            end = "\r" if terminal and done < total else "\n"
            print(f"labelled {done} of {total} tasks, {easy} solved", end=end, file=sys.stderr, flush=True)

    return show
