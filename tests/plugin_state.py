"""Plug-ins for the length of a test: what they registered and imported is forgotten afterwards."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from envs import plugins, registry
from pipeline.config.algorithm import ALGORITHMS

EXAMPLES = Path(__file__).resolve().parent / "plugins_example"
THERMOSTAT, OWN_PARTS = EXAMPLES / "thermostat.py", EXAMPLES / "own_parts.py"


@contextlib.contextmanager
def forgotten_afterwards() -> Iterator[None]:
    """Restore registries, plug-ins, modules and the import path at the end of the block."""
    modules, path = set(sys.modules), list(sys.path)
    loose = {"_named": dict(plugins._named), "_installed": dict(plugins._installed), "_broken": dict(plugins._broken)}
    looked, names = plugins._looked, {id(r): set(r.origins) for r in registry.REGISTRIES}
    try:
        yield
    finally:
        for one in list(registry.REGISTRIES):
            for name in set(one.origins) - names.get(id(one), set(one.origins)):
                one.remove(name)
                if one.kind == "algorithm":
                    del ALGORITHMS[name]
        for table, before in loose.items():
            getattr(plugins, table).clear()
            getattr(plugins, table).update(before)
        plugins._looked = looked
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if "plugins_example" in file or "/pytest-of-" in file:
                del sys.modules[name]
