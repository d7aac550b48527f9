"""The planner's shared library, loaded once per process: states of a translated game, applicable operators, goals.

``fast_downward.load_lib`` copies the library at every call and never gives the copy back, so one is shared by all games of a process;
``load`` switches it to another game in about a millisecond. Knows nothing of text.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

from envs.alfworld.errors import AlfWorldDataError
from envs.alfworld.sources import INSTALL

_GROW = 64


@dataclass(frozen=True, eq=False)
class Operator:
    """An applicable operator: its id in the loaded game, its name with arguments, and how many atoms applying it reports."""

    id: int
    name: str
    effects: int


class Library:
    """The library and what is loaded in it. Not safe to use from two threads at once: hold ``lock`` around a change and its questions."""

    def __init__(self) -> None:
        try:
            import fast_downward
        except ImportError:
            raise AlfWorldDataError("the package fast_downward_textworld is not installed", hint=INSTALL) from None
        self.lock = threading.RLock()
        self._operator, self._atom = fast_downward.Operator, fast_downward.Atom
        self._lib: Any = fast_downward.load_lib()
        self._operators, self._atoms = (self._operator * _GROW)(), (self._atom * _GROW)()
        self._loaded: object = None
        self.generation = 0
        """Counts loads: ids of states are valid within one."""

    def load(self, sas: bytes, owner: object) -> None:
        """Switch to a game, in its start state. ``owner`` stands for it in ``holds``."""
        self._loaded = None
        self.generation += 1
        self._lib.load_sas(sas)
        self._loaded = owner

    def forget(self) -> None:
        """Make the next question load its game again, after work that was broken off."""
        self._loaded = None

    def holds(self, owner: object) -> bool:
        """Whether the game of ``owner`` is the one that is loaded."""
        return self._loaded is owner

    @property
    def state(self) -> int:
        """Id of the current state; valid until the next load."""
        return int(self._lib.get_state_id())

    @state.setter
    def state(self, value: int) -> None:
        self._lib.set_state_id(value)

    def applicable(self, known: dict[int, Operator]) -> list[Operator]:
        """Operators applicable in the current state, in the library's order. New ones are added to ``known``, those in it are not read."""
        count = self._lib.get_applicable_operators_count()
        if count > len(self._operators):
            self._operators = (self._operator * (count + _GROW))()
        self._lib.get_applicable_operators(self._operators)
        found = []
        for place in range(count):
            raw = self._operators[place]
            operator = known.get(raw.id)
            if operator is None:
                operator = known[raw.id] = Operator(raw.id, raw.name, raw.nb_effect_atoms)
            found.append(operator)
        return found

    def apply(self, operator: Operator) -> list[str]:
        """Apply an operator to the current state. Texts of the atoms that it reports, for instance ``NegatedAtom opened(x)``."""
        if operator.effects > len(self._atoms):
            self._atoms = (self._atom * (operator.effects + _GROW))()
        self._lib.apply_operator(operator.id, self._atoms)
        return [self._atoms[place].name for place in range(operator.effects)]

    def won(self) -> bool:
        """Whether the goal holds in the current state."""
        return bool(self._lib.check_goal())

    def true_atoms(self) -> list[str]:
        """Texts of all atoms that hold in the current state and may change. Costs milliseconds."""
        atoms = (self._atom * self._lib.get_state_size())()
        self._lib.get_state(atoms)
        return [name for atom in atoms if not (name := atom.name).startswith("NegatedAtom")]


def parse_atom(text: str) -> tuple[bool, str, tuple[str, ...]]:
    """``(holds, predicate, arguments)`` of the library's text for an atom."""
    kind, _, rest = text.partition(" ")
    name, _, arguments = rest.partition("(")
    return kind != "NegatedAtom", name, tuple(argument for argument in arguments[:-1].split(", ") if argument)


@functools.cache
def shared_library() -> Library:
    """The library of this process. Raises ``AlfWorldDataError`` where its package is missing."""
    return Library()
