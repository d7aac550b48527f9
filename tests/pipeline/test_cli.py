"""The command line at its boundary: wrong input gives a message, the documented exit code, and nothing on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.cli import guarded, main, split_settings


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    try:
        code = main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "--config="], 2, "expected a path, found an empty word"),
        (["run", "--resume", "/nowhere"], 9, "no such folder"),
        (["run", "--resume", __file__], 9, "is a file, a run folder is needed"),
        (["run", "--config", "a.toml", "--config", "b.toml"], 2, "given twice"),
        (["run", "--dry-run", "--run.name", ".."], 2, "run.name"),
        (["run", "--dry-run", "--run.dir", __file__], 2, "is a file, runs need a folder"),
        (["run", "--dry-run", "--world.data", __file__], 3, "is a file, a folder is needed"),
        (["run", "--dry-run", "--federation.rounds"], 2, "needs a value (integer 1 to 100000)"),
        (["eval", "--checkpoint", "/nowhere"], 9, "no such folder"),
        (["eval", "--checkpoint", __file__], 9, "is a file, a folder is needed"),
        (["eval", "--checkpoint", ".", "--temperature", "nan"], 2, "allowed 0 (greedy) to 5"),
        (["report", "/nowhere"], 3, "not a run folder"),
        (["view", "/nowhere"], 3, "no such file or folder"),
        (["view", "/nowhere", "--limit", "0"], 2, "expected a number of at least 1"),
        (["data", "webshop", "--generate", "10"], 2, "--generate needs --out DIR"),
        (["data", "webshop", "--generate", "10", "--out", __file__], 2, "is a file, a folder is needed"),
        (["data", "webshop", "--generate", "10", "--out", f"{__file__}/x"], 2, "is a file, a folder is needed"),
        (["data", "webshop", "--check", ".", "--out", "x"], 2, "cannot matter with --check"),
        (["model", "build", "--out", __file__], 2, "is a file, a folder is needed"),
        (["evl"], 2, "invalid choice"),
    ],
)
def test_wrong_input(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    found, text = refused(arguments, capsys)
    assert (found, words in text) == (code, True), text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


def test_a_catalogue_is_not_written_among_other_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    code, text = refused(["data", "webshop", "--generate", "10", "--out", str(tmp_path)], capsys)
    assert (code, "holds other files" in text) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    out = ["data", "webshop", "--generate", "10", "--out", str(tmp_path / "shop")]
    assert main(out) == 0
    assert main(out) == 0, "a generated folder may be generated again"


def test_a_page_does_not_replace_what_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    code, text = refused(["view", str(tmp_path / "metrics.jsonl"), "--out", str(tmp_path / "metrics.jsonl")], capsys)
    assert (code, "is no page" in text) == (2, True)
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"


def test_a_missing_library_says_what_to_install(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise ModuleNotFoundError("No module named 'gymnasium'", name="gymnasium")

    assert guarded(work) == 1
    assert "gymnasium is not installed" in capsys.readouterr().err

    def ours() -> int:
        raise ModuleNotFoundError("No module named 'envs.gone'", name="envs.gone")

    with pytest.raises(ModuleNotFoundError):
        guarded(ours)


def test_settings_of_a_federation_are_taken_out_of_a_commands_arguments() -> None:
    words = "play --client c003 --world.variant.family checkout --run.seed=3 --out a.b --tracking.mlflow --json".split()
    own, settings = split_settings(words)
    assert own == ["play", "--client", "c003", "--out", "a.b", "--json"]
    assert settings == ["--world.variant.family", "checkout", "--run.seed=3", "--tracking.mlflow"]


def test_a_command_that_takes_no_settings_refuses_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", "runs/demo", "--run.seed", "3"])
    assert "unrecognized arguments: --run.seed 3" in capsys.readouterr().err
