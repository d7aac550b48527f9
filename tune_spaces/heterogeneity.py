"""How clients differ: task heterogeneity by knob, environment heterogeneity by family and severity, beside the uniform federation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ray import tune

from envs.base import World
from envs.variants import DEFAULT
from pipeline.config import Config
from pipeline.worlds import build_world, world_spec
from tune_spaces import Space

SEVERITIES = (0.25, 0.5, 0.75, 1.0)
"""Rungs of the environment ladder; 0 is the uniform federation."""

TASK_KNOBS = ("preference", "coverage", "hardness")
DISPERSIONS = (0.5, 0.95)
"""Of the task knobs, which lie strictly between 0 and 1: half way, and nearly the pathological split."""


def heterogeneity(config: Config) -> Space:
    """Uniform, every task knob at two dispersions, every family of the world at four severities.

    A base that names a family or a knob narrows the sweep to that. ``hardness`` needs ``federation.partition.labels``. Families with a
    single member are left out: all clients would live in the same world. Builds the world, once, to know its families.
    """
    return {"difference": tune.grid_search([dict(arm) for arm in arms(config)])}


def arms(config: Config) -> Iterator[Mapping[str, Any]]:
    """The points of the space."""
    partition, variant = config.federation.partition, config.world.variant
    knobs = [knob for knob in TASK_KNOBS if getattr(partition, knob) is not None]
    named = variant.family != DEFAULT
    if named:
        yield {"world.variant.family": DEFAULT}
    elif not partition.reference:
        yield {f"federation.partition.{knob}": None for knob in knobs}
    if not named and partition.file is None and partition.scenes is None:
        for knob in knobs or [knob for knob in TASK_KNOBS if knob != "hardness" or partition.labels is not None]:
            for dispersion in DISPERSIONS:
                yield {f"federation.partition.{knob}": dispersion}
    if knobs and not named:
        return
    for family in [variant.family] if named else divisive(build_world(world_spec(config.world))):
        for severity in SEVERITIES:
            yield {"world.variant.family": family, "world.variant.severity": severity}


def divisive(world: World) -> list[str]:
    """Families that put clients into different worlds."""
    return [family.name for family in world.families.values() if family.per_client or len(family.members) > 1]
