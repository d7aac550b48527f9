"""Section ``world``: where agents act."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from pipeline.config.base import Section
from pipeline.config.named import Named
from pipeline.config.variant import VariantConfig


class WorldConfig(Section):
    """The world of all clients and how its tasks are split."""

    name: Annotated[str, Named("world", strict=False)] = Field("webshop", description="Where agents act.")
    data: Path | None = Field(None, description="Data folder. Default: the world's variable (WEBSHOP_DATA); without one, generated data.")
    products: int = Field(400, ge=20, le=2_000_000, description="Products of the generated catalogue; only without a data folder.")
    data_seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of the generated catalogue; only without a data folder.")
    profile: Literal["fed", "up"] = Field("fed", description="WebShop flavour: `fed` (FedAgent's copy) or `up` (upstream).")
    human_goals: bool = Field(False, description="Use the human-written WebShop goals instead of the synthetic ones.")
    results_per_page: int | None = Field(
        None, ge=1, le=50, description="Search results per page. Default: 10 (as in WebShop) with a data folder, 4 with generated data."
    )
    games: int = Field(800, ge=1, le=1_000_000, description="ALFWorld: generated games for training; only without a data folder.")
    room_size: Literal["small", "full"] = Field(
        "small", description="ALFWorld: generated rooms of 5 to 9 receptacles, or of the published games' size; only without a data folder."
    )
    task_types: tuple[str, ...] | None = Field(
        None, description="ALFWorld: task types that are kept. Default: all of a data folder; those of the embedded model when generated."
    )
    heldout_split: Literal["both", "seen", "unseen"] = Field("both", description="ALFWorld: validation split that is held out.")
    max_steps: int | None = Field(
        None, ge=1, le=1000, description="Turns per episode. Default: 15 (WebShop) or 50 (ALFWorld) with a data folder, else 8 or 24."
    )
    heldout: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Tasks kept for evaluation. Default: 500 (WebShop) or all with a data folder, else 400 or 300.",
    )
    options: dict[str, bool | int | float | str] = Field(
        {}, description="Settings of other worlds, such as bandit or a plug-in's, by name."
    )
    variant: VariantConfig = Field(VariantConfig(), description="How clients differ in what their world answers.")
