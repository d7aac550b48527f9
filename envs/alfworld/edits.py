"""How levers change a game: what is touched at a severity, and careful edits of problem, domain and grammar.

Owns the choice (a pure function of severity, stream and names) and edits that fail loudly where a text has not the expected form. Knows no
particular lever, and no engine.
"""

from __future__ import annotations

import hashlib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from envs.alfworld.games import Game
from envs.alfworld.oracle import Rules
from envs.alfworld.placement import placement
from envs.alfworld.problem import Facts, Goal, goal_of, read_facts, with_facts
from envs.variants import Variant

_COMMENT = re.compile(r";[^\n]*")


@dataclass(frozen=True)
class Setting:
    """A game under a variant: what the levers decide from."""

    variant: Variant
    game: Game

    @cached_property
    def facts(self) -> Facts:
        """The unedited game's facts."""
        return read_facts(self.game.problem)

    @cached_property
    def goal(self) -> Goal:
        """What the game asks for."""
        return goal_of(self.game)

    def chosen(self, items: Iterable[str], *purpose: str) -> frozenset[str]:
        """``first_share`` of the items."""
        return first_share(self.variant, items, *purpose)


class Lever(ABC):
    """One way to edit games. ``edit`` returns the game itself where nothing in it is touched."""

    @abstractmethod
    def edit(self, at: Setting) -> Game:
        """The edited game. Raises ``ValueError`` where the game's text has not the form that the edit expects."""

    def rules(self, at: Setting) -> Rules:
        """What a plan in the edited game must know besides its facts."""
        return Rules()

    @abstractmethod
    def hint(self, variant: Variant) -> str:
        """A sentence that tells what differs."""


def draw(variant: Variant, *purpose: str) -> float:
    """A number in [0, 1) that follows from the variant's stream and the purpose, whatever the severity."""
    text = "\x1f".join((str(variant.stream), variant.family, variant.member, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little") / (1 << 56)


def first_share(variant: Variant, items: Iterable[str], *purpose: str) -> frozenset[str]:
    """The share ``severity`` of the items, rounded up; the same ones and more at a higher severity."""
    ordered = sorted(items, key=lambda item: (draw(variant, *purpose, item), item))
    return frozenset(ordered[: math.ceil(variant.severity * len(ordered))])


def treatable_kinds(variant: Variant, *treatments: str) -> frozenset[str]:
    """The share ``severity`` of the object types to which one of the treatments can be done."""
    return first_share(variant, set().union(*(placement().traits[treatment] for treatment in treatments)), "kinds")


def first_of(variant: Variant, items: Iterable[str], *purpose: str) -> str:
    """One of the items, by the variant's stream."""
    return min(items, key=lambda item: (draw(variant, *purpose, item), item))


def treatable_objects(facts: Facts, kinds: Collection[str], *treatments: str) -> list[str]:
    """Objects of some types that can be picked up, and to which one of the treatments can be done where any is named."""
    able = {"heat": "heatable", "cool": "coolable", "clean": "cleanable"}
    found = [thing for kind in sorted(kinds) for thing in facts.objects_of(kind)]
    return [thing for thing in found if not treatments or any(thing in facts.traits[able[treatment]] for treatment in treatments)]


def how_many(variant: Variant) -> str:
    """``all`` or ``some``."""
    return "all" if variant.severity == 1.0 else "some"


def edited(game: Game, **changes: str) -> Game:
    """The game with changed text and without its stored plan."""
    return replace(game, walkthrough=(), **changes)  # type: ignore[arg-type]


def expect(condition: bool, game: Game, problem: str) -> None:
    """Raise ``ValueError`` that names the game unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"game {game.id} cannot be edited: {problem}; its text is not of ALFWorld 0.4 or later")


def with_predicate(domain: str, declaration: str) -> str:
    """The domain, without comments, with one more predicate. Raises ``ValueError`` where it declares none."""
    text, found = re.subn(r"\(:predicates\b", f"(:predicates ({declaration})", _COMMENT.sub("", domain), count=1)
    if not found:
        raise ValueError("the domain has no (:predicates ...)")
    return text


def with_marks(problem: str, odd: Iterable[str]) -> str:
    """The problem with a fact ``odd`` for each of the things."""
    return with_facts(problem, [f"odd {name}" for name in odd])


def in_action(domain: str, action: str, pattern: str, text: str) -> str:
    """The domain (without comments) with ``text`` for what matches ``pattern`` inside one action. Raises ``ValueError`` unless it occurs
    there exactly once."""
    start = re.search(rf"\(:action\s+{action}\s", domain)
    if start is None:
        raise ValueError(f"the domain has no action {action}")
    end = _closing(domain, start.start())
    body, found = re.subn(pattern, lambda _: text, domain[start.start() : end])
    if found != 1:
        raise ValueError(f"action {action} has {pattern!r} {found} times, expected once")
    return domain[: start.start()] + body + domain[end:]


def _closing(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    raise ValueError("unbalanced parentheses in the domain")
