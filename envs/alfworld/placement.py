"""Where things are in ALFWorld's homes: frequencies counted in its train games, shipped as ``placement.json``.

Owns reading that table. Knows nothing of scenes, games or tasks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

ROOMS: tuple[str, ...] = ("kitchen", "livingroom", "bedroom", "bathroom")
"""Room kinds, in the order of ALFWorld's scene numbers."""


@dataclass(frozen=True)
class Room:
    """A kind of room. ``receptacles``: by type, how many scenes have how many of it (scenes that have none are not counted).
    ``present``: share of games, in per mille, that have a type of object. ``placed``: by type of object, weights of receptacle types."""

    receptacles: Mapping[str, Mapping[int, int]]
    present: Mapping[str, int]
    placed: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Placement:
    """The table. ``copies``: by type of object, weights of how many a game has of it where it has any. ``holds``: types of objects that a
    type of receptacle can hold. ``clean``, ``heat``, ``cool``, ``slice``, ``contain``: types of objects to which that can be done."""

    rooms: Mapping[str, Room]
    copies: Mapping[str, Mapping[int, int]]
    holds: Mapping[str, frozenset[str]]
    traits: Mapping[str, frozenset[str]]
    openable: frozenset[str]
    digest: str = field(default="", repr=False)

    def can(self, trait: str, kind: str) -> bool:
        """Whether objects of type ``kind`` can be cleaned, heated and so on."""
        return kind in self.traits[trait]


@cache
def placement() -> Placement:
    """The table, read once per process."""
    raw = resources.files("envs.alfworld").joinpath("placement.json").read_bytes()
    data = json.loads(raw)
    rooms = {
        kind: Room(
            receptacles={name: _numbers(counts) for name, counts in room["receptacles"].items()},
            present={name: entry["present"] for name, entry in room["objects"].items()},
            placed={name: entry["placed"] for name, entry in room["objects"].items()},
        )
        for kind, room in data["rooms"].items()
    }
    return Placement(
        rooms=rooms,
        copies={name: _numbers(counts) for name, counts in data["copies"].items()},
        holds={name: frozenset(kinds) for name, kinds in data["holds"].items()},
        traits={name: frozenset(kinds) for name, kinds in data["traits"].items()},
        openable=frozenset(data["openable"]),
        digest=hashlib.sha256(raw).hexdigest()[:12],
    )


def _numbers(counts: Mapping[str, int]) -> dict[int, int]:
    return {int(number): weight for number, weight in counts.items()}
