"""From spaces to trials: names, configurations, and what is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from actors.placement import bundles, needs, same_bundles, trial_needs
from pipeline.config import Config
from pipeline.config.fields import settings
from pipeline.config.load import load_config
from pipeline.errors import ConfigError, PlacementError
from pipeline.sweep.spaces import draw, find_space, flat, parse_seeds, read_space, with_seeds
from pipeline.sweep.trials import Base, Trial, absolute, check_room, check_trials, make_trials, words
from tests.pipeline.sweep.points import QUICK

POINTS = "tests.pipeline.sweep.points"


def sweep(space: str, *more: str, seeds: tuple[int, ...] | None = (0,), samples: int = 1) -> tuple[Base, tuple[Trial, ...]]:
    config = load_config(None, [*QUICK, *more], must_matter=frozenset())
    name = f"{POINTS}:{space}"
    return Base.of(config), make_trials(with_seeds(name, draw(name, read_space(name, find_space(name), config), samples), seeds))


def test_seeds_come_outermost_so_that_a_cut_sweep_has_seen_every_arm() -> None:
    _, trials = sweep("four", seeds=None)
    assert [trial.seed for trial in trials] == [0] * 4 + [1] * 4 + [2] * 4
    names = ["000-base-s0", "001-conflict-severity0.25-s0", "002-conflict-severity0.5-s0", "003-conflict-severity1-s0"]
    assert [trial.name for trial in trials[:4]] == names
    assert len({trial.arm for trial in trials}) == 4


def test_random_values_are_drawn_once_for_all_seeds_and_again_for_every_sample() -> None:
    _, trials = sweep("drawn", seeds=(0, 1), samples=2)
    rates = [trial.point["learner.lr"] for trial in trials]
    assert len(trials) == 8
    assert len(set(rates)) == 4
    assert rates[:4] == rates[4:]
    assert [trial.point for trial in sweep("drawn", seeds=(0, 1), samples=2)[1]] == [trial.point for trial in trials]


def test_arms_with_long_names_stay_apart() -> None:
    points = [{"federation.partition.labels": "x" * 80 + end, "run.seed": 0} for end in ("a", "b")]
    first, second = make_trials(points)
    assert first.arm != second.arm
    assert len(first.name) < 80


def test_a_trials_configuration_is_base_and_point(tmp_path: Path) -> None:
    base, trials = sweep("four", "--resources.cpus=2", "--tracking.experiment=mine")
    configs = check_trials("four", base, trials, tmp_path)
    assert [config.world.variant.severity for config in configs[1:]] == [0.25, 0.5, 1.0]
    for trial, config in zip(trials, configs, strict=True):
        assert config.federation.clients == 2
        assert (config.run.name, config.run.dir) == (trial.name, tmp_path / trial.name)
        assert not config.tracking.mlflow
        assert (config.resources.layout, config.rollout.backend, config.resources.cpus) == ("process", "transformers", None)
    assert base.config().tracking.experiment == "mine"


@pytest.mark.parametrize(
    ("more", "layout", "backend"),
    [
        (("--resources.layout=actors",), "actors", "vllm"),
        (("--rollout.engines=2",), "actors", "vllm"),
        (("--rollout.env_workers=2",), "actors", "vllm"),
        (("--rollout.kv_cache_gb=2",), "process", "vllm"),
        (("--rollout.backend=vllm",), "process", "vllm"),
        (("--model.name=HuggingFaceTB/SmolLM2-135M",), "actors", "vllm"),
    ],
)
def test_what_the_user_asked_for_decides_the_layout(more: tuple[str, ...], layout: str, backend: str, tmp_path: Path) -> None:
    base, trials = sweep("single", *more)
    config = base.trial(trials[0], tmp_path)
    assert (config.resources.layout, config.rollout.backend) == (layout, backend)


def test_every_setting_survives_the_way_through_words() -> None:
    values = {setting.path: setting.default_json for setting in settings() if setting.path != "run.plugins"}
    tree: dict[str, Any] = load_config(None, words(values), must_matter=frozenset()).plain()
    assert tree == Config().plain()
    odd = {
        "world.options": {"delta": 0.3, "silent": True},
        "world.variant.members": ["a", "b"],
        "learner.lr": 1e-05,
        "model.lora.targets": ["q_proj"],
    }
    read = load_config(None, words({"world.name": "bandit", **odd}), must_matter=frozenset()).plain()
    assert read["world"]["options"] == odd["world.options"]
    assert read["world"]["variant"]["members"] == odd["world.variant.members"]
    assert (read["learner"]["lr"], read["model"]["lora"]["targets"]) == (1e-05, ["q_proj"])


def test_paths_do_not_depend_on_the_working_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute({"world.data": "here", "learner.lr": 1.0}) == {"world.data": str(tmp_path / "here"), "learner.lr": 1.0}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("heterogenity", r"did you mean 'heterogeneity'"),
        ("nothing_like_it", r"known: heterogeneity, algorithm, federation, scale, or module:function"),
        ("nowhere:space", r"no module 'nowhere'"),
        (f"{POINTS}:foru", r"no function 'foru'; did you mean 'four'"),
    ],
)
def test_an_unknown_space_is_named_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_space(name)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ("misspelt", r"2 of 2 trials cannot be run(.|\n)*learner.lrr(.|\n)*did you mean 'learner.lr'"),
        ("misspelt", r"algorithm.kl_coef = 11.0: allowed: number 0 to 10"),
        ("of_the_sweep", r"tracking.uri belongs to the sweep"),
        ("too_few_tasks", r"1 of 2 trials cannot be run(.|\n)*trial 001(.|\n)*tasks_per_client"),
        ("fails", r"failed: RuntimeError: no luck"),
        ("no_mapping", r"returned a list"),
        ("no_group", r"'lr' = 1.0: a key without a dot names a group"),
    ],
)  # fmt: skip
def test_a_space_that_cannot_be_run_is_refused_as_a_whole(space: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        check_trials(space, *sweep(space), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "0,", "0,x", "-1", "1.5", str(2**31), "0,1,0"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)
    assert parse_seeds(" 3, 1") == (3, 1)


def test_seeds_have_one_source() -> None:
    assert [trial.seed for trial in sweep("own_seeds", seeds=None)[1]] == [5, 6]
    with pytest.raises(ConfigError, match=r"--seeds cannot matter"):
        sweep("own_seeds", seeds=(0,))


def test_repeated_points_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"draws nothing at random, so --samples would repeat it"):
        sweep("four", samples=2)
    with pytest.raises(ConfigError, match=r"sets algorithm.kl_coef twice"):
        flat("twice", {"algorithm.kl_coef": 0.0, "group": {"algorithm.kl_coef": 0.1}})


def test_a_base_setting_must_matter_in_some_trial(tmp_path: Path) -> None:
    base, trials = sweep("four")
    assert "evaluation.world_tasks" in base.given, "it matters in the conflicts only"
    check_trials("four", base, trials, tmp_path)
    base, trials = sweep("single")
    with pytest.raises(ConfigError, match=r"evaluation.world_tasks = 40: matters in none of the 1 trials"):
        check_trials("single", base, trials, tmp_path)


def test_a_trials_bundles_are_its_driver_and_its_actors() -> None:
    config = load_config(None, ["--rollout.engines=2", "--learner.groups=3", "--resources.engine_gpus=1"])
    found = bundles(trial_needs(config))
    assert found[1:] == bundles(needs(config))
    assert found[0] == {"CPU": 0.1}
    assert sum(bundle.get("GPU", 0) for bundle in found) == 2
    assert same_bundles([{**bundle, "GPU": bundle.get("GPU", 0.0)} for bundle in found], found)
    assert not same_bundles(found[1:], found)
    alone = load_config(None, ["--resources.layout=process"])
    assert bundles(trial_needs(alone)) == [{"CPU": 1.0}]


def test_a_trial_that_can_never_fit_says_what_is_missing(tmp_path: Path) -> None:
    base, trials = sweep("too_many_engines", "--world.variant.family=conflict")
    configs = check_trials("too_many_engines", base, trials, tmp_path)
    with pytest.raises(
        PlacementError, match=r"trial 001-engines500-s0 .* would wait for ever: .*CPU: the plan needs 3\d\d\S*, the cluster has 4"
    ):
        check_room(trials, configs, [{"CPU": 4.0}])
    check_room(trials[:1], configs[:1], [{"CPU": 1.0}])


def test_points_are_plain_values() -> None:
    import numpy as np

    point = flat("numbers", {"learner.lr": np.float64(0.5), "world.variant.members": ("a", "b")})
    assert json.loads(json.dumps(point)) == {"learner.lr": 0.5, "world.variant.members": ["a", "b"]}
