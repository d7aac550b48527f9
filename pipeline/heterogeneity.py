"""From configuration to every client's world: which variant each client meets, under which name, and the proof that it does what it says.

Owns the assignment, the names that episodes carry, and the checks before a run (reachability, distinctness). What variants do is the
world's business; which tasks a client owns is ``pipeline.schedule``'s. Imports no Ray.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.base import Task, World, WorldSpec
from envs.reachability import PairDistance, Reach, distances, reachability, require_distinct
from envs.variants import DEFAULT, Family, Variant, assign_members, unknown
from pipeline.config import Config, VariantConfig
from pipeline.errors import ConfigError, DataError
from pipeline.schedule import Schedule, derived_seed
from pipeline.worlds import DATA_ERRORS, build_world, resolve_world, world_spec

PROBED = 12
"""Most worlds that are compared pairwise; of more, the first ones."""
FAILURES_SHOWN = 3
"""Unreachable tasks named in an error."""


@dataclass(frozen=True)
class Assignment:
    """``names`` maps a client to its variant's name, ``variants`` a name to what it stands for. Clients in equal worlds share a name."""

    names: Mapping[str, str]
    variants: Mapping[str, Variant]

    @property
    def perturbed(self) -> bool:
        """Whether any client meets anything but the default world."""
        return any(name != DEFAULT for name in self.names.values())

    def clients(self, name: str) -> list[str]:
        """Clients of a world."""
        return [client for client, given in self.names.items() if given == name]


@dataclass(frozen=True)
class ClientReach:
    """What the oracle could do of one client's tasks in its world."""

    client: str
    world: str
    reach: Reach


@dataclass(frozen=True)
class Proof:
    """What was checked before the run."""

    reach: Sequence[ClientReach] = ()
    differences: Sequence[PairDistance] = ()
    notes: Sequence[str] = field(default=())

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        found = [{"client": r.client, "world": r.world, **asdict(r.reach), "share": r.reach.share} for r in self.reach]
        return {
            "reach": [{**row, "missed": list(row["missed"])} for row in found],
            "differences": [asdict(d) for d in self.differences],
            "notes": list(self.notes),
        }


def chosen_members(settings: VariantConfig, family: Family) -> tuple[str, ...]:
    """Members that are dealt out. Raises ``ConfigError`` for names or numbers that the family does not have."""
    asked = settings.members
    if asked is None:
        return family.members[: family.default_members] if family.default_members else family.members
    if isinstance(asked, int):
        if asked > len(family.members):
            raise ConfigError(
                f"world.variant.members = {asked}: {family.name} has {len(family.members)}; allowed: 1 to {len(family.members)}"
            )
        return family.members[:asked]
    for name in asked:
        if name not in family.members:
            raise ConfigError(f"world.variant.members: {name!r} of family {family.name!r}: {unknown(name, family.members)}")
    if len(set(asked)) < len(asked) or not asked:
        raise ConfigError(f"world.variant.members = {list(asked)}: name each member once, and at least one")
    return tuple(asked)


def published_members(clients: int, members: Sequence[str]) -> tuple[str, ...]:
    """The published assignment ``RandomState(42 + client).randint(N)`` over the first N pool entries; not balanced."""
    return tuple(members[int(np.random.RandomState(42 + client).randint(len(members)))] for client in range(clients))


def assign(config: Config, world: World, owned: Mapping[str, Sequence[Task]]) -> Assignment:
    """The world of every client. ``owned`` has the clients' tasks, in order of the clients.

    Balanced, a function of the seed, constant over rounds. Raises ``ConfigError`` for a family, member or option that the world does not
    offer, with the nearest one that it does, or an option that it cannot be built with; ``DataError`` for a file that an option names and
    that cannot be read.
    """
    settings, clients = config.world.variant, list(owned)
    if settings.family == DEFAULT:
        name = str(Variant(reveal=settings.reveal, label="1"))
        plain = {} if settings.reveal == "none" else {name: Variant(reveal=settings.reveal, label="1")}
        return Assignment(dict.fromkeys(clients, name if plain else DEFAULT), plain)
    family = world.families.get(settings.family)
    if family is None:
        raise ConfigError(f"world.variant.family = {settings.family!r}: {unknown(settings.family, [DEFAULT, *world.families])}")
    seed = config.run.seed if settings.seed is None else settings.seed
    members = chosen_members(settings, family) if not family.per_client else ()
    if family.per_client and settings.members is not None:
        raise ConfigError(f"world.variant.members cannot matter with family {family.name!r}: every client has a member of its own")
    if family.per_client:
        dealt: Sequence[str] = clients
    else:
        dealt = published_members(len(clients), members) if settings.reference else assign_members(len(clients), members, seed)
    options = dict(settings.options)
    if isinstance(options.get("file"), str) and options["file"]:
        # Environment workers may run in another folder.
        options["file"] = str(Path(str(options["file"])).expanduser().absolute())
    if settings.reference:
        if "reference" not in family.options:
            raise ConfigError(f"world.variant.reference cannot matter with family {family.name!r}: it has no published form")
        options["reference"] = True
    labels = {member: str(number + 1) for number, member in enumerate(dict.fromkeys(sorted(dealt)))}
    names: dict[str, str] = {}
    variants: dict[str, Variant] = {}
    for number, (client, member) in enumerate(zip(clients, dealt, strict=True)):
        variant = Variant(
            family=family.name,
            member="" if family.per_client else member,
            severity=settings.severity,
            reveal=settings.reveal,
            options=tuple(sorted(options.items())),
            # The published split counts clients; ours draw from a stream of the member's own.
            stream=number if settings.reference and family.per_client else derived_seed(seed, "variant", family.name, member),
            protected=tuple(task.id for task in owned[client]) if family.per_client else (),
            label=labels[member],
        )
        name = str(Variant(family.name, member, settings.severity, settings.reveal))
        names[client] = name
        variants[name] = variant
    with _variant_errors():
        world.define(variants)
        # What no look at names finds, such as an option out of range. Clients of one family fail alike.
        for name in list(variants)[: 1 if family.per_client else None]:
            world.make(name)
    return Assignment(names, variants)


@contextlib.contextmanager
def _variant_errors() -> Iterator[None]:
    """Within the block, what a world says of a variant becomes an error that names the section, or the file."""
    try:
        yield
    except DATA_ERRORS as error:
        raise DataError(str(error)) from error
    except ValueError as error:
        raise ConfigError(f"world.variant: {error}") from error


def prove(config: Config, world: World, assignment: Assignment, owned: Mapping[str, Sequence[Task]]) -> Proof:
    """Let the scripted oracle try tasks of every client in its world, and compare the worlds with each other.

    Raises ``ConfigError`` where a client falls below ``world.variant.min_reachable``, or two worlds are the same although they should
    differ. Nothing is checked in an unperturbed federation.
    """
    if not assignment.perturbed or config.world.variant.family == DEFAULT:
        return Proof()
    settings = config.world.variant
    with _variant_errors():
        reach = [
            ClientReach(client, assignment.names[client], reachability(world, assignment.names[client], tasks[: settings.reach_tasks]))
            for client, tasks in owned.items()
        ]
    low = [r for r in reach if r.reach.share < settings.min_reachable]
    if low:
        worst = min(low, key=lambda r: r.reach.share)
        others = f", and {len(low) - 1} other clients fall below" if len(low) > 1 else ""
        raise ConfigError(
            f"world.variant.min_reachable = {settings.min_reachable:g}: client {worst.client} can reach {worst.reach.solved} of "
            f"{worst.reach.tried} tasks in its world {worst.world} within {world.max_steps} steps (not, for instance, "
            f"{', '.join(worst.reach.missed[:FAILURES_SHOWN])}){others}; "
            "lower world.variant.severity, raise world.max_steps, or lower the floor"
        )
    names = list(dict.fromkeys(assignment.names.values()))
    compared = names[:PROBED]
    with _variant_errors():
        differences = distances(world, {name: name for name in compared})
        if settings.severity > 0:
            require_distinct(differences)
    return Proof(reach, differences, [] if compared == names else [f"{len(compared)} of {len(names)} worlds were compared."])


@dataclass(frozen=True)
class Federated:
    """A federation's clients as a configuration describes them: the world, who owns which tasks, and who meets which variant."""

    config: Config
    spec: WorldSpec
    world: World
    schedule: Schedule
    assignment: Assignment

    @property
    def tasks(self) -> Mapping[str, tuple[Task, ...]]:
        """Tasks by client."""
        return self.schedule.partition


def set_up(config: Config) -> Federated:
    """Build the world, deal out tasks and variants. ``config`` comes back with the world's defaults filled in; loads no model.

    Raises ``FedAgentError`` where data, files or settings do not allow it.
    """
    config = config.model_copy(update={"world": resolve_world(config.world)})
    spec = world_spec(config.world)
    world = build_world(spec)
    schedule = Schedule(config, world.tasks("train"))
    assignment = assign(config, world, schedule.partition)
    return Federated(config, replace(spec, variants=assignment.variants), world, replace(schedule, worlds=assignment.names), assignment)
