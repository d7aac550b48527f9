"""Rules of the house: what imports what, how long files are, what importing costs, and what the repository must not say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("pipeline", "actors", "envs", "tune_spaces")
TOP_LEVEL = {
    "pyproject.toml", "README.md", "pipeline", "actors", "envs", "tune_spaces", "tests", "notebooks",
    "requirements-cpu.lock", "requirements-alfworld.lock", "LICENSE", "CHANGELOG.md", "Makefile",
}  # fmt: skip
HEAVY = ("torch", "ray", "vllm", "transformers", "deepspeed", "mlflow")
ORCHESTRATION = {
    "pipeline.run", "pipeline.cli", "pipeline.job", "pipeline.federation", "pipeline.client", "pipeline.cluster", "pipeline.standalone",
    "pipeline.evaluation", "pipeline.report", "pipeline.view", "pipeline.progress", "pipeline.recorder", "pipeline.doctor",
    "pipeline.planning", "pipeline.selftest", "pipeline.shared_prompts", "pipeline.heterogeneity", "pipeline.play", "pipeline.diagnose",
    "pipeline.trial", "pipeline.parts", "pipeline.sweep", "pipeline.inside", "pipeline.reproduce",
}  # fmt: skip


def tracked() -> list[Path]:
    """Files of the repository (tracked, or new and not ignored)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imports(path: Path) -> set[str]:
    """Names of modules that a file imports anywhere, type-checking blocks left out."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(n) for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) for n in ast.walk(node)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_envs_know_nothing_above_them() -> None:
    for path in (ROOT / "envs").rglob("*.py"):
        above = [name for name in imports(path) if name.split(".")[0] in ("pipeline", "actors", "ray", "torch", "vllm")]
        assert not above, f"{path.relative_to(ROOT)} imports {above}"


def test_actors_and_pure_layers_do_not_import_orchestration() -> None:
    pure = [ROOT / "pipeline" / p for p in ("config", "algorithms", "aggregation", "schedule.py", "episodes.py", "models.py", "moments.py")]
    files = [*(ROOT / "actors").rglob("*.py"), *(f for p in pure for f in ([p] if p.suffix else p.rglob("*.py")))]
    for path in files:
        above = imports(path) & ORCHESTRATION
        assert not above, f"{path.relative_to(ROOT)} imports {sorted(above)}"


@pytest.mark.parametrize("module", ["pipeline", "pipeline.config", "pipeline.schedule", "pipeline.aggregation", "envs", "envs.webshop"])
def test_light_modules_import_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_pipeline_is_quick() -> None:
    code = "import time; t = time.perf_counter(); import pipeline; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout) for _ in range(3)
    ]
    assert min(times) < 0.3


def test_every_module_says_what_it_owns() -> None:
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path.relative_to(ROOT)} has no docstring"


def test_files_stay_short() -> None:
    for path in [*modules(), *(ROOT / "tests").rglob("*.py")]:
        assert len(path.read_text().splitlines()) <= 500, f"{path.relative_to(ROOT)} is over 500 lines: it is two files"
        assert path.stem not in ("utils", "common", "misc", "helpers")


def test_top_level_is_fixed() -> None:
    top = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


def test_no_machine_paths_or_package_hosts() -> None:
    pattern = re.compile(r"/(work|farm|root|home)/|pypi\.org|files\.pythonhosted|download\.pytorch|index-url|find-links")
    for path in tracked():
        if (
            path.suffix in (".py", ".md", ".toml", ".yaml", ".lock", ".cfg", "")
            and path != Path(__file__).resolve()
            and path.stat().st_size < 1_000_000
        ):
            for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
                assert not pattern.search(line), f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 350
