"""A few arms reproduced in this process, one after the other and without Ray: for notebooks, and to look at one arm closely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.reproduce.command import make_plan
from pipeline.reproduce.results import Results

if TYPE_CHECKING:
    from pipeline.reproduce.trials import Trial


def reproduce_here(
    only: Sequence[str],
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    quick: bool = True,
    seeds: int = 1,
    tell: Callable[[Trial], None] = lambda trial: None,
) -> Results:
    """The results of the arms whose names match ``only``, with ``overrides`` such as ``--federation.rounds=3`` in all of them.

    ``folder`` keeps what is done, as ``fedagent reproduce --out`` does; what is there already is not done again. ``tell`` hears of every
    trial before it begins. Raises ``ConfigError`` for names and settings that fit no arm, and what a run raises.
    """
    from pipeline.inside import Kept
    from pipeline.reproduce.arms import LABELS
    from pipeline.reproduce.assemble import assemble
    from pipeline.reproduce.labels import make_labels
    from pipeline.reproduce.store import Store
    from pipeline.reproduce.trials import in_order
    from pipeline.reproduce.work import do_trial

    plan = make_plan(only, overrides, quick, seeds)
    store = Store(folder)
    store.prepare(resume=True)
    kept = Kept()
    try:
        for trial in in_order(plan.runnable, seeds):
            tell(trial)
            if LABELS in trial.arm.settings.values() and not store.labels.exists():
                make_labels(store, trial)
            do_trial(store, trial, kept)
    finally:
        kept.close()
    return assemble(store, plan)
