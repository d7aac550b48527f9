"""The report on a data folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from envs.webshop import WebShopDataError
from envs.webshop.check import FolderReport, check_folder
from tests.envs.webshop.conftest import ATTRIBUTES, HUMAN, ITEMS, Writer


def check(folder: Path) -> FolderReport:
    return check_folder(folder, cache_dir=folder.parent / "cache")


def test_a_good_folder(write_folder: Writer) -> None:
    report = check(write_folder())
    assert report.ok
    assert report.problems == []
    assert report.counts["records"] == 9
    assert report.counts["products"] == 6
    assert (report.counts["repeated"], report.counts["skipped"]) == (1, 2)
    assert (report.counts["goals"], report.counts["human_goals"]) == (11, 2)
    assert report.counts["with_instruction"] == 3
    assert report.categories == {"beauty": 1, "fashion": 3, "garden": 1, "grocery": 1}
    assert len(report.goals_hash) == 64
    assert set(report.files) == {"items_shuffle.json", "items_ins_v2.json", "items_human_ins.json", "title_nouns.json"}
    report.raise_first()
    assert any("record 4 (asin B0EXAMPLE1): repeats record 0" in warning for warning in report.warnings)
    assert any("(2 such records)" in warning for warning in report.warnings if "not loaded" in warning)
    assert report.lines()[0].endswith("ok")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pricing": "9.99"}, "record 2 (asin B0EXAMPLE2): field 'pricing' has no '$'"),
        ({"name": 7}, "record 2 (asin B0EXAMPLE2): field 'name' should be a text, found int"),
        ({"images": None}, "record 2 (asin B0EXAMPLE2): field 'images'"),
        ({"asin": "b0example2"}, "lower-case letters"),
    ],
)
def test_bad_records(write_folder: Writer, items: list[dict[str, Any]], changes: dict[str, Any], words: str) -> None:
    items[2].update(changes)
    report = check(write_folder(items))
    assert not report.ok
    assert words in report.problems[0]
    assert report.goals_hash == ""
    with pytest.raises(WebShopDataError):
        report.raise_first()


def test_all_kinds_of_problems_are_found_in_one_pass(write_folder: Writer, items: list[dict[str, Any]]) -> None:
    items[1]["pricing"] = "1"
    items[2]["pricing"] = "2"
    del items[3]["query"]
    report = check(write_folder(items))
    assert [text.split(": ")[1] for text in report.problems] == ["record 1 (asin B0EXAMPLE3)", "record 3 (asin B0EXAMPLE4)"]
    assert "(2 such records)" in report.problems[0]


def test_truncated_missing_and_empty(write_folder: Writer, tmp_path: Path) -> None:
    folder = write_folder()
    whole = (folder / "items_shuffle.json").read_text()
    (folder / "items_shuffle.json").write_text(whole[: len(whole) // 2])
    assert "truncated" in check(folder).problems[0]
    assert "record " in check(folder).problems[0]
    (folder / "items_shuffle.json").write_text("[]")
    assert "no product" in check(folder).problems[0]
    (folder / "items_shuffle.json").unlink()
    assert "no catalogue here" in check(folder).problems[0]
    assert "does not exist" in check(tmp_path / "nowhere").problems[0]
    assert "NOT OK" in check(tmp_path / "nowhere").lines()[0]
    (write_folder(name="b") / "items_ins_v2.json").write_text('{"B0')
    assert "items_ins_v2.json: not readable as JSON" in check(tmp_path / "b").problems[0]


def test_instructions_for_products_that_are_not_there(write_folder: Writer) -> None:
    attributes = {**ATTRIBUTES, "B0NOWHERE0": {"attributes": []}}
    human = {**HUMAN, "B0NOWHERE0": HUMAN["B0EXAMPLE4"]}
    counts = check(write_folder(attributes=attributes, human=human)).counts
    assert (counts["attributes_without_product"], counts["human_without_product"]) == (1, 1)
    bad = {**HUMAN, "B0NOWHERE0": [{"instruction": 1}]}
    assert "asin B0NOWHERE0" in check(write_folder(human=bad)).problems[0]


def test_without_goals(write_folder: Writer) -> None:
    assert "no synthetic goal" in check(write_folder(attributes={})).problems[0]
    assert any("refuses this catalogue" in warning for warning in check(write_folder(attributes={})).warnings)


def test_a_generated_folder_must_be_unchanged(write_folder: Writer) -> None:
    folder = write_folder()
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.json")}
    (folder / "generated.json").write_text(json.dumps({"files": digests}))
    assert check(folder).ok
    write_folder(ITEMS[:4])
    assert "changed since it was generated" in check(folder).problems[0]


@pytest.mark.data
def test_the_public_products(webshop_data: Path, shared_cache: Path) -> None:
    report = check_folder(webshop_data, cache_dir=shared_cache)
    assert report.ok
    assert report.goals_hash == json.loads((webshop_data / "goals_golden.json").read_text())["sha256"]
    assert (report.counts["products"], report.counts["goals"], report.counts["human_goals"]) == (1000, 6910, 13)
