"""The report's section on clients' worlds: residents, means over clients, the matrix, and nothing where worlds are alike."""

from __future__ import annotations

from pipeline.report.worlds import read_worlds
from pipeline.report.worlds_section import worlds_section
from pipeline.runlog import History
from tests.pipeline.report.synthetic import evaluation

HOMES = {"c000": "rank_wrapper:control", "c001": "rank_wrapper:invert", "c002": "rank_wrapper:invert"}
START = {
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


def test_alike_worlds_make_no_section() -> None:
    alike = History(starts=[{"plan": {"worlds_per_client": dict.fromkeys(HOMES, "default")}}], evaluations=[evaluation(0, 60)])
    assert read_worlds(alike).lines == ()
    assert worlds_section(read_worlds(alike), "", "") == ""
