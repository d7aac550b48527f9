"""Search spaces for ``fedagent sweep``: each is a function of the base configuration that returns a Ray Tune search space.

A space is a mapping from dotted settings to values, ``tune.grid_search([...])`` or Tune's distributions. A key without a dot names a
group of settings that move together: its values are mappings of dotted settings. Seeds are no part of a space, the sweep crosses every
point with them. Spaces know the configuration and the worlds, nothing of how trials run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.config import Config

Space = Mapping[str, Any]
"""A Ray Tune search space over dotted settings."""

SpaceFunction = Callable[["Config"], Space]

SPACES: Mapping[str, str] = {
    "heterogeneity": "tune_spaces.heterogeneity:heterogeneity",
    "algorithm": "tune_spaces.algorithm:algorithm",
    "federation": "tune_spaces.federation:federation",
    "scale": "tune_spaces.scale:scale",
}
"""The spaces that come with the package, as ``module:function``."""
