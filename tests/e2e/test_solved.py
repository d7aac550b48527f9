"""Worlds whose best play is known are solved, by each algorithm, by real runs in one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.config.load import load_config
from pipeline.trial import Kept, run_trial

pytestmark = pytest.mark.slow

BEST = 0.75
"""What the bandit's good arm pays; half of the plays pay to begin with."""
ERROR = 0.022
"""Standard error of a success rate over 400 plays."""


@pytest.fixture(scope="module")
def kept() -> Iterator[Kept]:
    parts = Kept()
    yield parts
    parts.close()


def measured(folder: Path, kept: Kept, *words: str) -> list[float]:
    """Success on held-out tasks, in order."""
    settings = (
        "--resources.layout=process", "--rollout.backend=transformers", "--model.adapter=full", "--tracking.mlflow=false",
        "--evaluation.greedy=false", "--evaluation.every=0",
    )  # fmt: skip
    run = run_trial(load_config(None, [*settings, *words]), folder, kept=kept)
    return [float(str(r["success"])) for r in run.records if r["kind"] == "evaluation"]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_bandit(algorithm: str, kept: Kept, tmp_path: Path) -> None:
    first, last = measured(tmp_path / "run", kept, "--world.name=bandit", f"--algorithm.name={algorithm}", "--federation.rounds=10")
    assert first < 0.5 + 3 * ERROR
    assert last > BEST - 3 * ERROR


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_guessing(algorithm: str, kept: Kept, tmp_path: Path) -> None:
    """One of three numbers in two guesses: always found by who begins in the middle and reads the reply, else 2 in 3 times at best."""
    first, last = measured(
        tmp_path / "run", kept, "--world.name=guess", f"--algorithm.name={algorithm}", "--federation.rounds=8", "--algorithm.passes=4",
        "--federation.mode=centralized", "--federation.clients=2", "--federation.clients_per_round=2", "--learner.optimizer_state=keep",
        "--world.options.size=3", "--world.options.places=1", "--world.options.copies=100", "--world.max_steps=2", "--evaluation.tasks=60",
    )  # fmt: skip
    assert first < 0.4
    assert last > 0.88
