"""A scripted housekeeper for ALFWorld's games: it reads the same notebook as a model and knows nothing else.

Owns what the right next command is, and a clumsy version of it. What to do follows from the prompt alone, so that a model can learn it.
Mistakes are put on decisions that are easy to represent (where to go, when to treat); taking what is wanted, the hard one, stays clean.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.alfworld.expert import UNSURE, Wish
from envs.memory import MARKS, Memory

Decision = Literal["search", "open", "take", "treat", "lamp", "bring", "put"]
"""``search`` goes to the next place, ``open`` looks into it, ``bring`` goes to where a thing in hand is needed, ``lamp`` switches it on."""


@dataclass(frozen=True)
class Skill:
    """Chances of the clumsy version to do anything that can be done here instead of what is right: ``stray`` while it looks for a thing,
    ``fumble`` with the thing in hand. ``appliances`` says where it tries to treat things: in worlds where another appliance works, nothing
    could be learned from a model that never tries it.

    Measured: with 0.2 and 0.5 a model does not learn where to put things (67 % of the greedy decisions to put are right, against 94 %)."""

    stray: float = 0.15
    fumble: float = 0.35
    appliances: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(UNSURE))


def right_action(wish: Wish, memory: Memory, skill: Skill, rng: random.Random) -> tuple[Decision, str]:
    """The kind of decision that the notebook asks for, and a right command. Where several are right, ``rng`` chooses."""
    if not memory.held:
        return _find(wish, memory)
    held = next((thing for thing in memory.held if kind(thing) == wish.thing), "")
    if not held:
        return _put_away(memory.held[-1], memory)
    if wish.look:
        return _light(wish, memory)
    mark = MARKS.get(wish.treatment or "", "")
    if mark and mark not in memory.marks.get(held, []):
        return _treat(wish, held, memory, skill, rng)
    return _deliver(wish, held, memory)


def clumsy_action(wish: Wish, memory: Memory, admissible: Sequence[str], skill: Skill, rng: random.Random) -> tuple[Decision, str]:
    """``right_action`` with independent mistakes, none of them on taking what is wanted."""
    decision, action = right_action(wish, memory, skill, rng)
    if decision == "take" or rng.random() >= (skill.fumble if memory.held else skill.stray):
        return decision, action
    return decision, rng.choice([other for other in admissible if useful(other)] or [action])


def useful(action: str) -> bool:
    """Whether a command can change anything but what is known."""
    return not action.startswith(("examine ", "look", "inventory", "help"))


def kind(name: str) -> str:
    """``cabinet`` of ``cabinet 2``."""
    return name.partition(" ")[0]


def _go(place: str) -> str:
    return f"go to {place}"


def _next(memory: Memory) -> tuple[Decision, str]:
    """To the first place not looked into; when there is none, to the one seen longest ago."""
    return "search", _go(next(place for place in memory.room if place != memory.here))


def _find(wish: Wish, memory: Memory) -> tuple[Decision, str]:
    mark = MARKS.get(wish.treatment or "", "")
    wanted = {
        thing: place
        for thing, place in memory.noted.items()
        if kind(thing) == wish.thing and (kind(place) != wish.place or (mark and mark not in memory.marks.get(thing, [])))
    }
    for thing, place in wanted.items():
        if place == memory.here:
            return ("open", f"open {place}") if memory.closed else ("take", f"take {thing} from {place}")
    if wanted:
        return "search", _go(next(iter(wanted.values())))
    return _look(memory)


def _look(memory: Memory) -> tuple[Decision, str]:
    """Look into the present place, or go on."""
    if memory.here in memory.left:
        return ("open", f"open {memory.here}") if memory.closed else ("open", f"examine {memory.here}")
    return _next(memory)


def _light(wish: Wish, memory: Memory) -> tuple[Decision, str]:
    for thing, place in memory.noted.items():
        if kind(thing) == wish.place:
            return ("lamp", f"use {thing}") if place == memory.here else ("bring", _go(place))
    return _look(memory)


def _treat(wish: Wish, held: str, memory: Memory, skill: Skill, rng: random.Random) -> tuple[Decision, str]:
    places = [place for name in skill.appliances[wish.treatment or ""] for place in memory.room if kind(place) == name]

    def command(place: str) -> str:
        return f"{wish.treatment} {held} with {place}"

    fresh = [place for place in places if command(place) not in memory.failed]
    if memory.here in fresh:
        return "treat", command(memory.here)
    if fresh:
        return "bring", _go(rng.choice(fresh))
    # Nothing worked as it stands: perhaps an appliance must be open.
    if memory.here in places and memory.closed:
        return "open", f"open {memory.here}"
    others = [place for place in places if place != memory.here]
    return ("bring", _go(rng.choice(others))) if others else _next(memory)


def _deliver(wish: Wish, held: str, memory: Memory) -> tuple[Decision, str]:
    places = [place for place in memory.room if kind(place) == wish.place]
    started = [place for thing, place in memory.noted.items() if kind(thing) == wish.thing and place in places]
    if wish.count > 1 and started:
        places = started[:1]
    if memory.here in places:
        put = f"move {held} to {memory.here}"
        return ("open", f"open {memory.here}") if memory.closed or put in memory.failed else ("put", put)
    return ("bring", _go(places[0])) if places else _next(memory)


def _put_away(held: str, memory: Memory) -> tuple[Decision, str]:
    put = f"move {held} to {memory.here}"
    if memory.here and put not in memory.failed:
        return ("open", f"open {memory.here}") if memory.closed else ("put", put)
    return _next(memory)
