"""Bad input about clients that differ: options of variants, files of partitions, damaged games. One message each, before Ray starts."""

from __future__ import annotations

import copy
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.alfworld import AlfWorldDataError
from envs.webshop import WebShopDataError
from pipeline.cli import guarded, main
from pipeline.config import PartitionConfig, VariantConfig
from pipeline.config.load import load_config, resolve
from pipeline.errors import CheckpointError, ConfigError, DataError, FedAgentError
from pipeline.heterogeneity import set_up
from pipeline.job import check_same_partition, write_partition
from pipeline.partitioning import partition_tasks
from pipeline.preflight import check_same_training
from pipeline.run_folder import RunFolder
from pipeline.schedule import client_names
from pipeline.standalone import evaluation_config

SMALL = (
    "--world.products=60",
    "--world.heldout=40",
    "--evaluation.tasks=40",
    "--federation.clients=3",
    "--federation.clients_per_round=2",
    "--federation.tasks_per_client=10",
)


@pytest.fixture(autouse=True)
def generated_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)


def refused(kind: type[FedAgentError], message: str, *overrides: str) -> None:
    with pytest.raises(kind, match=message):
        set_up(load_config(None, [*SMALL, *(f"--{text}" for text in overrides)]))


@pytest.mark.parametrize(
    ("family", "option", "message"),
    [
        ("catalog_split", "keep_ratio=7", "option keep_ratio = 7 of variant 'catalog_split'; allowed: 0 to 1"),
        ("catalog_split", "divergence=NaN", "option divergence = nan"),
        ("lookalike", "rate=-1", "option rate = -1"),
        ("rank_wrapper", "depth=-3", r"option depth = -3 of variant 'rank_wrapper'; allowed: 0 .* to 50 hits"),
        ("checkout", "others=nope", "option others = 'nope' of the checkout: choose one of fee, neutral"),
    ],
)
def test_an_option_that_a_variant_cannot_be_built_with_is_refused_when_worlds_are_dealt(family: str, option: str, message: str) -> None:
    refused(ConfigError, f"world.variant: {message}", f"world.variant.family={family}", f"world.variant.options.{option}")


def test_the_published_split_needs_clients() -> None:
    refused(
        ConfigError,
        "option clients = 0 of variant 'catalog_split'; allowed: 1 or more",
        "world.variant.family=catalog_split",
        "world.variant.reference=true",
        "world.variant.options.clients=0",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file or folder. Correct option file"),
        (b"\x1f\x8b garbage", "not readable as look-alikes"),
        (b"[{", "not readable as look-alikes"),
        (b'{"a": 1}', "expected a list of products, found dict"),
        (b"[3]", "record 0: expected an object, found int"),
        (b"[]", "none of its 0 look-alikes has its product in this catalogue.*world.data"),
    ],
)
def test_a_file_of_lookalikes_that_is_none_is_named(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("copies.json.gz" if content and content.startswith(b"\x1f") else "copies.json")
    if content is not None:
        path.write_bytes(content)
    refused(DataError, f"{path}: .*{message}", "world.variant.family=lookalike", f"world.variant.options.file={path}")


@pytest.mark.parametrize("error", [AlfWorldDataError("cut", game="train/a/b"), WebShopDataError("cut", path="items.json")])
def test_damage_that_a_world_meets_late_is_one_message(error: ValueError, capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise error

    assert guarded(work) == DataError.exit_code
    assert capsys.readouterr().err == f"DataError: {error}\n"


def test_other_errors_of_values_are_no_bad_data() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        guarded(lambda: int("x"))


# --- partitions ----------------------------------------------------------------------------------------------------------------


def made(*overrides: str) -> Any:
    return set_up(load_config(None, [*SMALL, *overrides]))


def test_labels_that_do_not_fit_the_tasks_are_bad_data(tmp_path: Path) -> None:
    tasks = made().world.tasks("train")
    path = tmp_path / "labels.json"
    path.write_text(json.dumps({"rows": [[task.id, i % 2] for i, task in enumerate(tasks[1:])]}))
    config = load_config(None, [*SMALL, "--federation.partition.hardness=0.5", f"--federation.partition.labels={path}"])
    with pytest.raises(DataError, match=rf"federation\.partition: labels file {path}: 1 of {len(tasks)} train tasks have no label"):
        partition_tasks(config.federation, client_names(config.federation), tasks, 0)


def test_more_tasks_than_there_are_names_the_setting_that_was_given() -> None:
    refused(
        ConfigError, r"federation\.tasks_per_client = 5000, but", "federation.tasks_per_client=5000", "federation.partition.coverage=0.5"
    )
    refused(
        ConfigError,
        r"federation\.partition\.mean_size = 5000, but",
        "federation.partition.mean_size=5000",
        "federation.partition.coverage=0.5",
    )


def partition_file(path: Path, tasks: int = 12) -> dict[str, list[str]]:
    ids = [task.id for task in made().world.tasks("train")]
    given = {f"c00{i}": ids[i * tasks : (i + 1) * tasks] for i in range(3)}
    path.write_text(json.dumps(given))
    return given


def test_a_partition_file_decides_how_many_tasks_clients_have(tmp_path: Path) -> None:
    path = tmp_path / "partition.json"
    given = partition_file(path)
    file = f"--federation.partition.file={path}"
    with pytest.raises(ConfigError, match=r"federation\.tasks_per_client = 10: cannot matter with federation\.partition\.file"):
        load_config(None, [*SMALL, file])
    # 12 tasks are enough for a batch of 12, whatever the default of tasks_per_client.
    config = load_config(None, [*SMALL[:-1], file, "--algorithm.tasks_per_epoch=12"])
    assert {name: [task.id for task in part] for name, part in set_up(config).schedule.owned.items()} == given
    config = load_config(None, [*SMALL[:-1], file, "--algorithm.tasks_per_epoch=13"])
    with pytest.raises(ConfigError, match=rf"client c000 owns 12 tasks; lower it to 12, or give the client more in {path}"):
        _ = set_up(config).schedule.owned


def test_files_of_a_partition_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve(load_config(None, ["--federation.partition.hardness=0.5", "--federation.partition.labels=labels.json"]))
    assert config.federation.partition.labels == tmp_path / "labels.json"
    assert config.federation.partition.file is None


def test_a_partition_file_that_changed_since_the_run_began_is_refused_on_resume(tmp_path: Path) -> None:
    path, folder = tmp_path / "partition.json", RunFolder(tmp_path / "run")
    folder.path.mkdir()
    given = partition_file(path)
    overrides = [*SMALL[:-1], f"--federation.partition.file={path}"]
    before = set_up(load_config(None, overrides))
    prepared: Any = SimpleNamespace(config=before.config, schedule=before.schedule)
    check_same_partition(prepared, folder.path)
    write_partition(prepared, folder)
    check_same_partition(prepared, folder.path)
    given["c001"], given["c002"] = given["c002"], given["c001"]
    path.write_text(json.dumps(given))
    after = set_up(load_config(None, overrides))
    changed: Any = SimpleNamespace(config=after.config, schedule=after.schedule)
    with pytest.raises(CheckpointError, match=rf"federation\.partition\.file = {path}: gives 2 of 3 clients other tasks .*first is c001"):
        check_same_partition(changed, folder.path)


def test_a_resume_names_the_setting_within_a_section(tmp_path: Path) -> None:
    stored = resolve(load_config(None, ["--world.variant.family=rank_wrapper"]))
    RunFolder(tmp_path).write_config(stored)
    variant = stored.world.variant.model_copy(update={"severity": 0.5})
    other = stored.model_copy(update={"world": stored.world.model_copy(update={"variant": variant})})
    with pytest.raises(CheckpointError, match=r"on resume \(world\.variant\.severity: 1\.0 there, 0\.5 now\)"):
        check_same_training(tmp_path, other)


def test_a_checkpoint_is_measured_in_another_world_without_its_own_clients_worlds(tmp_path: Path) -> None:
    settings = ["--world.variant.family=rank_wrapper", "--federation.partition.preference=0.5"]
    RunFolder(tmp_path).write_config(resolve(load_config(None, settings)))
    same, other = evaluation_config(tmp_path, None, None, None), evaluation_config(tmp_path, "guess", None, None)
    assert same.world.variant.family == "rank_wrapper"
    assert same.federation.partition.preference == 0.5
    assert other.world.name == "guess"
    assert (other.world.variant, other.federation.partition) == (VariantConfig(), PartitionConfig())
    assert set_up(other).assignment.perturbed is False


# --- commands ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "label", "--threshold", "0.7"], "--threshold 0.7 cannot matter without --model"),
        (["data", "label", "--temperature", "0.5"], "--temperature 0.5 cannot matter without --model"),
        (["data", "label", "--within", "9"], "--within 9: an episode ends after 8 turns; allowed: 1 to 8"),
    ],
)
def test_options_of_labelling_that_cannot_matter(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--out", str(tmp_path / "labels.json"), *SMALL[:2]]) == ConfigError.exit_code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_partition_page_does_not_replace_what_is_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = tmp_path / "labels.json"
    labels.write_text("{}")
    assert main(["data", "partition", "--report", str(labels)]) == ConfigError.exit_code
    assert "is no page" in capsys.readouterr().err
    assert labels.read_text() == "{}"


def test_no_concentration_is_infinite(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["data", "partition", "--coverage", "xi=inf"])
    assert "'xi=inf': expected a number between 0 and 1, or xi= and a concentration above 0" in capsys.readouterr().err


def test_a_place_for_a_diagnosis_is_checked_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.diagnose.diagnosis.diagnose", lambda *_: pytest.fail("diagnosed before it was known where to"))
    (tmp_path / "taken").write_text("")
    assert main(["diagnose", "--world.name", "bandit", "--out", str(tmp_path / "taken" / "deeper")]) == ConfigError.exit_code
    assert "taken is a file; choose another folder" in capsys.readouterr().err


def test_a_game_without_standard_input_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["play", "guess"]) == 0
    assert "default" in capsys.readouterr().out


def test_a_game_refuses_what_is_no_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert main(["play", "guess"]) == DataError.exit_code
    assert "standard input is no text (byte 0xff)" in capsys.readouterr().err


def test_a_game_names_the_option_that_was_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "bandit", "--side-by-side", "default", "conflct"]) == ConfigError.exit_code
    assert "--side-by-side conflct: variant 'conflct' of world 'bandit'" in capsys.readouterr().err
    assert main(["play", "bandit", "--client", "c000", "--side-by-side", "c000", "c999"]) == ConfigError.exit_code
    assert "nor is it a client (8, the first is 'c000')" in capsys.readouterr().err
    assert main(["play", "bandit", "--task", "-1"]) == ConfigError.exit_code
    assert "--task -1: no such task; allowed: 0 to" in capsys.readouterr().err


def test_a_relative_file_of_an_option_means_the_same_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.heterogeneity import assign
    from tests.pipeline.test_heterogeneity import Lamps
    from tests.pipeline.test_heterogeneity import made as lamps_config

    class FileLamps(Lamps):
        families = {**Lamps.families, "switch": replace(Lamps.families["switch"], options={"file": ""})}  # noqa: RUF012

    monkeypatch.chdir(tmp_path)
    world = FileLamps()
    owned = {"c000": world.tasks("train")[:3]}
    found = assign(lamps_config(clients=2, family="switch", options={"file": "copies.json"}), world, owned)
    assert [dict(variant.options) for variant in found.variants.values()] == [{"file": str(tmp_path / "copies.json")}]
    assert copy.deepcopy(found) == found
