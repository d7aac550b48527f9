"""Made-up homes and games in ALFWorld's own form: which receptacles a room has, where its objects lie, and a task that makes sense there.

Owns scenes and the text of problems. Everything is a pure function of names and seeds. That a game can be won is proved elsewhere
(``generate.py``), by playing it.

Room for judgement: a task's object and destination are drawn evenly among those that fit the scene; everything else lies where such things
lie in ALFWorld's train games (``placement.json``), with the weight of a receptacle type shared among those of that type.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

from envs.alfworld.games import TASK_TYPES
from envs.alfworld.placement import ROOMS, Placement, placement

Size = Literal["small", "full"]
SIZES: tuple[Size, ...] = get_args(Size)

SIMPLE, LOOK, CLEAN, HEAT, COOL, TWO = TASK_TYPES
TREATED = {CLEAN: "clean", HEAT: "heat", COOL: "cool"}
"""Task types in which something is done to the object first, and the name of that."""

SUITS: Mapping[str, tuple[str, ...]] = {
    SIMPLE: ROOMS,
    LOOK: ("bedroom", "livingroom"),
    CLEAN: ("kitchen", "bathroom"),
    HEAT: ("kitchen",),
    COOL: ("kitchen",),
    TWO: ROOMS,
}
"""Room kinds in which a task type can be set."""

FIRST_SCENE: Mapping[str, int] = {"kitchen": 0, "livingroom": 200, "bedroom": 300, "bathroom": 400}
"""ALFWorld numbers scenes by room kind: kitchens from 1, living rooms from 201, and so on."""
MOST_SCENES = 99

_SMALL: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "kitchen": {
        "Fridge": (1, 1),
        "Microwave": (1, 1),
        "SinkBasin": (1, 1),
        "CounterTop": (1, 1),
        "StoveBurner": (1, 1),
        "Cabinet": (1, 2),
        "Drawer": (0, 1),
        "GarbageCan": (0, 1),
    },
    "livingroom": {
        "Sofa": (1, 1),
        "CoffeeTable": (1, 1),
        "SideTable": (1, 1),
        "Drawer": (1, 2),
        "ArmChair": (0, 1),
        "Shelf": (0, 1),
        "GarbageCan": (0, 1),
    },
    "bedroom": {
        "Bed": (1, 1),
        "Desk": (1, 1),
        "SideTable": (1, 1),
        "Drawer": (1, 2),
        "Dresser": (0, 1),
        "Shelf": (0, 1),
        "GarbageCan": (0, 1),
    },
    "bathroom": {
        "SinkBasin": (1, 1),
        "CounterTop": (1, 1),
        "Toilet": (1, 1),
        "Cabinet": (1, 2),
        "Drawer": (0, 1),
        "Shelf": (0, 1),
        "GarbageCan": (0, 1),
    },
}
"""How many receptacles a small room has of a type, at least and at most; 5 to 9 in all."""
_SMALL_TYPES = 8
_SMALL_OWNED = 14
_COMMON = 300
"""Per mille of ALFWorld's games in which a small room's objects occur at least."""
_SMALL_COPIES = (0, 1, 2)

LAMP = "DeskLamp"
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable")
_IDS = {"SinkBasin": "Sink_bar_{}_bar_SinkBasin", "BathtubBasin": "Bathtub_bar_{}_bar_BathtubBasin"}

_RTYPES = ("FridgeType", "MicrowaveType", "SinkBasinType", "StoveBurnerType")
_OTYPES = ("ButterKnifeType", "KnifeType")
"""Named by ALFWorld's domain or by variants, so declared whether a room has them or not."""

_SENTENCES: Mapping[str, tuple[str, str]] = {
    SIMPLE: ("put a {o} in {r}.", "put some {o} on {r}."),
    LOOK: ("look at {o} under the {r}.", "examine the {o} with the {r}."),
    CLEAN: ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    HEAT: ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    COOL: ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    TWO: ("put two {o} in {r}.", "find two {o} and put them in {r}."),
}


@dataclass(frozen=True)
class Scene:
    """A room. ``receptacles`` are (type, number of them); ``kinds`` are the types of objects that its owner has."""

    number: int
    kind: str
    size: Size
    receptacles: tuple[tuple[str, int], ...]
    kinds: tuple[str, ...]

    def has(self, receptacle: str) -> bool:
        """Whether the room has a receptacle of that type."""
        return any(name == receptacle for name, _ in self.receptacles)


def room_kind(scene: int) -> str:
    """The room kind that a scene number stands for, in ALFWorld's numbering. Raises ``ValueError`` for other numbers."""
    for kind, first in FIRST_SCENE.items():
        if first < scene <= first + MOST_SCENES:
            return kind
    raise ValueError(f"scene {scene}: numbers are 1-99 (kitchen), 201-299 (living room), 301-399 (bedroom), 401-499 (bathroom)")


@cache
def make_scene(number: int, size: Size, seed: int = 0) -> Scene:
    """The scene of that number: the same on every machine."""
    kind = room_kind(number)
    rng = random.Random(f"alfworld-scene|{size}|{number}|{seed}")
    table = placement()
    room = table.rooms[kind]
    if size == "small":
        counts = {name: rng.randint(*bounds) for name, bounds in _SMALL[kind].items()}
        common = [name for name, share in room.present.items() if share >= _COMMON and _has_place(name, room.placed[name], counts)]
        kinds = _weighted_sample(common, [room.present[name] for name in common], min(_SMALL_OWNED, len(common)), rng)
        if kind == "kitchen":
            kinds = _with_treatable(kinds, common, table, rng)
    else:
        counts = {name: _draw_count(scenes, rng) for name, scenes in room.receptacles.items()}
        present = {name: share for name, share in room.present.items() if _has_place(name, room.placed[name], counts)}
        kinds = [name for name, share in present.items() if rng.randrange(1000) < share]
    receptacles = tuple((name, count) for name, count in counts.items() if count)
    return Scene(number, kind, size, receptacles, tuple(sorted(kinds)))


def make_record(task_type: str, scene: Scene, index: int, seed: int, split: str) -> dict[str, Any]:
    """A game in the packed form, without its walkthrough. ``index`` tells games of one scene, task type and split apart.

    Raises ``ValueError`` where the task type cannot be set in such a room.
    """
    rng = random.Random(f"alfworld-game|{split}|{task_type}|{scene.size}|{scene.number}|{seed}|{index}")
    table = placement()
    pairs = feasible(task_type, scene)
    if not pairs:
        raise ValueError(f"{task_type} cannot be set in scene {scene.number} ({scene.kind})")
    wanted = rng.choice(sorted({o for o, _ in pairs}))
    target = rng.choice([r for o, r in pairs if o == wanted])
    ids = {name: [_receptacle_id(name, n) for n in range(1, count + 1)] for name, count in scene.receptacles}
    contents: list[tuple[str, str, str]] = []
    extra = rng.randint(0, 1)
    others = [name for name in scene.kinds if name != wanted]
    if scene.size == "small":
        others = rng.sample(others, min(_SMALL_TYPES - 1, len(others)))
    copies = {wanted: 1 + (task_type == TWO) + extra, **{name: _copies(name, scene.size, table, rng) for name in others}}
    for name, number in copies.items():
        avoid = target if name == wanted else ""
        weights = _places(name, scene, table, avoid)
        for copy in range(1, number + 1):
            (kind,) = rng.choices(list(weights), list(weights.values()))
            contents.append((f"{name}_bar_{copy:02d}", name, rng.choice(ids[kind])))
    if task_type == LOOK:
        stands = [name for name in _LAMP_STANDS if scene.has(name)]
        contents.append((f"{LAMP}_bar_01", LAMP, rng.choice(ids[rng.choice(stands)])))
    name = f"{task_type}-{wanted}-None-{target}-{scene.number}"
    trial = f"trial_G{seed}_{index:05d}"
    return {
        "split": split,
        "id": f"{split}/{name}/{trial}",
        "task_type": task_type,
        "object": wanted,
        "mrecep": "None",
        "parent_or_lamp": target,
        "scene": scene.number,
        "task": rng.choice(_SENTENCES[task_type]).format(o=wanted.lower(), r=target.lower()),
        "pddl_problem": _problem(trial, task_type, wanted, target, ids, contents, table),
    }


@cache
def feasible(task_type: str, scene: Scene) -> tuple[tuple[str, str], ...]:
    """Pairs (type of object, type of receptacle or lamp) for which the task can be set in the scene without being done already."""
    table = placement()
    if scene.kind not in SUITS[task_type]:
        return ()
    trait = TREATED.get(task_type)
    able = [name for name in scene.kinds if trait is None or table.can(trait, name)]
    if task_type == LOOK:
        return tuple((name, LAMP) for name in able) if any(scene.has(stand) for stand in _LAMP_STANDS) else ()
    return tuple(
        (name, receptacle)
        for name in able
        for receptacle, _ in scene.receptacles
        if name in table.holds.get(receptacle, ()) and _places(name, scene, table, receptacle)
    )


def _problem(
    trial: str,
    task_type: str,
    wanted: str,
    target: str,
    ids: Mapping[str, Sequence[str]],
    contents: Sequence[tuple[str, str, str]],
    table: Placement,
) -> str:
    where = {name: f"loc_bar_{i}" for i, name in enumerate((n for names in ids.values() for n in names), 1)}
    kinds = sorted({kind for _, kind, _ in contents})
    facts = ["atLocation agent1 loc_bar_0"]
    for rtype, names in ids.items():
        for name in names:
            facts += [f"receptacleType {name} {rtype}Type", f"receptacleAtLocation {name} {where[name]}"]
            if rtype in table.openable:
                facts.append(f"openable {name}")
        facts += [f"canContain {rtype}Type {kind}Type" for kind in kinds if kind in table.holds.get(rtype, ())]
    for name, kind, at in contents:
        facts += [f"objectType {name} {kind}Type", f"inReceptacle {name} {at}", f"objectAtLocation {name} {where[at]}"]
        if kind == LAMP:
            facts.append(f"toggleable {name}")
            continue
        facts.append(f"pickupable {name}")
        for trait, fact in (("clean", "cleanable"), ("heat", "heatable"), ("cool", "coolable"), ("slice", "sliceable")):
            if table.can(trait, kind):
                facts.append(f"{fact} {name}")
        if table.can("contain", kind):
            facts.append(f"isReceptacleObject {name}")
    objects = [
        "agent1 - agent",
        *_declared(["loc_bar_0", *where.values()], "location"),
        *_declared(where, "receptacle"),
        *_declared((name for name, _, _ in contents), "object"),
        *_declared(sorted({*_RTYPES, *(f"{name}Type" for name in ids)}), "rtype"),
        *_declared(sorted({*_OTYPES, *(f"{name}Type" for name in kinds)}), "otype"),
    ]
    init = "\n".join(f"  ({fact})" for fact in facts)
    names = "\n".join(f"  {line}" for line in objects)
    return (
        f"(define (problem {trial})\n (:domain alfred)\n (:objects\n{names}\n )\n (:init\n{init}\n )\n"
        f" (:goal (and {_goal(task_type, wanted, target)}))\n)\n"
    )


def _goal(task_type: str, wanted: str, target: str) -> str:
    if task_type == LOOK:
        return (
            "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {target}Type) (toggleable ?ot) (isToggled ?ot) "
            "(receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and (objectType ?o {wanted}Type) (holds ?a ?o)))"
        )
    placed = f"(objectType {{0}} {wanted}Type) (receptacleType ?r {target}Type) (inReceptacle {{0}} ?r)"
    if task_type == TWO:
        return (
            f"(exists (?r - receptacle) (exists (?o1 - object) (and {placed.format('?o1')} "
            f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {placed.format('?o2')})))))"
        )
    done = {CLEAN: "(cleanable ?o) (isClean ?o) ", HEAT: "(heatable ?o) (isHot ?o) ", COOL: "(coolable ?o) (isCool ?o) "}.get(task_type, "")
    return f"(exists (?r - receptacle) (exists (?o - object) (and {done}{placed.format('?o')})))"


def _declared(names: Iterable[str], kind: str) -> list[str]:
    return [f"{name} - {kind}" for name in names]


def _receptacle_id(kind: str, number: int) -> str:
    return _IDS.get(kind, f"{kind}_bar_{{}}").format(f"{number:02d}")


def _places(name: str, scene: Scene, table: Placement, avoid: str) -> dict[str, int]:
    """Weights of the receptacle types in which objects of type ``name`` lie in this scene, other than ``avoid``."""
    weights = table.rooms[scene.kind].placed[name]
    return {rtype: weights[rtype] for rtype, _ in scene.receptacles if rtype in weights and rtype != avoid}


def _has_place(name: str, weights: Mapping[str, int], counts: Mapping[str, int]) -> bool:
    return any(counts.get(rtype, 0) for rtype in weights)


def _copies(name: str, size: Size, table: Placement, rng: random.Random) -> int:
    if size == "small":
        return rng.choice(_SMALL_COPIES)
    weights = table.copies[name]
    return rng.choices(list(weights), list(weights.values()))[0]


def _draw_count(scenes: Mapping[int, int], rng: random.Random, of: int = 27) -> int:
    """How many receptacles of a type: 0 where the table's scenes, of which there are ``of``, mostly have none."""
    drawn = rng.randrange(of)
    for count, number in scenes.items():
        drawn -= number
        if drawn < 0:
            return count
    return 0


def _weighted_sample(names: Sequence[str], weights: Sequence[int], number: int, rng: random.Random) -> list[str]:
    keyed = sorted(names, key=lambda name: rng.random() ** (1.0 / weights[names.index(name)]), reverse=True)
    return keyed[:number]


def _with_treatable(kinds: Sequence[str], common: Sequence[str], table: Placement, rng: random.Random) -> list[str]:
    """At least three types of each of those that can be heated, cooled and cleaned, so that tasks of a kitchen differ."""
    kept = list(kinds)
    for trait in ("heat", "cool", "clean"):
        missing = [name for name in common if table.can(trait, name) and name not in kept]
        rng.shuffle(missing)
        while sum(table.can(trait, name) for name in kept) < 3 and missing:
            kept.append(missing.pop())
    return kept
