"""The spaces that come with the package: every point of every one is a configuration that may run."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.placement import trial_needs
from pipeline.config import RunConfig
from pipeline.config.load import load_config
from pipeline.sweep.spaces import draw, find_space, read_space, with_seeds
from pipeline.sweep.trials import Base, Trial, check_trials, make_trials
from tune_spaces import SPACES

BASES = {
    "webshop": (),
    "bandit": ("--world.name=bandit", "--model.adapter=full"),
    "guess": ("--world.name=guess", "--federation.tasks_per_client=40"),
    "one family": ("--world.variant.family=checkout", "--world.variant.members=2", "--model.adapter=full"),
    "one knob": ("--federation.partition.preference=0.3", "--federation.tasks_per_client=40"),
    "a real model": ("--model.name=Qwen/Qwen2.5-1.5B-Instruct", "--model.lora.rank=8"),
}


def trials_of(space: str, words: tuple[str, ...], seeds: tuple[int, ...] = (0,)) -> tuple[Base, tuple[Trial, ...]]:
    config = load_config(None, words)
    points = draw(space, read_space(space, find_space(space), config), 1)
    return Base.of(config), make_trials(with_seeds(space, points, seeds))


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("space", SPACES)
def test_every_point_may_run(space: str, base: str, tmp_path: Path) -> None:
    words = BASES[base]
    if space in ("scale", "federation") and base in ("webshop", "one family"):
        # Twice or four times as many clients share the generated catalogue.
        words = (*words, "--federation.tasks_per_client=20")
    given, trials = trials_of(space, words)
    configs = check_trials(space, given, trials, tmp_path)
    assert len({trial.name for trial in trials}) == len(trials) > 2
    different = {config.model_copy(update={"run": RunConfig()}).model_dump_json() for config in configs}
    assert len(different) == len(configs), "two points are the same"
    embedded = base != "a real model"
    assert all((config.resources.layout == "process") == embedded for config in configs)
    assert all(not config.tracking.mlflow for config in configs)
    assert all(trial_needs(config)[0].role == ("trial" if embedded else "driver") for config in configs)


def test_heterogeneity_is_a_ladder_beside_the_uniform_federation() -> None:
    _, trials = trials_of("heterogeneity", BASES["webshop"])
    points = [trial.point for trial in trials]
    assert {"run.seed": 0} in points
    by_family: dict[str, list[float]] = {}
    for point in points:
        if "world.variant.family" in point:
            by_family.setdefault(point["world.variant.family"], []).append(point["world.variant.severity"])
    assert set(by_family) >= {"catalog_split", "field_subset", "bm25_reweight", "lookalike", "rank_wrapper", "checkout"}
    assert all(severities == [0.25, 0.5, 0.75, 1.0] for severities in by_family.values())
    assert {point.get("federation.partition.preference") for point in points} == {None, 0.5, 0.95}
    assert not any("federation.partition.hardness" in point for point in points), "there are no labels"


def test_a_base_that_names_a_family_narrows_the_ladder() -> None:
    _, trials = trials_of("heterogeneity", ("--world.variant.family=checkout",))
    assert [trial.point.get("world.variant.severity") for trial in trials] == [None, 0.25, 0.5, 0.75, 1.0]
    assert trials[0].point["world.variant.family"] == "default"


def test_algorithm_compares_at_equal_episodes(tmp_path: Path) -> None:
    base, trials = trials_of("algorithm", ("--federation.rounds=8", "--federation.local_epochs=2"))
    episodes = set()
    for trial in trials:
        config = base.trial(trial, tmp_path)
        federation, algorithm = config.federation, config.algorithm
        episodes.add(
            federation.rounds * federation.local_epochs * federation.clients_per_round * algorithm.tasks_per_epoch * algorithm.group_size
        )
    assert len(episodes) == 1
    assert {trial.point["algorithm.name"] for trial in trials} == {"grpo", "ppo"}


def test_federation_moves_one_setting_at_a_time() -> None:
    _, trials = trials_of("federation", ("--federation.tasks_per_client=20",))
    changed = [tuple(path for path in trial.point if path != "run.seed") for trial in trials]
    assert changed[0] == ()
    budget = ("federation.local_epochs", "federation.rounds")
    assert all(len(paths) == 1 or paths == budget for paths in changed[1:])
    assert {path for paths in changed for path in paths} == {
        "federation.clients_per_round", *budget, "federation.tasks_per_client", "federation.clients"
    }  # fmt: skip


def test_scale_adds_parts_where_there_are_actors() -> None:
    _, tiny = trials_of("scale", ("--federation.tasks_per_client=20",))
    assert {trial.point["model.lora.rank"] for trial in tiny} == {4, 16, 64}
    _, real = trials_of("scale", BASES["a real model"])
    assert {(trial.point["rollout.engines"], trial.point["learner.groups"]) for trial in real} == {(1, 1), (1, 2), (2, 1), (2, 2)}
