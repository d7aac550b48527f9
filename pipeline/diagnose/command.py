"""``fedagent diagnose``: from a federation's configuration to a table, a JSON file and a page. Trains nothing; needs Ray only where a
checkpoint is to be looked at.

Owns the command line and the way from configuration to clients. A caller may bring its own way (``Setup``).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.base import Task, World
from pipeline.diagnose.setup import ClientSetup, Settings, Visit
from pipeline.errors import ConfigError, DataError

if TYPE_CHECKING:
    from pipeline.config import Config

USAGE = "fedagent diagnose [--config FILE] [--section.key VALUE ...] [--out DIR] [--json] [--checkpoint DIR | --episodes FILE]"


@dataclass(frozen=True)
class Federation:
    """A world, its clients, and what to call them."""

    world: World
    clients: Mapping[str, ClientSetup]
    name: str = "federation"
    names: Mapping[str, str] = field(default_factory=dict)
    """Each client's variant by the name that environment workers know; for checkpoints."""


Setup = Callable[[argparse.Namespace], Federation]
"""Builds a federation from the parsed arguments (``config``, ``overrides``, ``checkpoint``)."""


def add_diagnose_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``diagnose`` to the subparsers of ``fedagent``. Settings of the run (``--section.key``) are left to ``overrides``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "diagnose", help="can what differs between the clients be read, or only felt? (before any training)", usage=USAGE
    )
    return _add_options(parser)


def _add_options(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--config", type=Path, metavar="FILE", help="the federation's configuration, as for a run")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for diagnosis.json and diagnosis.html (default: diagnosis)")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else; writes files only with --out")
    defaults = Settings()
    parser.add_argument("--tasks", type=_count, default=defaults.tasks, help="matched tasks (default: %(default)s)")
    parser.add_argument("--worlds", type=_count, default=defaults.worlds, help="most worlds compared (default: %(default)s)")
    parser.add_argument("--seeds", type=_count, default=defaults.seeds, help="episodes per script where worlds draw (default: %(default)s)")
    policy = parser.add_mutually_exclusive_group()
    policy.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="run folder or rounds/NNNN: diagnose its federation where its policy goes"
    )
    policy.add_argument("--episodes", type=Path, metavar="FILE", help="episodes that a run saved: where that policy went")
    parser.set_defaults(command=run_diagnose, overrides=[])
    return parser


def main(argv: Sequence[str]) -> int:
    """``fedagent diagnose`` with settings of the run among its arguments; the exit code."""
    from pipeline.cli import guarded

    parser = _add_options(argparse.ArgumentParser(prog="fedagent diagnose", usage=USAGE, allow_abbrev=False))
    args, overrides = parser.parse_known_args(list(argv))
    args.overrides = overrides
    return guarded(lambda: run_diagnose(args))


def run_diagnose(args: argparse.Namespace, setup: Setup | None = None) -> int:
    """Diagnose with the parsed arguments; 0. Raises ``FedAgentError``."""
    from rich.console import Console

    from pipeline.diagnose.diagnosis import diagnose
    from pipeline.diagnose.page import write_page
    from pipeline.diagnose.table import print_diagnosis

    console = Console(highlight=False)
    out = args.out if args.out is not None or args.json else Path("diagnosis")
    if out is not None:
        _check_folder(out)
    federation = (setup or from_arguments)(args)
    settings = replace(Settings(), tasks=args.tasks, worlds=args.worlds, seeds=args.seeds)
    visits: Sequence[Visit] = ()
    if args.episodes is not None:
        visits = saved_visits(args.episodes, federation)
    elif args.checkpoint is not None:
        visits = policy_visits(args.checkpoint, federation, settings)
    quiet = args.json or not sys.stderr.isatty()
    found = diagnose(federation.world, federation.clients, settings, visits, tell=(lambda text: None) if quiet else _to_stderr)
    text = json.dumps(found.plain(), indent=1, allow_nan=False)
    if args.json:
        print(text)
    else:
        print_diagnosis(found, console)
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            (out / "diagnosis.json").write_text(text + "\n", encoding="utf-8")
            page = write_page(found, out / "diagnosis.html", federation.name)
        except OSError as error:
            raise DataError(f"--out {out}: cannot be written ({error.strerror or error}); choose another folder") from error
        if not args.json:
            console.print(f"{out / 'diagnosis.json'}\n{page}", markup=False)
    return 0


def _check_folder(path: Path) -> None:
    """Refuse, before any work, a place where no folder can be made."""
    try:
        place = next(p for p in (path.absolute(), *path.absolute().parents) if os.path.lexists(p))
    except OSError as error:
        raise ConfigError(f"--out {path}: {error.strerror}; choose another folder") from error
    if not place.is_dir():
        raise ConfigError(f"--out {path}: {place} is a file; choose another folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {path}: {place} cannot be written to; choose another folder")


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


def from_arguments(args: argparse.Namespace) -> Federation:
    """The federation of a configuration file and overrides, or of a checkpoint's run. Raises ``FedAgentError``."""
    from pipeline.config.load import load_config, load_resolved

    if args.checkpoint is not None:
        from pipeline.standalone import find_checkpoint

        if args.config is not None:
            raise ConfigError("--checkpoint takes the configuration of its run; leave --config out")
        run, _ = find_checkpoint(args.checkpoint)
        return federation_of(load_resolved(run / "config.resolved.json", args.overrides), run.name)
    name = args.config.stem if args.config is not None else "federation"
    return federation_of(load_config(args.config, args.overrides), name)


def federation_of(config: Config, name: str = "federation") -> Federation:
    """Clients with their tasks and variants, as a run of this configuration would have them. Raises ``FedAgentError``."""
    from pipeline.config.load import resolve
    from pipeline.heterogeneity import set_up

    made = set_up(resolve(config))
    names = made.assignment.names
    clients = {client: ClientSetup(tasks, made.world.variant(names[client])) for client, tasks in made.tasks.items()}
    return Federation(made.world, clients, name, names)


def saved_visits(path: Path, federation: Federation) -> list[Visit]:
    """Where a policy went, from saved episodes of tasks that the clients own or that are held out. Raises ``DataError`` without any."""
    from pipeline.episode_log import read_episodes

    known: dict[str, Task] = {task.id: task for setup in federation.clients.values() for task in setup.tasks}
    known |= {task.id: task for task in federation.world.tasks("heldout")}
    visits = [
        Visit(known[record["task_id"]], tuple(str(turn["action"]) for turn in record["turns"]))
        for record in read_episodes(path)
        if record["task_id"] in known
    ]
    if not visits:
        raise DataError(f"{path}: no episode in it is on a task of this federation; give episodes of a run with the same world")
    return visits


def policy_visits(checkpoint: Path, federation: Federation, settings: Settings) -> list[Visit]:
    """Let a checkpoint's policy act once on every matched task in every world, on Ray. Raises ``FedAgentError``."""
    import asyncio

    from pipeline.config.load import load_resolved
    from pipeline.diagnose.setup import find_homes, matched_tasks, sample_homes
    from pipeline.episodes import Sampling
    from pipeline.evaluation import heldout_specs
    from pipeline.job import prepare, running
    from pipeline.services import EpisodeLogTarget, Parts
    from pipeline.standalone import find_checkpoint

    run, found = find_checkpoint(checkpoint)
    config = load_resolved(run / "config.resolved.json", ["--tracking.mlflow=false"])
    prepared = prepare(config)
    homes = sample_homes(find_homes(federation.world, federation.clients), settings.worlds, settings.seed)
    tasks = matched_tasks(homes, federation.clients, settings.tasks, settings.seed)

    async def act(cluster: Parts, path: Path) -> None:
        await cluster.ready()
        start = cluster.restore(found)
        await cluster.rollouts.publish(start.name, start.state)
        sampling = Sampling(1.0, 1.0, config.rollout.max_new_tokens)
        for home in homes:
            specs = heldout_specs(tasks, config.run.seed, federation.names[home.clients[0]])
            await cluster.rollouts.run(specs, start.name, sampling, EpisodeLogTarget(path, 0, 0, len(specs)))

    with tempfile.TemporaryDirectory() as folder, running(prepared, run) as parts:
        path = Path(folder) / "policy.jsonl"
        asyncio.run(act(parts, path))
        return saved_visits(path, federation)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 1")
    return int(text)
