"""Fixtures shared by all tests: where public data lies, and skipping what needs it when it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def webshop_folder() -> Path:
    """``$WEBSHOP_DATA``, else ``../shared/data/webshop`` beside the repository."""
    return Path(os.environ.get("WEBSHOP_DATA") or ROOT.parent / "shared" / "data" / "webshop")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = webshop_folder()
    if not folder.is_dir():
        skip = pytest.mark.skip(reason=f"no public WebShop files at {folder}: set WEBSHOP_DATA to their folder")
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def webshop_data() -> Path:
    folder = webshop_folder()
    if not folder.is_dir():
        pytest.skip(f"no public WebShop files at {folder}: set WEBSHOP_DATA to their folder")
    return folder
