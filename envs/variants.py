"""Variants: what a client's world does differently, how a variant is named, and which client gets which.

A family is one way to perturb a world (for instance the order of search results), with members that each do it in their own manner. Worlds
say which families they offer (``World.families``) and build them; this module knows no world.
"""

from __future__ import annotations

import difflib
import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

Reveal = Literal["none", "name", "cue", "hint"]
"""How a world shows which it is: not at all; its arbitrary name in every observation, a subtle mark, or what it does, in words."""

REVEALS: tuple[Reveal, ...] = get_args(Reveal)

DEFAULT = "default"
"""Name of the unperturbed world."""

Stage = Literal["content", "encoding", "matching", "rendering", "dynamics"]
"""Where a family interferes: the first four are the stages of a shop's search, ``dynamics`` is what an action does."""

Option = bool | int | float | str

_TEXT = re.compile(r"(?P<family>[a-z][a-z0-9_]*)(:(?P<member>[A-Za-z0-9_]+))?(@(?P<severity>-?[0-9.]+))?(\+(?P<reveal>[a-z]+))?")


@dataclass(frozen=True)
class Family:
    """A way to perturb a world. ``options`` are its own settings with their defaults; ``per_client`` families have no fixed members: every
    client is one, drawn from its own stream. ``members[0]`` may be the unperturbed form (``control``); ``default_members`` of them are used
    unless a configuration says more. ``effect`` says in a phrase what an agent would feel."""

    name: str
    stage: Stage
    members: tuple[str, ...]
    effect: str
    options: Mapping[str, Option] = field(default_factory=dict)
    per_client: bool = False
    default_members: int | None = None


@dataclass(frozen=True)
class Variant:
    """One perturbed form of a world.

    ``severity`` in [0, 1] scales it: 0 is the unperturbed world, byte for byte. ``stream`` seeds the variant's own draws and ``protected``
    holds ids of tasks that must stay possible; both matter to the families that say so. ``label`` is the name that ``reveal`` shows.
    Written ``family:member@severity+reveal``, for instance ``rank_wrapper:invert@0.5+name``.
    """

    family: str = DEFAULT
    member: str = ""
    severity: float = 1.0
    reveal: Reveal = "none"
    options: tuple[tuple[str, Option], ...] = ()
    stream: int = 0
    protected: tuple[str, ...] = field(default=(), repr=False)
    label: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.severity <= 1.0:
            raise ValueError(f"severity = {self.severity:g} of variant {self.family!r}; allowed: 0 to 1")
        if self.reveal not in REVEALS:
            raise ValueError(f"reveal = {self.reveal!r}: {unknown(self.reveal, REVEALS)}")

    @classmethod
    def parse(cls, text: str) -> Variant:
        """The variant that ``text`` writes. Raises ``ValueError`` for a text of another form."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"variant {text!r}: expected family[:member][@severity][+reveal], for instance rank_wrapper:invert@0.5+name")
        try:
            severity = float(match["severity"]) if match["severity"] else 1.0
        except ValueError:
            raise ValueError(f"severity = {match['severity']} of variant {text!r} is no number; allowed: 0 to 1") from None
        reveal: Any = match["reveal"] or "none"
        return cls(match["family"], match["member"] or "", severity, reveal)

    def __str__(self) -> str:
        member = f":{self.member}" if self.member else ""
        severity = f"@{self.severity:g}" if self.severity != 1.0 else ""
        reveal = f"+{self.reveal}" if self.reveal != "none" else ""
        return f"{self.family}{member}{severity}{reveal}"

    @property
    def unperturbed(self) -> bool:
        """Whether the world behaves as the default one does (it may still reveal itself)."""
        return self.family == DEFAULT or self.severity == 0.0

    def option(self, name: str, family: Family) -> Option:
        """The value of one of the family's options."""
        return dict(self.options).get(name, family.options[name])

    def touches(self, *what: object) -> bool:
        """Whether the variant changes this thing: of all things it does so for a share ``severity``, and a smaller share is a part of a
        larger one. The same in every process."""
        if self.severity in (0.0, 1.0):
            return self.severity == 1.0
        return self.rng("touches", self.member, *what).random() < self.severity

    def rng(self, *purpose: object) -> random.Random:
        """A stream of its own for ``purpose`` under ``stream``; the same in every process."""
        digest = hashlib.sha256("\x1f".join(map(str, (self.stream, *purpose))).encode()).digest()
        return random.Random(int.from_bytes(digest[:8], "little"))


def unknown(name: str, known: Sequence[str]) -> str:
    """``unknown (known: ...); did you mean ...?``"""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown (known: {', '.join(known)}){hint}"


def checked(variant: Variant, families: Mapping[str, Family], world: str) -> Variant:
    """The variant with its member filled in. Raises ``ValueError`` for a family, member or option that the world does not offer, naming the
    nearest one that it does."""
    if variant.family == DEFAULT:
        if variant.member or variant.options:
            raise ValueError(f"variant {str(variant)!r}: the unperturbed world {world} has no members and no options")
        return variant
    family = families.get(variant.family)
    if family is None:
        raise ValueError(f"variant {variant.family!r} of world {world!r}: {unknown(variant.family, [DEFAULT, *families])}")
    known = dict(family.options)
    for name, value in variant.options:
        if name not in known:
            raise ValueError(f"option {name!r} of variant {variant.family!r}: {unknown(name, list(known))}")
        default = known[name]
        fits = type(value) is type(default) or (isinstance(default, float) and type(value) is int)
        if not fits:
            raise ValueError(
                f"option {name} = {value!r} of variant {variant.family!r}: expected {type(default).__name__}, like {default!r}"
            )
    if family.per_client:
        return variant
    if not variant.member:
        return replace(variant, member=family.members[0] if len(family.members) == 1 else family.members[1])
    if variant.member not in family.members:
        raise ValueError(f"member {variant.member!r} of variant {variant.family!r}: {unknown(variant.member, family.members)}")
    return variant


def assign_members(clients: int, members: Sequence[str], seed: int) -> tuple[str, ...]:
    """Which member each client gets: counts differ by at most one, the order is drawn from ``seed``, rounds do not enter.

    Raises ``ValueError`` without members.
    """
    if not members:
        raise ValueError("there are no members to assign")
    dealt = [members[i % len(members)] for i in range(clients)]
    random.Random(hashlib.sha256(f"members\x1f{seed}".encode()).digest()).shuffle(dealt)
    return tuple(dealt)


@dataclass(frozen=True)
class Probe:
    """What a world answers to fixed questions. ``rankings`` are ordered answers (for instance products found, by query), ``replies`` the
    observations along fixed scripts of actions. Probes of two variants of one world correspond entry by entry."""

    rankings: tuple[tuple[str, ...], ...] = ()
    replies: tuple[str, ...] = ()

    @property
    def questions(self) -> int:
        """Number of answers."""
        return len(self.rankings) + len(self.replies)


@dataclass(frozen=True)
class Distinctness:
    """How two worlds differ on their probes. ``jaccard`` of the first ten answers (mean over questions; 1 where both are empty),
    ``top1`` share of questions whose first answer differs, ``replies`` share of observations that differ; 1, 0, 0 for equal worlds."""

    jaccard: float
    top1: float
    replies: float
    same: bool


def distinctness(a: Probe, b: Probe, depth: int = 10) -> Distinctness:
    """Compare two probes. Raises ``ValueError`` when they do not answer the same questions."""
    if len(a.rankings) != len(b.rankings) or len(a.replies) != len(b.replies):
        raise ValueError("the probes answer different questions")
    overlaps, tops = [], []
    for left, right in zip(a.rankings, b.rankings, strict=True):
        first, second = set(left[:depth]), set(right[:depth])
        overlaps.append(len(first & second) / len(first | second) if first | second else 1.0)
        tops.append(left[:1] != right[:1])
    differ = [x != y for x, y in zip(a.replies, b.replies, strict=True)]
    return Distinctness(
        jaccard=sum(overlaps) / len(overlaps) if overlaps else 1.0,
        top1=sum(tops) / len(tops) if tops else 0.0,
        replies=sum(differ) / len(differ) if differ else 0.0,
        same=a == b,
    )
