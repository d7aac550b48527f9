"""Section ``world.variant``: how the clients' worlds differ in what they answer."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Ge, Le
from pydantic import Field

from pipeline.config.base import Section


class VariantConfig(Section):
    """Environment heterogeneity: one family of variants, dealt to the clients evenly and for the whole run. Prompts say nothing of it."""

    family: str = Field("default", description="Family of variants that the world offers; `default` leaves all worlds alike.")
    members: Annotated[int, Ge(1), Le(1000)] | tuple[str, ...] | None = Field(
        None, description="Members of the family that are dealt out: how many of its list, or their names. Default: the family's choice."
    )
    severity: float = Field(1.0, ge=0, le=1, description="How far the variants go; 0 is the unperturbed world, byte for byte.")
    options: dict[str, bool | int | float | str] = Field({}, description="Settings of the family itself, by name.")
    reveal: Literal["none", "name", "cue", "hint"] = Field(
        "none", description="What observations tell of the world: nothing, its arbitrary name, a subtle mark, or in words what it does."
    )
    seed: int | None = Field(None, ge=0, le=2**31 - 1, description="Seed of the assignment and of the variants. Default: run.seed.")
    min_reachable: float = Field(
        0.5, ge=0, le=1, description="Share of a client's checked tasks that the scripted oracle must be able to solve in its world."
    )
    reach_tasks: int = Field(20, ge=1, le=100_000, description="Tasks of each client that the oracle tries before the run.")
    reference: bool = Field(False, description="The published form of the family, defects included, and the published assignment.")
