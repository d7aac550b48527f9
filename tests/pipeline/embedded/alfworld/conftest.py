"""A few generated games of every task type, and the shipped model, once per session."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import TASK_TYPES, AlfWorld
from envs.alfworld import generate as games
from envs.alfworld.generate import Settings
from envs.alfworld.placement import ROOMS
from pipeline.embedded import embedded_path


@pytest.fixture(scope="session")
def house_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("fast_downward", "alfworld"):
        if importlib.util.find_spec(name) is None:
            pytest.skip('the text engine is not installed: pip install "fedagent-ray[alfworld]"')
    return tmp_path_factory.mktemp("house-cache")


@pytest.fixture(scope="session")
def houses(house_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> AlfWorld:
    settings = Settings(games=36, seen=0, unseen=1, rooms=ROOMS, task_types=TASK_TYPES, seed=5)
    return AlfWorld(games.write(tmp_path_factory.mktemp("houses"), settings, house_cache), house_cache)


@pytest.fixture(scope="session")
def kitchens(house_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> AlfWorld:
    """Held-out games of the default world."""
    return AlfWorld(games.write(tmp_path_factory.mktemp("kitchens"), Settings(games=1, seen=50, unseen=50), house_cache), house_cache)


@pytest.fixture(scope="session")
def housekeeper_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(embedded_path("alfworld")), local_files_only=True)


@pytest.fixture(scope="session")
def housekeeper_model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(embedded_path("alfworld")), local_files_only=True).eval()
