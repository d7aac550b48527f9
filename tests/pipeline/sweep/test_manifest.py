"""What a restored sweep is compared with, and that a refusal writes nothing."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.errors import CheckpointError, ConfigError
from pipeline.sweep.manifest import FILE, Manifest, check_same, code_identity, locked, read_manifest
from pipeline.sweep.trials import Base, make_trials
from tests.pipeline.sweep.points import QUICK

SPACE = "tests.pipeline.sweep.points:four"


def manifest(**changes: Any) -> Manifest:
    points = [{"learner.lr": lr, "run.seed": seed} for seed in (0, 1) for lr in (1e-3, 1e-2)]
    code = {"pipeline/client.py": "aa", "actors/learner.py": "bb", "torch": "2.13"}
    given = Manifest(SPACE, Base({"world.name": "bandit"}), (0, 1), 1, False, 2, make_trials(points), code)
    return replace(given, **changes)


def test_written_and_read_is_the_same(tmp_path: Path) -> None:
    manifest().write(tmp_path)
    assert read_manifest(tmp_path) == manifest()
    check_same(tmp_path, read_manifest(tmp_path), manifest())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"space": "algorithm"}, f"space: {SPACE} there, algorithm now"),
        ({"asha": True}, "asha: False there, True now"),
        ({"base": Base({"world.name": "guess"})}, 'world.name: "bandit" there, "guess" now'),
        ({"base": Base({"world.name": "bandit", "learner.lr": 0.1})}, "learner.lr: not set there, 0.1 now"),
        ({"trials": manifest().trials[:1]}, r"4 trials there, 1 now \(gone: learner.lr = 0.01, run.seed = 0 \|"),
        (
            {"trials": make_trials([{"learner.lr": lr, "run.seed": seed} for seed in (0, 1) for lr in (1e-3, 2e-2)])},
            "the space: trial 1: learner.lr: 0.01 there, 0.02 now; the space: trial 3",
        ),
        (
            {"code": {"pipeline/client.py": "ab", "actors/learner.py": "bb", "torch": "2.14"}},
            "changed .*pipeline/client.py; torch 2.13 there, 2.14 now",
        ),
    ],
)  # fmt: skip
def test_what_changed_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        check_same(tmp_path, manifest(), manifest(**changes))


def test_where_a_sweep_runs_may_change_and_its_code_when_that_is_accepted(tmp_path: Path) -> None:
    elsewhere = Base({"world.name": "bandit", "resources.address": "10.0.0.1:6379"})
    check_same(tmp_path, manifest(), manifest(base=elsewhere, retries=5))
    check_same(tmp_path, manifest(), manifest(code={}), allow_code=True)
    with pytest.raises(CheckpointError, match="--allow-changed-code"):
        check_same(tmp_path, manifest(), manifest(code={}))


def test_the_code_of_trials_leaves_out_what_only_shows() -> None:
    names = code_identity()
    assert {"pipeline/trial.py", "actors/learning.py", "envs/bandit.py", "pipeline/algorithms/grpo.py", "torch"} <= set(names)
    assert not [name for name in names if name.startswith(("pipeline/sweep/", "pipeline/report/")) or name == "pipeline/cli.py"]


def test_two_processes_do_not_run_one_sweep(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ConfigError, match="another process runs this sweep"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a sweep folder"),
        ("{", "cannot be read"),
        ('{"schema": 9}', "has schema 9, this program reads 1"),
        ("[]", "has schema None"),
        ('{"schema": 1, "space": "x"}', r"is damaged \(KeyError: 'base'\)"),
    ],
)
def test_a_folder_that_is_no_sweep(content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_manifest(tmp_path)


def test_a_run_is_no_sweep(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(CheckpointError, match=r"it holds a run; go on with python -m pipeline\.run --resume"):
        read_manifest(tmp_path)
    with pytest.raises(CheckpointError, match="is a file, a sweep folder is needed"):
        read_manifest(tmp_path / "metrics.jsonl")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of a sweep that was cut off before its first trial."""
    from pipeline.cli import build_parser, split_settings
    from pipeline.sweep.command import begin, new_sweep

    words, overrides = split_settings(["sweep", SPACE, "--seeds=0,1", *QUICK, f"--run.dir={tmp_path}", "--run.name=stored"])
    args = build_parser().parse_args(words)
    args.overrides = overrides
    return begin(new_sweep(args)).folder


def tree(folder: Path) -> dict[str, bytes]:
    """Everything in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--seeds", "0,1,2"), 9, "8 trials there, 12 now"),
        (("--seeds", "0,2"), 9, "run.seed: 1 there, 2 now"),
        (("tests.pipeline.sweep.points:drawn",), 2, "evaluation.world_tasks"),
        (("heterogeneity",), 9, f"space: {SPACE} there, heterogeneity now"),
        ((*QUICK, "--federation.clients=4"), 9, "federation.clients: 2 there, 4 now"),
        (("--learner.lrr=1",), 2, "did you mean 'learner.lr'"),
        (("--asha", "--dry-run"), 9, "asha: False there, True now"),
        (("--retries", "-1"), 2, "--retries -1: allowed: 0 to 100"),
    ],
)
def test_a_changed_sweep_is_refused_and_nothing_is_written(
    words: tuple[str, ...], code: int, message: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(stored.parent)
    assert main(["sweep", "--resume", str(stored), *words]) == code
    assert message in capsys.readouterr().err
    assert tree(stored.parent) == before


def test_a_space_that_changed_since_is_refused(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = json.loads((stored / FILE).read_text())
    described["trials"][2]["point"]["world.variant.severity"] = 0.6
    (stored / FILE).write_text(json.dumps(described))
    assert main(["sweep", "--resume", str(stored)]) == 9
    assert "the space: trial 2: world.variant.severity: 0.6 there, 0.5 now" in capsys.readouterr().err


def test_an_unchanged_one_shows_how_it_stands(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(stored)
    assert main(["sweep", "--resume", str(stored), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("unfinished") == 8
    assert tree(stored) == before


def test_a_new_sweep_leaves_an_old_one_alone(stored: Path) -> None:
    from pipeline.cli import build_parser
    from pipeline.sweep.command import begin, new_sweep

    args = build_parser().parse_args(["sweep", SPACE, "--seeds=0"])
    args.overrides = [*QUICK, f"--run.dir={stored.parent}", "--run.name=stored"]
    before = tree(stored)
    assert begin(new_sweep(args)).folder.name == "stored-2"
    assert tree(stored) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "a sweep needs a SPACE"),
        (("four",), "unknown space 'four'"),
        ((SPACE, "--run.seed=1"), "takes its seeds from --seeds 1"),
        ((SPACE, "--allow-changed-code"), "cannot matter without --resume"),
        ((SPACE, "--world.name=webshp"), "webshop"),
        ((SPACE, "--samples=0"), "--samples 0: allowed: 1 to 10000"),
        ((SPACE, *QUICK, "--evaluation.every=0", "--asha"), "--asha compares trials on the way"),
        ((SPACE, *QUICK, "--rollout.engines=400"), "would wait for ever"),
        (("algorithm", "--world.name=bandit", "--config=nowhere.toml"), "cannot be read"),
    ],
)
def test_a_sweep_that_cannot_run_makes_no_folder(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, f"--run.dir={tmp_path / 'runs'}"]) in (2, 4)
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
