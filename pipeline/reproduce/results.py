"""The results file of a reproduction: one JSON with a row per arm and seed, which the report, the tables and the notebooks read.

Owns the format, its version, its validation and the union of two files. Knows neither runs nor plots. Rates are in [0, 1]; null stands
for what does not apply or was not measured.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pipeline.errors import DataError

SCHEMA = 1
FAMILIES = ("uniform", "task", "environment", "escape", "bandit", "alfworld")
SHOWN_PROBLEMS = 5
"""Problems of a damaged file that its error names."""

Rate = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, strict=True)]
Text = Annotated[str, Field(min_length=1)]

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class CurvePoint:
    """The shared agent after a round; round 0 is before training. ``episodes`` trained on so far; ``train`` the success of the round's
    training episodes."""

    round: Count
    episodes: Count
    mean_worlds: Rate | None = None
    worst_world: Rate | None = None
    control: Rate | None = None
    train: Rate | None = None
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class DriftPoint:
    """How far the clients drifted apart in a round: mean pairwise cosine and mean norm of their updates, norm of the mean over the mean
    norm, mean KL to their mixture and to the round's start on shared prompts [nats], and the share of clipped tokens."""

    round: Count
    cosine: Annotated[float, Field(ge=-1.000001, le=1.000001)] | None = None
    norm: Amount | None = None
    ratio: Amount | None = None
    divergence: Number | None = None
    shift: Number | None = None
    clip_fraction: Rate | None = None
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Cost:
    """Where the time went, in seconds summed over clients and rounds; ``tokens`` trained on; ``bytes`` exchanged, both ways."""

    rollout_seconds: Amount = 0.0
    train_seconds: Amount = 0.0
    aggregate_seconds: Amount = 0.0
    evaluate_seconds: Amount = 0.0
    other_seconds: Amount = 0.0
    tokens: Amount = 0.0
    bytes: Amount = 0.0
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Matrix:
    """Success ``rates`` [clients, worlds] of each client's own parameters after its local training. ``homes`` are the clients' worlds."""

    clients: tuple[Text, ...]
    worlds: tuple[Text, ...]
    rates: tuple[tuple[Rate | None, ...], ...]
    homes: tuple[Text, ...] = ()
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Arm:
    """One arm under one seed.

    ``mean_worlds``: mean over the clients of the shared agent's success in the client's own world; ``worst_world`` the lowest of those
    worlds; ``control`` in the unperturbed one; ``floor`` the mean over worlds that the best shared policy reaches when it does each
    world's work as well as the uniform arm does (None: not computed); ``kind`` says whether that lies below what clients could reach
    (``floor``) or not (``slack``); ``after_local`` the last round's clients with their own parameters, each in its own world; ``alone``
    mean over those worlds in which a client was trained alone. ``settings`` are the dotted settings that make the arm, ``key`` their hash.
    ``versus`` names the arm it is meant to be compared with, ``twist`` what a control changes (``mixture``, ``same_world``, ``window``,
    ``prox``, ``batch``, ``memory``, ``long``, ``alone``; empty for plain arms). ``n_eval`` is the number of held-out tasks per world.
    Bandits: ``delta`` between the worlds, ``worst_gap`` what the worst client loses to its own optimum in mean reward, ``floor_gap`` the
    least that any shared policy must lose there. ``bound``: the task bound factor sqrt(1 + chi^2) of the worst client.
    """

    name: Text
    label: Text
    family: Literal["uniform", "task", "environment", "escape", "bandit", "alfworld"]
    variant: str | None
    severity: Number | None
    algorithm: Text
    mode: Literal["federated", "centralized", "local"]
    seed: Count
    rounds: Count
    episodes: Count
    n_eval: Count
    mean_worlds: Rate | None
    worst_world: Rate | None
    control: Rate | None
    floor: Rate | None
    kind: Literal["floor", "slack", "none"]
    after_local: Rate | None
    cpu_seconds: Amount
    wall_seconds: Amount
    curve: tuple[CurvePoint, ...]
    start: Rate | None = None
    reveal: str = "none"
    alone: Rate | None = None
    worlds: Mapping[str, Rate] | None = None
    matrix: Matrix | None = None
    drift: tuple[DriftPoint, ...] = ()
    cost: Cost = Cost()
    delta: Rate | None = None
    worst_gap: Annotated[float, Field(ge=-1, le=1)] | None = None
    floor_gap: Rate | None = None
    twist: str = ""
    versus: str | None = None
    floor_how: str = ""
    bound: Amount | None = None
    settings: Mapping[str, Any] | None = None
    key: str = ""
    __pydantic_config__ = _STRICT

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Missing:
    """An arm and seed that the file should hold and does not."""

    name: Text
    seed: Count | None
    reason: Text
    __pydantic_config__ = _STRICT

    @property
    def wanted(self) -> bool:
        """Whether it was to be run and was not, or failed; else it was left out on purpose or cannot be run here."""
        return self.reason == NOT_RUN or self.reason.startswith("failed")

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.name}{'' if self.seed is None else f', seed {self.seed}'}: {self.reason}"


@dataclass(frozen=True)
class Results:
    """A results file. ``machine`` is a description without names; ``date`` is ISO 8601; ``complete`` when nothing is ``missing``."""

    schema: int
    machine: str
    versions: Mapping[str, str]
    command: Text
    date: Text
    complete: bool
    missing: tuple[Missing, ...]
    arms: tuple[Arm, ...]
    __pydantic_config__ = _STRICT

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@cache
def _adapter() -> TypeAdapter[Results]:
    return TypeAdapter(Results)


def parse_results(value: object, source: str = "results") -> Results:
    """Results from JSON values. Raises ``DataError`` for another schema version, missing or unknown fields, and rates out of range."""
    if not isinstance(value, Mapping):
        raise DataError(f"{source}: not a results file (a JSON object with a schema); `fedagent reproduce` writes one")
    schema = value.get("schema")
    if schema != SCHEMA or isinstance(schema, bool):
        wrong = "has no schema version" if schema is None else f"has schema {schema!r}"
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "use a newer fedagent-ray" if newer else "run `fedagent reproduce` again"
        raise DataError(f"{source} {wrong}, this program reads schema {SCHEMA}: {advice}")
    try:
        results = _adapter().validate_python(value)
    except ValidationError as error:
        raise DataError(f"{source}: {_problems(error, value)}") from None
    _check(results, source)
    return results


def _problems(error: ValidationError, value: Mapping[str, Any]) -> str:
    found = error.errors()
    told = [_problem(item["loc"], item["msg"], item.get("input"), value) for item in found[:SHOWN_PROBLEMS]]
    more = f"; and {len(found) - SHOWN_PROBLEMS} more" if len(found) > SHOWN_PROBLEMS else ""
    return "; ".join(told) + more


def _problem(loc: Sequence[int | str], message: str, given: object, value: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in loc)
    if len(loc) > 1 and loc[0] == "arms" and isinstance(loc[1], int):
        arm = value["arms"][loc[1]]
        if isinstance(arm, Mapping):
            where = f"arm {arm.get('name')!r}, seed {arm.get('seed')}: {'.'.join(str(part) for part in loc[2:])}"
    shown = f" = {given!r}" if isinstance(given, int | float | str | None) else ""
    return f"{where}{shown}: {message[:1].lower()}{message[1:]}"


def _check(results: Results, source: str) -> None:
    """What single fields cannot show. Raises ``DataError``."""
    if results.complete == bool(results.missing):
        raise DataError(f"{source}: complete = {results.complete}, but {len(results.missing)} arms are missing")
    seen: dict[tuple[str, int], Arm] = {}
    for arm in results.arms:
        who = f"{source}: arm {arm.name!r}, seed {arm.seed}"
        if (arm.name, arm.seed) in seen:
            raise DataError(f"{who}: is there twice")
        seen[arm.name, arm.seed] = arm
        rounds = [point.round for point in arm.curve]
        if rounds != sorted(set(rounds)):
            raise DataError(f"{who}: curve: rounds must rise, got {rounds}")
        if arm.matrix is not None:
            shape = (len(arm.matrix.clients), len(arm.matrix.worlds))
            if len(arm.matrix.rates) != shape[0] or any(len(row) != shape[1] for row in arm.matrix.rates):
                raise DataError(f"{who}: matrix: rates must be {shape[0]} rows of {shape[1]}")
    _one_setting_per_name(results.arms, source)


def _one_setting_per_name(arms: Iterable[Arm], source: str) -> None:
    keys: dict[str, Arm] = {}
    for arm in arms:
        first = keys.setdefault(arm.name, arm)
        if (first.key, first.label, first.algorithm, first.mode) != (arm.key, arm.label, arm.algorithm, arm.mode):
            raise DataError(f"{source}: arm {arm.name!r}: seeds {first.seed} and {arm.seed} were run with different settings")


def load_results(path: Path) -> Results:
    """Read a results file. Raises ``DataError`` where it is missing, damaged, or of another schema version."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no results file {path}; `fedagent reproduce` writes one") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a results file: {error}") from None
    return parse_results(value, str(path))


def save_results(results: Results, path: Path) -> Path:
    """Write a results file, aside first and then renamed. Raises ``DataError`` for results that could not be read again."""
    parsed = parse_results(json.loads(json.dumps(results.plain())), "results")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(parsed.plain(), indent=None, separators=(",", ":"), allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def merge(*parts: Results) -> Results:
    """The union of results: arms in order of first appearance; what one part misses and another has is not missing.

    Raises ``DataError`` for two schema versions, for an arm and seed whose numbers differ, or an arm whose settings do.
    """
    if not parts:
        raise DataError("nothing to merge")
    schemas = sorted({part.schema for part in parts})
    if schemas != [SCHEMA]:
        raise DataError(f"results of schema {' and '.join(map(str, schemas))} cannot be merged; this program reads schema {SCHEMA}")
    arms: dict[tuple[str, int], Arm] = {}
    for part in parts:
        for arm in part.arms:
            kept = arms.setdefault((arm.name, arm.seed), arm)
            if kept != arm:
                raise DataError(f"arm {arm.name!r}, seed {arm.seed}: two results hold different numbers for it; leave one of them out")
    _one_setting_per_name(arms.values(), "merged results")
    missing = {(gap.name, gap.seed): gap for part in parts for gap in part.missing if (gap.name, gap.seed) not in arms}
    versions: dict[str, str] = {}
    for part in parts:
        for name, version in part.versions.items():
            told = versions.get(name)
            versions[name] = version if told in (None, version) else f"{told} / {version}"
    first = parts[0]
    return replace(
        first,
        machine=" / ".join(dict.fromkeys(part.machine for part in parts)),
        versions=versions,
        command=" ; ".join(dict.fromkeys(part.command for part in parts)),
        date=max(part.date for part in parts),
        complete=not missing,
        missing=tuple(missing.values()),
        arms=tuple(arms.values()),
    )
