"""The words of a game: names of its things, commands of operators, and what an action is answered with.

Derives a compiled grammar over facts exactly as TextWorld derives the parsed one. Knows nothing of planning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.facts import Facts, Mapped
from envs.alfworld.grammar import Grammar, Symbol
from envs.alfworld.translate import Translation

_DEPTH = 200


class Thing:
    """Something that a grammar can speak of, with TextWorld's names for its attributes."""

    __slots__ = ("adj", "definite", "desc", "id", "indefinite", "name", "noun", "room_type", "synonyms", "type")

    def __init__(self, id: str, type: str, name: str) -> None:
        self.id, self.type, self.name = id, type, name
        self.definite, self.indefinite = "the", "a"
        self.noun = self.adj = self.desc = self.synonyms = self.room_type = None

    def __str__(self) -> str:
        return self.name


def shown_names(ids: Iterable[str]) -> dict[str, str]:
    """ALFWorld's names: the kind before the first ``_bar_``, ``basin`` added where the id has it, and a number that runs downward over the
    sorted ids of a kind. An id without ``_bar_`` is shown as it is, with a blank after it."""
    ordered = sorted(ids)
    kinds: dict[str, str | None] = {}
    for item in ordered:
        before, bar, _ = item.partition("_bar_")
        kinds[item] = (f"{before}basin" if "basin" in item else before) if bar else None
    left = Counter(kind for kind in kinds.values() if kind is not None)
    names = {}
    for item, kind in kinds.items():
        if kind is None:
            names[item] = f"{_plain(item)} "
        else:
            names[item] = f"{_plain(kind)} {left[kind]}"
            left[kind] -= 1
    return names


def _plain(text: str) -> str:
    for mark, sign in (("_minus_", "-"), ("_plus_", "+"), ("_dot_", "."), ("_comma_", ",")):
        text = text.replace(mark, sign)
    return text


class Words:
    """The words of one game."""

    def __init__(self, translation: Translation, grammar: Grammar, game: str) -> None:
        named = dict.fromkeys(name for _, arguments in translation.facts for name in arguments)
        names = shown_names(named)
        self._things: dict[str, Thing] = {name: Thing(name, translation.entities[name], names[name]) for name in named}
        self._kinds: Mapping[str, str] = translation.entities
        self._parameters = translation.parameters
        self._grammar = grammar
        self._game = game
        self._fixed = {name for name, symbols in grammar.commands.items() if not _asks(symbols, translation.fluent)}

    def fixed(self, operator: str) -> bool:
        """Whether the command of an operator is the same in every state."""
        return operator.partition(" ")[0] in self._fixed

    def command(self, operator: str, facts: Facts) -> str:
        """The command that stands for an operator (its name and arguments)."""
        name, mapping, things = self._context(operator)
        return self._derive(self._action(self._grammar.commands, name), facts, mapping, things)

    def answer(self, operator: str, facts: Facts) -> str:
        """What the world says after an operator, with the facts that then hold."""
        name, mapping, things = self._context(operator)
        return self._derive(self._action(self._grammar.feedback, name), facts, mapping, things)

    def intro(self, facts: Facts) -> str:
        """The first observation."""
        return self._derive(self._grammar.intro, facts, {}, {})

    def _action(self, table: Mapping[str, Sequence[Symbol]], name: str) -> Sequence[Symbol]:
        try:
            return table[name]
        except KeyError:
            raise AlfWorldDataError(f"the domain's action {name!r} is not in the grammar", game=self._game) from None

    def _context(self, operator: str) -> tuple[str, Mapped, dict[str, Thing]]:
        name, *arguments = operator.split()
        mapping: Mapped = {}
        things: dict[str, Thing] = {}
        for place, value in zip(self._parameters[name], arguments, strict=False):
            # A parameter of a wider type than its value matches no fact, since TextWorld compares types too.
            mapping[place] = value if self._kinds.get(value) == place[1] else f"{value}: {place[1]}"
            things[place[0]] = self._thing(value)
        return name, mapping, things

    def _thing(self, name: str) -> Thing:
        try:
            return self._things[name]
        except KeyError:
            raise AlfWorldDataError(f"{name!r} occurs in no fact of the start, so it has no name", game=self._game) from None

    def _derive(self, symbols: Iterable[Symbol], facts: Facts, mapping: Mapped, things: dict[str, Thing]) -> str:
        out: list[str] = []
        for symbol in symbols:
            self._add(symbol, facts, mapping, things, out, 0)
        return "".join(out)

    def _add(self, symbol: Symbol, facts: Facts, mapping: Mapped, things: dict[str, Thing], out: list[str], depth: int) -> None:
        kind = symbol[0]
        if kind == "text":
            out.append(symbol[1])
        elif kind == "value":
            out.append(str(eval(symbol[1], {}, things)))
        elif kind == "rule":
            if depth > _DEPTH:
                raise AlfWorldDataError(f"the grammar's rule {symbol[1]!r} does not end", game=self._game)
            for part in self._rule(symbol[1], facts, mapping):
                self._add(part, facts, mapping, things, out, depth + 1)
        elif kind == "each":
            for answer, named in self._answers(symbol, facts, mapping, things):
                self._add(symbol[1], facts, answer, named, out, depth + 1)
        else:
            self._list(symbol[1], facts, mapping, things, out, depth)

    def _rule(self, name: str, facts: Facts, mapping: Mapped) -> tuple[Symbol, ...]:
        for condition, symbols in self._grammar.rules.get(name, ()):
            if condition is None or facts.any(condition, mapping):
                return symbols
        raise AlfWorldDataError(f"the grammar has no rule {name!r} that applies", game=self._game)

    def _answers(self, symbol: Symbol, facts: Facts, mapping: Mapped, things: dict[str, Thing]) -> list[tuple[Mapped, dict[str, Thing]]]:
        if symbol[2] is None:
            return [(mapping, things)]
        found = []
        for answer in facts.all(symbol[2], mapping):
            names = {place[0]: self._thing(value.partition(": ")[0]) for place, value in answer.items()}
            found.append((answer, {**things, **names}))
        return found

    def _list(self, symbol: Symbol, facts: Facts, mapping: Mapped, things: dict[str, Thing], out: list[str], depth: int) -> None:
        answers = self._answers(symbol, facts, mapping, things)
        if not answers:
            self._add(("rule", "list_empty"), facts, mapping, things, out, depth)
        for place, (answer, named) in enumerate(answers):
            if place:
                separator = "list_last_separator" if place == len(answers) - 1 else "list_separator"
                self._add(("rule", separator), facts, mapping, things, out, depth)
            self._add(symbol[1], facts, answer, named, out, depth + 1)


def _asks(symbols: Iterable[Symbol], fluent: frozenset[str]) -> bool:
    """Whether symbols ask for facts that may change, or use rules, which may."""
    for symbol in symbols:
        if symbol[0] == "rule":
            return True
        if symbol[0] in ("each", "list") and (_asks((symbol[1],), fluent) or _query_changes(symbol, fluent)):
            return True
    return False


def _query_changes(symbol: Symbol, fluent: frozenset[str]) -> bool:
    return symbol[0] == "each" and symbol[2] is not None and any(c.predicate.removeprefix("not_") in fluent for c in symbol[2])
