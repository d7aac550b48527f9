"""``fedagent sweep``: from words on the command line to a checked sweep; runs it, or prints what it would do.

Owns what is refused, in which order, and that a refused restore writes nothing. Light to import.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.sweep.driver import Sweep
    from pipeline.sweep.manifest import Manifest

USAGE = """fedagent sweep SPACE [--config FILE] [--seeds 0,1,2] [--samples N] [--asha] [--section.key VALUE ...] [--dry-run]
       fedagent sweep --resume FOLDER"""

EXPLAIN = """SPACE is heterogeneity, algorithm, federation, scale, or module:function: a function of the base configuration that returns a
Ray Tune search space over dotted settings, such as {"world.variant.family": tune.grid_search(["checkout", "selection"])}; a key without a
dot names a group of settings that move together. Trials lie in <run.dir>/<run.name>/<trial>/run and are ordinary run folders."""

RETRIES = 2
DRY_ROWS = 60


def add_sweep_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``sweep`` to the subparsers of ``fedagent``. Settings of the base (``--section.key``) are left to ``overrides``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep", help="many trials of one base configuration, on Ray Tune", usage=USAGE, epilog=EXPLAIN
    )
    parser.add_argument("space", nargs="?", metavar="SPACE", help="search space: a name, or module:function")
    parser.add_argument("--config", type=Path, metavar="FILE", help="the base configuration, as for a run")
    parser.add_argument("--seeds", metavar="LIST", help="seeds of every point, such as 0,1,2 (the default)")
    parser.add_argument("--samples", type=int, metavar="N", help="draws of a space that has random values (default: 1)")
    parser.add_argument("--asha", action="store_true", help="stop trials early that fall behind (asynchronous successive halving)")
    parser.add_argument(
        "--retries", type=int, metavar="N", help=f"times that a dead trial goes on from its last whole round (default: {RETRIES})"
    )
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with a sweep that was stopped, or whose trials failed")
    parser.add_argument("--allow-changed-code", action="store_true", help="with --resume: go on although the trials' code has changed")
    parser.add_argument("--dry-run", action="store_true", help="print the trials and start nothing")
    parser.set_defaults(command=run_sweep_command, overrides=[])
    return parser


def run_sweep_command(args: argparse.Namespace) -> int:
    """The command; its exit code. Raises ``FedAgentError``."""
    sweep = new_sweep(args) if args.resume is None else restored_sweep(args)
    if args.dry_run:
        return show(sweep)
    from pipeline.sweep.driver import run_sweep

    if not sweep.restored:
        sweep = begin(sweep)
    return run_sweep(sweep)


def new_sweep(args: argparse.Namespace) -> Sweep:
    """A sweep from the command line, checked. Its folder does not exist yet. Raises ``FedAgentError``."""
    from pipeline.config.load import load_config
    from pipeline.config.rules import is_set
    from pipeline.preflight import check_run_folder

    if args.space is None:
        raise ConfigError("a sweep needs a SPACE: heterogeneity, algorithm, federation, scale, or module:function; see --help")
    if args.allow_changed_code:
        raise ConfigError("--allow-changed-code cannot matter without --resume; leave it out")
    config = load_config(args.config, args.overrides, must_matter=frozenset())
    if not is_set(config, "run.name"):
        named = args.space.rpartition(":")[2]
        config = config.model_copy(update={"run": config.run.model_copy(update={"name": f"sweep-{named}"[:80]})})
    check_run_folder(config)
    return checked(args, config, config.run.dir.expanduser().absolute() / config.run.name, None)


def restored_sweep(args: argparse.Namespace) -> Sweep:
    """The sweep of a folder, compared with what the command line and today's code say. Writes nothing. Raises ``FedAgentError``."""
    from pipeline.config.load import load_config
    from pipeline.sweep.manifest import check_same, read_manifest

    folder = args.resume.expanduser().absolute()
    there = read_manifest(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise CheckpointError(f"{folder} cannot be written to: a restored sweep goes on in its folder. Change its permissions, or copy it")
    if args.space is None:
        args.space = there.space
    # What the command line leaves out is as it was.
    args.samples = there.samples if args.samples is None else args.samples
    args.asha = args.asha or there.asha
    args.retries = there.retries if args.retries is None else args.retries
    given = args.config is not None or bool(args.overrides)
    config = load_config(args.config, args.overrides, must_matter=frozenset()) if given else there.base.config()
    sweep = checked(args, config, folder, there)
    check_same(folder, there, sweep.manifest, allow_code=args.allow_changed_code)
    return sweep


def checked(args: argparse.Namespace, config: Config, folder: Path, there: Manifest | None) -> Sweep:
    """Everything about a sweep that can be known before Ray starts. Raises ``FedAgentError``."""
    from pipeline.config.rules import is_set
    from pipeline.preflight import check_world
    from pipeline.sweep.driver import Sweep, check_asha
    from pipeline.sweep.manifest import Manifest, code_identity
    from pipeline.sweep.spaces import draw, find_space, parse_seeds, read_space, with_seeds
    from pipeline.sweep.trials import Base, check_trials, make_trials

    samples = 1 if args.samples is None else args.samples
    retries = RETRIES if args.retries is None else args.retries
    if not 1 <= samples <= 10_000:
        raise ConfigError(f"--samples {samples}: allowed: 1 to 10000")
    if not 0 <= retries <= 100:
        raise ConfigError(f"--retries {retries}: allowed: 0 to 100")
    if args.seeds is not None:
        seeds: tuple[int, ...] | None = parse_seeds(args.seeds)
    else:
        seeds = there.seeds if there is not None else None
    if is_set(config, "run.seed"):
        raise ConfigError(f"run.seed = {config.run.seed}: a sweep takes its seeds from --seeds {config.run.seed}")
    function = find_space(args.space)
    check_world(config)
    base = Base.of(config)
    points = draw(args.space, read_space(args.space, function, config), samples)
    trials = make_trials(with_seeds(args.space, points, seeds))
    configs = check_trials(args.space, base, trials, folder)
    if args.asha:
        check_asha(configs)
    check_local_room(config, trials, configs)
    manifest = Manifest(args.space, base, seeds, samples, args.asha, retries, trials, code_identity())
    return Sweep(folder, manifest, config, configs, restored=there is not None)


def check_local_room(config: Config, trials: Any, configs: Any) -> None:
    """Refuse what a local cluster could not place, and a cluster that does not answer. Raises ``PlacementError``."""
    from pipeline.preflight import check_cluster, may_have_gpus
    from pipeline.sweep.trials import check_room, with_values

    address = config.resources.address or os.environ.get("RAY_ADDRESS")
    if address is None or address in ("", "local"):
        gpus = float("inf") if may_have_gpus() else 0.0
        check_room(trials, configs, [{"CPU": float(config.resources.cpus or os.cpu_count() or 1), "GPU": gpus}])
    else:
        check_cluster(with_values(config, {"resources.layout": "actors"}))


def begin(sweep: Sweep) -> Sweep:
    """Make the sweep's folder, another one when the name is taken, and write what the sweep is. Raises ``ConfigError``."""
    from dataclasses import replace

    from pipeline.run_folder import new_run_folder

    folder = new_run_folder(sweep.base).path
    sweep = replace(sweep, folder=folder)
    sweep.manifest.write(folder)
    return sweep


def show(sweep: Sweep) -> int:
    """``--dry-run``: the trials, where they run, and how a restored sweep stands."""
    from rich.console import Console
    from rich.table import Table

    from actors.placement import totals, trial_needs
    from pipeline.sweep.summary import rows_of

    rows = rows_of(sweep.folder, sweep.trials, {}, sweep.manifest.asha) if sweep.restored else []
    table = Table(title=f"Sweep {sweep.folder.name}: {len(sweep.trials)} trials of {sweep.manifest.space}", title_justify="left")
    for name in ("trial", "sets", "rounds", "layout", "CPU", "GPU", *(["stands"] if rows else [])):
        table.add_column(name, justify="left" if name in ("trial", "sets", "layout", "stands") else "right", overflow="fold")
    for number, (trial, config) in enumerate(zip(sweep.trials, sweep.configs, strict=True)):
        if number == DRY_ROWS:
            table.add_row(f"... {len(sweep.trials) - DRY_ROWS} more")
            break
        need = totals(trial_needs(config))
        sets = ", ".join(f"{path.rpartition('.')[2]} {value}" for path, value in trial.point.items())
        numbers = [str(config.federation.rounds), config.resources.layout, f"{need.get('CPU', 0):g}", f"{need.get('GPU', 0):g}"]
        table.add_row(trial.name, sets, *numbers, *([rows[number].status] if rows else []))
    Console().print(table)
    return 0
