"""Every setting as data: dotted name, default, bounds, choices, description; and how a word on the command line becomes its value."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic.fields import FieldInfo

from pipeline.config.base import Section
from pipeline.config.config import Config
from pipeline.config.named import Named

_KINDS: dict[type, str] = {bool: "boolean", int: "integer", float: "number", str: "text", Path: "path", type(None): "null"}


_TABLE = "table of true | false | numbers | texts"


@dataclass(frozen=True)
class Setting:
    """One setting. ``path`` is ``section.key``; ``kinds`` and ``choices`` are what its value may be."""

    path: str
    default: Any
    kinds: frozenset[str]
    choices: tuple[Any, ...]
    bounds: str
    description: str
    named: bool = False
    """Whether its choices are names that plug-ins may add to."""

    @property
    def default_json(self) -> Any:
        """The default as a JSON value."""
        if isinstance(self.default, Path):
            return str(self.default)
        return list(self.default) if isinstance(self.default, tuple) else self.default

    @property
    def default_text(self) -> str:
        """The default as one would write it."""
        return self.default_json if isinstance(self.default_json, str) else json.dumps(self.default_json)

    @property
    def allowed(self) -> str:
        """What the value may be, in words."""
        words = [str(choice) for choice in self.choices]
        words += ["true", "false"] if "boolean" in self.kinds else []
        words += [
            f"{kind} {self.bounds}".strip() if kind in ("integer", "number", "text") else _TABLE if kind == "table" else kind
            for kind in sorted(self.kinds - {"null", "boolean"})
        ]
        return " | ".join([*words, *(["null"] if "null" in self.kinds else [])])

    def parse(self, text: str) -> Any:
        """A word from the command line as a JSON value of this setting's kind; what does not fit stays text, for validation to refuse."""
        if "null" in self.kinds and text.lower() in ("null", "none"):
            return None
        if "integer" in self.kinds and text.isdecimal():
            return int(text)
        if "list" in self.kinds and text not in self.choices:
            if not text.startswith("["):
                return [part.strip() for part in text.split(",") if part.strip()]
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text
        if "table" in self.kinds:
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                return text
        if text in self.choices or self.kinds & {"text", "path"}:
            return text
        if "boolean" in self.kinds and text.lower() in ("true", "false"):
            return text.lower() == "true"
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value if isinstance(value, int | float) else text


def settings() -> tuple[Setting, ...]:
    """All settings in the order of the sections, with the names that plug-ins have added so far."""
    from envs.plugins import load_installed
    from envs.registry import changes

    load_installed()
    return _settings(changes())


@lru_cache(maxsize=1)
def _settings(changes: int) -> tuple[Setting, ...]:
    return tuple(_walk(Config, ""))


def _walk(section: type[Section], prefix: str) -> Iterator[Setting]:
    for name, info in section.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            yield from _walk(annotation, f"{prefix}{name}.")
        else:
            named = next((item for item in _marks(info) if isinstance(item, Named)), None)
            kinds, choices = _kinds(annotation)
            if named is not None:
                choices = list(named.names())
                kinds = kinds - {"text"} | (set() if choices else {"name that a plug-in registers"})
            bounds, meaning = _bounds(info), info.description or ""
            yield Setting(f"{prefix}{name}", info.get_default(), frozenset(kinds), tuple(choices), bounds, meaning, named is not None)


def _kinds(annotation: Any) -> tuple[set[str], list[Any]]:
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return _kinds(typing.get_args(annotation)[0])
    if origin is Literal:
        return set(), list(typing.get_args(annotation))
    if origin in (Union, types.UnionType):
        kinds: set[str] = set()
        choices: list[Any] = []
        for part in typing.get_args(annotation):
            more, options = _kinds(part)
            kinds |= more
            choices += options
        return kinds, choices
    if origin is tuple:
        return {"list"}, []
    if origin is dict:
        return {"table"}, []
    return {_KINDS[annotation]}, []


def scalar(text: str) -> Any:
    """A word from the command line as an entry of a table: true, false, a number, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _marks(info: FieldInfo) -> list[Any]:
    """What is noted beside a field's type, or beside a part of it where it is a union."""
    parts = [part for part in typing.get_args(info.annotation) if typing.get_origin(part) is Annotated]
    return [*info.metadata, *(item for part in parts for item in part.__metadata__)]


def _bounds(info: FieldInfo) -> str:
    low = high = above = below = None
    for item in _marks(info):
        match item:
            case Ge(ge=value):
                low = value
            case Gt(gt=value):
                above = value
            case Le(le=value):
                high = value
            case Lt(lt=value):
                below = value
            case MinLen(min_length=value):
                return f"of at least {value} character{'s' if value > 1 else ''}"
            case _ if getattr(item, "pattern", None):
                return f"matching {item.pattern}"
    if low is not None and high is not None:
        return f"{low} to {high}"
    words = [(low, "at least"), (above, "above"), (high, "at most"), (below, "below")]
    return ", ".join(f"{word} {value}" for value, word in words if value is not None)
