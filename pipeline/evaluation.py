"""Exact evaluation: every held-out task once, seeded, in the unperturbed world (or a named one), with Wilson 95 % intervals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from envs.base import Task
from envs.variants import DEFAULT
from pipeline.config import Config
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.schedule import episode_seed
from pipeline.services import EpisodeLogTarget, Rollouts
from pipeline.statistics import wilson

EVALUATOR = "heldout"
"""The ``client`` of evaluation episodes."""


@dataclass(frozen=True)
class Measurement:
    """One evaluation; rates in [0, 1]. Becomes a record of kind ``evaluation``."""

    round: int
    version: str
    mode: str
    temperature: float
    n: int
    success: float
    success_low: float
    success_high: float
    score: float
    turns: float
    invalid: float
    failed: int
    seconds: float
    client: str | None = None
    world: str = DEFAULT

    def record(self) -> dict[str, object]:
        """The record for ``metrics.jsonl``."""
        return {"kind": "evaluation", **self.__dict__}


def chosen_tasks(config: Config, heldout: Sequence[Task]) -> Sequence[Task]:
    """The held-out tasks that a configuration measures on: ``evaluation.tasks`` of them after ``evaluation.skip``."""
    return heldout[config.evaluation.skip :][: config.evaluation.tasks]


def heldout_specs(tasks: Sequence[Task], seed: int, world: str = DEFAULT) -> tuple[EpisodeSpec, ...]:
    """One episode per task. The seeds depend neither on the round nor on the world, so that two rounds differ by the policy alone."""
    return tuple(
        EpisodeSpec(client=EVALUATOR, task=task, group=i, seed=episode_seed(seed, 0, EVALUATOR, 0, i, 0), variant=world)
        for i, task in enumerate(tasks)
    )


async def evaluate(
    rollouts: Rollouts,
    version: str,
    round: int,
    tasks: Sequence[Task],
    sampling: Sampling,
    seed: int,
    *,
    client: str | None = None,
    world: str = DEFAULT,
    log: EpisodeLogTarget | None = None,
) -> Measurement:
    """Run every task once under ``version``. Episodes whose environment kept failing count as failures and are reported."""
    began = time.monotonic()
    _, scalars = await rollouts.run(heldout_specs(tasks, seed, world), version, sampling, log)
    n = int(scalars["episodes"])
    successes = round_half(scalars["success"] * n)
    low, high = wilson(successes, n)
    return Measurement(
        round=round,
        version=version,
        mode="greedy" if sampling.temperature == 0 else "sampled",
        temperature=sampling.temperature,
        n=n,
        success=successes / n,
        success_low=low,
        success_high=high,
        score=scalars["score"],
        turns=scalars["turns"],
        invalid=scalars["invalid"],
        failed=int(scalars.get("failed", 0)),
        seconds=time.monotonic() - began,
        client=client,
        world=world,
    )


def round_half(value: float) -> int:
    """A count that was carried as a mean times n."""
    return int(value + 0.5)
