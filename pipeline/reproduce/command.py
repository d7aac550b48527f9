"""``fedagent reproduce``: from words on the command line to a checked plan; runs it, or prints what it would run. Light to import."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.reproduce.assemble import Plan
    from pipeline.reproduce.store import Store
    from pipeline.reproduce.trials import Trial

TALES = ("tale",)
SEEDS = 3
MOST_SEEDS = 100
OUT = "runs/{name}{quick}"
EPILOG = """Results land in FOLDER/tale.json, tale.html and tale.txt, also when it is stopped: --resume goes on. Settings such as
--federation.rounds 20 change all chosen arms; arms are done again when their settings change."""


def add_reproduce_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``reproduce`` to the subparsers of ``fedagent``. Settings (``--section.key``) are left to ``overrides``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "reproduce", help="run the arms of the tale and write their results and report", epilog=EPILOG
    )
    parser.add_argument("what", choices=TALES, help="what to reproduce")
    parser.add_argument("--seeds", type=int, metavar="N", help=f"independent seeds of every arm (default: {SEEDS}, with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="fewer arms, one seed: about ten minutes")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where everything is kept (default: runs/tale, with --quick runs/tale-quick)"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what was begun in FOLDER; what is done is not done again")
    parser.add_argument("--only", action="append", metavar="GLOB", help="arms by name, such as 'buy*'; may be repeated")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes, one processor each (default: all processors)")
    parser.add_argument("--dry-run", action="store_true", help="print the arms and how long they should take; start nothing")
    parser.set_defaults(command=run_reproduce, overrides=[])
    return parser


def run_reproduce(args: argparse.Namespace) -> int:
    """The command; its exit code: 0 when nothing is missing, 1 when something is, 130 when it was stopped. Raises ``FedAgentError``."""
    from pipeline.reproduce.store import Store
    from pipeline.reproduce.trials import in_order

    quick, seeds, workers = bool(args.quick), _seeds(args), _workers(args)
    plan = make_plan(args.only or [], args.overrides, quick, seeds, args.what)
    store = Store(args.out or Path(OUT.format(name=args.what, quick="-quick" if quick else "")), args.what)
    trials = in_order(plan.runnable, seeds)
    for trial in trials[: len(plan.runnable) * seeds]:
        trial.config(store.labels)
    if args.dry_run:
        show(plan, store, trials, workers)
        return 0
    if not trials:
        raise ConfigError(f"none of the chosen arms can be run here: {next(iter(plan.skipped.values()))}")
    store.prepare(bool(args.resume))
    keep_results(plan, store)
    return reproduce(plan, store, trials, workers)


def keep_results(plan: Plan, store: Store) -> None:
    """Refuse to write results over others that have more. Arms that the tale no longer has, or has otherwise, do not count.

    Raises ``ConfigError``, and ``DataError`` for a results file that cannot be read.
    """
    from pipeline.reproduce.arms import tale
    from pipeline.reproduce.results import load_results
    from pipeline.reproduce.trials import Trial

    if not store.results.exists():
        return
    there = load_results(store.results)
    keys = {(arm.name, seed): Trial(arm, seed).key for arm in plan.arms for seed in range(plan.seeds)}
    known = {arm.name for arm in tale()}
    same = _settings(there.command) == _settings(plan.command)
    lost = [arm for arm in there.arms if arm.name in known and (arm.name, arm.seed) not in keys]
    lost += [] if same else [arm for arm in there.arms if keys.get((arm.name, arm.seed), arm.key) != arm.key]
    if lost:
        raise ConfigError(
            f"{store.results} holds {len(lost)} trials that this command line would leave out, for instance {lost[0].name}, seed "
            f"{lost[0].seed}: it was made by `{there.command}`; add --resume to that, or choose another --out"
        )


def _settings(command: str) -> list[str]:
    """The settings on a command line of ``make_plan``, without what only chooses arms and seeds."""
    words, found = shlex.split(command)[3:], []
    while words:
        word = words.pop(0)
        if word in ("--seeds", "--only"):
            del words[:1]
        elif word != "--quick":
            found.append(word)
    return found


def _seeds(args: argparse.Namespace) -> int:
    seeds = args.seeds if args.seeds is not None else 1 if args.quick else SEEDS
    if not 1 <= seeds <= MOST_SEEDS:
        raise ConfigError(f"--seeds {seeds}: allowed: 1 to {MOST_SEEDS}")
    return int(seeds)


def _workers(args: argparse.Namespace) -> int:
    most = os.cpu_count() or 1
    workers = args.workers if args.workers is not None else most
    if workers < 1:
        raise ConfigError(f"--workers {workers}: allowed: 1 or more")
    return int(workers)


def make_plan(only: Sequence[str], overrides: Sequence[str], quick: bool, seeds: int, what: str = "tale") -> Plan:
    """What a command line asks for. Raises ``ConfigError`` for a pattern or a setting that fits no arm."""
    from pipeline.reproduce.arms import tale
    from pipeline.reproduce.assemble import Plan, impossible
    from pipeline.reproduce.trials import changed, chosen

    arms = changed(tale(quick), overrides)
    words = ["fedagent", "reproduce", what, "--seeds", str(seeds), *(["--quick"] if quick else [])]
    words += [word for glob in only for word in ("--only", glob)]
    command = shlex.join([*words, *overrides])
    return Plan(arms, chosen(arms, only), seeds, command, impossible(arms))


def show(plan: Plan, store: Store, trials: Sequence[Trial], workers: int) -> None:
    """Print the arms in the order of their trials, and how long all should take."""
    from rich.console import Console
    from rich.table import Table

    from pipeline.progress import duration
    from pipeline.reproduce.runner import Forecast

    forecast = Forecast()
    done = {trial.id for trial in trials if (outcome := store.outcome(trial)) is not None and outcome.done}
    for trial in trials:
        if trial.id in done and (outcome := store.outcome(trial)) is not None:
            forecast.learn(trial, float(outcome.numbers.get("wall_seconds") or 0.0))
    table = Table(box=None, pad_edge=False)
    for name in ("arm", "family", "", "algorithm", "mode", "rounds", "floor", "against", "done", "seconds"):
        table.add_column(name, justify="right" if name in ("rounds", "done", "seconds") else "left", no_wrap=True)
    for arm in dict.fromkeys(trial.arm.name for trial in trials):
        own = [trial for trial in trials if trial.arm.name == arm]
        spec, finished = own[0].arm, sum(trial.id in done for trial in own)
        rounds = str(own[0].config(store.labels).federation.rounds)
        rule = "" if spec.rule == "none" else spec.rule
        cells = (spec.name, spec.family, spec.label, spec.algorithm, spec.mode, rounds, rule, spec.versus or "")
        table.add_row(*cells, f"{finished}/{len(own)}", f"{forecast.seconds(own[0]):.0f}")
    console = Console(width=max(190, Console().width), highlight=False)
    console.print(table)
    for name, reason in plan.skipped.items():
        console.print(f"{name}: skipped: {reason}")
    waiting = [trial for trial in trials if trial.id not in done]
    left = duration(forecast.left(waiting, [], workers))
    console.print(
        f"{len(trials)} trials of {len(plan.runnable)} arms, {len(done)} done; about {left} with {workers} workers; into {store.path}"
    )


def reproduce(plan: Plan, store: Store, trials: Sequence[Trial], workers: int) -> int:
    """Run the trials and write the results; the exit code."""
    from actors.placement import connect
    from pipeline.config.load import load_config
    from pipeline.job import stop_signals
    from pipeline.reproduce.arms import LABELS
    from pipeline.reproduce.display import Screen
    from pipeline.reproduce.labels import make_labels
    from pipeline.reproduce.pool import RayPool
    from pipeline.reproduce.runner import run_trials
    from pipeline.reproduce.writing import Writer

    writer, stopped = Writer(store, plan), False
    if not store.labels.exists() and any(LABELS in trial.arm.settings.values() for trial in trials):
        make_labels(store, next(trial for trial in trials if LABELS in trial.arm.settings.values()))
    joining = [] if os.environ.get("RAY_ADDRESS") else [f"--resources.cpus={workers}", "--resources.object_store_gb=0.2"]
    config = load_config(None, [f"--run.name=reproduce-{store.name}", *joining])
    with Screen(store) as screen:
        try:
            with connect(config), stop_signals():
                pool = RayPool(store, min(workers, len(trials)))

                def finished(trial: Trial) -> None:
                    screen.finished(trial)
                    writer.sometimes()

                try:
                    run_trials(trials, store, pool, screen, finished=finished)
                finally:
                    pool.close()
        except KeyboardInterrupt:
            stopped = True
    results = writer.write()
    print(store.text.read_text(encoding="utf-8"), end="")
    print(f"results: {store.results}\nreport:  {store.page}")
    if stopped:
        print("stopped; --resume goes on where it was left", file=sys.stderr)
        return 130
    return 1 if any(gap.wanted for gap in results.missing) else 0
