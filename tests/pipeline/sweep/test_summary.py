"""From run logs to a trial's numbers, and from trials to arms."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.runlog import RunLog
from pipeline.statistics import t_interval
from pipeline.sweep.curve import Curve
from pipeline.sweep.manifest import Manifest
from pipeline.sweep.summary import arms_of, arms_table, failures, rows_of, write_summary
from pipeline.sweep.trials import Base, Trial, make_trials

WORLDS = {"c0": "default", "c1": "conflict:b", "c2": "conflict:b"}


def start(resumed_from: int | None = None, rounds: int = 2, worlds: dict[str, str] | None = None) -> dict[str, Any]:
    plan = {"worlds_per_client": WORLDS if worlds is None else worlds}
    return {"kind": "start", "plan": plan, "resumed_from": resumed_from, "config": {"federation": {"rounds": rounds}}}


def measured(round: int, success: float, world: str = "default", **more: Any) -> dict[str, Any]:
    return {"kind": "evaluation", "round": round, "mode": "sampled", "world": world, "success": success, "client": None, **more}


def trained(round: int, success: float, episodes: int = 10) -> dict[str, Any]:
    return {"kind": "round", "round": round, "success": success, "episodes": episodes, "seconds": 2.0, "failed": [], "drift_norm": 0.5}


def test_a_row_holds_the_newest_of_everything() -> None:
    curve = Curve()
    for record in (
        start(), measured(0, 0.2), measured(0, 0.4, "conflict:b"), trained(1, 0.5),
        measured(2, 0.9), measured(2, 0.3, "conflict:b"), measured(2, 1.0, mode="greedy"), measured(2, 1.0, client="c1"), trained(2, 0.6),
    ):  # fmt: skip
        curve.feed(record)
    row = curve.row()
    assert (row["round"], row["episodes"], row["success"], row["measured_round"], row["drift_norm"]) == (2, 20, 0.6, 2, 0.5)
    assert (row["control"], row["worlds_worst"]) == (0.9, 0.3)
    # Over clients: one lives in the unperturbed world, two in the other.
    assert row["worlds_mean"] == row["objective"] == pytest.approx((0.9 + 2 * 0.3) / 3)
    assert row["start"] == pytest.approx((0.2 + 2 * 0.4) / 3)


def test_alike_clients_live_in_the_unperturbed_world_and_unmeasured_worlds_are_null() -> None:
    curve = Curve()
    for record in (start(worlds={}), measured(0, 0.2), trained(1, 0.5)):
        curve.feed(record)
    assert (curve.row()["worlds_mean"], curve.row()["worlds_worst"], curve.row()["measured_round"]) == (0.2, 0.2, 0)
    other = Curve()
    for record in (start(worlds={"c0": "x", "c1": "y"}), measured(0, 0.2)):
        other.feed(record)
    assert (other.row()["worlds_mean"], other.row()["objective"], other.row()["success"]) == (None, 0.2, None)


def test_a_resume_takes_back_what_came_after_its_round() -> None:
    curve = Curve()
    for record in (start(), trained(1, 0.5), trained(2, 0.9), start(resumed_from=1), trained(2, 0.6)):
        curve.feed(record)
    assert (curve.row()["success"], curve.row()["episodes"]) == (0.6, 20)
    curve.feed(start(resumed_from=None))
    assert (curve.round, curve.row()["episodes"]) == (0, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two arms, two seeds: two trials finished, one failed, one never began."""
    for trial, rate in zip(trials()[:2], (0.4, 0.6), strict=True):
        with RunLog(tmp_path / trial.name / "run" / "metrics.jsonl") as log:
            for record in (start(worlds={}), measured(0, 0.1), trained(1, 0.5), trained(2, 0.5), measured(2, rate)):
                log.write(record)
            log.write({"kind": "end", "status": "finished", "seconds": 4.0})
    with RunLog(tmp_path / trials()[2].name / "run" / "metrics.jsonl") as log:
        log.write(start(worlds={}))
        log.write(trained(1, 0.5))
        log.write({"kind": "end", "status": "failed", "seconds": 1.0})
    return tmp_path


def trials() -> tuple[Trial, ...]:
    return make_trials([{"learner.lr": lr, "run.seed": seed} for lr in (0.1, 0.2) for seed in (0, 1)])


def test_rows_say_how_every_trial_ended(folder: Path) -> None:
    rows = rows_of(folder, trials(), {"002-lr0.2-s0": "EngineError: broke"}, False)
    assert [row.status for row in rows] == ["finished", "finished", "failed", "unfinished"]
    assert failures(rows) == ["002-lr0.2-s0: failed: EngineError: broke", "003-lr0.2-s1: unfinished"]
    first, second = arms_of(rows)
    assert first["control"] == pytest.approx(0.5)
    assert (first["control_low"], first["control_high"]) == tuple(t_interval([0.4, 0.6]))
    assert (second["finished"], second["control"], second["seeds"]) == (0, None, [])
    assert arms_table(rows, "x").row_count == 2


def test_a_stopped_trial_counts_only_where_trials_are_stopped_early(folder: Path) -> None:
    with RunLog(folder / trials()[3].name / "run" / "metrics.jsonl") as log:
        log.write(start(worlds={}))
        log.write(trained(1, 0.5))
        log.write({"kind": "end", "status": "stopped", "seconds": 1.0})
    assert rows_of(folder, trials(), {}, True)[3].status == "stopped"
    assert rows_of(folder, trials(), {}, False)[3].status == "unfinished"


def test_the_summary_names_what_is_missing(folder: Path) -> None:
    rows = rows_of(folder, trials(), {"002-lr0.2-s0": "broke, badly"}, False)
    write_summary(folder, Manifest("s", Base({}), (0, 1), 1, False, 2, trials(), {"torch": "2", "pipeline/client.py": "aa"}), rows)
    plain = json.loads((folder / "sweep.json").read_text())
    assert (plain["schema"], plain["complete"], plain["versions"]) == (1, False, {"torch": "2"})
    assert plain["missing"] == ["002-lr0.2-s0", "003-lr0.2-s1"]
    settings = {"learner.lr": 0.1, "run.seed": 0}
    assert plain["trials"][0] == {
        "number": 0, "name": "000-lr0.1-s0", "arm": "lr0.1", "seed": 0, "settings": settings, "status": "finished", "error": None,
        "round": 2, "episodes": 20, "start": 0.1, "control": 0.4, "worlds_mean": 0.4, "worlds_worst": 0.4, "success": 0.5,
        "measured_round": 2, "seconds": 4.0,
    }  # fmt: skip
    with (folder / "sweep.csv").open() as stream:
        table = list(csv.DictReader(stream))
    assert [row["status"] for row in table] == ["finished", "finished", "failed", "unfinished"]
    assert (table[2]["error"], table[1]["learner.lr"], table[3]["control"]) == ("broke, badly", "0.1", "")
