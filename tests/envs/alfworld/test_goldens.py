"""Transcripts of the unmodified engine on the public games, replayed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envs.alfworld import AlfWorld

FILE = "golden_walkthroughs_valid_unseen.jsonl.gz"


def transcripts(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / FILE, "rt") as file:
        return [json.loads(line) for line in file]


def assert_replays(world: AlfWorld, rows: list[dict[str, Any]]) -> None:
    engine = world.engine()
    assert rows
    for row in rows:
        assert engine.reset(row["id"]) == (row["initial_observation"], row["initial_admissible"]), row["id"]
        for step in row["steps"]:
            observation, reward, won, admissible = engine.step(step["action"])
            expected = (step["observation"], step["reward"], step["won"], step["n_admissible"])
            assert (observation, reward, won, len(admissible)) == expected, (row["id"], step["action"])


@pytest.mark.data("alfworld")
def test_every_sixth_transcript(public: AlfWorld, alfworld_data: Path) -> None:
    assert_replays(public, transcripts(alfworld_data)[::6])


@pytest.mark.data("alfworld")
@pytest.mark.slow
def test_all_transcripts(public: AlfWorld, alfworld_data: Path) -> None:
    rows = transcripts(alfworld_data)
    assert len(rows) == 90
    assert_replays(public, rows)


@pytest.mark.data("alfworld")
@pytest.mark.slow
def test_every_stored_plan_of_valid_unseen_wins_at_its_last_command(public: AlfWorld) -> None:
    engine = public.engine()
    for info in public.infos("valid_unseen"):
        play = engine.play(info.id)
        rewards = []
        for command in info.walkthrough:
            assert command in play.admissible
            rewards.append(play.step(command)[1])
        assert rewards == [0] * (len(rewards) - 1) + [1], info.id
