"""Extension points: worlds, variant families, partitions, algorithms and aggregation rules from outside the package.

A plug-in is a module that registers things with the functions here when it is imported. ``envs.plugins`` finds and imports plug-ins; this
module gathers the kinds, and checks before a run that every process of it will know what the configuration names. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from envs import plugins as modules
from envs.base import WORLDS, register_world
from envs.partition import PARTITIONS, register_partition
from envs.perturbed import FAMILIES, PerturbedEnv, register_family
from envs.registry import Registry, RegistryError, nearest, require_subclass
from pipeline.errors import ConfigError

if TYPE_CHECKING:
    from pipeline.aggregation.base import Rule
    from pipeline.algorithms.base import Algorithm
    from pipeline.config import Config

__all__ = [
    "PerturbedEnv",
    "RegistryError",
    "load",
    "prepare",
    "register_algorithm",
    "register_family",
    "register_partition",
    "register_rule",
    "register_world",
    "registry",
]

RULES: Registry[Callable[..., Rule]] = Registry(
    "aggregation rule",
    {
        "product": "pipeline.aggregation.lora:ProductRule",
        "factors": "pipeline.aggregation.lora:FactorsRule",
        "frozen_a": "pipeline.aggregation.lora:FrozenARule",
        "merge": "pipeline.aggregation.lora:MergeRule",
        "full": "pipeline.aggregation.base:MeanRule",
    },
)

ALGORITHMS: Registry[Callable[..., Algorithm]] = Registry(
    "algorithm", {"grpo": "pipeline.algorithms.grpo:GRPO", "ppo": "pipeline.algorithms.ppo:PPO"}
)

_KINDS: Mapping[str, Registry[Any]] = {"world": WORLDS, "partition": PARTITIONS, "algorithm": ALGORITHMS, "rule": RULES}

R = TypeVar("R", bound=type)


def register_rule(name: str) -> Callable[[R], R]:
    """Decorate a ``pipeline.aggregation.Rule`` class as the aggregation rule ``name``. Its keyword arguments are ``aggregation.options``.

    Raises ``RegistryError`` for a name that is taken, and for a class that is no rule or lacks a part of one.
    """

    def decorate(made: R) -> R:
        from pipeline.aggregation.base import Rule

        require_subclass("aggregation rule", name, made, Rule)
        made.name = name  # type: ignore[attr-defined]
        RULES.add(name, made)
        return made

    return decorate


def register_algorithm(name: str, **traits: Any) -> Callable[[R], R]:
    """Decorate a ``pipeline.algorithms.Algorithm`` class as the algorithm ``name``.

    It is built from section ``algorithm``, whose ``options`` are for its own settings, and from section ``critic`` too where it has one.
    ``traits`` are what a configuration must know of it (``pipeline.config.algorithm.AlgorithmTraits``).

    Raises ``RegistryError`` for a name that is taken, for a class that is no algorithm or lacks a part of one, and for unknown traits.
    """

    def decorate(made: R) -> R:
        from pipeline.algorithms.base import Algorithm
        from pipeline.config.algorithm import ALGORITHMS as TRAITS
        from pipeline.config.algorithm import AlgorithmTraits

        require_subclass("algorithm", name, made, Algorithm)
        try:
            known = AlgorithmTraits(**{"critic": bool(made.needs_critic), **traits})  # type: ignore[attr-defined]
        except TypeError as error:
            raise RegistryError(f"algorithm {name!r}: {error}") from error
        ALGORITHMS.add(name, made)
        TRAITS[name] = known
        return made

    return decorate


def registry(kind: str) -> Registry[Any]:
    """The names of a kind: ``world``, ``partition``, ``algorithm`` or ``rule``."""
    return _KINDS[kind]


def load(entries: Iterable[str]) -> tuple[str, ...]:
    """Import plug-ins; their names as every process finds them. Raises ``ConfigError`` naming the plug-in and the first cause."""
    try:
        names = modules.load(entries)
    except (modules.PluginError, RegistryError) as error:
        raise ConfigError(f"run.plugins: {error}") from error
    for family in FAMILIES.names():
        world = family.partition("/")[0]
        if world not in WORLDS.names():
            by, hint = FAMILIES.origins[family], nearest(world, WORLDS.names())
            raise ConfigError(f"run.plugins: variant family {family!r} (by {by}): there is no world {world!r}{hint}")
    return names


def prepare(config: Config) -> None:
    """Load a configuration's plug-ins here, and make sure that what it names is known in the run's other processes and can be built.

    Raises ``ConfigError``.
    """
    load(config.run.plugins)
    if config.resources.layout == "actors":
        for setting, kind, name in _outside(config):
            _require_travels(setting, kind, name)
    rule = config.aggregation.rule
    if rule is not None and rule in RULES.origins:
        from pipeline.aggregation import make_rule

        make_rule(rule, options=config.aggregation.options)
    if config.algorithm.name in ALGORITHMS.origins:
        from pipeline.algorithms import make_algorithm

        make_algorithm(config.algorithm, config.critic)


def _outside(config: Config) -> list[tuple[str, Registry[Any], str]]:
    """Settings that name something from outside."""
    family = f"{config.world.name}/{config.world.variant.family}"
    named: list[tuple[str, Registry[Any], str | None]] = [
        ("world.name", WORLDS, config.world.name),
        ("world.variant.family", FAMILIES, family),
        ("algorithm.name", ALGORITHMS, config.algorithm.name),
        ("aggregation.rule", RULES, config.aggregation.rule),
    ]
    return [(setting, kind, name) for setting, kind, name in named if name in kind.origins]


def _require_travels(setting: str, kind: Registry[Any], name: str) -> None:
    """Raise where other processes would not know ``name``: it was registered by hand in this one."""
    entry = f"{kind.kind} {name}"
    if any(entry in plugin.added for plugin in modules.known()):
        return
    origin = kind.origins[name]
    how = "put it in a module of its own" if origin == "__main__" else f"add --plugins {origin}"
    raise ConfigError(
        f"{setting} = {name.partition('/')[2] or name!r}: registered in this process alone (by {origin}), so the run's actors would not "
        f"know it; {how}, or use resources.layout = process"
    )
