"""``fedagent data partition`` and ``fedagent data label``: deal tasks out and show the outcome, and find out which tasks are easy.

Owns the arguments, the files written and what is printed. The partition is ``envs.partition``'s, the labels are ``pipeline.labelling``'s.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from envs.base import Task, World
from envs.partition import Partition, PartitionError, read_labels, write_assignment
from envs.partition.report import partition_report
from envs.partition.spec import dispersion
from envs.variants import DEFAULT
from pipeline.config import Config
from pipeline.config.load import load_config
from pipeline.errors import ConfigError, DataError
from pipeline.partitioning import partition_tasks
from pipeline.worlds import build_world, resolve_world, world_spec

THRESHOLD, TEMPERATURE = 0.5, 1.0
"""Defaults of ``fedagent data label`` for a model; the scripted oracle needs neither."""

FREE = ("--federation.clients_per_round=1", "--algorithm.tasks_per_epoch=1")
"""Settings that a partition does not depend on, out of the way of small federations; those of a configuration file stand."""

_FLAGS = {
    "world": "world.name",
    "data": "world.data",
    "clients": "federation.clients",
    "tasks": "federation.tasks_per_client",
    "preference": "federation.partition.preference",
    "coverage": "federation.partition.coverage",
    "hardness": "federation.partition.hardness",
    "file": "federation.partition.file",
    "min_size": "federation.partition.min_size",
    "mean_size": "federation.partition.mean_size",
    "max_size": "federation.partition.max_size",
    "easy_mean": "federation.partition.easy_mean",
    "seed": "run.seed",
    "reference": "federation.partition.reference",
    "model": "model.name",
}


def add_partition_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``partition`` to the subparsers of ``fedagent data``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "partition", help="deal a world's tasks out to clients, and show how the clients differ", epilog=_EPILOG
    )
    _world_arguments(parser)
    parser.add_argument("--clients", type=int, metavar="N", help="clients (default: 8)")
    parser.add_argument("--tasks", type=int, metavar="N", help="tasks of a client, on average with --coverage (default: 100)")
    knob = "xi=VALUE names a Beta concentration instead"
    parser.add_argument("--preference", type=float, metavar="OMEGA", help="how far category mixes spread, between 0 and 1")
    parser.add_argument("--coverage", type=_knob, metavar="KNOB", help=f"how far numbers of tasks spread, between 0 and 1; {knob}")
    parser.add_argument("--hardness", type=_knob, metavar="KNOB", help=f"how far shares of easy tasks spread, between 0 and 1; {knob}")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="easy and hard tasks; without --hardness they are only measured")
    parser.add_argument("--file", type=Path, metavar="FILE", help="show the partition in this file instead")
    parser.add_argument("--min-size", type=int, metavar="N", help="fewest tasks with --coverage (default: a tenth of the mean)")
    parser.add_argument("--mean-size", type=int, metavar="N", help="mean tasks with --coverage (default: --tasks)")
    parser.add_argument("--max-size", type=int, metavar="N", help="most tasks with --coverage (default: twice the mean)")
    parser.add_argument("--easy-mean", type=float, metavar="SHARE", help="mean share of easy tasks with --hardness (default: the pool's)")
    parser.add_argument("--seed", type=int, help="seed (default: the configuration's, 0)")
    parser.add_argument("--reference", action="store_true", default=None, help="the published constructor, defects included")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the partition, for federation.partition.file")
    parser.add_argument("--report", type=Path, metavar="PAGE", help="write an HTML page")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.set_defaults(command=run_partition, overrides=[])
    return parser


_EPILOG = "Every setting of a configuration may be given too, for instance --world.products 800."


def add_label_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``label`` to the subparsers of ``fedagent data``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "label", help="let an agent try every train task and write which are easy, for --hardness", epilog=_EPILOG
    )
    _world_arguments(parser)
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--model", metavar="NAME", help="let a model try: embedded, a folder or a Hugging Face id (default: the scripted oracle)"
    )
    who.add_argument("--checkpoint", type=Path, metavar="DIR", help="let a trained agent try: a run folder, or one of its rounds/NNNN")
    parser.add_argument("--episodes", type=int, metavar="N", help="episodes per task (default: 1, with a model 4)")
    parser.add_argument(
        "--threshold", type=float, metavar="RATE", help=f"success rate of a model from which a task is easy (default: {THRESHOLD})"
    )
    parser.add_argument(
        "--within", type=int, metavar="TURNS", help="count a success only within so many turns (default: the world's step limit)"
    )
    parser.add_argument("--temperature", type=float, help=f"sampling temperature of a model, 0 is greedy (default: {TEMPERATURE})")
    parser.add_argument("--variant", default=DEFAULT, metavar="TEXT", help="try in this variant of the world (default: unperturbed)")
    parser.add_argument("--seed", type=int, help="seed (default: the configuration's, 0)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="file to write")
    parser.set_defaults(command=run_label, overrides=[])
    return parser


def _world_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of a federation (default: all defaults)")
    parser.add_argument("--world", metavar="NAME", help="webshop, alfworld, bandit or guess (default: webshop)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder of the world (default: its variable, else generated data)")


def _knob(text: str) -> float:
    """A dispersion, or ``xi=VALUE`` as the dispersion of that Beta concentration."""
    try:
        value = dispersion(float(text[3:])) if text.startswith("xi=") else float(text)
        if text.startswith("xi=") and not value > 0.0:
            raise ValueError(text)
        return value
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number between 0 and 1, or xi= and a concentration above 0") from error


def chosen_config(args: argparse.Namespace) -> Config:
    """The configuration that file, flags and further settings amount to. Raises ``ConfigError``."""
    given = [f"--{setting}={_text(value)}" for flag, setting in _FLAGS.items() if (value := getattr(args, flag, None)) is not None]
    if getattr(args, "labels", None) is not None and getattr(args, "hardness", None) is not None:
        given.append(f"--federation.partition.labels={args.labels}")
    return load_config(args.config, [*(FREE if args.config is None else ()), *given, *args.overrides])


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


def train_world(config: Config) -> World:
    """The world of a configuration. Raises ``ConfigError`` or ``DataError``."""
    return build_world(world_spec(resolve_world(config.world)))


def run_partition(args: argparse.Namespace) -> int:
    """Deal the tasks out, print the account, write the files; 0. Raises ``ConfigError`` or ``DataError``."""
    from pipeline.schedule import client_names

    config = chosen_config(args)
    for path, what in ((args.out, "--out"), (args.report, "--report")):
        _writable(path, what)
    tasks = train_world(config).tasks("train")
    partition = partition_tasks(config.federation, client_names(config.federation), tasks, config.run.seed)
    if args.labels is not None and partition.easy is None:
        partition = _labelled(partition, args.labels, tasks)
    report = partition_report(partition)
    if args.json:
        print(json.dumps(report.plain(), ensure_ascii=False))
    else:
        from pipeline.report.partition_table import partition_tables

        Console(highlight=False).print(partition_tables(report))
    written = []
    if args.out is not None:
        _write(args.out, lambda: write_assignment(args.out, partition.plain()))
        written.append(args.out)
    if args.report is not None:
        from pipeline.report.partition_page import write_partition_page

        place = f"world {config.world.name}" + (f", data {config.world.data}" if config.world.data else "")
        title = f"{config.world.name}: {len(partition.clients)} clients"
        _write(args.report, lambda: write_partition_page(report, args.report, title, place, _command(args)))
        written.append(args.report)
    for path in written:
        print(f"wrote {path}", file=sys.stderr)
    return 0


def _labelled(partition: Partition, path: Path, tasks: Sequence[Task]) -> Partition:
    try:
        return replace(partition, easy=read_labels(path).flags(tasks))
    except PartitionError as error:
        raise DataError(f"--labels: {error}") from error


def run_label(args: argparse.Namespace) -> int:
    """Let the agent try every train task and write the labels; 0. Raises ``ConfigError`` or ``DataError``."""
    from pipeline.labelling import label_command

    _writable(args.out, "--out")
    oracle = not (args.model or args.checkpoint)
    given = [(name, value) for name, value in (("--threshold", args.threshold), ("--temperature", args.temperature)) if value is not None]
    args.threshold = THRESHOLD if args.threshold is None else args.threshold
    args.temperature = TEMPERATURE if args.temperature is None else args.temperature
    episodes = args.episodes if args.episodes is not None else 4 if args.model or args.checkpoint else 1
    for name, value, low, high in (
        ("--episodes", episodes, 1, 1000),
        ("--threshold", args.threshold, 1e-9, 1.0),
        ("--within", args.within if args.within is not None else 1, 1, 1000),
        ("--temperature", args.temperature, 0.0, 5.0),
    ):
        if not low <= value <= high:
            raise ConfigError(f"{name} {value:g}: allowed {'more than 0' if low == 1e-9 else f'{low:g}'} to {high:g}")
    for name, value in [*given, *([("--episodes", episodes)] if episodes > 1 else [])] if oracle else []:
        raise ConfigError(f"{name} {value:g} cannot matter without --model or --checkpoint: the oracle does the same every time")
    if args.checkpoint is not None and args.overrides:
        raise ConfigError(f"{args.overrides[0]} cannot matter with --checkpoint, whose run has its own settings; leave it out")
    if args.checkpoint is not None and (args.config is not None or args.world is not None):
        raise ConfigError("--config and --world cannot matter with --checkpoint, which has both; leave them out")
    return label_command(args, episodes)


def _writable(path: Path | None, option: str) -> None:
    """Refuse, before any work, a place where no file can be written."""
    if path is None:
        return
    if path.is_dir():
        raise ConfigError(f"{option} {path}: is a folder, a file is needed")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{option} {path}: the folder {path.absolute().parent} does not exist; create it or choose another place")
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {path}: the folder {path.absolute().parent} cannot be written to; choose another place")
    if option == "--report" and path.exists() and path.suffix not in (".html", ".htm"):
        raise ConfigError(f"{option} {path}: exists and is no page (.html); choose another name")


def _write(path: Path, work: Any) -> None:
    try:
        work()
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}); choose another place") from error


def _command(args: argparse.Namespace) -> str:
    """The command line that makes the page's partition again."""
    skipped = {"command", "overrides", "json", "report", "out"}
    words = ["fedagent", "data", "partition"]
    for name, value in vars(args).items():
        if name in skipped or value is None or value is False or name not in (*_FLAGS, "labels", "config"):
            continue
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join([*words, *args.overrides])
