from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.reproduce.results import Missing, save_results
from tests.pipeline.report.synthetic import write_run
from tests.pipeline.reproduce.synthetic import synthetic_results


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(["report", *map(str, arguments)])
    streams = capsys.readouterr()
    return code, streams.out.strip() if code == 0 else streams.err.strip()


def test_one_run_gets_its_own_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "demo", episodes=False)
    assert said(capsys, folder) == (0, str(folder / "report.html"))
    assert "<title>demo: report</title>" in (folder / "report.html").read_text()


def test_results_get_the_tale_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save_results(synthetic_results(), tmp_path / "tale.json")
    assert said(capsys, file) == (0, str(tmp_path / "tale.html"))
    assert "The asymmetric tale" in (tmp_path / "tale.html").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tale.html", "tale.json"]


def test_several_results_are_merged_and_runs_stand_beside_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = synthetic_results((0, 1))
    parts = [replace(whole, arms=tuple(a for a in whole.arms if a.seed == seed)) for seed in (0, 1)]
    files = [save_results(part, tmp_path / f"{i}.json") for i, part in enumerate(parts)]
    run = write_run(tmp_path / "demo", rounds=3, end=False, episodes=False)
    assert said(capsys, *files, run, "--out", tmp_path / "all.html") == (0, str(tmp_path / "all.html"))
    text = (tmp_path / "all.html").read_text()
    data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
    by_name = {g["name"]: g for g in data["groups"]}
    assert by_name["uniform"]["seeds"] == [0, 1]
    assert by_name["demo"]["family"] == "run"
    assert "Run demo: 3 of 15 rounds are done." in text
    assert said(capsys, *files)[1] == str(tmp_path / "comparison.html")


def test_runs_alone_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / name, episodes=False) for name in ("a", "b")]
    assert said(capsys, *runs) == (0, str(tmp_path / "comparison.html"))
    text = (tmp_path / "comparison.html").read_text()
    assert "<h1>Runs compared</h1>" in text
    assert 'id="compare" class="widget"' in text
    assert 'id="ladder' not in text
    assert 'id="published"' not in text


def test_a_missing_arm_leaves_the_rest_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gaps = [Missing("buy4", 1, "not run yet"), Missing("uniform-ppo", None, "failed: EngineError")]
    file = save_results(synthetic_results(missing=gaps), tmp_path / "part.json")
    assert said(capsys, file)[0] == 0
    text = (tmp_path / "part.html").read_text()
    assert "buy4, seed 1: not run yet" in text
    assert "uniform-ppo: failed: EngineError" in text


def test_bad_input_is_refused_and_nothing_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = save_results(synthetic_results((0,)), tmp_path / "good.json")
    value = json.loads(good.read_text())
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({**value, "schema": 2}))
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**value, "schema": 0}))
    out_of_range = tmp_path / "range.json"
    out_of_range.write_text(json.dumps({**value, "arms": [{**value["arms"][0], "mean_worlds": 84.0}]}))
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**value, "arms": [{**value["arms"][0], "mean_worlds": 0.5}]}))
    listed = tmp_path / "list.json"
    listed.write_text("[1, 2]")
    note = tmp_path / "note.txt"
    note.write_text("hello")
    run = write_run(tmp_path / "demo", episodes=False)
    cases = [
        ((newer,), 3, f"{newer} has schema 2, this program reads schema 1: use a newer fedagent-ray"),
        ((good, older), 3, f"{older} has schema 0, this program reads schema 1"),
        ((out_of_range,), 3, "arm 'uniform', seed 0: mean_worlds = 84.0"),
        ((good, other), 3, "arm 'uniform', seed 0: two results hold different numbers"),
        ((listed,), 3, f"{listed}: not a results file"),
        ((note,), 3, f"{note}: not a run folder and not a results file"),
        ((tmp_path / "gone.json",), 3, "there is nothing of that name"),
        ((tmp_path,), 3, f"{tmp_path}: not a run folder"),
        ((good, good), 2, "is named twice"),
        ((good, "--out", tmp_path / "page.json"), 2, "the name of a page ends in .html"),
        ((run, "--out", tmp_path / "page.html"), 2, "cannot matter for one run"),
    ]
    for arguments, code, part in cases:
        found, message = said(capsys, *arguments)
        assert (found, part in message) == (code, True), (arguments, message)
    assert not list(tmp_path.glob("*.html"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = save_results(synthetic_results((0,)), tmp_path / "tale.json")
    (tmp_path / "taken").write_text("a file")
    code, message = said(capsys, file, "--out", tmp_path / "taken" / "page.html")
    assert code == 3
    assert "cannot be written" in message
