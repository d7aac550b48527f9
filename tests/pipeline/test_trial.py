"""Whole runs in one process: several after one another on one engine, cut short and resumed, and refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipeline.config import Config
from pipeline.config.load import load_config
from pipeline.errors import ConfigError
from pipeline.trial import Kept, TrialResult, run_trial

ROOT = Path(__file__).resolve().parents[2]
SMALL = (
    "--resources.layout=process",
    "--rollout.backend=transformers",
    "--world.name=bandit",
    "--model.adapter=full",
    "--tracking.mlflow=false",
    "--federation.clients=4",
    "--federation.clients_per_round=2",
    "--federation.rounds=4",
    "--evaluation.every=2",
    "--evaluation.tasks=40",
    "--evaluation.greedy=false",
)


def config(*more: str) -> Config:
    return load_config(None, [*SMALL, *more])


def learned(result: TrialResult) -> list[tuple[object, ...]]:
    """What a trial learned, without times."""
    of = {kind: [r for r in result.records if r["kind"] == kind] for kind in ("round", "evaluation")}
    return [(r["round"], r["version"], r["success"], r["loss"]) for r in of["round"]] + [
        (r["round"], r["world"], r["success"], r["version"]) for r in of["evaluation"]
    ]


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    parts = Kept()
    yield parts
    parts.close()


@pytest.fixture(scope="module")
def whole(kept: Kept, tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    return run_trial(config(), tmp_path_factory.mktemp("trials") / "whole", kept=kept)


@pytest.mark.slow
def test_a_trial_leaves_a_run_folder(whole: TrialResult) -> None:
    assert whole.status == "finished"
    assert {path.name for path in whole.folder.iterdir()} >= {"config.resolved.json", "metrics.jsonl", "rounds", "report.html"}
    assert [r["round"] for r in whole.records if r["kind"] == "round"] == [1, 2, 3, 4]
    assert 0 < whole.cpu_seconds


@pytest.mark.slow
def test_kept_parts_change_nothing(whole: TrialResult, kept: Kept, tmp_path: Path) -> None:
    engine = next(iter(kept.engines.values()))
    again = run_trial(config(), tmp_path / "again", kept=kept)
    other = run_trial(config("--run.seed=1"), tmp_path / "other", kept=kept)
    fresh = run_trial(config(), tmp_path / "fresh")
    assert next(iter(kept.engines.values())) is engine
    assert learned(again) == learned(whole) == learned(fresh)
    assert learned(other) != learned(whole)


@pytest.mark.slow
def test_cut_short_and_resumed_is_the_same(whole: TrialResult, kept: Kept, tmp_path: Path) -> None:
    seen: list[object] = []

    def stop(record: Mapping[str, object]) -> None:
        seen.append(record["kind"])
        if record["kind"] == "client" and record["round"] == 3:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run_trial(config(), tmp_path / "cut", kept=kept, on_record=stop)
    assert seen[0] == "start"
    with pytest.raises(ConfigError, match="holds a run already"):
        run_trial(config(), tmp_path / "cut", kept=kept)
    resumed = run_trial(config(), tmp_path / "cut", kept=kept, resume=True)
    assert learned(resumed) == learned(whole)


def test_other_layouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"resources\.layout = 'actors'"):
        run_trial(load_config(None, ["--world.name=bandit"]), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("setting", ["rollout.engines=2", "learner.groups=2", "learner.workers=2", "resources.engine_gpus=1"])
def test_one_process_holds_one_of_each(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0].replace(".", r"\.")):
        config(f"--{setting}")


@pytest.mark.slow
def test_vllm_engines_of_several_models_follow_each_other(tmp_path: Path) -> None:
    parts = Kept()
    try:
        for number, world in enumerate(("bandit", "webshop", "bandit")):
            short = ["--rollout.backend=vllm", f"--world.name={world}", "--federation.rounds=1", "--evaluation.every=0"]
            assert run_trial(config(*short), tmp_path / str(number), kept=parts).status == "finished"
            assert len(parts.engines) == len(parts.learners) == 1
    finally:
        parts.close()


FRESH = """
import sys
from pathlib import Path
from pipeline.config.load import load_config
from pipeline.trial import Kept, run_trial

kept = Kept()
for number in range(2):
    print(run_trial(load_config(None, sys.argv[2:]), Path(sys.argv[1]) / str(number), kept=kept).status)
kept.close()
"""


@pytest.mark.slow
def test_a_kept_vllm_engine_needs_no_thread_setting(tmp_path: Path) -> None:
    short = [*SMALL, "--rollout.backend=vllm", "--federation.rounds=1", "--evaluation.every=0"]
    # As in a user's shell: engines of earlier tests leave their settings in this process's environment.
    bare = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "FEDAGENT_CACHE") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path), *short], cwd=ROOT, env=bare, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.split() == ["finished"] * 2, done.stderr[-2000:]
