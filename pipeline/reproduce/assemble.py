"""From the trials that are done to one results file: floors under the ceiling of their seed, lone clients beside shared agents, gaps named.

Owns what one arm's row takes from another arm. Runs nothing.
"""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.reproduce.arms import EASY_TURNS, LABELS, ArmSpec
from pipeline.reproduce.results import NOT_RUN, SCHEMA, Missing, Results, parse_results
from pipeline.reproduce.store import Store
from pipeline.reproduce.trials import Trial, decisive
from pipeline.runlog import utc_now

ALFWORLD_PARTS = ("textworld", "fast_downward", "alfworld")


@dataclass(frozen=True)
class Plan:
    """What is to be reproduced: all ``arms`` of the tale under ``seeds`` seeds, of which the ``chosen`` are run; ``skipped`` arms cannot be
    here, with the reason."""

    arms: Sequence[ArmSpec]
    chosen: Sequence[ArmSpec]
    seeds: int
    command: str
    skipped: Mapping[str, str]

    @property
    def runnable(self) -> list[ArmSpec]:
        """The chosen arms that can be run here."""
        return [arm for arm in self.chosen if arm.name not in self.skipped]


def impossible(arms: Sequence[ArmSpec]) -> dict[str, str]:
    """Arms that this installation cannot run, with the reason."""
    lacking = [name for name in ALFWORLD_PARTS if importlib.util.find_spec(name) is None]
    reason = f"needs the ALFWorld engine ({', '.join(lacking)} not installed): make alfworld"
    return {arm.name: reason for arm in arms if arm.world == "alfworld" and lacking}


def assemble(store: Store, plan: Plan) -> Results:
    """The results so far. Raises ``DataError`` where a stored number is no result."""
    done: dict[tuple[str, int], Mapping[str, Any]] = {}
    missing: list[Missing] = []
    chosen = {arm.name for arm in plan.chosen}
    for arm in plan.arms:
        if arm.name in plan.skipped:
            missing.append(Missing(arm.name, None, plan.skipped[arm.name]))
            continue
        for seed in range(plan.seeds):
            outcome = store.outcome(Trial(arm, seed))
            if outcome is not None and outcome.done:
                done[arm.name, seed] = outcome.numbers
            else:
                left_out = NOT_RUN if arm.name in chosen else "left out by --only"
                missing.append(Missing(arm.name, seed, f"failed: {outcome.error}" if outcome is not None else left_out))
    rows = [_row(Trial(arm, seed), store, done) for arm in plan.arms for seed in range(plan.seeds) if (arm.name, seed) in done]
    return parse_results(
        {
            "schema": SCHEMA,
            "machine": machine(),
            "versions": _versions(),
            "command": plan.command,
            "date": utc_now().isoformat(timespec="seconds"),
            "complete": not missing,
            "missing": [gap.__dict__ for gap in missing],
            "arms": rows,
        },
        str(store.results),
    )


def _row(trial: Trial, store: Store, done: Mapping[tuple[str, int], Mapping[str, Any]]) -> dict[str, Any]:
    arm, seed = trial.arm, trial.seed
    found = store.floor(trial)
    ceiling = done.get((arm.ceiling or "", seed), {}).get("mean_worlds")
    how = "" if found is None else found.how
    height = None if found is None else found.height(ceiling)
    if found is not None and found.share is not None:
        how += f"; times the mean of {arm.ceiling}" if ceiling is not None else f"; {arm.ceiling} was not run, so its height is not known"
    homes = [done.get((name, seed), {}).get("mean_worlds") for name in arm.alone]
    lone = [rate for rate in homes if rate is not None]
    return {
        "name": arm.name,
        "label": arm.label,
        "family": arm.family,
        "variant": arm.variant,
        "severity": arm.severity,
        "algorithm": arm.algorithm,
        "mode": arm.mode,
        "seed": seed,
        "reveal": arm.reveal,
        "delta": arm.delta,
        "twist": arm.twist,
        "versus": arm.versus,
        "floor": height,
        "floor_gap": None if found is None else found.gap,
        "floor_how": how,
        "kind": "none" if found is None else found.kind,
        "alone": sum(lone) / len(lone) if lone and len(lone) == len(homes) else None,
        "settings": {name: _named(value) for name, value in decisive(arm.settings).items()},
        "key": trial.key,
        **done[arm.name, seed],
    }


def _named(value: Any) -> Any:
    return f"solved by the oracle in {EASY_TURNS} turns" if value == LABELS else value


def machine() -> str:
    """What this ran on, without names."""
    parts = [f"{os.cpu_count()} cores"]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        parts += [line.partition(":")[2].strip() for line in lines if line.startswith("model name")][:1]
        kib = next(line for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines() if line.startswith("MemTotal"))
        parts.append(f"{int(kib.split()[1]) / 2**20:.0f} GiB memory")
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    return ", ".join([*parts, f"{platform.system()} {platform.machine()}"])


def _versions() -> dict[str, str]:
    from pipeline.job import versions

    return versions()
