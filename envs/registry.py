"""Names for what may come from outside the package: one registry per kind of extension.

Owns names, what they stand for and who brought them. Finding and importing the modules that register things is ``envs.plugins``'s.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")

NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")

REGISTRIES: list[Registry[Any]] = []
"""All registries of this process, in the order in which they were made."""

_importing: list[str] = []
_changes = 0


class RegistryError(ValueError):
    """A name cannot be given, or stands for nothing that fits. The message names kind, name and what to do."""


@contextlib.contextmanager
def importing(plugin: str) -> Iterator[None]:
    """Within the block, what is registered counts as brought by ``plugin``."""
    _importing.append(plugin)
    try:
        yield
    finally:
        _importing.pop()


def changes() -> int:
    """Grows whenever a name is added or removed anywhere: lets what is made from names be kept until then."""
    return _changes


class Registry(Generic[T]):
    """Things of one ``kind`` by name.

    A thing may be given as ``"package.module:attribute"``, which is imported at first use: ``own`` are the package's, as such texts.
    """

    def __init__(self, kind: str, own: Mapping[str, str | T], form: re.Pattern[str] = NAME) -> None:
        self.kind, self._form = kind, form
        self.own = tuple(own)
        self.origins: dict[str, str] = {}
        """Plug-in or module that brought a name from outside."""
        self._things: dict[str, str | T] = dict(own)
        REGISTRIES.append(self)

    def add(self, name: str, thing: str | T) -> None:
        """Give ``thing`` a name. The same thing may be added again, for instance when its module is imported anew.

        Raises ``RegistryError`` for a name that is taken or is none.
        """
        global _changes
        if not isinstance(name, str) or not self._form.fullmatch(name):
            raise RegistryError(f"{self.kind} {name!r}: a name has small letters, digits, _ and -, and begins with a letter")
        if name in self._things and (name in self.own or not _same(self._things[name], thing)):
            by = "this package" if name in self.own else self.origins[name]
            raise RegistryError(f"{self.kind} {name!r} is taken (by {by}); choose another name")
        self._things[name] = thing
        self.origins[name] = _importing[-1] if _importing else _module(thing)
        _changes += 1

    def remove(self, name: str) -> None:
        """Forget a name from outside."""
        global _changes
        if self.origins.pop(name, None) is not None:
            del self._things[name]
            _changes += 1

    def names(self) -> tuple[str, ...]:
        """Known names in alphabetical order, those of installed plug-ins included."""
        from envs.plugins import load_installed

        load_installed()
        return tuple(sorted(self._things))

    def get(self, name: str) -> T:
        """What ``name`` stands for. Raises ``RegistryError`` with the nearest known name for an unknown one."""
        known = self.names()
        if name not in self._things:
            raise RegistryError(f"unknown {self.kind} {name!r} (known: {', '.join(known)}){nearest(name, known)}{not_imported()}")
        thing = self._things[name]
        if isinstance(thing, str):
            module, _, attribute = thing.partition(":")
            found: T = getattr(importlib.import_module(module), attribute)
            return found
        return thing


def nearest(name: str, known: tuple[str, ...]) -> str:
    """``; did you mean ...?`` where a known name is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def require_subclass(kind: str, name: str, thing: object, base: type, *, where: Callable[[type], bool] = lambda _: True) -> None:
    """Raise ``RegistryError`` unless ``thing`` is a class under ``base`` that leaves none of its methods out."""
    if not isinstance(thing, type) or not issubclass(thing, base) or not where(thing):
        raise RegistryError(f"{kind} {name!r}: {_described(thing)} is no subclass of {base.__module__}.{base.__name__}")
    left_out = sorted(getattr(thing, "__abstractmethods__", ()))
    if left_out:
        raise RegistryError(f"{kind} {name!r}: {_described(thing)} lacks {', '.join(left_out)}")


def _same(one: object, other: object) -> bool:
    """Whether both are one thing: itself, or what the same lines of the same module made before."""
    if one is other or (isinstance(one, str) and one == other):
        return True
    names = [_described(thing) for thing in (one, other)]
    return names[0] == names[1] and "<" not in names[0] and not isinstance(one, str)


def _described(thing: object) -> str:
    name = getattr(thing, "__qualname__", None)
    return f"{_module(thing)}.{name}" if name else repr(thing)


def _module(thing: object) -> str:
    return thing.partition(":")[0] if isinstance(thing, str) else str(getattr(thing, "__module__", type(thing).__module__))


def not_imported() -> str:
    """``; installed plug-in ... could not be imported: ...`` for each: a name may be unknown because of it."""
    from envs.plugins import broken

    return "".join(f"; installed plug-in {name!r} could not be imported: {why}" for name, why in broken().items())
