"""Settings whose values are names that plug-ins may add to: what is known is asked when a value is checked, not at import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

NameKind = Literal["world", "partition", "algorithm", "rule"]


@dataclass(frozen=True)
class Named:
    """Marks a text setting as a registered name of a kind. Not ``strict``: an unknown one is left for later checks to refuse."""

    kind: NameKind
    strict: bool = True

    def names(self) -> tuple[str, ...]:
        """Names known now."""
        from pipeline.plugins import registry

        return registry(self.kind).names()

    def check(self, name: str) -> str:
        """The name. Raises ``ValueError`` for an unknown one."""
        if self.strict and name not in self.names():
            raise ValueError(f"unknown {self.kind} {name!r}")
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))
