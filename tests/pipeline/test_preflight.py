"""What is refused before anything is loaded, started or written."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from pipeline.config import Config
from pipeline.config.load import load_config, resolve
from pipeline.errors import CheckpointError, ConfigError, DataError, PlacementError
from pipeline.preflight import check_cluster, check_resume, check_run_folder, check_same_training, check_world
from pipeline.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _no_cluster_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)


def log(folder: Path, *rounds: int) -> None:
    records = [{"kind": "start", "schema": 1}, *({"kind": "round", "round": number} for number in rounds)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_run_folder_is_checked_without_making_it(tmp_path: Path) -> None:
    check_run_folder(load_config(None, [f"--run.dir={tmp_path / 'a' / 'b'}"]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_runs_cannot_live_in_a_file(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=r"run\.dir = .*file is a file"):
        check_run_folder(load_config(None, [f"--run.dir={tmp_path / 'file'}{below}"]))


def test_a_path_that_no_disk_takes_is_refused_and_not_printed_whole() -> None:
    with pytest.raises(ConfigError, match=r"run\.dir = a+: File name too long") as error:
        check_run_folder(load_config(None, [f"--run.dir={'a' * 5000}"]))
    assert len(str(error.value)) < 200


def test_a_world_is_checked_before_its_data_are_read() -> None:
    with pytest.raises(ConfigError, match=r"world\.name = 'webshp'.*did you mean 'webshop'"):
        check_world(load_config(None, ["--world.name=webshp"]))
    with pytest.raises(ConfigError, match=r"evaluation\.tasks = 401: the world holds out 400; allowed: 1 to 400"):
        check_world(load_config(None, ["--evaluation.tasks=401"]))
    check_world(load_config(None, ["--evaluation.tasks=400"]))


def test_a_plan_larger_than_the_local_cluster_is_refused() -> None:
    check_cluster(load_config(None, ["--resources.cpus=2"]))
    with pytest.raises(PlacementError, match=r"the plan needs .*the cluster has 2"):
        check_cluster(load_config(None, ["--resources.cpus=2", "--rollout.engines=100"]))


def test_gpus_are_missed_where_no_driver_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("pipeline.preflight.GPU_DEVICES", ())
    with pytest.raises(PlacementError, match=r"GPU: the plan needs 1, the cluster has 0"):
        check_cluster(load_config(None, ["--resources.engine_gpus=1"]))
    monkeypatch.setattr("pipeline.preflight.GPU_DEVICES", ("null",))
    check_cluster(load_config(None, ["--resources.engine_gpus=1"]))


def test_no_cluster_at_the_address_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    with pytest.raises(PlacementError, match=rf"resources\.address = {address} \(Connection refused\)"):
        check_cluster(load_config(None, [f"--resources.address={address}"]))
    monkeypatch.setenv("RAY_ADDRESS", f"ray://{address}")
    with pytest.raises(PlacementError, match="RAY_ADDRESS = ray://"):
        check_cluster(load_config())
    assert time.monotonic() - began < 10


def test_a_port_that_answers_passes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_cluster(load_config(None, [f"--resources.address=127.0.0.1:{server.getsockname()[1]}"]))


@pytest.mark.parametrize("address", ["nonsense", "host:", ":6379", "host:99999", "host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: host:port, ray://host:port, auto"):
        check_cluster(load_config(None, [f"--resources.address={address}"]))


def test_a_run_that_stopped_before_its_first_round_can_be_resumed(tmp_path: Path) -> None:
    check_resume(tmp_path, load_config())
    log(tmp_path)
    check_resume(tmp_path, load_config())


def test_a_run_whose_rounds_are_damaged_does_not_begin_again_in_silence(tmp_path: Path) -> None:
    log(tmp_path, 1, 2)
    with pytest.raises(CheckpointError, match="rounds is gone, the log has round 2"):
        check_resume(tmp_path, load_config())
    (tmp_path / "rounds" / "0002").mkdir(parents=True)
    (tmp_path / "rounds" / "0002" / "manifest.json").write_text("[]")
    with pytest.raises(CheckpointError, match="none of its rounds 0002 is whole"):
        check_resume(tmp_path, load_config())


def test_a_damaged_log_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"garbage\n{}\n")
    with pytest.raises(DataError, match="line 1: not a JSON object"):
        check_resume(tmp_path, load_config())
    assert (tmp_path / "metrics.jsonl").read_bytes() == b"garbage\n{}\n"


def test_a_resume_names_what_may_not_change(tmp_path: Path) -> None:
    stored = resolve(Config())
    RunFolder(tmp_path).write_config(stored)
    free = stored.model_copy(update={"federation": stored.federation.model_copy(update={"rounds": 99})})
    check_same_training(tmp_path, free)
    other = stored.model_copy(update={"learner": stored.learner.model_copy(update={"lr": 0.5})})
    with pytest.raises(CheckpointError, match=r"training configuration cannot change on resume \(learner.lr: 0.005 there, 0.5 now\)"):
        check_same_training(tmp_path, other)
