"""Finding a search space by name, and drawing its points with Tune's own generator.

Owns what a space may look like and what is said of one that does not. Knows dotted names, not what they mean.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ConfigError, FedAgentError
from tune_spaces import SPACES, Space, SpaceFunction

if TYPE_CHECKING:
    from pipeline.config import Config

SEED = "run.seed"
OWN = ("run.name", "run.dir", "tracking.")
"""Settings that belong to the sweep and not to a trial."""

MOST_TRIALS = 10_000
Point = dict[str, Any]
"""Values by dotted setting: what one arm of a sweep sets on top of the base."""


def find_space(name: str) -> SpaceFunction:
    """The function behind a name: one of ``SPACES``, or ``module:function`` of a user's own.

    Raises ``ConfigError`` for a name that is neither, with the nearest that is.
    """
    source = SPACES.get(name, name)
    module_name, colon, attribute = source.partition(":")
    if not colon or not module_name or not attribute:
        near = difflib.get_close_matches(name, SPACES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown space {name!r}: {hint}known: {', '.join(SPACES)}, or module:function of your own")
    # A console script does not look in the working directory by itself.
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ConfigError(f"space {name!r}: module {module_name!r} needs {error.name!r}, which is not installed") from error
        raise ConfigError(f"space {name!r}: no module {module_name!r}, neither installed nor in {here}") from error
    except Exception as error:
        raise ConfigError(f"space {name!r}: module {module_name!r} cannot be imported: {type(error).__name__}: {error}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        near = difflib.get_close_matches(attribute, names, n=1)
        raise ConfigError(
            f"space {name!r}: {module_name!r} has no function {attribute!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        )
    found: SpaceFunction = function
    return found


def read_space(name: str, function: SpaceFunction, base: Config) -> Space:
    """What the function returns for ``base``. Raises ``ConfigError`` when it fails, or returns something else than a mapping of names."""
    try:
        space = function(base)
    except FedAgentError:
        raise
    except Exception as error:
        raise ConfigError(f"space {name!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(space, Mapping) or not all(isinstance(key, str) for key in space):
        raise ConfigError(f"space {name!r} returned a {type(space).__name__}; expected a mapping from dotted settings to values")
    return space


def draw(name: str, space: Space, samples: int) -> list[Point]:
    """The points of a space: every combination of its grids, ``samples`` times with other draws of its distributions.

    The same at every call. Raises ``ConfigError`` for points that repeat each other or set what belongs to the sweep.
    """
    import numpy as np
    from ray.tune.search.variant_generator import generate_variants

    rng = np.random.RandomState(0)
    points: list[Point] = []
    for _ in range(samples):
        for _, spec in generate_variants({"config": dict(space)}, random_state=rng):
            points.append(flat(name, spec["config"]))
            if len(points) > MOST_TRIALS:
                raise ConfigError(f"space {name!r} has more than {MOST_TRIALS:,} points; narrow it")
    seen: dict[str, int] = {}
    for number, point in enumerate(points):
        if (first := seen.setdefault(repr(sorted(point.items())), number)) != number:
            why = "it draws nothing at random, so --samples would repeat it; use --seeds" if samples > 1 else "a grid names a value twice"
            raise ConfigError(f"space {name!r}: points {first} and {number} are the same ({words_of(point)}): {why}")
    return points


def flat(name: str, config: Mapping[str, Any]) -> Point:
    """A drawn point with its groups opened. Raises ``ConfigError`` for what is no setting of a trial."""
    point: Point = {}
    for key, value in config.items():
        if "." in key:
            inner: Mapping[str, Any] = {key: value}
        elif isinstance(value, Mapping):
            inner = value
        else:
            raise ConfigError(
                f"space {name!r}: {key!r} = {value!r}: a key without a dot names a group, its values are mappings of dotted settings"
            )
        for path, leaf in inner.items():
            if path.startswith(OWN):
                raise ConfigError(f"space {name!r}: {path} belongs to the sweep, not to a trial; leave it out of the space")
            if path in point:
                raise ConfigError(f"space {name!r} sets {path} twice in one point")
            point[str(path)] = leaf.item() if hasattr(leaf, "item") else list(leaf) if isinstance(leaf, tuple) else leaf
    return point


def with_seeds(name: str, points: Sequence[Point], seeds: Sequence[int] | None) -> list[Point]:
    """All points with the first seed, then all with the second: a sweep that is cut short has seen every arm.

    ``None`` takes the space's own seeds, or 0, 1 and 2. Raises ``ConfigError`` where both name seeds.
    """
    own = [SEED in point for point in points]
    if any(own):
        if seeds is not None:
            raise ConfigError(f"--seeds cannot matter: space {name!r} sets {SEED} itself; leave one of the two out")
        if not all(own):
            raise ConfigError(f"space {name!r} sets {SEED} in some of its points only; set it in all, or leave it to --seeds")
        return [dict(point) for point in points]
    return [{**point, SEED: seed} for seed in (seeds if seeds is not None else DEFAULT_SEEDS) for point in points]


DEFAULT_SEEDS = (0, 1, 2)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from ``0,1,2``. Raises ``ConfigError`` for anything else, a seed out of range or one that comes twice."""
    seeds: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if not word.isdecimal() or int(word) >= 2**31:
            raise ConfigError(f"--seeds {text!r}: {word!r} is no seed; expected numbers from 0 to {2**31 - 1} with commas, such as 0,1,2")
        if int(word) in seeds:
            raise ConfigError(f"--seeds {text!r}: {word} comes twice; name each seed once")
        seeds.append(int(word))
    return tuple(seeds)


def words_of(point: Mapping[str, Any]) -> str:
    """A point in one line, for messages."""
    return ", ".join(f"{path} = {value}" for path, value in point.items()) or "the base as it is"
