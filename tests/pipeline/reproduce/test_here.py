"""Arms in this process: what is refused. That they train is seen in the notebooks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.reproduce.here import reproduce_here


def test_names_and_settings_that_fit_no_arm_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no arm has such a name"):
        reproduce_here(["uniforn"], tmp_path / "a")
    with pytest.raises(ConfigError, match=r"federation\.rounds"):
        reproduce_here(["uniform"], tmp_path / "b", ["--federation.rounds=-1"])
