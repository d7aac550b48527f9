"""From configuration to a world: whose fault a world is that cannot be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.base import WorldSpec
from envs.webshop.generate import write
from pipeline.config import WorldConfig
from pipeline.errors import ConfigError, DataError
from pipeline.worlds import build_world, data_folder, resolve_world, world_spec


def test_a_setting_that_does_not_fit_the_data_is_a_setting(tmp_path: Path) -> None:
    write(tmp_path / "shop", n=30, seed=0)
    with pytest.raises(ConfigError, match=r"world\.heldout is 500: this catalogue has \d+ goals, so choose 1 to \d+"):
        build_world(world_spec(WorldConfig(data=tmp_path / "shop")))


def test_damaged_data_are_data(tmp_path: Path) -> None:
    write(tmp_path / "shop", n=30, seed=0)
    items = tmp_path / "shop" / "items_shuffle.json"
    items.write_bytes(items.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"items_shuffle\.json: record \d+"):
        build_world(world_spec(WorldConfig(data=tmp_path / "shop", heldout=5)))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no catalogue here"):
        build_world(world_spec(WorldConfig(data=tmp_path / "empty")))


def test_an_unknown_world_comes_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'webshop'"):
        world_spec(WorldConfig(name="webshopp"))
    with pytest.raises(ConfigError, match="unknown world"):
        build_world(WorldSpec("webshopp"))


def test_the_variable_names_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", "")
    assert data_folder(WorldConfig()) is None
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "gone"))
    with pytest.raises(DataError, match=r"WEBSHOP_DATA = .*gone: no such folder"):
        data_folder(WorldConfig())
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path / "file"))
    with pytest.raises(DataError, match="is a file, a folder is needed"):
        data_folder(WorldConfig())
    monkeypatch.setenv("WEBSHOP_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match=r"world\.products cannot matter: WEBSHOP_DATA"):
        resolve_world(WorldConfig(products=50))
