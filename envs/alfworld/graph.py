"""The explored part of one game: situations and what commands do in them, each asked of the library once.

A situation is what can still make a difference: the facts that a command, the goal or a text may ask for, as a difference from the start.
Facts that nothing asks for (what was looked at, for instance) do not tell situations apart. Stored are operators and texts, no engine
objects. Knows nothing of files or caches.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass

from envs.alfworld.facts import Facts
from envs.alfworld.grammar import Grammar
from envs.alfworld.library import Library, Operator, parse_atom
from envs.alfworld.text import Words
from envs.alfworld.translate import Fact, Translation

NOTHING = "Nothing happens."
"""The answer to every text that is not exactly one of the admissible commands."""

_Key = tuple[frozenset[Fact], int | None]


class Situation:
    """A node of the graph. ``admissible`` is sorted; ``won`` says whether the goal holds here."""

    __slots__ = ("_edges", "_from", "_generation", "_key", "_operators", "_state", "_through", "admissible", "won")

    def __init__(self, key: _Key, before: Situation | None, through: Operator | None, offer: _Offer, won: bool) -> None:
        self._key, self._from, self._through, self.won = key, before, through, won
        self.admissible, self._operators = offer.commands, offer.operators
        self._edges: dict[str, tuple[str, Situation]] = {}
        self._state, self._generation = -1, -1


@dataclass(frozen=True)
class _Offer:
    """Commands of a situation, sorted, and the operator of each. Situations that offer the same share one."""

    commands: tuple[str, ...]
    operators: tuple[Operator, ...]


class Graph:
    """The situations of one game. ``limit`` bounds how many are kept; when it is reached the graph starts anew."""

    def __init__(
        self, translation: Translation, grammar: Grammar, task: str, goal_mark: str, game: str, library: Library, limit: int
    ) -> None:
        self._sas, self._library, self._limit = translation.sas, library, limit
        self._task, self._mark = task, goal_mark
        self._words = Words(translation, grammar, game)
        self._observed = translation.relevant | grammar.predicates
        self._relevant, self._conditional = translation.relevant, translation.conditional
        self._asked, self._kinds = grammar.predicates, translation.entities
        self._start_facts = frozenset(fact for fact in translation.facts if fact[0] in self._observed)
        self._at: frozenset[Fact] = frozenset()
        self._facts = self._fresh_facts()
        self._operators: dict[int, Operator] = {}
        self._commands: dict[int, str] = {}
        self._situations: dict[_Key, Situation] = {}
        self._offers: dict[tuple[Operator, ...], _Offer] = {}
        self.misses = 0
        with library.lock:
            self._load()
            self.start = self._situation((frozenset(), None), None, None)
            self.intro = self._say(self._words.intro(self._facts))

    def __len__(self) -> int:
        return len(self._situations)

    @property
    def size(self) -> int:
        """Bytes that the graph holds, estimated from its counts and texts."""
        edges = sum(len(node._edges) for node in self._situations.values())
        texts = sum(sys.getsizeof(command) for command in self._commands.values())
        answers = sum(sys.getsizeof(text) for node in self._situations.values() for text, _ in node._edges.values())
        facts = sum(sys.getsizeof(key[0]) for key in self._situations)
        offers = sum(16 * len(offer.commands) + 200 for offer in self._offers.values())
        return len(self._sas) + 600 * len(self._situations) + 120 * edges + texts + answers + facts + offers + 400 * len(self._operators)

    def step(self, at: Situation, command: str) -> tuple[str, Situation]:
        """What a command is answered with in a situation, and the situation after it."""
        command = command.strip()
        known = at._edges.get(command)
        if known is not None:
            return known
        try:
            operator = at._operators[at.admissible.index(command)]
        except ValueError:
            return NOTHING, at
        with self._library.lock:
            try:
                found = at._edges[command] = self._explore(at, operator)
            except BaseException:
                self._library.forget()
                self._at, self._facts = frozenset(), self._fresh_facts()
                raise
        return found

    def operator_command(self, at: Situation, name: str) -> str | None:
        """The command that stands for an operator's name in a situation, if it can be given there."""
        return next((command for command, operator in zip(at.admissible, at._operators, strict=True) if operator.name == name), None)

    def _explore(self, at: Situation, operator: Operator) -> tuple[str, Situation]:
        self.misses += 1
        self._restore(at)
        difference = set(at._key[0])
        for text in self._library.apply(operator):
            holds, predicate, arguments = parse_atom(text)
            positive, negative = (predicate, arguments), ("not_" + predicate, arguments)
            self._set(difference, positive, holds)
            self._set(difference, negative, not holds)
        token = at._key[1]
        if token is not None or operator.name.partition(" ")[0] in self._conditional:
            token = self._token()
        key = (frozenset(difference), token)
        self._move(key[0])
        after = self._situations.get(key)
        if after is None:
            after = self._situation(key, at, operator)
        elif after._generation != self._library.generation:
            after._state, after._generation = self._library.state, self._library.generation
        return self._say(self._words.answer(operator.name, self._facts)), after

    def _set(self, difference: set[Fact], fact: Fact, holds: bool) -> None:
        if fact[0] in self._observed:
            if holds == (fact in self._start_facts):
                difference.discard(fact)
            else:
                difference.add(fact)

    def _token(self) -> int:
        """Stands for the library's own state, which reported effects do not determine where effects depend on the state."""
        held = [text for text in self._library.true_atoms() if parse_atom(text)[1] in self._relevant]
        return hash(frozenset(held))

    def _situation(self, key: _Key, before: Situation | None, through: Operator | None) -> Situation:
        """The situation of the library's current state, new."""
        if len(self._situations) >= self._limit:
            self._situations.clear()
            self._offers.clear()
            self.start._edges.clear()
            self._situations[self.start._key] = self.start
        node = Situation(key, before, through, self._offer(), self._library.won())
        node._state, node._generation = self._library.state, self._library.generation
        self._situations[key] = node
        return node

    def _offer(self) -> _Offer:
        commands: dict[str, Operator] = {}
        operators = self._library.applicable(self._operators)
        for operator in operators:
            commands.setdefault(self._command(operator), operator)
        ordered = tuple(sorted(commands))
        chosen = tuple(commands[command] for command in ordered)
        found = self._offers.get(chosen)
        if found is None or found.commands != ordered:
            found = self._offers[chosen] = _Offer(ordered, chosen)
        return found

    def _command(self, operator: Operator) -> str:
        found = self._commands.get(operator.id)
        if found is None:
            found = self._words.command(operator.name, self._facts)
            if self._words.fixed(operator.name):
                self._commands[operator.id] = found
        return found

    def _say(self, text: str) -> str:
        return text.replace(self._mark, self._task) if self._mark in text else text

    def _fresh_facts(self) -> Facts:
        """The facts at the start that a text may ask for."""
        return Facts((fact for fact in self._start_facts if fact[0] in self._asked), self._kinds)

    def _move(self, difference: frozenset[Fact]) -> None:
        for fact in self._at ^ difference:
            if fact[0] in self._asked:
                self._facts.toggle(fact)
        self._at = difference

    def _load(self) -> None:
        self._library.load(zlib.decompress(self._sas), self)

    def _restore(self, at: Situation) -> None:
        """Bring the library into a situation."""
        library = self._library
        if not library.holds(self):
            self._load()
            self.start._state, self.start._generation = library.state, library.generation
        path = []
        node = at
        while node._generation != library.generation:
            path.append(node)
            assert node._from is not None
            node = node._from
        if library.state != node._state:
            library.state = node._state
        for node in reversed(path):
            assert node._through is not None
            library.apply(node._through)
            node._state, node._generation = library.state, library.generation
