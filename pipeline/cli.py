"""The ``fedagent`` command: subcommands parse their arguments, import what they need, and return an exit code.

``python -m pipeline.run`` is the same as ``fedagent run``. Heavy libraries are imported by the subcommand that needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pipeline.diagnose.command import add_diagnose_parser
from pipeline.errors import ConfigError, DataError, FedAgentError
from pipeline.partition_command import add_label_parser, add_partition_parser
from pipeline.play import add_play_parser
from pipeline.reproduce.command import add_reproduce_parser
from pipeline.sweep.command import add_sweep_parser

Command = Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point. Errors that a user can meet become one message on standard error and their exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["run"]:
        from pipeline.run import main as run_main

        return run_main(arguments[1:])
    arguments, settings = split_settings(arguments)
    arguments, plugins = split_plugins(arguments)
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    if settings and not hasattr(parsed, "overrides"):
        parser.error(f"unrecognized arguments: {' '.join(settings)}")
    if plugins:
        # A setting too, so that the processes that a command starts know them.
        settings = [*settings, f"--run.plugins={','.join(plugins)}"]
    parsed.overrides = settings
    return guarded(lambda: load_plugins(plugins) or parsed.command(parsed))


def split_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command's own arguments, and the settings of a federation among them: ``--section.key value`` or ``--section.key=value``."""
    own: list[str] = []
    settings: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if not name.startswith("--") or "." not in name:
            own.append(word)
            continue
        settings.append(word)
        if not equals and words and not words[0].startswith("--"):
            settings.append(words.pop(0))
    return own, settings


def split_plugins(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command's other arguments, and the plug-ins among them: ``--plugins NAME[,NAME]`` or ``--plugins=NAME[,NAME]``."""
    own: list[str] = []
    plugins: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if name != "--plugins":
            own.append(word)
            continue
        if not equals:
            text = words.pop(0) if words and not words[0].startswith("--") else ""
        plugins += [part.strip() for part in text.split(",")]
    return own, plugins


def load_plugins(names: Sequence[str]) -> int:
    """Load plug-ins; 0. Raises ``ConfigError``."""
    if names:
        from pipeline.plugins import load

        load(names)
    return 0


def guarded(work: Callable[[], int]) -> int:
    """Run ``work``; turn a ``FedAgentError`` into a message and its exit code, and a missing library into what to install.

    Damage that a world meets only while it is played (a game that cannot be parsed) is a ``DataError`` too.
    """
    try:
        return work()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("pipeline", "actors", "envs"):
            raise
        print(
            f"{error.name} is not installed for {sys.executable}: run make setup, then source .venv/bin/activate (or use .venv/bin/python)",
            file=sys.stderr,
        )
        return 1
    except FedAgentError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    except ValueError as error:
        from pipeline.worlds import DATA_ERRORS

        if not isinstance(error, DATA_ERRORS):
            raise
        print(f"DataError: {error}", file=sys.stderr)
        return DataError.exit_code


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands but ``run``."""
    parser = argparse.ArgumentParser(
        prog="fedagent",
        description="Federated reinforcement learning of LLM agents.",
        epilog="Every command takes --plugins MODULE[,MODULE]: modules (or .py files) that register worlds and more of your own.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    commands.add_parser("run", help="train (same as python -m pipeline.run)", add_help=False)

    evaluate = commands.add_parser("eval", help="evaluate a checkpoint on held-out tasks")
    evaluate.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help="run folder, or one of its rounds/NNNN")
    evaluate.add_argument("--world", help="name of the world (default: the run's)")
    evaluate.add_argument("--data", type=Path, help="data folder of the world (default: the run's)")
    evaluate.add_argument("--tasks", type=int, help="held-out tasks (default: the run's)")
    evaluate.add_argument(
        "--temperature", type=float, action="append", help="sampling temperature, 0 is greedy; may be repeated (default: 1 and 0)"
    )
    evaluate.add_argument(
        "--variant",
        action="append",
        metavar="TEXT",
        help="world variant, such as rank_wrapper:invert@0.5; may be repeated (default: the unperturbed world)",
    )
    evaluate.add_argument("--address", help="Ray cluster to join, or local (default: the run's)")
    evaluate.add_argument("--json", action="store_true", help="print JSON lines instead of a table")
    evaluate.set_defaults(command=_eval)

    report = commands.add_parser("report", help="write the page of a run, of a reproduction's results, or of several beside each other")
    report.add_argument("paths", type=Path, nargs="+", metavar="RUN_OR_RESULTS", help="run folder, or results of a reproduction (.json)")
    report.add_argument("--out", type=Path, metavar="PAGE", help="page to write (default: beside the results, or in the folder of the run)")
    report.set_defaults(command=_report)

    view = commands.add_parser("view", help="write a page that shows episodes turn by turn")
    view.add_argument("path", type=Path, help="run folder, or a file of episodes")
    view.add_argument("--out", type=Path, help="page to write (default: episodes.html beside the episodes)")
    view.add_argument("--limit", type=_count, default=200, metavar="N", help="episodes shown (default: %(default)s)")
    view.set_defaults(command=_view)

    data = commands.add_parser("data", help="write or check data folders, partitions and labels")
    worlds = data.add_subparsers(title="what", required=True, metavar="WHAT")
    webshop = worlds.add_parser("webshop", help="WebShop catalogues")
    action = webshop.add_mutually_exclusive_group(required=True)
    action.add_argument("--generate", type=int, metavar="N", help="write a catalogue of N products to --out")
    action.add_argument("--check", type=Path, metavar="DIR", help="check a folder, generated or public")
    webshop.add_argument("--out", type=Path, help="folder to write")
    webshop.add_argument("--seed", type=int, default=0, help="seed of the generated catalogue (default: %(default)s)")
    webshop.set_defaults(command=_data_webshop)

    alfworld = worlds.add_parser("alfworld", help="ALFWorld games")
    action = alfworld.add_mutually_exclusive_group(required=True)
    action.add_argument("--generate", type=_count, metavar="N", help="write N train games, and some held-out ones, to --out")
    action.add_argument("--check", type=Path, metavar="DIR", help="check a folder, generated or public, and play some stored plans")
    alfworld.add_argument("--out", type=Path, help="folder to write")
    alfworld.add_argument("--seed", type=int, default=0, help="seed of the generated games (default: %(default)s)")
    alfworld.add_argument("--size", choices=("small", "full"), default="small", help="size of the generated rooms (default: %(default)s)")
    alfworld.add_argument("--heldout", type=_count, default=300, metavar="N", help="held-out games to generate (default: %(default)s)")
    alfworld.set_defaults(command=_data_alfworld)

    add_partition_parser(worlds)
    add_label_parser(worlds)

    add_play_parser(commands).set_defaults(command=_play)
    add_diagnose_parser(commands)
    add_sweep_parser(commands)
    add_reproduce_parser(commands)

    model = commands.add_parser("model", help="the embedded models")
    model_actions = model.add_subparsers(title="actions", required=True, metavar="ACTION")
    build = model_actions.add_parser("build", help="train an embedded model from nothing (a few minutes)")
    build.add_argument("--out", type=Path, required=True, help="folder to write")
    build.add_argument("--seed", type=int, default=0, help="seed (default: %(default)s)")
    build.add_argument("--world", choices=("webshop", "alfworld", "toys"), default="webshop", help="which of them (default: %(default)s)")
    build.set_defaults(command=_model_build)
    path = model_actions.add_parser("path", help="print the folder of a model, converting it on first use")
    path.add_argument("name", nargs="?", default="embedded", help="embedded, smollm2-135m, a folder or a Hugging Face id")
    path.add_argument("--world", default="webshop", help="world that embedded is for (default: %(default)s)")
    path.set_defaults(command=_model_path)

    doctor = commands.add_parser("doctor", help="check this installation")
    doctor.add_argument("--quick", action="store_true", help="versions and folders only: start no engine and no cluster")
    doctor.set_defaults(command=_doctor)
    return parser


def _eval(args: argparse.Namespace) -> int:
    from pipeline.standalone import evaluate_checkpoint

    return evaluate_checkpoint(
        args.checkpoint,
        world=args.world,
        data=args.data,
        tasks=args.tasks,
        temperatures=args.temperature or [1.0, 0.0],
        as_json=args.json,
        address=args.address,
        variants=args.variant or [],
    )


def _report(args: argparse.Namespace) -> int:
    from pipeline.report.command import report

    with writing(args.out or args.paths[0]):
        print(report(args.paths, args.out))
    return 0


def _view(args: argparse.Namespace) -> int:
    from pipeline.view import write_view

    path: Path = args.path
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    files = [path] if path.is_file() else sorted((path / "episodes").glob("*.jsonl"))
    if not files:
        raise DataError(f"{path}: no episodes; run with --run.save_episodes sample or all")
    out = args.out or (path.with_suffix(".html") if path.is_file() else path / "episodes.html")
    if out.exists() and (out.is_dir() or out.suffix not in (".html", ".htm")):
        raise ConfigError(f"--out {out}: exists and is no page (.html); choose another name")
    with writing(out):
        print(write_view(files, out, limit=args.limit))
    return 0


def _data_webshop(args: argparse.Namespace) -> int:
    if args.check is not None:
        if args.out is not None:
            raise ConfigError("--out cannot matter with --check, which writes nothing; leave it out")
        from envs.webshop.check import check_folder

        report = check_folder(args.check)
        print("\n".join(report.lines()))
        return 0 if report.ok else DataError.exit_code
    if args.out is None:
        raise ConfigError("--generate needs --out DIR")
    from envs.webshop.generate import write

    _fresh_folder(args.out, "generated.json")
    try:
        with writing(args.out):
            write(args.out, n=args.generate, seed=args.seed)
    except ValueError as error:
        raise ConfigError(f"--generate {args.generate}: {error}") from error
    print(args.out)
    return 0


def _data_alfworld(args: argparse.Namespace) -> int:
    from envs.alfworld.check import check_folder

    if args.check is not None:
        if args.out is not None:
            raise ConfigError("--out cannot matter with --check, which writes nothing; leave it out")
        report = check_folder(args.check)
        print("\n".join(report.lines()))
        return 0 if report.ok else DataError.exit_code
    if args.out is None:
        raise ConfigError("--generate needs --out DIR")
    from envs.alfworld.generate import Settings, write

    _fresh_folder(args.out, "generated.json")
    seen = args.heldout // 2
    with writing(args.out):
        write(args.out, Settings(args.generate, seen, args.heldout - seen, args.size, seed=args.seed))
    print(args.out)
    return 0


def _play(args: argparse.Namespace) -> int:
    from pipeline.play import Clients, run_play

    def clients(args: argparse.Namespace) -> Clients:
        from pipeline.config.load import load_config
        from pipeline.heterogeneity import set_up

        named = [f"--world.name={args.world}"] if args.world is not None and args.config is None else []
        named += [f"--world.data={args.data}"] if args.data is not None else []
        made = set_up(load_config(args.config, [*named, *args.overrides]))
        return Clients(made.world, made.assignment.names, made.tasks)

    return run_play(args, clients)


def _model_build(args: argparse.Namespace) -> int:
    _fresh_folder(args.out, "manifest.json")
    with writing(args.out):
        if args.world == "alfworld":
            from pipeline.embedded.alfworld import build as alfworld

            alfworld.build(args.out, seed=args.seed)
        elif args.world == "toys":
            from pipeline.embedded.toys import build as toys

            toys.build(args.out, seed=args.seed)
        else:
            from pipeline.embedded import build as webshop

            webshop.build(args.out, seed=args.seed)
    print(args.out)
    return 0


def _model_path(args: argparse.Namespace) -> int:
    from pipeline.models import resolve_model

    source = resolve_model(args.name, args.world)
    print(source.path)
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from pipeline.doctor import examine

    return examine(quick=args.quick)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Within the block, a disk that refuses becomes a ``DataError`` that names the place."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error}: {error.filename}); choose another place") from error


def _fresh_folder(path: Path, mark: str) -> None:
    """Raise ``ConfigError`` unless ``path`` can become a folder of ours: it is absent, empty, or holds ``mark`` from last time."""
    place = next(p for p in (path.absolute(), *path.absolute().parents) if os.path.lexists(p))
    if not place.is_dir():
        raise ConfigError(f"--out {path}: {place} is a file, a folder is needed")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ConfigError(f"--out {path}: {place} cannot be written to")
    if path.is_dir() and any(path.iterdir()) and not (path / mark).is_file():
        raise ConfigError(f"--out {path}: holds other files; choose an empty or a new folder")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
