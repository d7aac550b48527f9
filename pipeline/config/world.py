"""Section ``world``: where agents act."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class WorldConfig(Section):
    """The world of all clients and how its tasks are split."""

    name: str = Field("webshop", description="Name of a registered world.")
    data: Path | None = Field(None, description="Data folder. Default: the world's variable (WEBSHOP_DATA); without one, generated data.")
    products: int = Field(400, ge=20, le=2_000_000, description="Products of the generated catalogue; only without a data folder.")
    data_seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the generated catalogue; only without a data folder.")
    profile: Literal["fed", "up"] = Field("fed", description="WebShop flavour: `fed` (FedAgent's copy) or `up` (upstream).")
    human_goals: bool = Field(False, description="Use the human-written WebShop goals instead of the synthetic ones.")
    results_per_page: int | None = Field(
        None, ge=1, le=50, description="Search results per page. Default: 10 (as in WebShop) with a data folder, 4 with generated data."
    )
    max_steps: int | None = Field(
        None, ge=1, le=1000, description="Turns per episode. Default: 15 with a data folder, 8 with generated data."
    )
    heldout: int | None = Field(
        None, ge=1, le=100_000, description="Tasks kept for evaluation. Default: 500 with a data folder, 400 with generated data."
    )
