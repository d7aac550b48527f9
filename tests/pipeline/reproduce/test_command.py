"""The command: what it refuses, what it would do, what it shows; and, slowly, two arms on real workers, one of which is killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.reproduce.arms import tale
from pipeline.reproduce.display import Screen
from pipeline.reproduce.results import Missing, load_results, save_results
from pipeline.reproduce.runner import Running, State
from pipeline.reproduce.store import Outcome, Store, Underway
from pipeline.reproduce.trials import Trial
from tests.pipeline.reproduce.synthetic import synthetic_results

WRONG = {
    "no such tale": (["fable"], 2, "invalid choice: 'fable'"),
    "no such arm": (["tale", "--only", "buy5"], 2, "--only buy5: no arm has such a name"),
    "no seeds": (["tale", "--seeds", "0"], 2, "--seeds 0: allowed: 1 to 100"),
    "no workers": (["tale", "--workers", "0"], 2, "--workers 0: allowed: 1 or more"),
    "a setting that is none": (["tale", "--learner.rate", "1"], 2, "did you mean"),
    "a value out of range": (["tale", "--learner.lr", "2"], 2, "arm 'uniform': learner.lr"),
    "settings that do not fit an arm": (["tale", "--federation.local_client", "1"], 2, "arm 'uniform': federation.local_client"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, code, told = WRONG[case]
    try:
        found = main(["reproduce", *words, "--out", str(tmp_path / "out")])
    except SystemExit as left:
        found = int(left.code or 0)
    assert found == code
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_a_folder_that_was_begun_needs_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(tmp_path).prepare(resume=False)
    assert main(["reproduce", "tale", "--quick", "--out", str(tmp_path)]) == 2
    assert "--resume continues it, or choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "lost"),
    [(["--seeds", "1"], "uniform, seed 1"), (["--quick"], "central-ppo, seed 0"), (["--learner.lr", "1e-4"], "uniform, seed 0")],
)
def test_resuming_does_not_write_over_results_that_have_more(
    words: list[str], lost: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path)
    store.prepare(resume=False)
    save_results(synthetic_results(seeds=(0, 1)), store.results)
    before = store.results.read_bytes()
    assert main(["reproduce", "tale", "--resume", "--out", str(tmp_path), *words]) == 2
    told = capsys.readouterr().err
    assert f"for instance {lost}" in told
    assert "it was made by `fedagent reproduce tale --seeds 3`; add --resume to that, or choose another --out" in told
    assert store.results.read_bytes() == before


def test_what_was_to_be_run_and_was_not_is_no_success() -> None:
    reasons = {"not run yet": True, "failed: no engine": True, "left out by --only": False, "needs the ALFWorld engine": False}
    assert {reason: Missing("a", 0, reason).wanted for reason in reasons} == reasons


def test_dry_run_lists_arms_and_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "tale", "--dry-run", "--only", "buy*", "--only", "uniform", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    arms = [line.split()[0] for line in shown.splitlines()[1:-1]]
    assert sorted(arms) == sorted(a.name for a in tale() if a.name.startswith("buy") or a.name == "uniform")
    assert f"{3 * len(arms)} trials of {len(arms)} arms, 0 done; about " in shown
    assert not (tmp_path / "out").exists()


def test_dry_run_counts_what_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, arm = Store(tmp_path), next(a for a in tale() if a.name == "buy4")
    store.prepare(resume=False)
    store.save(Trial(arm, 0), Outcome(True, {"wall_seconds": 4 * Trial(arm, 0).estimate}))
    assert main(["reproduce", "tale", "--dry-run", "--only", "buy4", "--out", str(tmp_path), "--workers", "2"]) == 0
    shown = capsys.readouterr().out
    assert "1/3" in shown
    assert f"{4 * Trial(arm, 0).estimate:.0f}" in shown.splitlines()[1].split()[-1], "the estimate follows what was measured"


def test_quick_is_one_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "tale", "--quick", "--dry-run", "--out", str(tmp_path)]) == 0
    quick = tale(quick=True)
    assert f"{len(quick)} trials of {len(quick)} arms" in capsys.readouterr().out
    assert len(quick) < len(tale()) / 3


def state(store: Store) -> State:
    arm = next(a for a in tale() if a.name == "buy4")
    store.note(Trial(arm, 1), Underway(5, 12, 10.0, 20.0))
    store.save(Trial(arm, 0), Outcome(True, {"start": 0.2, "mean_worlds": 0.31, "wall_seconds": 65.0}))
    return State(9, 3, 1, [Running(Trial(arm, 1), 0, 40.0, 900.0)], [Trial(arm, 2)], 0.0, 60.0, 130.0)


def test_screen_of_a_terminal(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare(resume=False)
    stream = io.StringIO()
    screen = Screen(store, stream, clock=lambda: 60.0, environ={"TERM": "xterm", "FORCE_COLOR": "1", "COLUMNS": "120"})
    now = state(store)
    with screen:
        screen.update(now)
        screen.finished(Trial(now.running[0].trial.arm, 0))
        time.sleep(0.7)
    shown = stream.getvalue()
    for words in ("4/9 trials", "2:10 left", "buy4, seed 1", "round 5/12", "20 s", "1 waiting, 1 failed", "20 % -> 31 % in 1:05"):
        assert words in shown, words


def test_no_terminal_gets_a_line_per_trial(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare(resume=False)
    stream = io.StringIO()
    with Screen(store, stream, environ={"TERM": "dumb"}) as screen:
        now = state(store)
        screen.update(now)
        screen.finished(Trial(now.running[0].trial.arm, 0))
    assert stream.getvalue() == "buy4, seed 0: 20 % -> 31 % in 1:05 (3 of 9 done, about 2:10 left)\n"


TOY = [
    "--only=bandit-1-silent",
    "--only=bandit-1-revealed",
    "--federation.rounds=2",
    "--evaluation.tasks=50",
    "--rollout.backend=transformers",
    "--run.checkpoint_every=1",
]


@pytest.mark.slow
def test_two_arms_on_real_workers_survive_a_killed_one(tmp_path: Path) -> None:
    """A worker is killed in its first trial; the trial is done all the same, and a resume does nothing again."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    environ.pop("RAY_ADDRESS", None)
    code = "import sys; from pipeline.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "reproduce", "tale", "--quick", "--out", str(tmp_path), "--workers", "1", *TOY]
    killed = threading.Event()

    def kill() -> None:
        """As soon as a first round is done: its worker is the process that writes there."""
        until = time.monotonic() + 200
        while time.monotonic() < until and not killed.is_set():
            for path in (tmp_path / "trials").glob("*.progress.json"):
                underway = json.loads(path.read_text())
                if underway["round"] == 1 and underway["pid"]:
                    os.kill(underway["pid"], signal.SIGKILL)
                    killed.set()
                    return
            time.sleep(0.05)

    watcher = threading.Thread(target=kill)
    watcher.start()
    try:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=280, check=False)
    finally:
        watcher.join(timeout=210)
    assert done.returncode == 0, done.stderr[-2000:]
    assert killed.is_set()
    assert "its worker died" in done.stderr
    results = load_results(tmp_path / "tale.json")
    rows = {arm.name: arm for arm in results.arms}
    assert set(rows) == {"bandit-1-silent", "bandit-1-revealed"}
    for arm in rows.values():
        assert (arm.rounds, arm.n_eval) == (2, 50)
        assert arm.worst_gap is not None
        assert arm.worst_world is not None
        assert arm.worst_gap == pytest.approx(1 - arm.worst_world)
        assert [point.round for point in arm.curve] == [0, 1, 2]
    assert rows["bandit-1-silent"].floor_gap == pytest.approx(0.5)
    assert results.missing
    assert {gap.reason for gap in results.missing} == {"left out by --only"}
    again = subprocess.run([*command, "--resume"], env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr[-2000:]
    assert load_results(tmp_path / "tale.json").arms == results.arms
    assert "-> " not in again.stderr, "no trial was done again"
