"""``python -m pipeline.run``: read the configuration, refuse what cannot work, then plan or train.

Owns the command line of a run. Everything expensive is imported after the configuration has been accepted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli import guarded, load_plugins, split_plugins
from pipeline.config.load import config_help, load_config, load_resolved
from pipeline.errors import CheckpointError, ConfigError

USAGE = """python -m pipeline.run [--config FILE] [--plugins MODULE,...] [--section.key VALUE ...] [--dry-run]
       python -m pipeline.run --resume RUN_FOLDER [--federation.rounds N] [--resources.* ...]"""

OPTIONS = """--config FILE        read settings from a .toml, .yaml or .json file; settings given as --section.key win over it
--plugins MODULE,... load modules (or .py files) that register worlds, algorithms and more of your own; same as --run.plugins
--resume RUN_FOLDER  go on after the last whole round, with the run's own configuration
--dry-run            print the plan (clients, tasks, actors, resources, tokens) and start nothing
Exit codes: 0 done, 2 configuration, 3 data or model, 4 no room on the cluster, 9 checkpoint,
130 stopped (can be resumed); others: see pipeline/errors.py."""


class _Once(argparse.Action):
    """An option of which the last of two would win in silence."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"argument {option}: given twice; give one file, and single settings as --section.key value")
        setattr(namespace, self.dest, values)


def _given(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a path, found an empty word (an unset shell variable?)")
    return Path(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, or print the plan; returns the exit code."""
    parser = argparse.ArgumentParser(prog="pipeline.run", usage=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=_given, action=_Once)
    parser.add_argument("--resume", type=_given, action=_Once)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    options, overrides = parser.parse_known_args(sys.argv[1:] if argv is None else list(argv))
    overrides, plugins = split_plugins(overrides)
    if plugins:
        overrides.append(f"--run.plugins={','.join(plugins)}")
    if options.help:
        return guarded(lambda: show_help(overrides))
    return guarded(lambda: load_plugins(plugins) or run(options.config, options.resume, options.dry_run, overrides))


def show_help(overrides: Sequence[str]) -> int:
    """Print usage and all settings, with the names that plug-ins among ``overrides`` add; 0. Raises ``ConfigError``."""
    load_plugins(split_plugins([word.replace("--run.plugins", "--plugins") for word in overrides])[1])
    print(f"usage: {USAGE}\n\n{OPTIONS}\n\nSettings (section.key, default, allowed, meaning):\n\n{config_help()}")
    return 0


def run(config_file: Path | None, resume: Path | None, dry_run: bool, overrides: Sequence[str]) -> int:
    """The run behind the command line. Raises ``FedAgentError``."""
    if resume is not None:
        if config_file is not None:
            raise ConfigError("--resume takes the configuration of the run folder; leave --config out, and add overrides as --section.key")
        if not resume.is_dir():
            raise CheckpointError(f"--resume {resume}: {'is a file, a run folder is needed' if resume.exists() else 'no such folder'}")
        if not (resume / "config.resolved.json").is_file():
            raise CheckpointError(f"{resume}: not a run folder (no config.resolved.json in it)")
        config = load_resolved(resume / "config.resolved.json", overrides)
    else:
        config = load_config(config_file, overrides)

    from pipeline.preflight import check_cluster, check_resume, check_run_folder, check_same_training, check_world

    check_world(config)
    if resume is None:
        check_run_folder(config)
    else:
        check_same_training(resume, config)
        check_resume(resume, config)
    if not dry_run:
        check_cluster(config)

    from pipeline.job import plan_job, train_job

    if dry_run:
        return plan_job(config)
    return train_job(config, resume)


if __name__ == "__main__":
    sys.exit(main())
