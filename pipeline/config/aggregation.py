"""Section ``aggregation``: how client updates become one agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline.config.base import Section
from pipeline.config.named import Named


class AggregationConfig(Section):
    """FedAvg (McMahan et al. 2017) and its variants for LoRA factors."""

    rule: Annotated[str, Named("rule")] | None = Field(
        None,
        description="`product`, `factors`, `frozen_a`, `merge` for LoRA, `full` for whole weights. Default: `product`, or `full`.",
    )
    options: dict[str, bool | int | float | str] = Field({}, description="Settings of a plug-in's rule, by name.")
    weighting: Literal["uniform", "tasks", "episodes", "tokens"] = Field("uniform", description="Weight of a client's update.")
    prox_mu: float = Field(
        0.0, ge=0, le=100, description="FedProx (Li et al. 2020): weight of 0.5 * ||w - w_round||^2 in the client objective."
    )
