"""Fixtures: the public games, the hand-made kitchen, and the unmodified engine."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from envs.alfworld import TASK_TYPES, AlfWorld
from envs.alfworld.placement import ROOMS
from envs.alfworld.world import AlfWorldWorld
from tests.envs.alfworld import rooms
from tests.envs.alfworld.unmodified import Unmodified


@pytest.fixture(scope="session")
def alfworld_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alfworld-cache")


@pytest.fixture(scope="session")
def engine_packages() -> None:
    # Not imported: alfworld sets ALFWORLD_DATA when it is.
    for name in ("fast_downward", "alfworld"):
        if importlib.util.find_spec(name) is None:
            pytest.skip('the text engine is not installed: pip install "fedagent-ray[alfworld]"')


@pytest.fixture(scope="session")
def public(alfworld_data: Path, alfworld_cache: Path, engine_packages: None) -> AlfWorld:
    return AlfWorld(alfworld_data, alfworld_cache)


@pytest.fixture
def kitchen(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> AlfWorld:
    return AlfWorld(rooms.write(tmp_path / "kitchen"), alfworld_cache)


@pytest.fixture(scope="session")
def unmodified(engine_packages: None) -> Unmodified:
    return Unmodified()


@pytest.fixture(scope="session")
def house(alfworld_cache: Path, engine_packages: None) -> AlfWorldWorld:
    """24 generated train games and 12 held-out ones: all task types, all room kinds."""
    return AlfWorldWorld(games=24, heldout=12, task_types=TASK_TYPES, rooms=ROOMS, cache_dir=alfworld_cache)
