"""Facts of a game's state and conjunctive queries over them, with the answers in TextWorld's order.

Owns matching: for every condition of a query in turn the facts are tried sorted by their arguments, signatures in the order of the type
hierarchy, and two placeholders never stand for one thing. Knows nothing of text or planning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from envs.alfworld.translate import Fact

Placeholder = tuple[str, str]
"""Name and type."""

Mapped = dict[Placeholder, str]
"""What placeholders stand for."""

_Row = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Condition:
    """One condition of a query. ``signatures`` are the argument types it may match, in order."""

    predicate: str
    placeholders: tuple[Placeholder, ...]
    signatures: tuple[tuple[str, ...], ...]


Query = tuple[Condition, ...]


class Facts:
    """A set of facts that queries run over. ``kinds`` gives every entity's type."""

    def __init__(self, facts: Iterable[Fact], kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._rows: dict[tuple[str, _Row], set[_Row]] = {}
        self._sorted: dict[tuple[str, _Row], list[_Row]] = {}
        self._present: dict[Condition, list[tuple[str, _Row]]] = {}
        for fact in facts:
            self.toggle(fact)

    def toggle(self, fact: Fact) -> None:
        """Add a fact, or take it out if it is there."""
        kinds = self._kinds
        signature = fact[0], tuple([kinds[name] for name in fact[1]])
        rows = self._rows.get(signature)
        if rows is None:
            rows = self._rows[signature] = set()
            self._present.clear()
        if fact[1] in rows:
            rows.remove(fact[1])
        else:
            rows.add(fact[1])
        self._sorted.pop(signature, None)

    def any(self, query: Query, mapping: Mapped) -> bool:
        """Whether the query has an answer that extends ``mapping``."""
        return self._match(query, 0, dict(mapping), set(mapping.values()), lambda _: True)

    def all(self, query: Query, mapping: Mapped) -> list[Mapped]:
        """All answers that extend ``mapping``, in order."""
        found: list[Mapped] = []

        def keep(answer: Mapped) -> bool:
            found.append(dict(answer))
            return False

        self._match(query, 0, dict(mapping), set(mapping.values()), keep)
        return found

    def _match(self, query: Query, depth: int, mapping: Mapped, used: set[str], stop: Callable[[Mapped], bool]) -> bool:
        if depth == len(query):
            return stop(mapping)
        condition = query[depth]
        fresh = [place for place in condition.placeholders if place not in mapping]
        bound = tuple([mapping.get(place) for place in condition.placeholders])
        for signature in self._signatures(condition):
            for row in self._candidates(signature, bound):
                for place, value in zip(condition.placeholders, row, strict=True):
                    existing = mapping.get(place)
                    if existing is None:
                        if value in used:
                            break
                        mapping[place] = value
                        used.add(value)
                    elif existing != value:
                        break
                else:
                    if self._match(query, depth + 1, mapping, used, stop):
                        return True
                for place in fresh:
                    if (old := mapping.pop(place, None)) is not None:
                        used.discard(old)
        return False

    def _candidates(self, signature: tuple[str, _Row], bound: tuple[str | None, ...]) -> Iterable[_Row]:
        if None not in bound:
            return (bound,) if bound in self._rows[signature] else ()  # type: ignore[return-value]
        rows = self._sorted.get(signature)
        if rows is None:
            rows = self._sorted[signature] = sorted(self._rows[signature])
        for place, value in enumerate(bound):
            if value is not None:
                return [row for row in rows if row[place] == value]
        return rows

    def _signatures(self, condition: Condition) -> list[tuple[str, _Row]]:
        found = self._present.get(condition)
        if found is None:
            every = ((condition.predicate, kinds) for kinds in condition.signatures)
            found = self._present[condition] = [signature for signature in every if signature in self._rows]
        return found
