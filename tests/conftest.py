"""Fixtures shared by all tests: where public data lies, and skipping what needs it when it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
VARIABLES = {"webshop": "WEBSHOP_DATA", "alfworld": "ALFWORLD_DATA"}


def data_place(name: str) -> Path:
    """The folder of ``webshop`` or ``alfworld`` from its variable, else below ``../shared/data`` beside the repository; other names are
    files there."""
    variable = VARIABLES.get(name)
    return Path((os.environ.get(variable) if variable else None) or SHARED / name)


def missing(name: str) -> str | None:
    """Why the data of that name cannot be used; None where they can."""
    place = data_place(name)
    if place.exists():
        return None
    hint = f": set {VARIABLES[name]} to their folder" if name in VARIABLES else ""
    return f"no {name} data at {place}{hint}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked ``data`` (WebShop) or ``data("alfworld")`` where the data are absent."""
    for item in items:
        for mark in item.iter_markers("data"):
            for reason in filter(None, map(missing, mark.args or ("webshop",))):
                item.add_marker(pytest.mark.skip(reason=reason))


def _present(name: str) -> Path:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)
    return data_place(name)


@pytest.fixture(scope="session")
def webshop_data() -> Path:
    return _present("webshop")


@pytest.fixture(scope="session")
def alfworld_data() -> Path:
    return _present("alfworld")


@pytest.fixture(scope="session")
def partition_golden() -> Path:
    return _present("partition-golden.json")
