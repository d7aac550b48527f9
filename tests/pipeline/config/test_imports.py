"""What is cheap stays cheap: imports of the pure layers and the refusal of a bad configuration, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "ray", "vllm", "deepspeed", "transformers", "mlflow")


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "module",
    [
        "pipeline",
        "pipeline.config",
        "pipeline.config.load",
        "pipeline.schedule",
        "pipeline.aggregation",
        "pipeline.checkpoint",
        "pipeline.privacy_boundary",
        "pipeline.episodes",
        "envs",
        "envs.partition",
    ],
)
def test_imports_nothing_heavy(module: str) -> None:
    loaded = python(f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])")
    assert loaded.strip() == "[]"


def test_importing_the_package_takes_under_300_ms() -> None:
    code = "import time; began = time.perf_counter(); import pipeline; print(time.perf_counter() - began)"
    assert min(float(python(code)) for _ in range(3)) < 0.3


def test_a_bad_configuration_is_refused_in_under_2_s_without_anything_heavy() -> None:
    code = f"""
import sys
from pipeline.run import main
code = main(["--federation.round", "5", "--federation.clients", "2"])
print(code, [name for name in {HEAVY!r} if name in sys.modules])
"""
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        assert python(code).strip() == "2 []"
        best = min(best, time.perf_counter() - began)
    assert best < 2.0
