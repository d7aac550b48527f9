"""The embedded world, and the shipped model, once per session."""

from __future__ import annotations

from typing import Any

import pytest

from envs.base import World
from pipeline.embedded import embedded_path
from pipeline.embedded.build import embedded_world


@pytest.fixture(scope="session")
def shop_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return embedded_world(cache_dir=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shipped_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(embedded_path()), local_files_only=True)


@pytest.fixture(scope="session")
def shipped_model() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(embedded_path()), local_files_only=True).eval()
