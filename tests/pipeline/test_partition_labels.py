"""``fedagent data label``: what counts as easy, for the oracle and for a model, and the file that comes of it."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.base import Task
from envs.partition import read_labels
from pipeline.episodes import Episode, EpisodeSpec, Sampling, Turn
from pipeline.errors import ConfigError, DataError
from pipeline.labelling import Tried, episode_specs, try_model, try_oracle
from pipeline.partition_command import add_label_parser
from tests.worlds import GuessWorld

SMALL = ("--world.products=40", "--world.heldout=30")


class TwoStepWorld(GuessWorld):
    """The oracle knows even numbers at once, odd ones at the second guess, and number 4 not at all."""

    def oracle(self, task: Task, variant: Any = "default") -> list[str]:
        target = int(task.payload["target"])
        return [] if target == 4 else [str(target)] if target % 2 == 0 else ["99", str(target)]


def test_the_oracle_counts_successes_within_the_turns() -> None:
    world = TwoStepWorld(6)
    tasks = world.tasks("train")
    assert [t.successes for t in try_oracle(world, tasks, 4)] == [1, 1, 1, 1, 0, 1]
    assert [t.successes for t in try_oracle(world, tasks, 1)] == [1, 0, 1, 0, 0, 0]


def test_a_plan_that_does_not_solve_is_no_success() -> None:
    class Wrong(GuessWorld):
        def oracle(self, task: Task, variant: Any = "default") -> list[str]:
            return ["99"]

    assert [t.rate for t in try_oracle(Wrong(2), Wrong(2).tasks("train"), 4)] == [0.0, 0.0]


class FakeRollouts:
    """Succeeds at task ``i`` in the first ``i`` of its episodes, in ``i`` turns; the environment of task 3 always fails where asked."""

    def __init__(self, failing: bool = False) -> None:
        self.failing, self.asked = failing, []  # type: tuple[bool, list[int]]

    async def publish(self, name: str, state: object) -> None: ...

    async def drop(self, name: str) -> None: ...

    async def run(self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: object) -> tuple[Any, Mapping[str, float]]:
        self.asked.append(len(specs))
        done, members = [], dict.fromkeys((spec.group for spec in specs), 0)
        for spec in specs:
            number = int(spec.task.payload["target"])
            success = members[spec.group] < number
            members[spec.group] += 1
            stop: Any = "failed" if self.failing and number == 3 else "done"
            turns = (Turn((1,), (2,), (0.0,), "x", True, 0.0),) * number
            done.append(Episode(spec.task.id, spec.client, spec.variant, adapter, turns, 0.0, 0.0, success, stop))
        return done, {}


async def fetch(handle: Any) -> Any:
    return handle


def run_model(rollouts: FakeRollouts, turns: int = 10, episodes: int = 4) -> list[Tried]:
    tasks = GuessWorld(5).tasks("train")
    return asyncio.run(try_model(rollouts, fetch, "v0", tasks, episodes, turns, Sampling(), 0))


def test_a_model_gets_a_rate_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.labelling.BATCH", 8)
    rollouts = FakeRollouts()
    assert [t.rate for t in run_model(rollouts)] == [0, 0.25, 0.5, 0.75, 1]
    assert rollouts.asked == [8, 8, 4]
    assert [t.rate for t in run_model(FakeRollouts(), turns=2)] == [0, 0.25, 0.5, 0, 0]


def test_a_task_whose_environment_always_fails_has_no_label() -> None:
    with pytest.raises(DataError, match="task 'guess-3': its environment failed in all 4 episodes"):
        run_model(FakeRollouts(failing=True))


def test_episodes_have_seeds_of_their_own_wherever_a_batch_begins() -> None:
    tasks = GuessWorld(6).tasks("train")
    whole = episode_specs(tasks, 0, 3, 0, "default")
    assert len({spec.seed for spec in whole}) == 18
    assert whole[9:] == episode_specs(tasks[3:], 3, 3, 0, "default")


def call(*words: object, overrides: Sequence[str] = SMALL) -> int:
    parser = argparse.ArgumentParser()
    add_label_parser(parser.add_subparsers())
    args = parser.parse_args(["label", *map(str, words)])
    args.overrides = list(overrides)
    code: int = args.command(args)
    return code


@pytest.fixture(autouse=True)
def generated_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEBSHOP_DATA", raising=False)


def test_the_command_writes_labels_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "labels.json"
    assert call("--out", out, "--within", 4) == 0
    found = read_labels(out)
    easy = sum(rate == 1 for rate in found.rates.values())
    assert 0 < easy < len(found.rates)
    assert found.metadata["easy"] == easy
    assert (found.metadata["agent"], found.metadata["within"]) == ("oracle", 4)
    assert f"{easy} of {len(found.rates)} tasks are easy" in capsys.readouterr().out
    first = out.read_bytes()
    assert call("--out", out, "--within", 4) == 0
    assert out.read_bytes() == first


def test_labels_that_tell_nothing_apart_come_with_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--out", tmp_path / "labels.json") == 0
    assert "all tasks are alike" in capsys.readouterr().err
    assert json.loads((tmp_path / "labels.json").read_text())["metadata"]["within"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--episodes", 3), "--episodes 3 cannot matter without --model"),
        (("--episodes", 0, "--model", "embedded"), "--episodes 0: allowed 1 to 1000"),
        (("--threshold", 0), "--threshold 0: allowed more than 0 to 1"),
        (("--within", 0), "--within 0"),
        (("--temperature", 9), "--temperature 9"),
        (("--variant", "rank_wraper:invert"), "did you mean 'rank_wrapper'"),
        (("--checkpoint", "x", "--world", "webshop"), "cannot matter with --checkpoint"),
    ],
)
def test_refusals(tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call("--out", tmp_path / "labels.json", *words, overrides=() if "--checkpoint" in words else SMALL)


def test_settings_of_a_run_stand(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--world\.products=40 cannot matter with --checkpoint"):
        call("--out", tmp_path / "labels.json", "--checkpoint", tmp_path)


@pytest.mark.slow
def test_a_model_labels_on_the_real_engine(tmp_path: Path) -> None:
    out = tmp_path / "labels.json"
    assert call("--out", out, "--model", "embedded", "--episodes", 2) == 0
    found = read_labels(out)
    assert set(found.rates.values()) <= {0.0, 0.5, 1.0}
    assert found.metadata["agent"] == "embedded"
