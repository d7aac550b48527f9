"""An arm under one seed: its configuration, its key, its order among others and what it should take. Pure; runs nothing.

Seeds are independent: ``run.seed`` names every stream (clients sampled, partition, members dealt, tasks drawn, episodes, mini-batches,
initial adapters) by a hash of seed and purpose, so that no two seeds share a stream or a shifted copy of one. What they do share is the
warm start of an embedded model and the held-out tasks: intervals over seeds do not speak of other models or other shops.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.config.load import load_config
from pipeline.embedded import model_key
from pipeline.errors import ConfigError
from pipeline.reproduce.arms import LABELS, ArmSpec

FREE = ("run.keep_checkpoints", "run.checkpoint_every", "run.save_episodes", "run.dir", "run.name", "resources.", "tracking.")
"""Settings that decide nothing of what an arm shows, by how their names begin."""
GENERATION = 1
"""Raised when the numbers of an arm are computed otherwise, so that finished trials are done again."""

IDLE: Mapping[tuple[str, str], tuple[str, ...]] = {("rollout.backend", "transformers"): ("rollout.kv_cache_gb",)}
"""Settings of the arms that cannot matter, and would be refused, once a command line chooses otherwise."""

EPISODE_SECONDS: Mapping[tuple[str, str], float] = {
    ("webshop", "grpo"): 0.0125,
    ("webshop", "ppo"): 0.025,
    ("alfworld", "grpo"): 0.045,
    ("alfworld", "ppo"): 0.075,
    ("bandit", "grpo"): 0.0012,
    ("bandit", "ppo"): 0.0022,
}
"""Seconds of one core per training episode (of a bandit: per play) before anything was measured here; afterwards the estimate follows
what trials took."""
EVALUATION_SECONDS: Mapping[str, float] = {"webshop": 0.0038, "alfworld": 0.01, "bandit": 0.0004}
"""The same for an episode that nobody trains on."""
START_SECONDS = 2.0


@dataclass(frozen=True)
class Trial:
    """An arm under a seed."""

    arm: ArmSpec
    seed: int

    @cached_property
    def key(self) -> str:
        """Hash of all that decides its numbers, the shipped model included. The same arm has the same key under every seed."""
        settings = decisive(self.arm.settings)
        model = model_key(self.arm.world) if str(settings.get("model.name", "embedded")) == "embedded" else ""
        text = json.dumps([GENERATION, settings, model], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def id(self) -> str:
        """Name of its folder and of its result: another one when its settings change."""
        return f"{self.arm.name}-s{self.seed}-{self.key[:8]}"

    def config(self, labels: Path | None = None) -> Config:
        """Its configuration. Raises ``ConfigError`` for settings that are wrong, naming the arm."""
        try:
            return load_config(None, words({**self.arm.settings, "run.seed": self.seed, "run.name": self.arm.name}, labels))
        except ConfigError as error:
            raise ConfigError(f"arm {self.arm.name!r}: {error}") from None

    @cached_property
    def estimate(self) -> float:
        """Seconds of one core that it should take."""
        config = self.config(Path("labels.json"))
        federation, evaluation = config.federation, config.evaluation
        clients = min(federation.clients_per_round, federation.clients)
        batch = config.algorithm.tasks_per_epoch * config.algorithm.group_size
        trained = federation.rounds * clients * federation.local_epochs * batch
        times = 2 + (federation.rounds - 1) // evaluation.every if evaluation.every else 2
        apart = min(evaluation.worlds, 4) * min(evaluation.world_tasks, evaluation.tasks) if config.world.variant.family != "default" else 0
        measured = times * (evaluation.tasks + apart)
        if evaluation.clients:
            measured += clients * min(evaluation.client_tasks or evaluation.tasks, evaluation.tasks) * (1 + apart // evaluation.tasks)
        each = EPISODE_SECONDS.get((self.arm.world, self.arm.algorithm), 0.02)
        plays = int(config.world.options.get("horizon", 1))
        return START_SECONDS + plays * (each * trained + EVALUATION_SECONDS.get(self.arm.world, 0.008) * measured)


def words(settings: Mapping[str, Any], labels: Path | None) -> list[str]:
    """Settings as a command line. Raises ``ConfigError`` where labels are needed and there are none."""
    found = []
    for name, value in settings.items():
        if value == LABELS:
            if labels is None:
                raise ConfigError(f"{name}: no labels were made")
            value = str(labels)
        found.append(f"--{name}={value if isinstance(value, str) else json.dumps(value)}")
    return found


def decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an arm that decide its numbers."""
    return {name: value for name, value in sorted(settings.items()) if not name.startswith(FREE)}


def changed(arms: Iterable[ArmSpec], overrides: Sequence[str]) -> tuple[ArmSpec, ...]:
    """The arms with settings of a command line on top, such as ``--federation.rounds=20``, in all of them."""
    if not overrides:
        return tuple(arms)
    given = _pairs(overrides)
    idle = {name for choice, names in IDLE.items() if given.get(choice[0]) == choice[1] for name in names}
    return tuple(
        replace(arm, settings={**{name: value for name, value in arm.settings.items() if name not in idle}, **given}) for arm in arms
    )


def _pairs(overrides: Sequence[str]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    rest = list(overrides)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        given[name] = _value(value if equals else (rest.pop(0) if rest else ""))
    return given


def _value(word: str) -> Any:
    """A word of a command line as the arms write it, so that ``--federation.rounds=8`` is an arm's own 8 and not another trial."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def chosen(arms: Sequence[ArmSpec], globs: Sequence[str]) -> tuple[ArmSpec, ...]:
    """The arms that match one of ``globs``; all without any. Raises ``ConfigError`` for a pattern that matches none."""
    for glob in globs:
        if not any(fnmatch.fnmatchcase(arm.name, glob) for arm in arms):
            raise ConfigError(f"--only {glob}: no arm has such a name; --dry-run lists them")
    return tuple(arm for arm in arms if not globs or any(fnmatch.fnmatchcase(arm.name, glob) for glob in globs))


def in_order(arms: Sequence[ArmSpec], seeds: int) -> list[Trial]:
    """All trials: the arms that matter most first, under every seed; among equals the longest first, so that the pool ends evenly."""
    trials = [Trial(arm, seed) for arm in arms for seed in range(seeds)]
    last = max((arm.tier for arm in arms), default=1)
    # In the last tier by length alone: what is left at the end is short.
    return sorted(trials, key=lambda t: (t.arm.tier, 0 if t.arm.tier == last else t.seed, -t.estimate, t.arm.name, t.seed))
