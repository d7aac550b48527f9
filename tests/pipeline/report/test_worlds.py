"""The report's section on clients' worlds: residents, means over clients, the matrix, and nothing where worlds are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.report.data import read_report
from pipeline.report.page import render
from pipeline.report.worlds import read_worlds
from pipeline.report.worlds_section import own_worlds_tile, worlds_section
from pipeline.runlog import History
from tests.pipeline.report.synthetic import evaluation, write

HOMES = {"c000": "rank_wrapper:control", "c001": "rank_wrapper:invert", "c002": "rank_wrapper:invert"}
START: dict[str, Any] = {
    "plan": {
        "worlds_per_client": HOMES,
        "proof": {
            "reach": [
                {"client": "c000", "world": "rank_wrapper:control", "tried": 20, "solved": 20, "share": 1.0},
                {"client": "c001", "world": "rank_wrapper:invert", "tried": 20, "solved": 10, "share": 0.5},
                {"client": "c002", "world": "rank_wrapper:invert", "tried": 20, "solved": 14, "share": 0.7},
            ],
            "differences": [{"first": "a<b", "second": "b", "jaccard": 0.25, "top1": 0.5, "replies": 0.75}],
            "notes": [],
        },
    }
}


def history() -> History:
    evaluations = [
        evaluation(0, 60),
        evaluation(0, 30, 100, world="rank_wrapper:control"),
        evaluation(0, 10, 100, world="rank_wrapper:invert"),
        evaluation(5, 240),
        evaluation(5, 80, 100, world="rank_wrapper:control"),
        evaluation(5, 20, 100, world="rank_wrapper:invert"),
        evaluation(5, 90, 100, client="c001"),
        evaluation(5, 50, 100, client="c001", world="rank_wrapper:invert"),
    ]
    return History(starts=[START], evaluations=evaluations)


def test_the_mean_counts_clients_not_worlds() -> None:
    worlds = read_worlds(history())
    assert worlds.means == [(0, (0.3 + 2 * 0.1) / 3), (5, (0.8 + 2 * 0.2) / 3)]
    assert [(line.world, list(line.clients), line.reach) for line in worlds.lines] == [
        ("rank_wrapper:control", ["c000"], 1.0),
        ("rank_wrapper:invert", ["c001", "c002"], 0.6),
    ]
    assert [rate.successes for rate in worlds.control] == [60, 240]


def test_the_matrix_has_a_row_per_client_and_the_shared_agent_last() -> None:
    matrix = read_worlds(history()).matrix
    assert matrix is not None
    assert list(matrix.worlds) == ["default", "rank_wrapper:control", "rank_wrapper:invert"]
    cells = {name: [None if rate is None else rate.successes for rate in rates] for name, rates in matrix.rows}
    assert list(cells) == ["c001", "shared agent"]
    assert cells["c001"] == [90, None, 50]
    assert cells["shared agent"] == [240, 80, 20]


def test_the_section_escapes_and_names_the_worst_world() -> None:
    html = worlds_section(read_worlds(history()), "", "")
    assert "a&lt;b" in html
    assert "a<b" not in html
    assert "worst world" in html
    assert "20.0%" in html


def test_the_headline_is_the_mean_over_clients_in_their_own_worlds(tmp_path: Path) -> None:
    tile = own_worlds_tile(read_worlds(history()))
    assert "Mean over clients, each in its own world" in tile
    assert '16.7% <span class="arrow">→</span> 40.0%' in tile
    assert "after round 5, 3 clients" in tile
    assert "worst world rank_wrapper:invert: 20.0%" in tile
    trained = [{"kind": "client", "round": 1, "client": "c001", "success": 0.5, "episodes": 64}]
    start = {"kind": "start", "plan": {**START["plan"], "categories_per_client": {"c001": {"shoes": 30, "tents": 10}}}}
    page = render(read_report(write(tmp_path, start, *trained, *history().evaluations)))
    assert page.index("Mean over clients, each in its own world") < page.index("Held-out success, unperturbed world, sampled")
    assert page.index('id="worlds"') < page.index('id="success"')
    assert "shoes 75%" in page
    assert "<td" in page[page.index("rank_wrapper:invert", page.index('id="clients"')) - 40 :][:80]


def test_a_world_without_any_training_success_is_named() -> None:
    clients = [
        {"kind": "client", "round": 1, "client": "c001", "success": 0.0},
        {"kind": "client", "round": 1, "client": "c000", "success": 0.1},
        {"kind": "client", "round": 2, "client": "c000", "success": 0.0},
    ]
    worlds = read_worlds(replace(history(), clients=clients))
    assert [(line.trained, line.silent) for line in worlds.lines] == [(1, 0), (1, 1)]
    html = worlds_section(worlds, "", "")
    assert "In rank_wrapper:invert (1 clients) no training episode succeeded" in html
    assert "rank_wrapper:control (" not in html


def test_worlds_that_rank_nothing_show_no_hits() -> None:
    assert "Hits in common" in worlds_section(read_worlds(history()), "", "")
    worlds = read_worlds(history())
    quiet = replace(worlds, differences=[{"first": "a", "second": "b", "jaccard": 1.0, "top1": 0.0, "replies": 0.5}])
    assert "Hits in common" not in worlds_section(quiet, "", "")


def test_alike_worlds_make_no_section() -> None:
    alike = History(starts=[{"plan": {"worlds_per_client": dict.fromkeys(HOMES, "default")}}], evaluations=[evaluation(0, 60)])
    assert read_worlds(alike).lines == ()
    assert worlds_section(read_worlds(alike), "", "") == ""
