"""Writes what is known so far: the results file now and then while trials run, all three files at the end."""

from __future__ import annotations

import time

from pipeline.reproduce.assemble import Plan, assemble
from pipeline.reproduce.results import Results, save_results
from pipeline.reproduce.store import Store
from pipeline.reproduce.table import results_table
from pipeline.run_folder import write_atomic

EVERY_S = 60.0


class Writer:
    """The files of one reproduction."""

    def __init__(self, store: Store, plan: Plan) -> None:
        self._store, self._plan = store, plan
        self._last = time.monotonic()

    def sometimes(self) -> None:
        """Write the results file if it is time."""
        if time.monotonic() - self._last >= EVERY_S:
            save_results(assemble(self._store, self._plan), self._store.results)
            self._last = time.monotonic()

    def write(self) -> Results:
        """Write results, table and report; the results."""
        from pipeline.report.tale import write_tale

        results = assemble(self._store, self._plan)
        save_results(results, self._store.results)
        write_atomic(self._store.text, results_table(results))
        write_tale(results, self._store.page)
        return results
