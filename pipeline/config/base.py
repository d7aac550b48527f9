"""The base of every configuration section: strict, frozen, one line of description and bounds per field."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings. Unknown keys are errors, values are not coerced across kinds, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())
