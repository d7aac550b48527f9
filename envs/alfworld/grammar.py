"""TextWorld grammars in a form that can be derived quickly: parsed once by TextWorld, kept as plain data in the cache.

Owns parsing. A grammar is parsed with ``UNKNOWN GOAL.`` in place of the task sentence, so that all games share one parse. Knows nothing of
states; ``text.py`` derives.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.facts import Condition, Query
from envs.alfworld.games import UNKNOWN_GOAL
from envs.alfworld.sources import INSTALL, package_version

_FORMAT = "alfworld-grammar-1"
_PLAIN = re.compile(r"[A-Za-z0-9 ,.'-]+")
_CALL = re.compile(r"([A-Za-z_][A-Za-z0-9_@-]*)\(")

Types = Sequence[tuple[str, Sequence[str]]]
Symbol = tuple[Any, ...]
"""``("text", str)``, ``("rule", name)``, ``("value", code)``, ``("each", symbol, query or None)`` or ``("list", each)``."""


class Grammar:
    """A compiled grammar: production rules, and of every action its command and its feedback."""

    def __init__(self, data: Any) -> None:
        self.rules: dict[str, list[tuple[Query | None, tuple[Symbol, ...]]]] = {
            name: [(_query(condition), _symbols(symbols)) for condition, symbols in rules] for name, rules in data["rules"].items()
        }
        self.commands: dict[str, tuple[Symbol, ...]] = {name: _symbols(row[0]) for name, row in data["actions"].items()}
        self.feedback: dict[str, tuple[Symbol, ...]] = {name: _symbols(row[1]) for name, row in data["actions"].items()}
        self.intro = _symbols(data["intro"])
        self.predicates: frozenset[str] = frozenset(data["predicates"])
        """Names of facts that may be asked for, with ``not_`` where the grammar says so."""


class Grammars:
    """Compiled grammars by text; a few are kept in memory, all on disk."""

    def __init__(self, cache: Path, keep: int = 16) -> None:
        self._cache, self._keep = cache, keep
        self._memory: dict[str, Grammar] = {}

    def get(self, text: str, task: str, types: Types, game: str) -> Grammar:
        """The grammar of a game, with ``UNKNOWN GOAL.`` where ``task`` stood. Raises ``AlfWorldDataError`` for one that is none."""
        if _PLAIN.fullmatch(task):
            text = text.replace(f"Your task is to: {task}", f"Your task is to: {UNKNOWN_GOAL}", 1)
        label = json.dumps([_FORMAT, package_version("textworld"), types, text])
        digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        found = self._memory.pop(digest, None)
        if found is None:
            path = self._cache / "grammars" / f"{digest}.json"
            try:
                found = Grammar(json.loads(path.read_text()))
            except (OSError, ValueError, KeyError):
                data = parse(text, types, game)
                with contextlib.suppress(OSError):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    aside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
                    aside.write_text(json.dumps(data))
                    aside.replace(path)
                found = Grammar(json.loads(json.dumps(data)))
            if len(self._memory) >= self._keep:
                del self._memory[next(iter(self._memory))]
        self._memory[digest] = found
        return found


def parse(text: str, types: Types, game: str) -> dict[str, Any]:
    """A grammar as plain data, parsed by TextWorld (which takes seconds to import)."""
    try:
        from textworld.envs.pddl import logic, textgen
        from textworld.logic import Rule, Type, TypeHierarchy
    except ImportError as error:
        raise AlfWorldDataError(f"the package textworld[pddl] is not installed ({error})", hint=INSTALL) from None
    hierarchy = TypeHierarchy()
    for name, above in types:
        with contextlib.suppress(ValueError):
            hierarchy.add(Type(name, list(above)))

    def query(expression: str) -> Any:
        conditions = []
        for condition in Rule.parse_conjunctive_query(expression).preconditions:
            wanted = [hierarchy.get(name) for name in condition.signature.types]
            signatures = [[kind.name for kind in kinds] for kinds in hierarchy.multi_subtypes(wanted)]
            conditions.append([condition.name, [[place.name, place.type] for place in condition.parameters], signatures])
        return conditions

    def symbol(item: Any) -> list[Any]:
        if isinstance(item, textgen.TerminalSymbol):
            return ["text", item.symbol]
        if isinstance(item, textgen.NonterminalSymbol):
            return ["rule", item.symbol]
        if isinstance(item, textgen.EvalSymbol):
            return ["value", item.expression.strip()]
        if isinstance(item, textgen.ConditionalSymbol):
            return ["each", symbol(item.expression), query(item.given) if item.given else None]
        return ["list", symbol(item.symbol)]

    def symbols(start: str) -> list[Any]:
        # TextWorld's grammars offer no public way to parse a start text; a rule of that text is one.
        rules = textgen.ContextSensitiveGrammar.parse(json.dumps({"start": [{"rhs": start}]}))._rules["start"]
        return [symbol(item) for item in rules[0].rhs]

    try:
        parsed = logic.GameLogic(domain="", grammar=text)
        rules = {
            name: [[query(rule.condition) if rule.condition else None, [symbol(item) for item in rule.rhs]] for rule in alternatives]
            for name, alternatives in parsed.grammar._rules.items()
        }
        actions = {name: [symbols(action.template), symbols(action.feedback_rule)] for name, action in parsed.actions.items()}
        data = {"rules": rules, "actions": actions, "intro": symbols("#intro#"), "predicates": sorted(set(_CALL.findall(text)))}
        Grammar(json.loads(json.dumps(data)))
    except Exception as error:
        what = str(error).strip().splitlines() or [""]
        raise AlfWorldDataError(
            f"its grammar cannot be parsed: {type(error).__name__}: {what[0][:300]}", game=game, hint="Fetch or generate it again"
        ) from None
    return data


def _query(data: Any) -> Query | None:
    if data is None:
        return None
    return tuple(
        Condition(name, tuple((label, kind) for label, kind in places), tuple(tuple(kinds) for kinds in signatures))
        for name, places, signatures in data
    )


def _symbols(data: Iterable[Any]) -> tuple[Symbol, ...]:
    return tuple(_symbol(item) for item in data)


def _symbol(data: Any) -> Symbol:
    kind = data[0]
    if kind == "value":
        return ("value", _code(data[1]))
    if kind == "each":
        return ("each", _symbol(data[1]), _query(data[2]))
    if kind == "list":
        return ("list", _symbol(data[1]))
    return (kind, data[1])


def _code(expression: str) -> CodeType:
    return compile(expression, "<grammar>", "eval")
