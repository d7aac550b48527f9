"""The escape hatch: a mark in every observation that says which world this is, and nothing else.

Owns what a mark says. Where it stands in an observation is for the world to say; what a hint says in words comes from it too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from envs.variants import DEFAULT, Family, Variant

CUES: tuple[str, ...] = ("~", "*", "+", "=", "^", "%", "&", "#")
"""The signs of cues; a world's number is written in them."""


def mark(variant: Variant, families: Mapping[str, Family], hint: str = "", place: str = "world") -> str:
    """What every observation of ``variant`` carries: "" for ``none``, ``place`` and the variant's label for ``name`` (a label is made up
    from what the variant is where it has none), a few signs for ``cue``, ``hint`` for ``hint``.

    Marks of the members of a family differ from each other and from those of the unperturbed world.
    """
    if variant.reveal == "name":
        return f"{place} {variant.label or _made_up(variant)}"
    if variant.reveal == "cue":
        return _signs(_number(variant, families))
    if variant.reveal == "hint":
        return hint
    return ""


def _made_up(variant: Variant) -> str:
    """A short arbitrary name that depends on what the variant does."""
    what = (variant.family, variant.member, variant.severity, variant.stream) if not variant.unperturbed else (DEFAULT,)
    digest = hashlib.sha256(repr(what).encode()).digest()
    return f"{'bdfgklmnprstvz'[digest[0] % 14]}{1 + int.from_bytes(digest[1:3], 'little') % 999}"


def _number(variant: Variant, families: Mapping[str, Family]) -> int:
    """0 for the unperturbed world, then the members in order; for per-client families a number from the client's stream."""
    if variant.unperturbed:
        return 0
    family = families[variant.family]
    if family.per_client:
        return 1 + int.from_bytes(hashlib.sha256(str(variant.stream).encode()).digest()[:2], "little") % (len(CUES) ** 3 - 1)
    return 1 + family.members.index(variant.member)


def _signs(number: int) -> str:
    signs = CUES[number % len(CUES)]
    while number := number // len(CUES):
        signs = CUES[number % len(CUES)] + signs
    return signs
