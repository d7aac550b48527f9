"""How the system grows: more clients in a round, larger adapters, more engines and learner groups. Read seconds per round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ray import tune

from pipeline.config import Config
from pipeline.config.rules import is_set
from tune_spaces import Space

FACTORS = (1, 2, 4)
RANKS = (4, 16, 64)
PARTS = ((1, 1), (1, 2), (2, 1), (2, 2))
"""Engines and learner groups."""


def scale(config: Config) -> Space:
    """Clients (all of them and those of a round together) times adapter rank, or times engines and learner groups.

    Parts are scaled where the base asks for actors, by ``resources.layout = actors`` or by a model that is not embedded; else ranks are,
    with LoRA. Every client keeps its number of tasks in the base.
    """
    space: dict[str, Any] = {"clients": tune.grid_search([dict(point) for point in sizes(config)])}
    if config.model.name != "embedded" or (is_set(config, "resources.layout") and config.resources.layout == "actors"):
        parts = [{"rollout.engines": engines, "learner.groups": groups} for engines, groups in PARTS]
        space["parts"] = tune.grid_search(parts)
    elif config.model.adapter == "lora":
        space["model.lora.rank"] = tune.grid_search(list(RANKS))
    return space


def sizes(config: Config) -> Iterator[Mapping[str, Any]]:
    """Federations of one, two and four times as many clients, and as many of them in a round."""
    base = config.federation
    for factor in FACTORS:
        yield {"federation.clients": base.clients * factor, "federation.clients_per_round": base.clients_per_round * factor}
