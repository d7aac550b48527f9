"""What a game's problem text says: receptacles, objects, where they are, what they are called, and what is asked for.

Owns reading (and, for variants, rewriting) the ``:init`` of a problem. Knows nothing of plans or engines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from envs.alfworld.games import TASK_TYPES, Game

_FACT = re.compile(r"\(\s*([^\s()]+)\s*([^()]*)\)")
_SPAN = re.compile(r"\(:init\b(.*?)\(:goal\b", re.DOTALL)

SIMPLE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
TREATMENTS: Mapping[str, str] = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
"""What has to be done to the object, by task type."""


@dataclass(frozen=True, eq=False)
class Goal:
    """What a game asks for, with types as in ids: ``CounterTop``. ``target`` is a receptacle type, or the lamp of a look task."""

    task_type: str
    wanted: str
    target: str

    @property
    def treatment(self) -> str | None:
        """``clean``, ``heat``, ``cool`` or nothing."""
        return TREATMENTS.get(self.task_type)


@dataclass(frozen=True, eq=False)
class Facts:
    """A room at the start. Ids are in lower case, as the engine has them; types as written in the problem, without ``Type``."""

    receptacles: Mapping[str, str]
    location: Mapping[str, str]
    openable: frozenset[str]
    opened: frozenset[str]
    objects: Mapping[str, str]
    inside: Mapping[str, tuple[str, ...]]
    traits: Mapping[str, frozenset[str]]
    """``pickupable``, ``cleanable``, ``heatable``, ``coolable``, ``toggleable``: the objects that are."""
    holds: frozenset[tuple[str, str]]
    start: str
    names: Mapping[str, str]

    def of_type(self, receptacle: str) -> list[str]:
        """Receptacles of a type, by name."""
        return sorted((r for r, kind in self.receptacles.items() if kind == receptacle), key=self.order)

    def objects_of(self, kind: str) -> list[str]:
        """Objects of a type that can be picked up, by name."""
        return sorted((o for o, k in self.objects.items() if k == kind and o in self.traits["pickupable"]), key=self.order)

    def order(self, entity: str) -> tuple[str, int]:
        """Sort key of an entity: its name, numbers as numbers."""
        head, _, number = self.names[entity].rpartition(" ")
        return head, int(number) if number.isdigit() else 0


def goal_of(game: Game) -> Goal:
    """What the game asks for, read from its id (``<split>/<type>-<object>-<..>-<target>-<scene>/<trial>``).

    Raises ``ValueError`` for an id of another form."""
    parts = game.id.split("/")[-2].split("-") if game.id.count("/") >= 2 else []
    if len(parts) != 5 or parts[0] not in TASK_TYPES:
        raise ValueError(f"game {game.id}: expected an id <split>/<type>-<object>-<..>-<target>-<scene>/<trial>")
    return Goal(parts[0], parts[1], parts[3])


def read_facts(problem: str) -> Facts:
    """The facts of a problem. Raises ``ValueError`` for a text without ``:init`` and ``:goal``."""
    receptacles, objects, location = {}, {}, {}
    inside: defaultdict[str, list[str]] = defaultdict(list)
    sets: defaultdict[str, set[str]] = defaultdict(set)
    holds: set[tuple[str, str]] = set()
    seen: set[str] = set()
    start = ""
    for name, arguments in facts_in(problem):
        entities = [argument.lower() for argument in arguments]
        seen.update(entities)
        if name == "receptacleType":
            receptacles[entities[0]] = arguments[1].removesuffix("Type")
        elif name == "objectType":
            objects[entities[0]] = arguments[1].removesuffix("Type")
        elif name == "receptacleAtLocation":
            location[entities[0]] = entities[1]
        elif name == "inReceptacle":
            inside[entities[0]].append(entities[1])
        elif name == "canContain":
            holds.add((arguments[0].removesuffix("Type"), arguments[1].removesuffix("Type")))
        elif name == "atLocation":
            start = entities[1]
        elif len(entities) == 1:
            sets[name].add(entities[0])
    return Facts(
        receptacles=receptacles,
        location=location,
        openable=frozenset(sets["openable"]),
        opened=frozenset(sets["opened"]),
        objects=objects,
        inside={o: tuple(places) for o, places in inside.items()},
        traits={name: frozenset(sets[name]) for name in ("pickupable", "cleanable", "heatable", "coolable", "toggleable")},
        holds=frozenset(holds),
        start=start,
        names=shown_names(seen),
    )


def facts_in(problem: str) -> list[tuple[str, list[str]]]:
    """The facts in ``:init``, in order: name and arguments, spelled as in the text."""
    start, end = _init_span(problem)
    return [(name, arguments.split()) for name, arguments in _FACT.findall(problem[start:end])]


def with_facts(problem: str, add: Sequence[str] = (), drop: Iterable[str] = ()) -> str:
    """The problem with facts (``inReceptacle Apple_bar_1 Shelf_bar_1``) left out and added at the end of ``:init``.

    Raises ``ValueError`` when a fact to drop is not there."""
    start, end = _init_span(problem)
    init = problem[start:end]
    for fact in drop:
        pattern = r"\(\s*" + r"\s+".join(map(re.escape, fact.split())) + r"\s*\)[ \t]*\n?"
        init, found = re.subn(pattern, "", init, count=1)
        if not found:
            raise ValueError(f"the problem has no fact ({fact})")
    close = init.rindex(")")
    return problem[:start] + init[:close] + "".join(f" ({fact})\n" for fact in add) + init[close:] + problem[end:]


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """What players read for each id: the text before the first ``_bar_``, "basin" after it where the id has that, and a number.

    Numbers run downwards over the sorted ids, as in ALFWorld. Ids without ``_bar_`` are shown as they are."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    names = {}
    for entity in sorted(ids):
        head, bar, _ = entity.partition("_bar_")
        if bar:
            groups[head + ("basin" if "basin" in entity else "")].append(entity)
        else:
            names[entity] = entity
    for head, members in groups.items():
        for number, entity in zip(range(len(members), 0, -1), members, strict=True):
            names[entity] = f"{head} {number}"
    return names


def _init_span(problem: str) -> tuple[int, int]:
    found = _SPAN.search(problem)
    if found is None:
        raise ValueError("the problem has no (:init ...) before (:goal ...)")
    return found.span(1)
