"""The embedded models: tiny decoders that this project trains itself, so that everything runs without a download.

``embedded_path`` is the folder of shipped weights: one model shops, another (``alfworld``) keeps house, a third (``toys``) plays the toy
worlds. The modules here build the shop's: ``tokenizer``, ``shopper`` (scripted expert), ``visit`` and ``demos`` (demonstrations on the
WebShop engine), ``gates`` (what a build must show), ``build``; ``warmstart`` (supervised training) and ``folder`` serve all. Importing this
package imports no torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import DataError

MANIFEST = "manifest.json"
WEIGHTS = Path(__file__).parent / "weights"
TOYS = Path(__file__).parent / "toys" / "weights"
OTHER_WEIGHTS: Mapping[str, Path] = {"alfworld": Path(__file__).parent / "alfworld" / "weights", "bandit": TOYS, "guess": TOYS}
"""Models for other worlds than the shop; any world without its own gets the shop's."""


def embedded_path(world: str = "webshop") -> Path:
    """The folder of the model for a world, after checking every file against the manifest. Raises ``DataError`` for a damaged one."""
    folder = OTHER_WEIGHTS.get(world, WEIGHTS)
    read_manifest(folder)
    return folder


def model_key(world: str = "webshop") -> str:
    """Sixteen hex digits that name the contents of the model shipped for a world."""
    return str(read_manifest(OTHER_WEIGHTS.get(world, WEIGHTS))["key"])


def read_manifest(folder: Path) -> dict[str, Any]:
    """What a built model folder says of itself. Raises ``DataError`` when it is missing, or a file differs from what was built."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = dict(manifest["files"])
        key = manifest["key"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"the embedded model folder {folder} has no readable {MANIFEST} ({type(error).__name__}); build it with `fedagent model build`"
        ) from error
    for name, expected in files.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest() if (folder / name).is_file() else "missing"
        if found != expected:
            raise DataError(
                f"the embedded model folder {folder} is damaged: {name} has SHA-256 {found[:12]}, the manifest says {expected[:12]}; "
                "restore it or build it with `fedagent model build`"
            )
    if key != files_key(files):
        raise DataError(f"the embedded model folder {folder} has a manifest whose key {key} does not fit its files")
    return manifest


def files_key(files: dict[str, str]) -> str:
    """Sixteen hex digits that depend on names and SHA-256 of a folder's files."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode("utf-8")).hexdigest()[:16]
