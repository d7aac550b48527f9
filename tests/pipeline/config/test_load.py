"""Reading configurations: files, overrides, and errors that name field, value, what is allowed and the nearest name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.config.fields import settings
from pipeline.config.load import config_help, load_config, load_resolved, resolve
from pipeline.errors import ConfigError

TOML = """
[federation]
clients = 12
rounds = 3

[model.lora]
rank = 4
targets = ["q_proj", "v_proj"]

[run]
dir = "somewhere"
"""
YAML = """
federation: {clients: 12, rounds: 3}
model:
  lora:
    rank: 4
    targets: [q_proj, v_proj]
run:
  dir: somewhere
"""


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refused(overrides: list[str], path: Path | None = None) -> str:
    with pytest.raises(ConfigError) as error:
        load_config(path, overrides)
    return str(error.value)


def test_nothing_gives_the_defaults() -> None:
    assert load_config() == Config()


@pytest.mark.parametrize(("name", "text"), [("c.toml", TOML), ("c.yaml", YAML), ("c.yml", YAML)])
def test_files(tmp_path: Path, name: str, text: str) -> None:
    config = load_config(file(tmp_path, name, text))
    assert (config.federation.clients, config.federation.rounds) == (12, 3)
    assert config.model.lora.targets == ("q_proj", "v_proj")
    assert config.run.dir == Path("somewhere")


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load_config(file(tmp_path, "c.yaml", "")) == Config()
    assert load_config(file(tmp_path, "c.toml", "# nothing\n")) == Config()


def test_overrides_win_over_the_file_and_the_last_one_over_the_first(tmp_path: Path) -> None:
    config = load_config(file(tmp_path, "c.toml", TOML), ["--federation.rounds", "9", "--federation.rounds=11", "--model.lora.rank", "2"])
    assert (config.federation.rounds, config.federation.clients, config.model.lora.rank) == (11, 12, 2)


@pytest.mark.parametrize(
    ("words", "path", "value"),
    [
        (["--learner.lr", "1e-4"], "learner.lr", 1e-4),
        (["--learner.lr=1"], "learner.lr", 1.0),
        (["--evaluation.clients", "true"], "evaluation.clients", True),
        (["--evaluation.clients"], "evaluation.clients", True),
        (["--tracking.mlflow=False"], "tracking.mlflow", False),
        (["--algorithm.dual_clip", "null"], "algorithm.dual_clip", None),
        (["--world.data", "none"], "world.data", None),
        (["--run.name", "123"], "run.name", "123"),
        (["--model.name", "true"], "model.name", "true"),
        (["--run.dir", "/a/b"], "run.dir", Path("/a/b")),
        (["--learner.zero_stage", "2"], "learner.zero_stage", 2),
        (["--model.lora.targets", "q_proj,v_proj"], "model.lora.targets", ("q_proj", "v_proj")),
        (["--model.lora.targets", '["q_proj"]'], "model.lora.targets", ("q_proj",)),
        (["--model.lora.targets", "all-linear"], "model.lora.targets", "all-linear"),
        (["--rollout.backend=transformers"], "rollout.backend", "transformers"),
    ],
)
def test_override_values(words: list[str], path: str, value: Any) -> None:
    found: Any = load_config(None, words)
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--federation.round", "5"], ["federation.round", "unknown", "did you mean 'federation.rounds'"]),
        (["--federaton.rounds", "5"], ["federaton.rounds", "did you mean 'federation.rounds'"]),
        (["--rank", "5"], ["rank", "did you mean 'model.lora.rank'"]),
        (["--zzz.qqq", "5"], ["zzz.qqq", "unknown setting", "--help"]),
        (["--federation", "5"], ["federation", "is a section", "--federation.mode"]),
        (["--federation.rounds"], ["federation.rounds", "needs a value", "1 to 100000"]),
        (["federation.rounds", "5"], ["federation.rounds", "expected --section.key value"]),
        (["--federation.rounds", "0"], ["federation.rounds = 0", "1 to 100000"]),
        (["--federation.rounds", "two"], ['federation.rounds = "two"', "integer 1 to 100000"]),
        (["--federation.rounds", "2.5"], ["federation.rounds = 2.5", "integer"]),
        (["--federation.rounds", "true"], ["federation.rounds = true", "integer"]),
        (["--learner.lr", "0"], ["learner.lr = 0", "above 0, at most 1"]),
        (["--learner.lr", "nan"], ["learner.lr", "number"]),
        (["--learner.beta1", "1"], ["learner.beta1 = 1", "at least 0, below 1"]),
        (["--learner.optimizer_state", "kep"], ['"kep"', "reset | keep | average", "did you mean 'keep'"]),
        (["--tracking.mlflow", "yes"], ['tracking.mlflow = "yes"', "true | false"]),
        (["--federation.rounds", "null"], ['federation.rounds = "null"', "integer"]),
        (["--run.name", "a b"], ['run.name = "a b"', "matching"]),
        (["--model.name="], ['model.name = ""', "at least 1 character"]),
        (["--rollout.adapter_slots", "0"], ["rollout.adapter_slots = 0", "1 to 4096 | null"]),
    ],
)
def test_refusals_name_field_value_and_what_is_allowed(words: list[str], expected: list[str]) -> None:
    message = refused(words)
    for part in expected:
        assert part in message


def test_every_problem_is_reported_at_once() -> None:
    message = refused(["--federation.round", "5", "--learner.lr", "7", "--learner.mini_batch", "x", "--world.name="])
    assert message.startswith("3 problems:")
    message = refused(
        [
            "--federation.clients",
            "2",
            "--evaluation.tasks",
            "500",
            "--world.heldout",
            "100",
            "--tracking.mlflow",
            "false",
            "--tracking.uri",
            "x",
        ]
    )
    assert message.startswith("3 problems:")
    assert all(part in message for part in ("federation.clients_per_round = 4", "evaluation.tasks = 500", 'tracking.uri = "x"'))


def test_problems_in_a_file_name_file_and_line(tmp_path: Path) -> None:
    path = file(tmp_path, "c.toml", "[federation]\nclients = 8\nround = 3\n\n[model.lora]\nrank = -1\n")
    message = refused([], path)
    assert f"federation.round = 3: unknown setting; did you mean 'federation.rounds'? ({path}, line 3)" in message
    assert f"model.lora.rank = -1: allowed: integer 1 to 512 ({path}, line 6)" in message
    path = file(tmp_path, "c.yaml", "federation:\n  clients: 8\n  round: 3\nmodels: {name: x}\n")
    message = refused([], path)
    assert f"({path}, line 3)" in message
    assert f"models: unknown setting; did you mean 'model'? ({path}, line 4)" in message


def test_an_error_names_the_place_that_the_value_came_from(tmp_path: Path) -> None:
    path = file(tmp_path, "f.toml", "[federation.partition]\npreference = 0.9\ncoverage = 2.0\n")
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["--federation.partition.preference", "1"])
    message = str(caught.value)
    assert "federation.partition.preference = 1" in message
    assert f"(command line)\n  federation.partition.coverage = 2.0: allowed: number above 0, below 1 | null ({path}, line 3)" in message
    with pytest.raises(ConfigError, match=r"^federation\.rounds = -1: .*[^)]$"):
        load_config(None, ["--federation.rounds=-1"])


def test_values_in_files_are_not_coerced_across_kinds(tmp_path: Path) -> None:
    assert 'federation.rounds = "5"' in refused([], file(tmp_path, "c.toml", '[federation]\nrounds = "5"\n'))
    assert "run.name = 5" in refused([], file(tmp_path, "c.yaml", "run: {name: 5}\n"))
    assert "tracking.mlflow = 1" in refused([], file(tmp_path, "c.yaml", "tracking: {mlflow: 1}\n"))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.toml", "[federation\n", "malformed"),
        ("c.yaml", "a: [1\n", "malformed"),
        ("c.yaml", "- 1\n- 2\n", "expected sections"),
        ("c.yaml", "federation: 3\n", "federation = 3: is a section"),
        ("c.ini", "", "unknown kind '.ini'"),
        ("c.toml", None, "cannot be read: No such file"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, text: str | None, expected: str) -> None:
    path = tmp_path / name if text is None else file(tmp_path, name, text)
    message = refused([], path)
    assert expected in message
    assert name in message or expected.startswith("federation")


def test_resolve_leaves_no_default_that_depends_on_others() -> None:
    lora = resolve(load_config(None, ["--federation.clients_per_round", "3"]))
    assert lora.aggregation.rule == "product"
    assert lora.rollout.template == "short"
    assert lora.rollout.self_test_tolerance == 0.002
    assert lora.rollout.adapter_slots == 4
    full = resolve(load_config(None, ["--model.adapter", "full", "--model.name", "some/model", "--model.dtype", "bfloat16"]))
    assert full.aggregation.rule == "full"
    assert full.rollout.template == "tags"
    assert full.rollout.self_test_tolerance == 0.1
    assert full.rollout.adapter_slots is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--model.adapter", "full"],
        ["--federation.mode", "local", "--federation.local_client", "3"],
        ["--federation.mode", "centralized"],
        ["--algorithm.kl_coef", "0"],
        ["--rollout.self_test", "false"],
        ["--rollout.backend", "transformers"],
        ["--tracking.mlflow", "false"],
        ["--resources.engine_gpus", "2", "--rollout.tensor_parallel", "2"],
        ["--model.lora.targets", "q_proj,v_proj", "--world.data", "/somewhere"],
    ],
)
def test_a_stored_configuration_is_read_back_and_may_be_overridden(tmp_path: Path, words: list[str]) -> None:
    config = resolve(load_config(None, words))
    path = file(tmp_path, "config.resolved.json", json.dumps(config.plain()))
    again = load_resolved(path)
    assert again == config
    assert again.training_hash() == config.training_hash()
    longer = load_resolved(path, ["--federation.rounds", "99"])
    assert longer.federation.rounds == 99
    assert longer.training_hash() == config.training_hash()


def test_overrides_of_a_stored_configuration_are_checked(tmp_path: Path) -> None:
    path = file(tmp_path, "config.resolved.json", json.dumps(resolve(Config()).plain()))
    with pytest.raises(ConfigError, match=r"federation.local_client = 0: cannot matter"):
        load_resolved(path, ["--federation.local_client", "0"])


def test_help_lists_every_setting_with_default_bounds_and_meaning() -> None:
    text = config_help()
    for setting in settings():
        line = next(line for line in text.splitlines() if line.startswith(f"--{setting.path} "))
        assert setting.description in line
        assert setting.allowed in line
        assert setting.default_text in line


def test_every_setting_is_described_and_bounded() -> None:
    for setting in settings():
        assert len(setting.description) > 5, setting.path
        if setting.kinds & {"integer", "number"}:
            assert setting.bounds, setting.path


def test_defaults_are_valid_values() -> None:
    assert Config.model_validate_json(json.dumps(Config().plain()), strict=True) == Config()


def test_toy_worlds_have_defaults_of_their_own_that_can_be_overridden() -> None:
    bandit = resolve(load_config(None, ["--world.name", "bandit"]))
    assert (bandit.rollout.template, bandit.evaluation.tasks, bandit.rollout.history) == ("plain", 400, 2)
    guess = resolve(load_config(None, ["--world.name", "guess", "--rollout.history", "3"]))
    assert (guess.rollout.template, guess.evaluation.tasks, guess.rollout.history) == ("plain", 100, 3)
    assert resolve(load_config(None, ["--world.name", "guess"])).rollout.history == 8
