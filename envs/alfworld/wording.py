"""Levers on words: what commands are called and what their answers tell.

Owns these edits, which change the grammar and not what is possible, except that what a word stands for may be another thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from envs.alfworld.edits import (
    Lever,
    Setting,
    edited,
    expect,
    first_share,
    how_many,
    treatable_kinds,
    treatable_objects,
    with_marks,
    with_predicate,
)
from envs.alfworld.games import Game
from envs.alfworld.oracle import Rules
from envs.variants import Variant


class SwappedWords(Lever):
    """For some types of objects ``heat`` cools and ``cool`` heats."""

    def edit(self, at: Setting) -> Game:
        """The words of the two commands come from rules that ask whether the object is odd."""
        odd = self._odd(at)
        if not odd:
            return at.game
        grammar = at.game.grammar
        for word, other in _SWAP.items():
            command, rules = f'template :: "{word} {{o}} with {{r}}";', f'"{word}Object.feedback": ['
            for text in (command, rules):
                expect(grammar.count(text) == 1, at.game, f"the grammar has {text!r} {grammar.count(text)} times")
            choice = f'"{word}Object.word": [ {{ "condition": "odd(o:object)", "rhs": "{other}" }}, {{ "rhs": "{word}" }} ],'
            grammar = grammar.replace(command, f'template :: "#{word}Object.word# {{o}} with {{r}}";').replace(rules, f"{choice} {rules}")
        domain = with_predicate(at.game.domain, "odd ?o - object")
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd), grammar=grammar)

    def rules(self, at: Setting) -> Rules:
        """The other word, for the odd things."""
        names = frozenset(at.facts.names[thing] for thing in self._odd(at))

        def say(command: str) -> str:
            word, _, rest = command.partition(" ")
            return f"{_SWAP[word]} {rest}" if word in _SWAP and rest.partition(" with ")[0] in names else command

        return Rules(say=say)

    def hint(self, variant: Variant) -> str:
        """Which words, and for what."""
        things = "" if variant.severity == 1.0 else f"for {', '.join(sorted(k.lower() for k in treatable_kinds(variant, *_SWAP)))} "
        return f"Here {things}heat means cool and cool means heat."

    def _odd(self, at: Setting) -> list[str]:
        return treatable_objects(at.facts, treatable_kinds(at.variant, *_SWAP), *_SWAP)


_SWAP: Mapping[str, str] = {"heat": "cool", "cool": "heat"}


RENAMED: Mapping[str, str] = {
    "go to": "walk to",
    "open": "unlatch",
    "close": "shut",
    "take": "grab",
    "move": "place",
    "use": "switch",
    "heat": "warm",
    "clean": "wash",
    "cool": "chill",
}
"""Words of commands, and others for them. Looking, examining, slicing and help keep theirs."""


class RenamedWords(Lever):
    """Some commands have another word; the list of admissible commands and ``help`` show it at once."""

    def edit(self, at: Setting) -> Game:
        """Changes templates and the help text."""
        grammar = at.game.grammar
        for old in self._odd(at.variant):
            pattern = rf'template :: "{old} '
            found = grammar.count(pattern)
            expect(found > 0, at.game, f"the grammar has no {pattern!r}")
            grammar = grammar.replace(pattern, f'template :: "{RENAMED[old]} ')
            grammar = re.sub(rf"(?<=\\n)  {old} (?=\()", f"  {RENAMED[old]} ", grammar)
        return edited(at.game, grammar=grammar)

    def rules(self, at: Setting) -> Rules:
        """The other words."""
        return Rules(say=_renaming(self._odd(at.variant)))

    def hint(self, variant: Variant) -> str:
        """Which words."""
        return "Here one says " + ", ".join(f"{RENAMED[old]} for {old}" for old in self._odd(variant)) + "."

    def _odd(self, variant: Variant) -> list[str]:
        taken = first_share(variant, RENAMED, "word")
        return [word for word in RENAMED if word in taken]


class SilentArrival(Lever):
    """Going to some of a room's receptacles does not show what is there; examining does."""

    def edit(self, at: Setting) -> Game:
        """One more rule for the text of going."""
        odd = sorted(at.chosen(at.facts.receptacles, "silent", str(at.game.scene)))
        if not odd:
            return at.game
        old = re.compile(r'("GotoLocation\.feedback":\s*\[)')
        grammar, found = old.subn(r'\1 { "condition": "odd(r:receptacle)", "rhs": "You arrive at {r.name}." },', at.game.grammar)
        expect(found == 1, at.game, f"the grammar has {found} rules for GotoLocation.feedback")
        domain = with_predicate(at.game.domain, "odd ?r - receptacle")
        return edited(at.game, domain=domain, problem=with_marks(at.game.problem, odd), grammar=grammar)

    def hint(self, variant: Variant) -> str:
        """How many."""
        return f"Here you do not see what is at {how_many(variant)} places until you examine or open them."


_TERSE: Mapping[str, str] = {
    '"rhs": "You pick up the {o.name} from the {r.name}."': "take",
    '"rhs": "You move the {o.name} to the {r.name}."': "move",
    '"rhs": "You close the {r.name}."': "close",
    '"rhs": "You turn on the {o.name}."': "use",
    '"rhs": "You heat the {o.name} using the {r.name}."': "heat",
    '"rhs": "You clean the {o.name} using the {r.name}."': "clean",
    '"rhs": "You cool the {o.name} using the {r.name}."': "cool",
}


class TerseFeedback(Lever):
    """Some commands are answered by ``Done.`` alone."""

    def edit(self, at: Setting) -> Game:
        """Rewrites answers."""
        grammar = at.game.grammar
        for old in self._odd(at.variant):
            expect(grammar.count(old) == 1, at.game, f"the grammar has {old!r} {grammar.count(old)} times")
            grammar = grammar.replace(old, '"rhs": "Done."')
        return edited(at.game, grammar=grammar)

    def hint(self, variant: Variant) -> str:
        """Which commands."""
        return "Here the answer to " + ", ".join(_TERSE[old] for old in self._odd(variant)) + " is only that it is done."

    def _odd(self, variant: Variant) -> list[str]:
        taken = first_share(variant, _TERSE.values(), "terse")
        return [rule for rule, word in _TERSE.items() if word in taken]


def _renaming(words: Sequence[str]) -> Callable[[str], str]:
    def say(command: str) -> str:
        for word in words:
            if command.startswith(f"{word} "):
                return RENAMED[word] + command.removeprefix(word)
        return command

    return say
