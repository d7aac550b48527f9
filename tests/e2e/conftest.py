"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.runs import Train, trainer


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Runs the command line in ``tmp_path/runs``."""
    return trainer(tmp_path / "runs")
