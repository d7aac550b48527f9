from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pipeline.errors import DataError
from pipeline.report.data import read_report
from pipeline.report.tale.groups import group_arms
from pipeline.report.tale.runs import read_runs, run_arm
from pipeline.report.tale.widgets import plan_widgets
from pipeline.runlog import RunLog
from tests.pipeline.report.synthetic import clock, evaluation, records, write_run


def write_worlds(folder: Path) -> Path:
    """Two clients at home in two worlds: the shared agent in each and in the unperturbed one, and the clients' own parameters."""
    ticks = clock()
    start = {
        **records(0, False)[0],
        "name": "worlds",
        "plan": {"worlds_per_client": {"c000": "checkout:buy_now", "c001": "checkout:order"}},
    }
    start["config"] = {
        **start["config"],
        "world": {**start["config"]["world"], "variant": {"family": "checkout", "severity": 0.5, "reveal": "cue"}},
    }
    with RunLog(folder / "metrics.jsonl", lambda: next(ticks)) as log:
        log.write(start)
        for round, (control, first, second) in {0: (60, 30, 90), 2: (150, 240, 60)}.items():
            log.write(evaluation(round, control))
            log.write(evaluation(round, first, world="checkout:buy_now"))
            log.write(evaluation(round, second, world="checkout:order"))
        log.write(evaluation(2, 270, world="checkout:buy_now", client="c000"))
        log.write(evaluation(2, 30, world="checkout:order", client="c000"))
        log.write(evaluation(2, 210, world="checkout:order", client="c001"))
        log.write({"kind": "end", "status": "finished", "seconds": 20.0})
    return folder


def test_a_run_becomes_an_arm(tmp_path: Path) -> None:
    arm = run_arm(read_report(write_run(tmp_path)))
    assert (arm["name"], arm["family"], arm["algorithm"], arm["mode"], arm["seed"]) == ("demo", "run", "grpo", "federated", 0)
    assert (arm["control"], arm["mean_worlds"], arm["n_eval"], arm["rounds"], arm["episodes"]) == (248 / 300, 248 / 300, 300, 15, 7680)
    assert arm["start"] == 0.25
    assert [p["round"] for p in arm["curve"]] == list(range(16))
    assert arm["curve"][5]["episodes"] == 2560
    assert arm["curve"][5]["train"] == pytest.approx(0.25 + 0.6 * (1 - 2.718281828**-1), abs=1e-6)
    assert "mean_worlds" not in arm["curve"][4]
    assert arm["cost"] == {
        "rollout_seconds": 150.0,
        "train_seconds": 210.0,
        "aggregate_seconds": pytest.approx(4.5),
        "evaluate_seconds": 30.0,
        "other_seconds": pytest.approx(4.5),
        "tokens": 15 * 164_000,
        "bytes": 15 * 2 * 4 * 812_000,
    }
    assert arm["drift"][2]["cosine"] == 0.5
    assert arm["drift"][2]["divergence"] == pytest.approx(0.03)
    assert arm["drift"][2]["clip_fraction"] == 0.02
    assert arm["drift"][2]["norm"] is None


def test_worlds_and_matrix_of_a_run(tmp_path: Path) -> None:
    arm = run_arm(read_report(write_worlds(tmp_path)))
    assert (arm["variant"], arm["severity"], arm["reveal"]) == ("checkout", 0.5, "cue")
    assert arm["worlds"] == {"checkout:buy_now": 0.8, "checkout:order": 0.2}
    assert (arm["mean_worlds"], arm["worst_world"], arm["control"]) == (0.5, 0.2, 0.5)
    assert arm["start"] == pytest.approx(0.2)
    assert arm["after_local"] == pytest.approx((0.9 + 0.7) / 2)
    assert arm["curve"][0]["worst_world"] == 0.1
    (group,) = group_arms([arm])
    (matrix,) = group.plain()["matrices"]
    assert matrix["clients"] == ["c000", "c001", "shared agent"]
    assert matrix["worlds"] == ["default", "checkout:buy_now", "checkout:order"]
    assert matrix["rates"] == [[None, 0.9, 0.1], [None, None, 0.7], [0.5, 0.8, 0.2]]
    assert matrix["homes"] == ["checkout:buy_now", "checkout:order", ""]
    assert set(plan_widgets([group], runs_only=True).widgets) == {"matrix", "cost", "compare"}


def test_runs_that_differ_in_the_seed_alone_are_seeds_of_one_arm(tmp_path: Path) -> None:
    folders = []
    for name, seed, lr in (("a", 0, 1e-3), ("b", 1, 1e-3), ("c", 2, 5e-4), ("d", 1, 1e-3)):
        folder = write_run(tmp_path / name)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        start = json.loads(lines[0])
        start["name"] = start["config"]["run"]["name"] = name
        start["config"]["run"]["seed"] = seed
        start["config"]["learner"]["lr"] = lr
        (folder / "metrics.jsonl").write_text("\n".join([json.dumps(start), *lines[1:]]) + "\n")
        folders.append(folder)
    groups = group_arms([arm for source in read_runs(folders) for arm in source.arms])
    assert [(g.text("name"), g.seeds) for g in groups] == [("a", [0, 1]), ("c", [2]), ("d", [1])]


def test_an_unfinished_run_says_what_is_missing(tmp_path: Path) -> None:
    (source,) = read_runs([write_run(tmp_path, rounds=3, end=False)])
    assert "Run demo: 3 of 15 rounds are done." in source.missing
    assert source.command == "python -m pipeline.run --run.name 'demo shop'"


def test_a_run_without_records_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match="has no records"):
        read_runs([tmp_path])
    shutil.rmtree(tmp_path)
    with pytest.raises(DataError, match="is not a folder"):
        read_runs([tmp_path])
