"""Plans by the planner that comes with the engine, in a child process with a time limit.

The planner may need minutes and cannot be interrupted, hence the child; it is asked only where no plan is stored or a world was changed.
Answers are operators of the domain, not commands. Run as a module it is the child.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from envs.alfworld.errors import AlfWorldDataError, AlfWorldTimeout
from envs.alfworld.sources import INSTALL

ROOT = Path(__file__).resolve().parents[2]


def plan_operators(domain: str, problem: str, limit_s: float, game: str) -> list[str] | None:
    """Names (with arguments) of the operators of a plan that wins the game; ``None`` where the planner finds that there is none.

    Raises ``AlfWorldTimeout`` after ``limit_s`` seconds and ``AlfWorldDataError`` where the planner fails."""
    with tempfile.TemporaryDirectory(prefix="fedagent-plan-") as folder:
        task, result = Path(folder) / "task.json", Path(folder) / "plan.json"
        task.write_text(json.dumps([domain, problem]))
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "envs.alfworld.planner", str(task), str(result)]
        try:
            done = subprocess.run(
                command, timeout=limit_s, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False
            )
        except subprocess.TimeoutExpired:
            raise AlfWorldTimeout(f"no plan within {limit_s:g} s", game=game, hint="Allow more time, or leave the game out") from None
        if done.returncode or not result.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            hint = INSTALL if "ModuleNotFoundError" in last else ""
            raise AlfWorldDataError(f"the planner stopped with code {done.returncode}: {last}", game=game, hint=hint)
        found: list[str] | None = json.loads(result.read_text())
        return found


def main(task: str, result: str) -> None:
    """Plan the game in the file ``task`` and write the operators' names to ``result``."""
    import fast_downward

    domain, problem = json.loads(Path(task).read_text())
    library = fast_downward.load_lib()
    _, plain = fast_downward.pddl2sas(domain, problem)
    _, optimised = fast_downward.pddl2sas(domain, problem, optimize=True)
    library.load_sas(plain.encode())
    library.load_sas_replan(optimised.encode())
    names = None
    if library.replan(False):
        operators = (fast_downward.Operator * library.get_last_plan_length())()
        library.get_last_plan(operators)
        names = [operator.name for operator in operators]
    Path(result).write_text(json.dumps(names))


if __name__ == "__main__":
    main(*sys.argv[1:])
