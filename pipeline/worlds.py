"""From configuration to a world: which data, which defaults, and the hash that a checkpoint is checked against.

The one place where the two faces of a world meet: generated data with its short pages, and the public release with the original's.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.base import World, WorldSpec, world_names
from envs.webshop.errors import WebShopDataError
from pipeline.config import Config, WorldConfig
from pipeline.errors import ConfigError, DataError

DATA_VARIABLES: Mapping[str, str] = {"webshop": "WEBSHOP_DATA", "alfworld": "ALFWORLD_DATA"}
"""Environment variables that point at public data, by world."""


@dataclass(frozen=True)
class Shape:
    """Defaults of a world that depend on whether its data are generated."""

    results_per_page: int
    max_steps: int
    heldout: int


GENERATED = Shape(results_per_page=4, max_steps=8, heldout=400)
ORIGINAL = Shape(results_per_page=10, max_steps=15, heldout=500)


def data_folder(config: WorldConfig) -> Path | None:
    """The data folder named by the configuration or the world's variable; None means generated data.

    Raises ``DataError`` when a folder is named but does not exist.
    """
    folder, source = config.data, "world.data"
    if folder is None:
        source = DATA_VARIABLES.get(config.name, "")
        named = os.environ.get(source) if source else None
        folder = Path(named) if named else None
    if folder is None:
        return None
    if not folder.expanduser().is_dir():
        what = "is a file, a folder is needed" if folder.expanduser().exists() else "no such folder"
        raise DataError(f"{source} = {folder}: {what}. Point it at the public release, or leave it out to use generated data.")
    return folder.expanduser().resolve()


def resolve_world(config: WorldConfig) -> WorldConfig:
    """The same with data folder and defaults filled in, so that a stored configuration says everything."""
    folder = data_folder(config)
    unused = {"products", "data_seed"} & config.model_fields_set if folder is not None and config.data is None else set()
    if unused:
        raise ConfigError(
            f"world.{sorted(unused)[0]} cannot matter: {DATA_VARIABLES[config.name]} = {folder} takes the place of generated data; "
            "unset the variable or leave the setting out"
        )
    shape = GENERATED if folder is None else ORIGINAL
    filled = {name: getattr(shape, name) for name in ("results_per_page", "max_steps", "heldout") if getattr(config, name) is None}
    return config.model_copy(update={**filled, "data": folder})


def world_spec(config: WorldConfig) -> WorldSpec:
    """How every process builds the world. Generated data are written to the cache on first use.

    Raises ``ConfigError`` for an unknown world.
    """
    config = resolve_world(config)
    if config.name not in world_names():
        raise unknown_world(config.name)
    if config.name != "webshop":
        return WorldSpec(config.name, {"max_steps": config.max_steps, "heldout": config.heldout, "seed": config.data_seed})
    folder = config.data
    if folder is None and config.human_goals:
        raise ConfigError("world.human_goals = true: generated data have no human goals; set WEBSHOP_DATA or world.data to public data")
    if folder is None:
        from envs.webshop.generate import ensure_generated

        folder = ensure_generated(None, n=config.products, seed=config.data_seed)
    return WorldSpec(
        "webshop",
        {
            "data_dir": str(folder),
            "profile": config.profile,
            "human_goals": config.human_goals,
            "results_per_page": config.results_per_page,
            "max_steps": config.max_steps,
            "heldout": config.heldout,
        },
    )


def unknown_world(name: str) -> ConfigError:
    """The error for a world that is not registered."""
    near = difflib.get_close_matches(name, world_names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"world.name = {name!r}: unknown (known: {', '.join(world_names())}){hint}")


def build_world(spec: WorldSpec) -> World:
    """The world. Raises ``DataError`` for damaged or missing data, ``ConfigError`` for settings that do not fit the data."""
    try:
        return spec.build()
    except (WebShopDataError, OSError) as error:
        raise DataError(f"world {spec.name!r} cannot be built: {error}") from error
    except ValueError as error:
        name = str(error).split(maxsplit=1)[0]
        setting = f"world.{error}" if name in WorldConfig.model_fields else str(error)
        raise ConfigError(f"{setting} (world {spec.name!r})") from error


def world_key(config: Config, world: World) -> str:
    """Hash of the tasks of both splits, in order: what a checkpoint was trained and evaluated on."""
    digest = hashlib.sha256(json.dumps({"name": config.world.name}).encode())
    for split in ("train", "heldout"):
        for task in world.tasks(split):
            digest.update(f"{split}\x1f{task.id}\x1f{task.instruction}\x1e".encode())
    return digest.hexdigest()[:16]


def overlap_report(world: World) -> dict[str, Any]:
    """Sizes of the splits, shared task ids (must be 0), and what else they share."""
    train, heldout = world.tasks("train"), world.tasks("heldout")
    shared = {t.id for t in train} & {t.id for t in heldout}
    if shared:
        raise DataError(
            f"{len(shared)} task ids are in both splits, for instance {sorted(shared)[0]!r}; evaluation would be on training tasks"
        )
    return {"train": len(train), "heldout": len(heldout), **world.overlap()}
