"""From configuration to a world: which data, which defaults, and the hash that a checkpoint is checked against.

The one place where the two faces of a world meet: generated data with its short pages, and the public release with the original's.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from envs.alfworld.errors import AlfWorldDataError
from envs.base import WORLDS, World, WorldSpec, world_names
from envs.registry import not_imported
from envs.webshop.errors import WebShopDataError
from pipeline.config import Config, WorldConfig
from pipeline.errors import ConfigError, DataError

DATA_VARIABLES: Mapping[str, str] = {"webshop": "WEBSHOP_DATA", "alfworld": "ALFWORLD_DATA"}
"""Environment variables that point at public data, by world."""


DATA_ERRORS = (AlfWorldDataError, WebShopDataError)
"""What worlds raise for data that are missing or damaged."""

PATIENCE_S = 3.0
"""Seconds that building a world may take before a line says what is being waited for."""


@dataclass(frozen=True)
class Shape:
    """Defaults of a world that depend on whether its data are generated; None leaves the choice to the world."""

    results_per_page: int | None
    max_steps: int | None
    heldout: int | None


GENERATED: Mapping[str, Shape] = {"webshop": Shape(4, 8, 400), "alfworld": Shape(None, 24, 300), "bandit": Shape(None, None, 400)}
ORIGINAL: Mapping[str, Shape] = {"webshop": Shape(10, 15, 500), "alfworld": Shape(None, 50, None)}
OTHER = Shape(None, None, None)
GENERATOR_SETTINGS: Mapping[str, frozenset[str]] = {
    "webshop": frozenset({"products", "data_seed"}),
    "alfworld": frozenset({"games", "room_size", "data_seed"}),
}
"""Settings that make data, by world: without effect on data that exist."""


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
    makes = GENERATOR_SETTINGS.get(config.name, frozenset())
    unused = makes & config.model_fields_set if folder is not None and config.data is None else set()
    if unused:
        raise ConfigError(
            f"world.{sorted(unused)[0]} cannot matter: {DATA_VARIABLES[config.name]} = {folder} takes the place of generated data; "
            "unset the variable or leave the setting out"
        )
    shape = (GENERATED if folder is None else ORIGINAL).get(config.name, OTHER)
    if config.name == "alfworld" and folder is None and config.room_size == "full":
        shape = replace(shape, max_steps=ORIGINAL["alfworld"].max_steps)
    filled = {name: getattr(shape, name) for name in ("results_per_page", "max_steps", "heldout") if getattr(config, name) is None}
    return config.model_copy(update={**filled, "data": folder})


def world_spec(config: WorldConfig) -> WorldSpec:
    """How every process builds the world. Generated data are written to the cache on first use.

    Raises ``ConfigError`` for an unknown world.
    """
    config = resolve_world(config)
    if config.name not in world_names():
        raise unknown_world(config.name)
    builders = {"webshop": _webshop, "alfworld": _alfworld}
    return WorldSpec(config.name, builders.get(config.name, _other)(config))


def _webshop(config: WorldConfig) -> dict[str, Any]:
    folder = config.data
    if folder is None and config.human_goals:
        raise ConfigError("world.human_goals = true: generated data have no human goals; set WEBSHOP_DATA or world.data to public data")
    if folder is None:
        from envs.webshop.generate import ensure_generated

        folder = ensure_generated(None, n=config.products, seed=config.data_seed)
    return {
        "data_dir": str(folder),
        "profile": config.profile,
        "human_goals": config.human_goals,
        "results_per_page": config.results_per_page,
        "max_steps": config.max_steps,
        "heldout": config.heldout,
    }


def _alfworld(config: WorldConfig) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_steps": config.max_steps,
        "task_types": config.task_types,
        "heldout_split": config.heldout_split,
        "heldout": config.heldout,
    }
    if config.data is not None:
        return {**options, "data_dir": str(config.data)}
    from envs.alfworld.placement import ROOMS
    from envs.alfworld.scenes import SUITS

    wanted = config.task_types or ()
    # Kitchens alone, unless a task type is not set there.
    rooms = ("kitchen",) if all("kitchen" in SUITS.get(name, ("kitchen",)) for name in wanted) else ROOMS
    return {**options, "games": config.games, "rooms": rooms, "size": config.room_size, "seed": config.data_seed}


def _other(config: WorldConfig) -> dict[str, Any]:
    """Options of a toy world, or of one that a user registered: only what was asked for."""
    asked = {"max_steps": config.max_steps, "heldout": config.heldout}
    if _takes(config.name, "seed") or "data_seed" in config.model_fields_set:
        asked["seed"] = config.data_seed
    return {**{name: value for name, value in asked.items() if value is not None}, **config.options}


def _takes(world: str, option: str) -> bool:
    """Whether a world can be given that option."""
    taken = inspect.signature(WORLDS.get(world)).parameters.values()
    return any(p.name == option or p.kind is p.VAR_KEYWORD for p in taken)


def unknown_world(name: str) -> ConfigError:
    """The error for a world that is not registered."""
    near = difflib.get_close_matches(name, world_names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return ConfigError(f"world.name = {name!r}: unknown (known: {', '.join(world_names())}){hint}{not_imported()}")


def build_world(spec: WorldSpec) -> World:
    """The world. Raises ``DataError`` for damaged or missing data, ``ConfigError`` for settings that do not fit the data."""
    patience = threading.Timer(
        PATIENCE_S, print, [f"building world {spec.name!r}; its first use may take minutes ..."], {"file": sys.stderr}
    )
    patience.start()
    try:
        return spec.build()
    except ModuleNotFoundError as error:
        how = "run make alfworld" if spec.name == "alfworld" else "install it"
        raise DataError(f"world {spec.name!r} needs {error.name}, which is not installed: {how}") from error
    except TypeError as error:
        raise ConfigError(f"world.options of world {spec.name!r}: {error}") from error
    except (*DATA_ERRORS, OSError) as error:
        raise DataError(f"world {spec.name!r} cannot be built: {error}") from error
    except ValueError as error:
        name = str(error).split(maxsplit=1)[0]
        setting = f"world.{error}" if name in WorldConfig.model_fields else str(error)
        raise ConfigError(f"{setting} (world {spec.name!r})") from error
    finally:
        patience.cancel()


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
