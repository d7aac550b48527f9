"""From points to trials: names, whole configurations, where each may run, and whether it can run at all.

Owns the check of all trials before anything starts. Reads configurations; starts nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.placement import check_fit, trial_needs
from pipeline.config import Config
from pipeline.config.fields import settings
from pipeline.config.load import load_config
from pipeline.config.rules import is_set, problems
from pipeline.errors import ConfigError, FedAgentError, PlacementError
from pipeline.heterogeneity import set_up
from pipeline.sweep.spaces import SEED, Point, words_of

DRIVER_SETTINGS = frozenset({"resources.address", "resources.cpus", "resources.object_store_gb"})
"""Settings of the base that decide where the sweep runs, not what a trial is."""

TINY_LAYOUT = ({"resources.layout": "process", "rollout.backend": "transformers"}, {"resources.layout": "process"})
"""What is tried in turn for the embedded models. On kept engines both backends train them at the same speed (0.95 to 1.3 times); the
``transformers`` one holds no key-value cache per trial, starts in a third of the time, and resumes bit for bit."""

SHOWN_PROBLEMS = 5
LABEL_LENGTH = 60


@dataclass(frozen=True)
class Trial:
    """A point with its number and name. ``arm`` names the point without its seed."""

    number: int
    name: str
    arm: str
    point: Point

    @property
    def seed(self) -> int:
        """The trial's seed."""
        return int(self.point[SEED])


@dataclass(frozen=True)
class Base:
    """What all trials share: the settings that the user gave, by dotted name, and the trial's layout rules applied to them."""

    given: Mapping[str, Any]

    @classmethod
    def of(cls, config: Config) -> Base:
        """The explicitly set values of a configuration; paths absolute, since trials may run in another folder."""
        given = dict(explicit(config))
        if given.get("model.name") is not None and Path(given["model.name"]).expanduser().is_dir():
            given["model.name"] = str(Path(given["model.name"]).expanduser().absolute())
        return cls(absolute({path: value for path, value in given.items() if not path.startswith(("run.name", "run.dir"))}))

    def config(self) -> Config:
        """The base as a configuration of its own."""
        return load_config(None, words(self.given), must_matter=frozenset())

    def trial(self, trial: Trial, folder: Path) -> Config:
        """A trial's configuration; it keeps its run in ``folder``. Raises ``ConfigError``."""
        own = {path: value for path, value in self.given.items() if path not in DRIVER_SETTINGS and not path.startswith("tracking.")}
        fixed = {"run.name": trial.name, "run.dir": str(folder), "tracking.mlflow": False}
        given = {**own, **absolute(trial.point), **fixed}
        known = {setting.path for setting in settings()}
        # An entry of a table is no setting of its own.
        varied = frozenset(path if path in known else path.rpartition(".")[0] for path in trial.point)
        config = load_config(None, words(given), must_matter=varied)
        if config.model.name != "embedded":
            return config
        found = problems(config)
        for more in TINY_LAYOUT:
            if not any(is_set(config, path) for path in more):
                tried = with_values(config, more)
                if all(problem in found for problem in problems(tried)):
                    return tried
        return config


def explicit(config: Config) -> Iterable[tuple[str, Any]]:
    """The settings that were given, by dotted name, as JSON values."""
    plain = config.plain()
    for setting in settings():
        if is_set(config, setting.path):
            value: Any = plain
            for part in setting.path.split("."):
                value = value[part]
            yield setting.path, value


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The same with some settings of sections replaced, as given ones."""
    for path, value in values.items():
        section, _, key = path.partition(".")
        config = config.model_copy(update={section: getattr(config, section).model_copy(update={key: value})})
    return config


def absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with relative paths made absolute."""
    paths = {setting.path for setting in settings() if "path" in setting.kinds}
    return {
        path: str(Path(value).expanduser().absolute()) if path in paths and isinstance(value, str | Path) else value
        for path, value in values.items()
    }


def words(values: Mapping[str, Any]) -> list[str]:
    """Settings as words of a command line, which read back as the same values."""
    return [f"--{path}={_word(value)}" for path, value in values.items()]


def _word(value: Any) -> str:
    if value is None:
        return "null"
    return str(value) if isinstance(value, str | Path) else json.dumps(value)


def make_trials(points: Sequence[Point]) -> tuple[Trial, ...]:
    """Trials in order, with names that fit a folder: number, what the arm sets, seed."""
    width = max(3, len(str(len(points) - 1)))
    varied = sorted({path for point in points for path in point} - {SEED})
    varied = [path for path in varied if len({json.dumps(point.get(path)) for point in points}) > 1]
    arms: dict[str, str] = {}
    made = []
    for number, point in enumerate(points):
        key, label = arm_key(point), arm_label(point, varied)
        if key not in arms:
            # Long labels are cut, and may meet.
            arms[key] = label if label not in arms.values() else f"{label}-{len(arms)}"
        made.append(Trial(number, f"{number:0{width}d}-{arms[key]}-s{point[SEED]}", arms[key], point))
    return tuple(made)


def arm_key(point: Point) -> str:
    """What a point sets beside its seed, as text."""
    return json.dumps({path: value for path, value in point.items() if path != SEED}, sort_keys=True)


def arm_label(point: Point, varied: Sequence[str]) -> str:
    """A short name of what a point sets among the settings that differ between points; ``base`` where it sets none."""
    parts = []
    for path in varied:
        if path in point:
            value = point[path]
            key = path.rpartition(".")[2]
            parts.append(value if isinstance(value, str) else f"{key}{value:.4g}" if type(value) is float else f"{key}{json.dumps(value)}")
    label = re.sub(r"[^A-Za-z0-9._-]+", "_", "-".join(parts)).strip("_-.")
    if len(label) > LABEL_LENGTH:
        label = label[:LABEL_LENGTH].rstrip("_-.")
    return label or "base"


def check_trials(space: str, base: Base, trials: Sequence[Trial], folder: Path) -> list[Config]:
    """Every trial's configuration. Raises ``ConfigError`` that says which trials cannot be run and why, before anything starts.

    Also builds every arm's world and deals out its tasks, once: that takes a fraction of a second an arm.
    """
    configs: list[Config] = []
    refused: dict[str, list[Trial]] = {}
    seen: set[str] = set()
    for trial in trials:
        try:
            config = base.trial(trial, folder / trial.name)
            configs.append(config)
            if trial.arm not in seen:
                seen.add(trial.arm)
                set_up(config)
        except FedAgentError as error:
            refused.setdefault(str(error), []).append(trial)
    if not refused:
        require_effect(base, configs)
        return configs
    lines = [
        f"  trial {found[0].name} ({words_of(found[0].point)}){f' and {len(found) - 1} more' if len(found) > 1 else ''}: {message}"
        for message, found in list(refused.items())[:SHOWN_PROBLEMS]
    ]
    more = [f"  ... and {len(refused) - SHOWN_PROBLEMS} other problems"] if len(refused) > SHOWN_PROBLEMS else []
    count = sum(map(len, refused.values()))
    raise ConfigError("\n".join([f"space {space!r}: {count} of {len(trials)} trials cannot be run:", *lines, *more]))


def require_effect(base: Base, configs: Sequence[Config]) -> None:
    """Raise ``ConfigError`` for a setting of the base that matters in none of the trials."""
    idle = [{problem.path: problem for problem in problems(config) if problem.idle} for config in configs]
    for path, problem in idle[0].items() if idle else ():
        if path in base.given and path not in DRIVER_SETTINGS and not path.startswith("tracking.") and all(path in more for more in idle):
            raise ConfigError(f"{path} = {json.dumps(base.given[path])}: matters in none of the {len(configs)} trials: {problem.message}")


def check_room(trials: Sequence[Trial], configs: Sequence[Config], nodes: list[Mapping[str, float]]) -> None:
    """Raise ``PlacementError`` for a trial that could never be placed on ``nodes``, saying what is missing."""
    checked: set[str] = set()
    for trial, config in zip(trials, configs, strict=True):
        wanted = trial_needs(config)
        if repr(wanted) not in checked:
            checked.add(repr(wanted))
            try:
                check_fit(wanted, nodes)
            except PlacementError as error:
                raise PlacementError(f"trial {trial.name} ({words_of(trial.point)}) would wait for ever: {error}") from error
