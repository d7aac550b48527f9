"""A hand-made kitchen of five receptacles, two of them in one place, and edits of its rules."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from envs.alfworld import Game
from tests.envs.alfworld.unmodified import replaced

ROOM: Mapping[str, tuple[str, str, bool]] = {
    "Fridge_bar_1": ("FridgeType", "loc_1", True),
    "Microwave_bar_1": ("MicrowaveType", "loc_2", True),
    "StoveBurner_bar_1": ("StoveBurnerType", "loc_2", False),
    "Sink_bar_1_bar_SinkBasin": ("SinkBasinType", "loc_3", False),
    "CounterTop_bar_1": ("CounterTopType", "loc_4", False),
}
"""Receptacle -> type, location, whether it can be opened."""

THINGS: Mapping[str, tuple[str, str]] = {
    "Apple_bar_1": ("AppleType", "Fridge_bar_1"),
    "Apple_bar_2": ("AppleType", "CounterTop_bar_1"),
    "Mug_bar_1": ("MugType", "StoveBurner_bar_1"),
    "DeskLamp_bar_1": ("DeskLampType", "CounterTop_bar_1"),
    "Knife_bar_1": ("KnifeType", "CounterTop_bar_1"),
}
"""Object -> type, where it is."""

GOALS = {
    "heat": "(exists (?r - receptacle) (exists (?o - object) (and (heatable ?o) (isHot ?o) (objectType ?o AppleType) "
    "(inReceptacle ?o ?r) (receptacleType ?r CounterTopType))))",
    "never": "(exists (?o - object) (and (isSliced ?o) (objectType ?o MugType)))",
}


def problem(goal: str = "heat") -> str:
    """The kitchen as a PDDL problem."""
    otypes = sorted({kind for kind, _ in THINGS.values()} | {"ButterKnifeType"})
    objects = [
        "agent1 - agent",
        *(f"{name} - object" for name in THINGS),
        *(f"{name} - receptacle" for name in ROOM),
        *(f"loc_{number} - location" for number in range(5)),
        *(f"{kind} - otype" for kind in [*otypes, "SinkType"]),
        *(f"{kind} - rtype" for kind in sorted({kind for kind, _, _ in ROOM.values()})),
    ]
    facts = ["(atLocation agent1 loc_0)", "(= (total-cost) 0)"]
    for name, (kind, location, openable) in ROOM.items():
        facts += [f"(receptacleType {name} {kind})", f"(receptacleAtLocation {name} {location})", *([f"(openable {name})"] * openable)]
        facts += [f"(canContain {kind} {otype})" for otype in otypes]
    for name, (kind, place) in THINGS.items():
        facts += [f"(objectType {name} {kind})", f"(inReceptacle {name} {place})", f"(objectAtLocation {name} {ROOM[place][1]})"]
        facts += [f"({trait} {name})" for trait in _traits(kind)]
    lines = "\n".join
    return f"(define (problem kitchen)\n(:domain alfred)\n(:objects\n{lines(objects)})\n(:init\n{lines(facts)})\n(:goal\n{GOALS[goal]}))\n"


def _traits(kind: str) -> list[str]:
    if kind == "DeskLampType":
        return ["toggleable"]
    foods = ["heatable", "coolable", "cleanable", "sliceable"]
    return ["pickupable", *(foods if kind == "AppleType" else ["heatable", "cleanable"] if kind == "MugType" else [])]


PLAN = (
    "go to fridge 1",
    "open fridge 1",
    "take apple 2 from fridge 1",
    "go to microwave 1",
    "heat apple 2 with microwave 1",
    "go to countertop 1",
    "move apple 2 to countertop 1",
)


def record(trial: str = "a", **changes: Any) -> dict[str, Any]:
    """The kitchen as a line of a packed file."""
    base = {
        "id": f"train/kitchen/{trial}",
        "split": "train",
        "task_type": "pick_heat_then_place_in_recep",
        "task": "put a hot apple in countertop.",
        "scene": "kitchen 1",
        "walkthrough": list(PLAN),
        "pddl_problem": problem(),
    }
    return {**base, **changes}


def write(folder: Path, *records: Mapping[str, Any]) -> Path:
    """A folder with a packed file of these records (default: the kitchen)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "games.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records or [record()]))
    return folder


class Change:
    """An edit of games by a function."""

    def __init__(self, key: str, change: Callable[[Game], dict[str, Any]]) -> None:
        self.key, self._change = key, change

    def edit(self, game: Game) -> Game:
        return dataclasses.replace(game, **self._change(game))


def _opened(game: Game) -> dict[str, Any]:
    names = re.findall(r"\(openable (\S+)\)", game.problem)
    assert names
    return replaced(game, ("(:init", "(:init " + " ".join(f"(opened {name})" for name in names)))


def _replacing(key: str, *pairs: tuple[str, str]) -> Change:
    return Change(key, lambda game: replaced(game, *pairs))


_LEAVE = "(not (atLocation ?a ?lStart))"
_LIGHT = '"condition": "toggleable(o:object) & istoggled(o:object)",\n                    "rhs": "You turn on'

EDITS: Mapping[str, Change] = {
    change.key: change
    for change in (
        Change("containers start open", _opened),
        _replacing("heat at the stove", ("(receptacleType ?r MicrowaveType)", "(receptacleType ?r StoveBurnerType)")),
        _replacing(
            "doors shut behind you",
            (
                _LEAVE,
                f"{_LEAVE} (forall (?x - receptacle) (when (and (receptacleAtLocation ?x ?lStart) (openable ?x)) (not (opened ?x))))",
            ),
        ),
        _replacing("carry many", ("(not (holdsAny ?a))  ; agent's hands are empty.", "")),
        # An effect that depends on what changes: what the engine reports of it does not tell its state.
        _replacing(
            "clean wears off",
            ("(objectAtLocation ?o ?l)\n                ;(full ?r)", "(objectAtLocation ?o ?l) (when (isClean ?o) (not (isClean ?o)))"),
        ),
        _replacing(
            "lamp off by day",
            ("(not (holdsAny ?a))  ; agent's hands are empty.", "(not (holdsAny ?a)) (forall (?x - object) (not (isOn ?x)))"),
        ),
        _replacing("the switch is told", (_LIGHT, _LIGHT.replace("istoggled", "ison"))),
        _replacing("other words", ('"take {o} from {r}"', '"grab {o} from {r}"'), ('"You pick up the', '"You grab the')),
        # Fewer details in the text, more in the rule of a command: it depends on the state.
        _replacing("a command that changes", ('"heat {o} with {r}"', '"heat [{r.name | opened(r:receptacle)}] {o}"')),
    )
}
