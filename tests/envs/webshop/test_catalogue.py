"""The shared on-disk catalogue: keys, memory mapping, many builders at once, damage."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs.webshop import WebShop, WebShopDataError
from envs.webshop.catalogue import Catalogue, cache_root
from tests.envs.webshop.conftest import ITEMS, Opener, Writer


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "webshop").iterdir() if path.is_dir() and path.name != "hashes")


def open_in_process(folder: Path, cache: Path, gate: Any, results: Any) -> None:
    gate.wait()
    results.put((len(WebShop(folder, cache_dir=cache).goals), os.getpid()))


def test_many_processes_build_one_catalogue(write_folder: Writer, tmp_path: Path) -> None:
    folder, cache = write_folder(), tmp_path / "cache"
    context = multiprocessing.get_context("fork")
    gate, results = context.Event(), context.Queue()
    processes = [context.Process(target=open_in_process, args=(folder, cache, gate, results)) for _ in range(4)]
    for process in processes:
        process.start()
    gate.set()
    answers = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert [count for count, _ in answers] == [11] * 4
    assert len(folders(cache)) == 1


def test_the_key_follows_the_contents(open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]], tmp_path: Path) -> None:
    open_shop()
    open_shop()
    assert len(folders(tmp_path / "cache")) == 1
    items[1]["name"] = "Changed Socks"
    assert open_shop(write_folder(items)).search("changed") == ["B0EXAMPLE3"]
    open_shop(write_folder(items), profile="up", human_goals=True)
    open_shop(write_folder(items), num_products=2)
    assert len(folders(tmp_path / "cache")) == 4
    open_shop(write_folder())
    assert len(folders(tmp_path / "cache")) == 4


def test_the_same_files_elsewhere_are_the_same_catalogue(open_shop: Opener, write_folder: Writer) -> None:
    first = open_shop(write_folder(name="a")).catalogue.folder
    assert open_shop(write_folder(name="b")).catalogue.folder == first


def test_a_failed_build_leaves_nothing(open_shop: Opener, write_folder: Writer, tmp_path: Path) -> None:
    with pytest.raises(WebShopDataError):
        open_shop(write_folder([*ITEMS[:3], {"asin": "B0BROKEN00"}]))
    assert folders(tmp_path / "cache") == []


def test_a_half_deleted_catalogue_is_built_again(open_shop: Opener) -> None:
    folder = open_shop().catalogue.folder
    (folder / "meta.json").unlink()
    assert open_shop().catalogue.folder == folder
    assert len(open_shop().goals) == 11


def test_arrays_are_mapped_and_read_only(open_shop: Opener) -> None:
    catalogue = open_shop().catalogue
    for array in (catalogue._blob, catalogue.price_low, catalogue.engine._documents, catalogue.engine._frequencies):
        assert not array.flags.writeable
        assert isinstance(array.base, np.memmap)


def test_where_catalogues_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDAGENT_CACHE", str(tmp_path / "one"))
    assert cache_root() == tmp_path / "one" / "webshop"
    assert cache_root(tmp_path / "two") == tmp_path / "two" / "webshop"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDAGENT_CACHE", str(tmp_path / "file"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert cache_root().is_relative_to(tmp_path / f"fedagent-{os.getuid()}")


def test_products_survive_the_round_trip(open_shop: Opener) -> None:
    catalogue = open_shop().catalogue
    for asin in ("B0EXAMPLE1", "B0EXAMPLE4", "LK_LONGER_THAN_TEN"):
        position = catalogue.position(asin)
        assert catalogue.product(position).asin == asin
        assert catalogue.product(position) is catalogue.product(position)
    for asin in ("", "B0EXAMPLE", "b0example1", "ZZZ", "B0EXAMPLE1X"):
        with pytest.raises(KeyError):
            catalogue.position(asin)


def test_lone_surrogates_do_no_harm(open_shop: Opener, write_folder: Writer, items: list[dict[str, Any]]) -> None:
    items[1]["name"] = "odd \ud83d name"
    folder = write_folder(items)
    assert json.loads((folder / "items_shuffle.json").read_text())[1]["name"] == "odd \ud83d name"
    assert open_shop(folder).search("odd") == ["B0EXAMPLE3"]


def test_errors_can_cross_processes(open_shop: Opener, write_folder: Writer) -> None:
    with pytest.raises(WebShopDataError) as raised:
        Catalogue.open(write_folder([{"asin": "B0BROKEN00"}]))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.record, again.asin) == (str(raised.value), 0, "B0BROKEN00")
