"""A trial as Tune drives it, without Tune: steps, early stops, the engine kept, and what an earlier attempt left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.config.load import load_config
from pipeline.sweep.trainable import KEY, Job, SweepTrial, described, trainable_for
from pipeline.sweep.trials import Base, Trial, make_trials
from tests.pipeline.sweep.points import QUICK

pytestmark = pytest.mark.slow

TRIALS = make_trials([{"world.variant.family": "conflict", "run.seed": seed} for seed in (0, 1, 2)])


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    base = Base.of(load_config(None, QUICK, must_matter=frozenset()))
    return Job(tmp_path_factory.mktemp("sweep"), base)


@pytest.fixture(scope="module")
def trial(job: Job) -> Iterator[SweepTrial]:
    """A trial of the first point; tests after one another take it over, as Tune does."""
    made = trainable_for(job)({KEY: described(TRIALS[0])})
    yield made
    made.stop()


def log_of(job: Job, trial: Trial) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.folder / trial.name / "run" / "metrics.jsonl").read_text().splitlines()]


def test_a_step_is_a_round_and_the_last_one_is_done(job: Job, trial: SweepTrial) -> None:
    results = [trial.train() for _ in range(3)]
    assert [(result["round"], result["training_iteration"], result["done"]) for result in results] == [
        (1, 1, False),
        (2, 2, False),
        (3, 3, True),
    ]
    last = results[-1]
    assert 0 <= last["worlds_worst"] <= last["worlds_mean"] == last["objective"] <= 1
    assert last["episodes"] == 3 * 2 * 32
    assert (log_of(job, TRIALS[0])[-1]["kind"], log_of(job, TRIALS[0])[-1]["status"]) == ("end", "finished")


def test_the_next_trial_keeps_the_engine_and_a_stopped_one_closes_its_log(job: Job, trial: SweepTrial) -> None:
    (engine,) = trial._kept.engines.values()
    assert trial.reset_config({KEY: described(TRIALS[1])})
    assert trial.train()["round"] == 1
    # Tune has decided that this one is not worth it.
    assert trial.reset_config({KEY: described(TRIALS[2])})
    assert log_of(job, TRIALS[1])[-1]["status"] == "stopped"
    assert trial.train()["round"] == 1
    assert list(trial._kept.engines.values()) == [engine]


def test_a_stopped_trial_goes_on_after_its_last_round(job: Job, trial: SweepTrial) -> None:
    trial.reset_config({KEY: described(TRIALS[1])})
    results = [trial.train(), trial.train()]
    assert [(result["round"], result["done"]) for result in results] == [(2, False), (3, True)]
    starts = [record for record in log_of(job, TRIALS[1]) if record["kind"] == "start"]
    assert [start["resumed_from"] for start in starts] == [None, 1]


def test_a_finished_trial_that_tune_forgot_is_not_trained_again(job: Job, trial: SweepTrial) -> None:
    before = log_of(job, TRIALS[0])
    trial.reset_config({KEY: described(TRIALS[0])})
    result = trial.train()
    assert (result["round"], result["done"]) == (3, True)
    assert log_of(job, TRIALS[0]) == before


def test_what_the_run_raises_is_what_the_trial_raises(job: Job, tmp_path: Path) -> None:
    (broken,) = make_trials([{"world.variant.family": "off_path", "world.variant.severity": 0.25, "run.seed": 0}])
    made = trainable_for(Job(tmp_path, job.base))({KEY: described(broken)})
    with pytest.raises(Exception, match="answer alike to every question"):
        made.train()
    made.stop()
