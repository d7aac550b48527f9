"""The notebooks: what git keeps of them, and that they run from the first cell to the last and show what their texts say."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest

from pipeline.config.load import load_config
from pipeline.diagnose import diagnose
from pipeline.diagnose.command import federation_of
from pipeline.reproduce.results import save_results
from tests.e2e.runs import ROOT, environment
from tests.pipeline.report.tale_cases import full_results
from tests.plugin_state import forgotten_afterwards

FOLDER = ROOT / "notebooks"
NAMES = ("01_first_federation", "02_the_tale", "03_your_own_world", "04_sweeps_and_diagnosis")
OWN_DEFINITIONS = {"03_your_own_world": {"Hall", "Doors", "Hinges"}, "04_sweeps_and_diagnosis": {"plays"}}
"""What a notebook is about may be written in it; everything else is the package's."""
OWN_WORLD = "# %% doors.py"
MOST_LINES = 60
TIMEOUT_S = 400
"""Of one cell, on a machine that is busy with other tests; a quiet one takes less than a minute for a notebook."""


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code(name: str) -> list[str]:
    return [cell.source for cell in read(name).cells if cell.cell_type == "code"]


def own_world() -> str:
    return next(source for source in code("03_your_own_world") if source.startswith(OWN_WORLD))


def test_these_are_all_notebooks() -> None:
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_git_keeps_no_outputs(name: str) -> None:
    notebook = read(name)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert cells
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook.metadata.language_info == {"name": "python"}


@pytest.mark.parametrize("name", NAMES)
def test_no_path_of_a_machine(name: str) -> None:
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users|opt|usr|mnt)\b", text)


@pytest.mark.parametrize("name", NAMES)
def test_no_logic_of_their_own(name: str) -> None:
    tree = ast.parse("\n".join(code(name)))
    made = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    assert made == OWN_DEFINITIONS.get(name, set())


def test_their_code_is_clean() -> None:
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, str(FOLDER)], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_world_and_a_variant_take_less_than_sixty_lines() -> None:
    source = own_world()
    assert "@register_world(" in source
    assert "@register_family(" in source
    assert len(source.splitlines()) < MOST_LINES


def test_the_cell_is_a_plug_in_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "doors.py"
    path.write_text(own_world())
    with forgotten_afterwards():
        config = load_config(None, [f"--run.plugins={path}", "--world.name=doors", "--world.variant.family=hinges"])
        federation = federation_of(config)
        verdict = diagnose(federation.world, federation.clients).verdict
    assert (verdict.kind, verdict.floor) == ("conflict", pytest.approx(0.5))


def executed(name: str, folder: Path, last: str = "") -> tuple[list[Any], Any]:
    """The outputs of a notebook run in ``folder``, and the JSON that the expression ``last`` has in the end."""
    from nbclient import NotebookClient

    notebook = read(name)
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({last or 'None'}))"))
    client = NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    own = {"JUPYTER_RUNTIME_DIR": str(folder / ".runtime"), "IPYTHONDIR": str(folder / ".ipython"), "TMPDIR": str(folder)}
    # The paths of Ray's sockets are limited to 107 characters.
    own["RAY_TMPDIR"] = tempfile.gettempdir()
    # What ``pytest`` sets for itself would make Matplotlib's inline figures plain ones.
    client.execute(env={k: v for k, v in environment(**own).items() if k != "MPLBACKEND"})
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return outputs, json.loads("".join(o.text for o in outputs if o.get("name") == "stdout").splitlines()[-1])


def figures(outputs: list[Any]) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs)


def texts(outputs: list[Any]) -> str:
    return "\n".join(o.get("text") or o.get("data", {}).get("text/markdown") or "" for o in outputs)


@pytest.mark.slow
def test_the_first_federation_learns_and_goes_on(tmp_path: Path) -> None:
    outputs, found = executed("01_first_federation", tmp_path, "[[g.first['start'], g.values['mean_worlds'].mean] for g in pair]")
    assert figures(outputs) == 3
    assert "did you mean 'federation.rounds'?" in texts(outputs)
    assert "finished [1, 2, 3, 4, 5]" in texts(outputs)
    assert "held-out tasks ..." not in texts(outputs), "a trial is silent"
    assert all(end > start + 0.15 for start, end in found)


MACHINES = "[tell(read_runs([FOLDER / n])).groups[0].values['mean_worlds'].mean for n in ('hidden', 'revealed')]"


@pytest.mark.slow
def test_the_tale_without_results_trains_its_own(tmp_path: Path) -> None:
    outputs, (rates, machines) = executed(
        "02_the_tale", tmp_path, f"[{{a.name: [a.mean_worlds, a.floor] for a in results.arms}}, {MACHINES}]"
    )
    assert figures(outputs) == 9
    assert rates["escape-hint"][0] > rates["uniform"][0] / 2 > rates["buy4"][0]
    hidden, revealed = machines
    assert hidden == pytest.approx(0.5, abs=0.1)
    assert revealed > 0.65
    assert "Not in these results: preference" in texts(outputs)


@pytest.mark.slow
def test_the_tale_tells_the_results_that_lie_there(tmp_path: Path) -> None:
    save_results(full_results(), tmp_path / "results" / "tale.json")
    outputs, command = executed("02_the_tale", tmp_path, "results.command")
    assert command == "fedagent reproduce tale --seeds 3"
    assert figures(outputs) == 9
    told = texts(outputs)
    assert "Alike clients: federated minus centralized" in told
    assert "Not in these results" not in told


@pytest.mark.slow
def test_your_own_world_does_as_diagnosed(tmp_path: Path) -> None:
    outputs, (alike, mixed) = executed("03_your_own_world", tmp_path, "[g.values['mean_worlds'].mean for g in groups]")
    assert figures(outputs) == 2
    assert "They contradict each other, and it can only be felt" in texts(outputs)
    assert alike > 0.7
    assert mixed == pytest.approx(0.5, abs=0.15)


@pytest.mark.slow
def test_the_sweep_ends_with_all_trials(tmp_path: Path) -> None:
    outputs, (complete, rows) = executed("04_sweeps_and_diagnosis", tmp_path, "[outcome['complete'], points]")
    assert figures(outputs) == 2
    assert complete
    assert [label for label, _, _ in rows] == [f"severity {level}" for level in ("0", "0.25", "0.5", "0.75", "1")]
    assert [best for _, _, best in rows] == pytest.approx([0.75, 0.6875, 0.625, 0.5625, 0.5])
    # Four standard errors of a rate over 400 episodes: no blind policy does better.
    assert all(trained < best + 0.1 for _, trained, best in rows)
    assert rows[0][1] > rows[-1][1]
