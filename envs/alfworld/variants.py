"""Variants of ALFWorld's houses: which families there are, and the edit that a variant stands for.

Owns the mapping from names to levers. What levers do is in ``dynamics.py`` (the room) and ``wording.py`` (words). The first observation is
that of the unperturbed world in every variant; the first list of admissible commands too, except with ``words:renamed``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from envs.alfworld.dynamics import CarryMany, CoolingFridge, DoorsOpen, DoorsShut, Elsewhere, OpenAppliance, OtherAppliance
from envs.alfworld.edits import Lever, Setting
from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.games import Game
from envs.alfworld.oracle import Rules
from envs.alfworld.wording import RenamedWords, SilentArrival, SwappedWords, TerseFeedback
from envs.variants import Family, Variant

CONTROL = "control"
"""The member of a family that changes nothing."""

LEVERS: Mapping[str, Mapping[str, Lever]] = {
    "appliance": {
        "heat_at_stove": OtherAppliance("heat", "HeatObject", "Microwave", "StoveBurner"),
        "cool_at_sink": OtherAppliance("cool", "CoolObject", "Fridge", "SinkBasin"),
        "must_open": OpenAppliance(),
        "fridge_cools": CoolingFridge(),
    },
    "placement": {"": Elsewhere()},
    "doors": {"shut_behind": DoorsShut(), "start_open": DoorsOpen()},
    "words": {"swapped": SwappedWords(), "renamed": RenamedWords()},
    "carry": {"many": CarryMany()},
    "feedback": {"silent_arrival": SilentArrival(), "terse": TerseFeedback()},
}
"""Levers by family and member; a per-client family has one, under no name."""

FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            "appliance",
            "dynamics",
            (CONTROL, *LEVERS["appliance"]),
            "things are heated or cooled in another way; severity: share of the object types concerned",
            default_members=3,
        ),
        Family(
            "placement",
            "content",
            (),
            "things live in other places, a client's own; severity: share of the object types moved",
            per_client=True,
        ),
        Family(
            "doors",
            "dynamics",
            (CONTROL, *LEVERS["doors"]),
            "containers shut when one leaves, or are open from the start; severity: share of a room's containers",
        ),
        Family(
            "words",
            "dynamics",
            (CONTROL, *LEVERS["words"]),
            "heat means cool and cool means heat (severity: share of object types), or commands are renamed (severity: share of words)",
        ),
        Family(
            "carry",
            "dynamics",
            (CONTROL, *LEVERS["carry"]),
            "more than one thing can be carried; severity: share of the object types concerned",
        ),
        Family(
            "feedback",
            "rendering",
            (CONTROL, *LEVERS["feedback"]),
            "arriving shows nothing (severity: share of receptacles), or answers are only `Done.` (severity: share of commands)",
        ),
    )
}
"""The families that ALFWorld offers."""


@dataclass(frozen=True)
class Dynamics:
    """The edit of a variant that changes something; what the engines know it by is ``key``."""

    variant: Variant
    lever: Lever

    @property
    def key(self) -> Hashable:
        """What the edit depends on."""
        v = self.variant
        return (v.family, v.member, v.severity, v.stream)

    def edit(self, game: Game) -> Game:
        """The game under the variant; the game itself where nothing in it is touched. Raises ``AlfWorldDataError`` for a damaged game."""
        try:
            return self.lever.edit(Setting(self.variant, game))
        except AlfWorldDataError:
            raise
        except ValueError as error:
            what = f"variant {self.variant} cannot be made of it: {error}"
            raise AlfWorldDataError(what, game=game.id, hint="Fetch or generate it again") from error

    def rules(self, game: Game) -> Rules:
        """What a plan must know besides the facts of the edited game; ``game`` is the unedited one."""
        return self.lever.rules(Setting(self.variant, game))


def dynamics(variant: Variant) -> Dynamics | None:
    """The edit of a checked variant; None where it leaves all games as they are."""
    lever = lever_of(variant)
    return None if lever is None else _dynamics(variant, lever)


def lever_of(variant: Variant) -> Lever | None:
    """The lever that a checked variant moves, if any."""
    if variant.unperturbed or variant.member == CONTROL:
        return None
    family = FAMILIES[variant.family]
    return LEVERS[variant.family]["" if family.per_client else variant.member]


def hint(variant: Variant) -> str:
    """A sentence that tells what differs from the unperturbed world."""
    lever = lever_of(variant)
    return "Here all is as usual." if lever is None else lever.hint(variant)


@lru_cache(maxsize=1024)
def _dynamics(variant: Variant, lever: Lever) -> Dynamics:
    return Dynamics(variant, lever)
