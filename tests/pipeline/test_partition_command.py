"""``fedagent data partition``: what it prints and writes, what it refuses, and a page that works in a browser."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.partition import Labels, PartitionSpec, build_partition, read_assignment, write_labels
from envs.partition.report import partition_report
from pipeline.errors import ConfigError, DataError
from pipeline.partition_command import add_partition_parser
from pipeline.report.partition_page import partition_page
from tests.browser import Browser, browser, browser_process  # noqa: F401
from tests.envs.partition.pools import blind, pool

SMALL = ("--world.products=60", "--world.heldout=40")


@pytest.fixture(autouse=True)
def generated_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)


def call(*words: object, overrides: Sequence[str] = SMALL) -> int:
    parser = argparse.ArgumentParser()
    add_partition_parser(parser.add_subparsers())
    args = parser.parse_args(["partition", *map(str, words)])
    args.overrides = list(overrides)
    code: int = args.command(args)
    return code


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert call(*words, "--json") == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_the_table_says_what_was_asked_and_got(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--clients", 20, "--tasks", 20, "--preference", 0.8) == 0
    out = capsys.readouterr().out
    for text in ("Partition: preference", "Asked and got", "Checks", "c000", "... 8 more"):
        assert text in out


def test_a_knob_may_be_given_as_a_concentration(capsys: pytest.CaptureFixture[str]) -> None:
    data = shown(capsys, "--clients", 20, "--tasks", 20, "--coverage", "xi=1")
    assert data["settings"] == {"size": 20, "coverage": 0.5}
    assert data["asked"][1]["concentration"] == 1
    for bad in ("xi=0", "xi=much", "strong"):
        with pytest.raises(SystemExit):
            call("--coverage", bad)
        assert "expected a number between 0 and 1, or xi=" in capsys.readouterr().err


def test_what_is_written_can_be_read_and_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "p.json", tmp_path / "p.html"
    first = shown(capsys, "--clients", 4, "--tasks", 10, "--preference", 0.5, "--out", out, "--report", page)
    assert {client: len(ids) for client, ids in read_assignment(out).items()} == dict.fromkeys(("c000", "c001", "c002", "c003"), 10)
    again = shown(capsys, "--clients", 4, "--file", out)
    assert again["kind"] == str(out)
    assert [client["categories"] for client in again["clients"]] == [client["categories"] for client in first["clients"]]
    assert "fedagent data partition --clients 4 --tasks 10 --preference 0.5" in page.read_text()


def test_seed_and_configuration_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        "[world]\nproducts = 60\nheldout = 40\n[federation]\nclients = 5\ntasks_per_client = 12\nclients_per_round = 2\n"
        "[federation.partition]\npreference = 0.9\n"
    )
    data = shown(capsys, "--config", config)
    assert (len(data["clients"]), data["settings"]["size"], data["settings"]["preference"]) == (5, 12, 0.9)
    assert shown(capsys, "--config", config)["clients"] == data["clients"]
    assert shown(capsys, "--config", config, "--seed", 4)["clients"] != data["clients"]


def label_file(path: Path, easy_every: int) -> Path:
    from pipeline.config.load import load_config
    from pipeline.partition_command import train_world

    tasks = train_world(load_config(None, SMALL)).tasks("train")
    write_labels(path, [(task.id, float(i % easy_every == 0), 1) for i, task in enumerate(tasks)], 0.5, {})
    return path


def test_labels_are_measured_and_steer_with_hardness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = label_file(tmp_path / "labels.json", 3)
    plain = shown(capsys, "--clients", 10, "--tasks", 20, "--labels", labels)
    assert plain["asked"][2]["asked"] is None
    assert plain["easy"]["sd"] < 0.2
    hard = shown(capsys, "--clients", 10, "--tasks", 20, "--labels", labels, "--hardness", 0.9)
    assert (hard["easy"]["min"], hard["easy"]["max"]) == (0.0, 1.0)


def test_refusals_name_the_setting_and_what_to_do(tmp_path: Path) -> None:
    labels = label_file(tmp_path / "labels.json", 3)
    data = json.loads(labels.read_text())
    gone = data["trajectories"].pop()["task_info"]["task_id"]
    labels.write_text(json.dumps(data))
    for kind, message, words in (
        (ConfigError, "tasks_per_client = 9999, but the world has only", ("--tasks", 9999)),
        (ConfigError, "federation.partition.preference = 1.5", ("--preference", 1.5)),
        (ConfigError, "needs federation.partition.labels", ("--hardness", 0.5)),
        (DataError, f"1 of .* train tasks have no label, for instance '{gone}'", ("--labels", labels, "--tasks", 5)),
        (DataError, "nowhere.json: cannot be read", ("--file", tmp_path / "nowhere.json")),
        (ConfigError, "is a folder, a file is needed", ("--out", tmp_path)),
        (ConfigError, "does not exist; create it", ("--report", tmp_path / "no" / "page.html")),
        (ConfigError, "did you mean .webshop.", ("--world", "webshopp")),
    ):
        with pytest.raises(kind, match=message):
            call(*words, overrides=() if "--world" in words else SMALL)


def write_page(path: Path, clients: int, **knobs: float) -> Path:
    tasks = pool({"fashion & <b>more</b>": 800, "pick_clean_then_place_in_recep": 500, "c": 300})
    labels: Labels = blind(tasks, 0.3)
    built = build_partition(tasks, clients, PartitionSpec(40, **knobs), labels=labels)
    path.write_text(partition_page(partition_report(built), "a <title>", "world x", "fedagent data partition"), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("clients", "knobs"), [(1, {}), (30, {"preference": 0.7, "coverage": 0.4, "hardness": 0.5}), (450, {"preference": 0.9})]
)
def test_the_page_in_a_browser(tmp_path: Path, browser: Browser, clients: int, knobs: dict[str, float], width: int) -> None:  # noqa: F811
    browser.open(write_page(tmp_path / "p.html", clients, **knobs), width)
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.overflow() <= 0
    assert "a <title>" in browser.text("h1")
    assert browser.count("#clients tbody tr") == clients
    drawn = min(clients, 400)
    shown = "#categories .wide" if width == 1280 else "#categories .narrow"
    assert browser.count(f"{shown} [data-tip]") == 3 * drawn
    assert browser.count("#findings tbody tr") >= 5
    assert browser.count("#warnings") == 0
    assert browser.count("#overlap details") == (1 if 1 < clients <= 40 else 0)


def test_the_page_sorts_clients_and_shows_tips(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(write_page(tmp_path / "p.html", 30, coverage=0.6))
    browser.js("document.querySelectorAll('#clients thead button')[1].click()")
    sizes = browser.js("return [...document.querySelectorAll('#clients tbody tr')].map(r => +r.cells[1].dataset.v)")
    assert sizes == sorted(sizes)
    browser.js("document.querySelector('#sizes [data-tip]').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
    assert "clients" in browser.text("#tip")


def test_a_partition_that_failed_its_checks_says_so_on_top(tmp_path: Path) -> None:
    tasks = pool({"fashion": 2564, "b": 1602, "c": 962, "d": 769, "e": 513})
    report = partition_report(build_partition(tasks, 100, PartitionSpec(100, preference=0.01, reference=True)))
    page = partition_page(report, "published")
    assert "not quite what was asked for" in page
    assert "D3, mean mix" in page


def test_equal_sizes_need_no_histogram(tmp_path: Path) -> None:
    assert "Every client has 40 tasks." in write_page(tmp_path / "p.html", 5).read_text()
    assert "Every client has" not in write_page(tmp_path / "q.html", 5, coverage=0.5).read_text()
