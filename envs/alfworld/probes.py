"""Fixed scripts of commands that touch all that variants change: the ground on which two worlds are compared.

Owns the scripts, which are made from the unperturbed games and are the same for every world.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from envs.alfworld.engine import Engine
from envs.alfworld.games import TASK_TYPES, AlfWorld
from envs.alfworld.oracle import APPLIANCES
from envs.alfworld.placement import placement
from envs.alfworld.problem import Facts, read_facts

_TOUR = 12
"""Receptacles visited at most."""
_TREATED = 4
"""Things treated in a tour at most."""
_CANDIDATES = 20
"""Games of a task type that are looked at."""


def probe_scripts(world: AlfWorld, game_ids: Sequence[str], games: int) -> list[tuple[str, list[str]]]:
    """``games`` games, each with two scripts: its stored plan, and a tour. Games are chosen for the kinds of things in them, so that as
    many kinds as possible are heated, cooled and put away in some tour, and for different task types."""
    by_type: dict[str, list[str]] = {}
    for game_id in sorted(game_ids):
        by_type.setdefault(world.info(game_id).task_type, []).append(game_id)
    candidates = [game_id for task_type in TASK_TYPES for game_id in by_type.get(task_type, [])[:_CANDIDATES]]
    facts = {game_id: read_facts(world.game(game_id).problem) for game_id in candidates}
    scripts: list[tuple[str, list[str]]] = []
    types: Counter[str] = Counter()
    treated: Counter[str] = Counter()

    def worth(game_id: str) -> tuple[int, int]:
        things = _treatable(facts[game_id], treated)
        return sum(not treated[facts[game_id].objects[thing]] for thing in things), -types[world.info(game_id).task_type]

    while candidates and len(scripts) < 2 * games:
        game_id = max(candidates, key=worth)
        candidates.remove(game_id)
        things = _treatable(facts[game_id], treated)
        scripts += [(game_id, list(world.info(game_id).walkthrough)), (game_id, tour(facts[game_id], things))]
        types[world.info(game_id).task_type] += 1
        treated.update(facts[game_id].objects[thing] for thing in things)
    return scripts


def tour(facts: Facts, things: Sequence[str]) -> list[str]:
    """Go to every kind of place, open it, go away and come back; treat ``things``, put them away and look at them; carry several; all in
    the words of the unperturbed world."""
    names = facts.names
    places = _places(facts)
    commands = ["inventory"]
    for place in places:
        commands += [f"go to {names[place]}", f"open {names[place]}", f"examine {names[place]}"]
    for place in places[:3]:
        commands += [f"go to {names[place]}", f"close {names[place]}"]
    for thing in things:
        at = facts.inside[thing][0]
        commands += [f"go to {names[at]}", f"open {names[at]}", f"take {names[thing]} from {names[at]}"]
        for treatment, kind in APPLIANCES.items():
            for appliance in facts.of_type(kind)[:1]:
                treat = f"{treatment} {names[thing]} with {names[appliance]}"
                commands += [f"go to {names[appliance]}", f"close {names[appliance]}", treat, f"open {names[appliance]}", treat]
        for kind in ("StoveBurner", "SinkBasin"):
            for other in facts.of_type(kind)[:1]:
                commands += [
                    f"go to {names[other]}",
                    f"heat {names[thing]} with {names[other]}",
                    f"cool {names[thing]} with {names[other]}",
                ]
        for oven in facts.of_type(APPLIANCES["heat"])[:1]:
            commands += [f"go to {names[oven]}", f"heat {names[thing]} with {names[oven]}"]
        for fridge in facts.of_type("Fridge")[:1]:
            put = f"move {names[thing]} to {names[fridge]}"
            again = f"take {names[thing]} from {names[fridge]}"
            commands += [f"go to {names[fridge]}", f"open {names[fridge]}", put, again, f"examine {names[thing]}", put]
    for thing in sorted((o for o in facts.traits["pickupable"] if facts.inside.get(o)), key=facts.order)[:4]:
        at = facts.inside[thing][0]
        commands += [f"go to {names[at]}", f"open {names[at]}", f"take {names[thing]} from {names[at]}", "inventory"]
    return commands


def replies(engine: Engine, scripts: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """The answers along the scripts, the first observations included; what stands after the end of a game counts too."""
    told = []
    for game_id, commands in scripts:
        play = engine.play(game_id)
        told.append(play.observation)
        told += [play.step(command)[0] for command in commands]
    return tuple(told)


def _places(facts: Facts) -> list[str]:
    """Receptacles by type in turn, ``_TOUR`` at most, so that every type is among them."""
    ordered = sorted(facts.receptacles, key=facts.order)
    rank = {r: sum(facts.receptacles[o] == facts.receptacles[r] for o in ordered[:i]) for i, r in enumerate(ordered)}
    return sorted(ordered, key=lambda r: (rank[r], facts.order(r)))[:_TOUR]


def _treatable(facts: Facts, treated: Mapping[str, int]) -> list[str]:
    """A few things that can be heated or cooled, of different kinds: those first of which fewest were ``treated`` so far. Cups and the like
    come last, as looking at them does not show what was done to them."""
    found: dict[str, str] = {}
    for thing in sorted(facts.traits["heatable"] | facts.traits["coolable"], key=facts.order):
        if facts.inside.get(thing) and thing in facts.traits["pickupable"]:
            found.setdefault(facts.objects[thing], thing)

    def rank(thing: str) -> tuple[int, bool]:
        return treated.get(facts.objects[thing], 0), placement().can("contain", facts.objects[thing])

    return sorted(found.values(), key=rank)[:_TREATED]
