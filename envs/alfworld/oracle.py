"""A plan that solves a game, made from full knowledge of its facts and of the rules of its world.

Owns plans by script: fetch, treat, bring. Knows nothing of how a world came to its rules, and does not prove that a plan works: that is for
the engine to say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from envs.alfworld.problem import LOOK, TWO, Facts, Goal

APPLIANCES: Mapping[str, str] = {"heat": "Microwave", "cool": "Fridge", "clean": "SinkBasin"}
"""Receptacle type at which a thing is done, in the unperturbed world."""

_TRAITS = {"heat": "heatable", "cool": "coolable", "clean": "cleanable"}


def as_it_is(command: str) -> str:
    """A command in the words of the unperturbed world."""
    return command


@dataclass(frozen=True)
class Rules:
    """How a world works, as far as a plan must know. ``appliances`` overrides where things are done, by (treatment, object id);
    ``must_open`` objects are treated at open appliances only; ``shutting`` receptacles close when one leaves; ``say`` turns a command
    into this world's words."""

    appliances: Mapping[tuple[str, str], str] = field(default_factory=dict)
    must_open: frozenset[str] = frozenset()
    shutting: frozenset[str] = frozenset()
    say: Callable[[str], str] = as_it_is


class _Actor:
    """Somebody who walks through the room and notes the commands."""

    def __init__(self, facts: Facts, rules: Rules) -> None:
        self._facts, self._rules = facts, rules
        self._at = facts.start
        self._open = set(facts.opened)
        self.commands: list[str] = []

    def _do(self, command: str) -> None:
        self.commands.append(self._rules.say(command))

    def go(self, receptacle: str) -> None:
        place = self._facts.location[receptacle]
        if place == self._at:
            return
        self._open -= {r for r in self._open & self._rules.shutting if self._facts.location[r] == self._at}
        self._do(f"go to {self._facts.names[receptacle]}")
        self._at = place

    def open(self, receptacle: str) -> None:
        if receptacle in self._facts.openable and receptacle not in self._open:
            self._do(f"open {self._facts.names[receptacle]}")
            self._open.add(receptacle)

    def fetch(self, thing: str) -> None:
        receptacle = self._facts.inside[thing][0]
        self.go(receptacle)
        self.open(receptacle)
        self._do(f"take {self._facts.names[thing]} from {self._facts.names[receptacle]}")

    def treat(self, treatment: str, thing: str) -> bool:
        kind = self._rules.appliances.get((treatment, thing), APPLIANCES[treatment])
        here = self._facts.of_type(kind)
        if not here:
            return False
        self.go(here[0])
        if thing in self._rules.must_open:
            self.open(here[0])
        self._do(f"{treatment} {self._facts.names[thing]} with {self._facts.names[here[0]]}")
        return True

    def bring(self, thing: str, receptacle: str) -> None:
        self.go(receptacle)
        self.open(receptacle)
        self._do(f"move {self._facts.names[thing]} to {self._facts.names[receptacle]}")

    def use(self, lamp: str) -> None:
        self.go(self._facts.inside[lamp][0])
        self._do(f"use {self._facts.names[lamp]}")


def plans(facts: Facts, goal: Goal, rules: Rules | None = None) -> Iterator[list[str]]:
    """Candidate plans, the most plausible first; none where the room lacks what is needed. Deterministic."""
    rules = rules or Rules()
    things = [thing for thing in facts.objects_of(goal.wanted) if facts.inside.get(thing)]
    treatment = goal.treatment
    if treatment:
        things = [thing for thing in things if thing in facts.traits[_TRAITS[treatment]]]
    if goal.task_type == LOOK:
        lamps = [o for o, kind in facts.objects.items() if kind == goal.target and o in facts.traits["toggleable"] and facts.inside.get(o)]
        for thing, lamp in itertools.product(things, sorted(lamps, key=facts.order)):
            actor = _Actor(facts, rules)
            actor.fetch(thing)
            actor.use(lamp)
            yield actor.commands
        return
    targets = [r for r in facts.of_type(goal.target) if (goal.target, goal.wanted) in facts.holds]
    # What lies in the open is fetched first, and from where it has one place only.
    things.sort(key=lambda thing: (len(facts.inside[thing]) > 1, facts.receptacles.get(facts.inside[thing][0]) == goal.target))
    for target in targets:
        if goal.task_type == TWO:
            there = [thing for thing in things if target in facts.inside[thing]]
            others = [thing for thing in things if thing not in there]
            for chosen in itertools.combinations(others, max(1, 2 - len(there))):
                actor = _Actor(facts, rules)
                for thing in chosen:
                    actor.fetch(thing)
                    actor.bring(thing, target)
                yield actor.commands
            continue
        for thing in things:
            actor = _Actor(facts, rules)
            actor.fetch(thing)
            if treatment and not actor.treat(treatment, thing):
                continue
            actor.bring(thing, target)
            yield actor.commands
