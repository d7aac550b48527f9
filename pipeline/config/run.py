"""Section ``run``: the identity of a run and where it lives on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class RunConfig(Section):
    """Who this run is."""

    name: str = Field("demo", pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,79}$", description="Name of the run folder and of the tracked run.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Seed of everything that is drawn: schedule, tasks, episodes, weights.")
    plugins: tuple[str, ...] = Field(
        (), description="Plug-ins loaded in every process of the run: modules, or paths of .py files or packages. Short: --plugins."
    )
    dir: Path = Field(Path("runs"), description="Folder that holds run folders.")
    keep_checkpoints: int = Field(3, ge=1, le=10_000, description="Whole-round checkpoints kept; older ones are deleted.")
    checkpoint_every: int = Field(1, ge=1, le=10_000, description="Rounds between two checkpoints.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("warning", description="Verbosity of log lines on standard error.")
    save_episodes: Literal["none", "sample", "all"] = Field("sample", description="Episodes written to the client-side folder `episodes/`.")
