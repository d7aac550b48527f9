"""``fedagent diagnose`` of a run: its federation, where its policy goes, on real Ray and vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT, SMALL, Train, environment

pytestmark = pytest.mark.slow


def test_a_checkpoint_is_diagnosed_where_its_policy_goes(train: Train, tmp_path: Path) -> None:
    run = train("buttons", [*SMALL, "--federation.rounds=1", "--world.variant.family=checkout", "--world.variant.members=2"])
    code = "import sys; from pipeline.diagnose.command import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "--checkpoint", str(run.folder), "--tasks", "8", "--out", str(tmp_path)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads((tmp_path / "diagnosis.json").read_text())
    assert data["verdict"]["kind"] == "conflict"
    assert data["clients"] == 3
    assert data["pairs"][0]["policy"]["n"] == 8
    assert 0 <= data["pairs"][0]["policy"]["value"] <= 1
