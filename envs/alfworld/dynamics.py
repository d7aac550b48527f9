"""Levers on the room: where things are done, where they lie, what doors do, how much one can carry.

Owns these edits, the rules that a plan must know in the edited game, and the words that would give the difference away. Knows nothing of
engines; that an edited game can still be won is checked by playing.

Things that behave otherwise are marked by a fact of their own (``odd``) in the problem, and the domain asks for that mark. So one edited
action serves all severities, and a game without any such thing is left exactly as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from envs.alfworld.edits import (
    Lever,
    Setting,
    edited,
    expect,
    first_of,
    how_many,
    in_action,
    treatable_kinds,
    treatable_objects,
    with_marks,
    with_predicate,
)
from envs.alfworld.games import Game
from envs.alfworld.oracle import APPLIANCES, Rules
from envs.alfworld.placement import placement
from envs.alfworld.problem import HEAT, facts_in, with_facts
from envs.variants import Variant


@dataclass(frozen=True)
class OtherAppliance(Lever):
    """Some types of objects are heated (cooled) at another kind of receptacle, and only there."""

    treatment: str
    action: str
    usual: str
    other: str

    def edit(self, at: Setting) -> Game:
        """The precondition asks for the other receptacle type where the object is odd."""
        odd = self._odd(at)
        if not odd:
            return at.game
        domain = in_action(
            with_predicate(at.game.domain, "odd ?o - object"),
            self.action,
            rf"\(or\s*\(receptacleType \?r {self.usual}Type\)\s*\)",
            f"(or (and (not (odd ?o)) (receptacleType ?r {self.usual}Type)) (and (odd ?o) (receptacleType ?r {self.other}Type)))",
        )
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd))

    def rules(self, at: Setting) -> Rules:
        """Where the odd things are treated."""
        return Rules(appliances={(self.treatment, thing): self.other for thing in self._odd(at)})

    def hint(self, variant: Variant) -> str:
        """Which things, and where."""
        things = _things(variant, treatable_kinds(variant, self.treatment), self.treatment)
        return f"Here {things} {_past(self.treatment)} with the {self.other.lower()}, not with the {self.usual.lower()}."

    def _odd(self, at: Setting) -> list[str]:
        if not at.facts.of_type(self.other):
            return []
        return treatable_objects(at.facts, treatable_kinds(at.variant, self.treatment), self.treatment)


class OpenAppliance(Lever):
    """Some types of objects are heated and cooled only while the appliance is open."""

    def edit(self, at: Setting) -> Game:
        """The preconditions ask for ``opened`` where the object is odd."""
        odd = self._odd(at)
        if not odd:
            return at.game
        domain = with_predicate(at.game.domain, "odd ?o - object")
        for action in ("HeatObject", "CoolObject"):
            domain = in_action(domain, action, r"\(holds \?a \?o\)", "(holds ?a ?o) (or (not (odd ?o)) (opened ?r))")
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd))

    def rules(self, at: Setting) -> Rules:
        """Which things need an open door."""
        return Rules(must_open=frozenset(self._odd(at)))

    def hint(self, variant: Variant) -> str:
        """Which things need an open door."""
        things = _things(variant, treatable_kinds(variant, "heat", "cool"), "heat", "cool")
        return f"Here the microwave or the fridge must stand open before {things} in it."

    def _odd(self, at: Setting) -> list[str]:
        return treatable_objects(at.facts, treatable_kinds(at.variant, "heat", "cool"), "heat", "cool")


class CoolingFridge(Lever):
    """Some types of objects get cold, and are no longer hot, when they are put into a fridge."""

    def edit(self, at: Setting) -> Game:
        """One more effect of putting. A game that asks for something hot in a fridge is left alone: it could not be won."""
        odd = treatable_objects(at.facts, treatable_kinds(at.variant, "cool"), "cool")
        if not odd or (at.goal.task_type == HEAT and at.goal.target == APPLIANCES["cool"]):
            return at.game
        domain = in_action(
            with_predicate(at.game.domain, "odd ?o - object"),
            "PutObject",
            r"\(inReceptacle \?o \?r\)",
            "(inReceptacle ?o ?r) (when (and (odd ?o) (receptacleType ?r FridgeType)) (and (isCool ?o) (not (isHot ?o))))",
        )
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd))

    def hint(self, variant: Variant) -> str:
        """Which things."""
        return f"Here {_things(variant, treatable_kinds(variant, 'cool'), 'cool')} cooled by being put into the fridge."


class Elsewhere(Lever):
    """Some types of objects live in another place than usual, the same in all rooms of a kind."""

    def edit(self, at: Setting) -> Game:
        """Moves the objects to a kind of receptacle that can hold them: never the goal's, for what the task asks for."""
        drop, add = [], []
        spelled = {name.lower(): name for _, arguments in facts_in(at.game.problem) for name in arguments}
        nested = {name.lower() for fact, arguments in facts_in(at.game.problem) if fact == "inReceptacleObject" for name in arguments}
        placed = [(f, a) for f, a in facts_in(at.game.problem) if f in ("inReceptacle", "objectAtLocation")]
        for thing, place in self._moves(at, nested).items():
            old = [" ".join([fact, *arguments]) for fact, arguments in placed if arguments[0].lower() == thing]
            new = [
                f"inReceptacle {spelled[thing]} {spelled[place]}",
                f"objectAtLocation {spelled[thing]} {spelled[at.facts.location[place]]}",
            ]
            if set(old) != set(new):
                drop += old
                add += new
        return edited(at.game, problem=with_facts(at.game.problem, add, drop)) if add else at.game

    def hint(self, variant: Variant) -> str:
        """Which things."""
        return (
            "Here many things lie in other places than usual."
            if variant.severity > 0.5
            else "Here some things lie in other places than usual."
        )

    def _moves(self, at: Setting, nested: Collection[str]) -> dict[str, str]:
        facts = at.facts
        moves: dict[str, str] = {}
        there = sorted(set(facts.receptacles.values()))
        for kind in sorted(at.chosen(_movable_kinds(), "kinds")):
            allowed = [r for r in there if (r, kind) in facts.holds and not (kind == at.goal.wanted and r == at.goal.target)]
            things = [thing for thing in facts.objects_of(kind) if facts.inside.get(thing) and thing not in nested]
            if not allowed or not things:
                continue
            # The order of preference is the variant's own; a room takes the first kind of receptacle that it has.
            home = first_of(at.variant, allowed, "home", kind)
            for thing in things:
                moves[thing] = first_of(at.variant, facts.of_type(home), "spot", str(at.game.scene), thing)
        return moves


class DoorsShut(Lever):
    """Some of a room's containers shut when one goes away."""

    def edit(self, at: Setting) -> Game:
        """One more effect of going."""
        odd = self._odd(at)
        if not odd:
            return at.game
        domain = in_action(
            with_predicate(at.game.domain, "odd ?r - receptacle"),
            "GotoLocation",
            r"\(atLocation \?a \?lEnd\)",
            "(atLocation ?a ?lEnd) (forall (?x - receptacle) (when (and (odd ?x) (receptacleAtLocation ?x ?lStart)) (not (opened ?x))))",
        )
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd))

    def rules(self, at: Setting) -> Rules:
        """Which containers shut."""
        return Rules(shutting=frozenset(self._odd(at)))

    def hint(self, variant: Variant) -> str:
        """How many."""
        return f"Here {how_many(variant)} containers shut when you go away."

    def _odd(self, at: Setting) -> list[str]:
        return sorted(at.chosen(at.facts.openable & set(at.facts.receptacles), "doors", str(at.game.scene)))


class DoorsOpen(Lever):
    """Some of a room's containers are open from the start."""

    def edit(self, at: Setting) -> Game:
        """Facts at the start."""
        odd = sorted(at.chosen(at.facts.openable & set(at.facts.receptacles), "doors", str(at.game.scene)) - at.facts.opened)
        if not odd:
            return at.game
        spelled = {name.lower(): name for _, arguments in facts_in(at.game.problem) for name in arguments}
        return edited(at.game, problem=with_facts(at.game.problem, [f"opened {spelled[name]}" for name in odd]))

    def hint(self, variant: Variant) -> str:
        """How many."""
        return f"Here {how_many(variant)} containers are open from the start."


class CarryMany(Lever):
    """Some types of objects can be picked up although something else is in hand."""

    def edit(self, at: Setting) -> Game:
        """Drops the empty hands from picking up odd things; the inventory lists whatever is held."""
        odd = treatable_objects(at.facts, at.chosen(_movable_kinds(), "kinds"))
        if not odd:
            return at.game
        domain = in_action(
            with_predicate(at.game.domain, "odd ?o - object"),
            "PickupObject",
            r"\(not \(holdsAny \?a\)\)",
            "(or (odd ?o) (not (holdsAny ?a)))",
        )
        old = '"condition": "holdsany(a:agent)"'
        expect(at.game.grammar.count(old) == 1, at.game, f"the grammar has {old!r} {at.game.grammar.count(old)} times")
        grammar = at.game.grammar.replace(old, '"condition": "holds(a:agent, o:object)"')
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd), grammar=grammar)

    def hint(self, variant: Variant) -> str:
        """Which things."""
        return "Here you can carry more than one thing." if variant.severity == 1.0 else "Here you can carry some things on top of others."


def _movable_kinds() -> list[str]:
    return sorted({kind for room in placement().rooms.values() for kind in room.placed})


def _things(variant: Variant, kinds: Iterable[str], *treatments: str) -> str:
    if variant.severity == 1.0:
        return "things are" if len(treatments) < 2 else "things are heated or cooled"
    named = ", ".join(sorted(kind.lower() for kind in kinds))
    return f"{named} are" if len(treatments) < 2 else f"{named} are heated or cooled"


def _past(treatment: str) -> str:
    return {"heat": "heated", "cool": "cooled"}[treatment]
