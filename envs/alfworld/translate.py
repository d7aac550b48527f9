"""From PDDL to what the planner's library loads, once per text and machine.

The unmodified engine translates a game four times (at load and at reset, each plain and for the planner). Here the plain translation is
made once and kept in the cache, keyed by the text. Knows nothing of grammars or play.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import struct
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.library import Library, parse_atom
from envs.alfworld.sources import package_version

_FORMAT = "alfworld-sas-3"
_LENGTH = struct.Struct("<Q")
Fact = tuple[str, tuple[str, ...]]
"""Predicate and arguments."""


@dataclass(frozen=True)
class Translation:
    """A translated game.

    ``sas`` is the compressed task for the library; ``types`` are the domain's types with their supertypes, ``entities`` the type of every
    object by name, ``parameters`` those of an action as (name, type), ``facts`` what holds at the start. ``relevant`` are the predicates
    that decide what can be done and whether the game is won; ``conditional`` are actions with effects that depend on the state.
    """

    sas: bytes
    types: tuple[tuple[str, tuple[str, ...]], ...]
    entities: dict[str, str]
    parameters: dict[str, tuple[tuple[str, str], ...]]
    facts: tuple[Fact, ...]
    relevant: frozenset[str]
    conditional: frozenset[str]
    fluent: frozenset[str]

    def dump(self) -> bytes:
        """The translation as bytes, compressed."""
        row = {
            "types": self.types,
            "entities": self.entities,
            "parameters": self.parameters,
            "facts": self.facts,
            "relevant": sorted(self.relevant),
            "conditional": sorted(self.conditional),
            "fluent": sorted(self.fluent),
            "check": zlib.crc32(self.sas),
        }
        head = zlib.compress(json.dumps(row, separators=(",", ":")).encode(), 3)
        return _LENGTH.pack(len(head)) + head + self.sas

    @classmethod
    def parse(cls, data: bytes) -> Translation:
        """The translation that ``dump`` wrote. Raises ``ValueError`` or ``KeyError`` for other bytes."""
        if len(data) < _LENGTH.size:
            raise ValueError("cut short")
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        row = json.loads(zlib.decompress(data[_LENGTH.size : end]))
        if row["check"] != zlib.crc32(data[end:]):
            raise ValueError("damaged")
        return cls(
            data[end:],
            tuple((name, tuple(above)) for name, above in row["types"]),
            row["entities"],
            {name: tuple((label, kind) for label, kind in parameters) for name, parameters in row["parameters"].items()},
            tuple((name, tuple(arguments)) for name, arguments in row["facts"]),
            frozenset(row["relevant"]),
            frozenset(row["conditional"]),
            frozenset(row["fluent"]),
        )


def translation(domain: str, problem: str, library: Library, cache: Path, game: str) -> Translation:
    """The translation of a game's text, from the cache or made and put there.

    Raises ``AlfWorldDataError`` naming ``game`` for text that is no PDDL or a goal that no state meets."""
    label = "\x1f".join((_FORMAT, package_version("fast_downward_textworld"), domain, problem))
    digest = hashlib.sha256(label.encode("utf-8", "surrogatepass")).hexdigest()
    path = cache / "translated" / digest[:2] / digest[2:34]
    with contextlib.suppress(OSError, ValueError, KeyError, zlib.error):
        return Translation.parse(path.read_bytes())
    made = translate(domain, problem, library, game)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        aside.write_bytes(made.dump())
        aside.replace(path)
    return made


def translate(domain: str, problem: str, library: Library, game: str) -> Translation:
    """Translate a game's text. ``sys.argv`` and what other threads print stay as they are."""
    said = io.StringIO()
    with library.lock:
        try:
            with _quiet(said):
                task, sas = _pddl_to_sas(domain, problem)
        except (Exception, SystemExit) as error:
            raise AlfWorldDataError(
                f"its PDDL cannot be translated: {type(error).__name__}: {error}", game=game, hint="Fetch or generate it again"
            ) from None
        if "unsolvable task" in said.getvalue():
            raise AlfWorldDataError("it cannot be won: no sequence of commands reaches its goal", game=game, hint="Leave it out")
        owner = object()
        library.load(sas, owner)
        derived = [parse_atom(text)[1:] for text in library.true_atoms() if "@" in text]
    relevant, conditional, fluent = _relevance(task)
    return Translation(
        zlib.compress(sas, 6),
        tuple((kind.name, tuple(kind.supertype_names)) for kind in task.types),
        {item.name: item.type_name for item in task.objects},
        {action.name: tuple((item.name.strip("?"), item.type_name) for item in action.parameters) for action in task.actions},
        tuple(dict.fromkeys([*_start_facts(task), *derived])),
        relevant,
        conditional,
        fluent,
    )


def _pddl_to_sas(domain: str, problem: str) -> tuple[Any, bytes]:
    from fast_downward.translate import normalize, options, translate
    from fast_downward.translate.pddl_parser import lisp_parser, parsing_functions

    options.filter_unimportant_vars = False
    options.filter_unreachable_facts = False
    options.use_partial_encoding = False
    options.skip_variable_reordering = True
    options.add_implied_preconditions = False
    options.invariant_generation_max_candidates = 0
    task = parsing_functions.parse_task(
        lisp_parser.parse_nested_list(domain.split("\n")), lisp_parser.parse_nested_list(problem.split("\n"))
    )
    normalize.normalize(task)
    text = io.StringIO()
    translate.pddl_to_sas(task).output(text)
    return task, text.getvalue().encode()


def _start_facts(task: Any) -> Iterator[Fact]:
    for item in task.init:
        if hasattr(item, "predicate"):
            if item.predicate != "=":
                yield item.predicate, tuple(item.args)
        elif item.fluent.symbol != "total-cost" and not str(item.expression.value).isdigit():
            yield str(item.expression.value), tuple(item.fluent.args)


def _relevance(task: Any) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Predicates that decide what can be done or won; actions whose effects on those depend on the state; predicates that change."""
    effects = [(action.name, effect) for action in task.actions for effect in action.effects]
    fluent = {effect.literal.predicate for _, effect in effects} | {axiom.name for axiom in task.axioms}
    relevant = set(_predicates([*(action.precondition for action in task.actions), *(axiom.condition for axiom in task.axioms), task.goal]))
    size = -1
    while size != len(relevant):
        size = len(relevant)
        relevant.update(_predicates(effect.condition for _, effect in effects if effect.literal.predicate in relevant))
    conditional = {
        name for name, effect in effects if effect.literal.predicate in relevant and fluent.intersection(_predicates([effect.condition]))
    }
    return frozenset(relevant), frozenset(conditional), frozenset(fluent)


def _predicates(conditions: Iterable[Any]) -> Iterator[str]:
    for condition in conditions:
        if hasattr(condition, "predicate"):
            yield condition.predicate
        yield from _predicates(condition.parts)


@contextlib.contextmanager
def _quiet(sink: TextIO) -> Iterator[None]:
    """Send what this thread prints to ``sink`` and hide ``sys.argv``, which the translator reads when it is first imported."""
    argv, stdout = sys.argv, sys.stdout
    sys.argv = ["translate.py", "domain", "task"]
    sys.stdout = _Split(stdout, sink, threading.get_ident())
    try:
        yield
    finally:
        sys.argv = argv
        if isinstance(sys.stdout, _Split):
            sys.stdout = stdout


class _Split:
    """A standard output that takes one thread's words aside."""

    def __init__(self, stdout: TextIO, sink: TextIO, thread: int) -> None:
        self._stdout, self._sink, self._thread = stdout, sink, thread

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink if threading.get_ident() == self._thread else self._stdout, name)
