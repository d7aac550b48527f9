"""Search spaces as a user would bring them, and a federation that takes a second or two."""

from __future__ import annotations

from typing import Any

from ray import tune

from pipeline.config import Config

QUICK = (
    "--world.name=bandit",
    "--model.adapter=full",
    "--federation.clients=2",
    "--federation.clients_per_round=2",
    "--federation.local_epochs=1",
    "--federation.rounds=3",
    "--algorithm.tasks_per_epoch=8",
    "--algorithm.group_size=4",
    "--evaluation.every=1",
    "--evaluation.tasks=40",
    "--evaluation.world_tasks=40",
    "--evaluation.greedy=false",
)


def four(config: Config) -> dict[str, Any]:
    """Uniform, and three rungs of a conflict."""
    rungs = [{"world.variant.family": "conflict", "world.variant.severity": severity} for severity in (0.25, 0.5, 1.0)]
    return {"rung": tune.grid_search([{}, *rungs])}


def drawn(config: Config) -> dict[str, Any]:
    """A grid with a random value beside it."""
    return {"algorithm.kl_coef": tune.grid_search([0.0, 0.01]), "learner.lr": tune.loguniform(1e-4, 1e-2)}


def own_seeds(config: Config) -> dict[str, Any]:
    """Brings its seeds."""
    return {"run.seed": tune.grid_search([5, 6])}


def misspelt(config: Config) -> dict[str, Any]:
    """A setting that there is not, and a value out of range."""
    return {"learner.lrr": tune.grid_search([1e-3]), "algorithm.kl_coef": tune.grid_search([0.0, 11.0])}


def of_the_sweep(config: Config) -> dict[str, Any]:
    """Sets what belongs to the sweep."""
    return {"tracking.uri": tune.grid_search(["sqlite:///x.db"])}


def too_many_engines(config: Config) -> dict[str, Any]:
    """Some points are larger than a small machine."""
    return {"rollout.engines": tune.grid_search([1, 500])}


def too_few_tasks(config: Config) -> dict[str, Any]:
    """More tasks than the world has; only building it tells."""
    return {"federation.tasks_per_client": tune.grid_search([10, 900_000])}


def fails(config: Config) -> dict[str, Any]:
    """Raises."""
    raise RuntimeError("no luck")


def no_mapping(config: Config) -> Any:
    """Returns something else."""
    return ["run.seed"]


def no_group(config: Config) -> dict[str, Any]:
    """A key without a dot whose value is no group."""
    return {"lr": tune.grid_search([1.0])}


def single(config: Config) -> dict[str, Any]:
    """The base alone."""
    return {}
