"""Round checkpoints: read back what was written, whole or not there whenever the process dies, refused where they do not belong."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.checkpoint import CheckpointStore, Disk, Identity, latest, latest_folder, load, prune, round_folder, save
from pipeline.episodes import GlobalState
from pipeline.errors import CheckpointError
from pipeline.moments import Moments
from pipeline.services import Published

IDENTITY = Identity(training="aaaa", model="bbbb", data="cccc")


def state(round: int) -> GlobalState:
    rng = np.random.default_rng(round)
    arrays = {"layer.lora_A.weight": rng.standard_normal((2, 5)).astype(np.float32), "b": rng.standard_normal(3).astype(np.float32)}
    return GlobalState(f"global-{round}-0123456789ab", round, arrays, {"update_norm": 0.25})


def moments(value: float) -> Moments:
    return Moments(step=int(value), exp_avg={"b": np.full(3, value, np.float32)}, exp_avg_sq={"b": np.full(3, value**2, np.float32)})


def write(run: Path, *rounds: int, **more: Any) -> None:
    for round in rounds:
        save(run, state(round), {"round": round, "clients": ["c000"]}, IDENTITY, **more)


def test_what_was_written_is_read_back_to_the_bit(tmp_path: Path) -> None:
    save(tmp_path, state(3), {"loss": float("nan"), "n": np.int64(2)}, IDENTITY, optimizers={"c001": moments(7)}, average=moments(2))
    found = latest(tmp_path, IDENTITY)
    assert found is not None
    assert found.round == 3
    assert found.state.version == state(3).version
    assert found.state.metrics == {"update_norm": 0.25}
    assert found.record == {"loss": None, "n": 2}
    for name, value in state(3).state.items():
        np.testing.assert_array_equal(found.state.state[name], value)
        assert found.state.state[name].dtype == np.float32
    assert found.optimizers["c001"].step == 7
    np.testing.assert_array_equal(found.optimizers["c001"].exp_avg_sq["b"], np.full(3, 49, np.float32))
    assert found.average is not None
    assert found.average.step == 2


def test_layout(tmp_path: Path) -> None:
    write(tmp_path, 12, optimizers={"c001": moments(1)})
    folder = tmp_path / "rounds" / "0012"
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        "clients/c001.safetensors",
        "manifest.json",
        "record.json",
        "state.safetensors",
    ]
    assert [p.name for p in (tmp_path / "rounds").iterdir()] == ["0012"]


def test_without_a_checkpoint_there_is_none(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    (tmp_path / "rounds").mkdir()
    assert latest(tmp_path) is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "delete", "manifest", "no manifest"])
def test_a_damaged_round_is_passed_over_with_a_warning_that_names_the_file(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, 1, 2)
    folder = round_folder(tmp_path, 2)
    target = folder / ("manifest.json" if "manifest" in damage else "state.safetensors")
    content = target.read_bytes()
    match damage:
        case "truncate" | "manifest":
            target.write_bytes(content[:-7])
        case "flip":
            target.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case _:
            target.unlink()
    with caplog.at_level(logging.WARNING):
        found = latest(tmp_path, IDENTITY)
    assert found is not None
    assert found.round == 1
    assert target.name in caplog.text
    assert "0002" in caplog.text
    with pytest.raises(CheckpointError, match=f"damaged: {target.name}"):
        load(folder)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (Identity("dddd", "bbbb", "cccc"), "training configuration: checkpoint aaaa, this run dddd"),
        (Identity("aaaa", "dddd", "cccc"), "base model: checkpoint bbbb, this run dddd"),
        (Identity("aaaa", "bbbb", "dddd"), "tasks of the world: checkpoint cccc, this run dddd"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, identity: Identity, message: str) -> None:
    write(tmp_path, 1)
    with pytest.raises(CheckpointError, match=message):
        latest(tmp_path, identity)
    load(round_folder(tmp_path, 1), IDENTITY)
    load(round_folder(tmp_path, 1))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        load(tmp_path / "rounds" / "0007")


def test_moments_of_clients_that_did_not_train_are_taken_over_without_a_copy(tmp_path: Path) -> None:
    write(tmp_path, 1, optimizers={"c000": moments(1), "c001": moments(1)})
    write(tmp_path, 2, optimizers={"c001": moments(2)})
    write(tmp_path, 3)
    prune(tmp_path, 1)
    found = latest(tmp_path)
    assert found is not None
    assert {client: m.step for client, m in found.optimizers.items()} == {"c000": 1, "c001": 2}
    save(tmp_path, state(4), {}, IDENTITY)
    one, other = (round_folder(tmp_path, r) / "clients" / "c000.safetensors" for r in (3, 4))
    assert one.stat().st_ino == other.stat().st_ino


@pytest.mark.parametrize("keep", [1, 3])
def test_prune_keeps_the_newest_whole_rounds(tmp_path: Path, keep: int) -> None:
    write(tmp_path, 1, 2, 3, 4, 5)
    (round_folder(tmp_path, 5) / "state.safetensors").write_bytes(b"damaged")
    prune(tmp_path, keep)
    left = sorted(p.name for p in (tmp_path / "rounds").iterdir())
    assert left == [f"{r:04d}" for r in range(5 - keep, 5)] + ["0005"]
    found = latest_folder(tmp_path)
    assert found is not None
    assert found.name == "0004"


def test_saving_prunes_when_asked(tmp_path: Path) -> None:
    write(tmp_path, *range(1, 8), keep=2)
    assert sorted(p.name for p in (tmp_path / "rounds").iterdir()) == ["0006", "0007"]


def test_rounds_past_9999_sort_by_number(tmp_path: Path) -> None:
    write(tmp_path, 9999, 10_000, optimizers=None)
    found = latest_folder(tmp_path)
    assert found is not None
    assert found.name == "10000"
    prune(tmp_path, 1)
    assert [p.name for p in (tmp_path / "rounds").iterdir()] == ["10000"]


class Killed(BaseException):
    """The process died."""


class DyingDisk(Disk):
    """Does ``allowed`` operations, then neither this nor any later one; a write that it dies in is half done."""

    def __init__(self, allowed: int) -> None:
        self.allowed = allowed
        self.done = 0

    def _operate(self, half: Any = None) -> None:
        if self.done >= self.allowed:
            if half is not None and self.done == self.allowed:
                half()
            self.done += 1
            raise Killed
        self.done += 1

    def make_folder(self, path: Path) -> None:
        self._operate()
        super().make_folder(path)

    def write(self, path: Path, content: bytes) -> None:
        self._operate(lambda: path.write_bytes(content[: len(content) // 2]))
        super().write(path, content)

    def link(self, source: Path, target: Path) -> None:
        self._operate()
        super().link(source, target)

    def flush_folder(self, path: Path) -> None:
        self._operate()
        super().flush_folder(path)

    def rename(self, source: Path, target: Path) -> None:
        self._operate()
        super().rename(source, target)

    def remove_folder(self, path: Path) -> None:
        self._operate(lambda: next(p for p in path.iterdir() if p.is_file()).unlink())
        super().remove_folder(path)


def operations(tmp_path: Path) -> int:
    counting = DyingDisk(10**9)
    write(tmp_path, 1, 2, 3, optimizers={"c000": moments(1), "c001": moments(1)})
    write(tmp_path, 4, optimizers={"c001": moments(2)}, keep=1, files=counting)
    return counting.done


def test_dying_between_any_two_file_operations_leaves_a_whole_round(tmp_path: Path) -> None:
    total = operations(tmp_path / "count")
    assert total > 12
    for allowed in range(total):
        run = tmp_path / str(allowed)
        write(run, 1, 2, 3, optimizers={"c000": moments(1), "c001": moments(1)})
        with pytest.raises(Killed):
            write(run, 4, optimizers={"c001": moments(2)}, keep=1, files=DyingDisk(allowed))
        found = latest(run, IDENTITY)
        assert found is not None, f"nothing to resume from after {allowed} operations"
        assert found.round in (3, 4)
        np.testing.assert_array_equal(found.state.state["b"], state(found.round).state["b"])
        assert found.optimizers["c000"].step == 1
        assert found.optimizers["c001"].step == (2 if found.round == 4 else 1)
        # The next process goes on from there, and clears up.
        write(run, found.round + 1, keep=1)
        assert [p.name for p in (run / "rounds").iterdir()] == [f"{found.round + 1:04d}"]


def test_dying_while_a_round_is_written_again_leaves_a_whole_round(tmp_path: Path) -> None:
    counting = DyingDisk(10**9)
    write(tmp_path / "count", 1, 2)
    write(tmp_path / "count", 2, files=counting)
    for allowed in range(counting.done):
        run = tmp_path / str(allowed)
        write(run, 1, 2)
        with pytest.raises(Killed):
            write(run, 2, files=DyingDisk(allowed))
        found = latest(run, IDENTITY)
        assert found is not None
        assert found.round in (1, 2)


def test_a_full_disk_is_a_checkpoint_error_and_the_last_round_stays(tmp_path: Path) -> None:
    class FullDisk(Disk):
        def write(self, path: Path, content: bytes) -> None:
            raise OSError(28, "No space left on device")

    write(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"round 2: .*No space left"):
        write(tmp_path, 2, files=FullDisk())
    found = latest(tmp_path)
    assert found is not None
    assert found.round == 1


def test_the_store_writes_moments_only_when_they_changed(tmp_path: Path) -> None:
    class Plain:
        fetched = 0

        async def fetch(self, handle: Any) -> Any:
            self.fetched += 1
            return handle

    async def run() -> tuple[int, int]:
        plain = Plain()
        store = CheckpointStore(tmp_path, IDENTITY, 2, plain)
        kept = {"c000": moments(1), "c001": moments(1)}
        for round in (1, 2):
            version = state(round)
            await store.save(Published(version.version, round, version.state), {"round": round}, kept, None)
        before = plain.fetched
        kept["c001"] = moments(5)
        version = state(3)
        await store.save(Published(version.version, 3, version.state), {"round": 3}, kept, moments(9))
        return before, plain.fetched

    assert asyncio.run(run()) == (2 + 1 + 1, 2 + 1 + 1 + 3)
    found = latest(tmp_path, IDENTITY)
    assert found is not None
    assert {client: m.step for client, m in found.optimizers.items()} == {"c000": 1, "c001": 5}
    assert found.average is not None
    assert found.average.step == 9
    assert json.loads((found.path / "record.json").read_text()) == {"round": 3}
