"""Evaluation: every task once, seeds that no round moves, failed environments counted, intervals from counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from envs.base import Task
from pipeline.config.load import load_config
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.evaluation import EVALUATOR, Measurement, chosen_tasks, evaluate, heldout_specs
from pipeline.services import EpisodeLogTarget, Handle
from pipeline.statistics import wilson

TASKS = [Task(f"t{i}", "buy it", "things") for i in range(7)]


class Engine:
    """Answers with fixed scalars and remembers what it was asked."""

    def __init__(self, **scalars: float) -> None:
        self.scalars = {"score": 0.5, "turns": 2.0, "invalid": 0.1, **scalars}
        self.specs: list[Sequence[EpisodeSpec]] = []
        self.asked: list[tuple[str, Sampling]] = []

    async def publish(self, name: str, state: Handle) -> None: ...

    async def drop(self, name: str) -> None: ...

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        self.specs.append(specs)
        self.asked.append((adapter, sampling))
        return None, {"episodes": float(len(specs)), **self.scalars}


def measure(engine: Engine, round: int = 1, temperature: float = 1.0, seed: int = 0) -> Measurement:
    return asyncio.run(evaluate(engine, f"global-{round}-x", round, TASKS, Sampling(temperature, 1.0, 12), seed))


def test_every_task_once_in_the_order_of_the_split() -> None:
    specs = heldout_specs(TASKS, seed=3)
    assert [spec.task.id for spec in specs] == [task.id for task in TASKS]
    assert {spec.client for spec in specs} == {EVALUATOR}
    assert {spec.variant for spec in specs} == {"default"}
    assert len({spec.seed for spec in specs}) == len(TASKS)


def test_more_tasks_leave_the_seeds_of_the_first_ones_alone() -> None:
    assert heldout_specs(TASKS[:3], 3) == heldout_specs(TASKS, 3)[:3]


def test_two_rounds_and_two_temperatures_see_the_same_seeds() -> None:
    engine = Engine(success=0.0)
    for round, temperature in ((0, 1.0), (5, 1.0), (5, 0.0)):
        measure(engine, round, temperature)
    assert engine.specs[0] == engine.specs[1] == engine.specs[2]
    measure(engine, seed=1)
    assert [s.seed for s in engine.specs[3]] != [s.seed for s in engine.specs[0]]


@pytest.mark.parametrize("successes", range(len(TASKS) + 1))
def test_counts_survive_being_carried_as_a_mean(successes: int) -> None:
    found = measure(Engine(success=successes / len(TASKS)))
    assert found.success == successes / len(TASKS)
    assert (found.success_low, found.success_high) == wilson(successes, len(TASKS))
    assert found.success_low <= found.success <= found.success_high


def test_failed_environments_stay_in_the_denominator_and_are_reported() -> None:
    found = measure(Engine(success=2 / 7, failed=3.0))
    assert (found.n, found.failed) == (7, 3)
    assert found.success == pytest.approx(2 / 7), "a failed environment is a failed task, not a missing one"


def test_the_record_says_how_it_was_sampled() -> None:
    engine = Engine(success=1.0)
    sampled, greedy = measure(engine, 4), measure(engine, 4, temperature=0.0)
    assert [(m.mode, m.temperature) for m in (sampled, greedy)] == [("sampled", 1.0), ("greedy", 0.0)]
    record = greedy.record()
    assert (record["kind"], record["world"], record["round"], record["client"]) == ("evaluation", "default", 4, None)
    assert engine.asked[1] == ("global-4-x", Sampling(0.0, 1.0, 12))


def test_a_third_split_for_tuning() -> None:
    """Skipped tasks and those that are measured on make two disjoint parts of the held-out tasks."""
    final = chosen_tasks(load_config(None, ["--evaluation.tasks=3"]), TASKS)
    tuned = chosen_tasks(load_config(None, ["--evaluation.skip=3", "--evaluation.tasks=2"]), TASKS)
    assert [t.id for t in (*final, *tuned)] == [t.id for t in TASKS[:5]]
