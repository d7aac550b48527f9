"""What a diagnosis is given: clients with tasks and variants, and how much may be sampled; and the worlds that the clients live in.

Clients in equal variants share a world, so that hundreds of clients cost no more than the few worlds between them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from envs.base import Task, World
from envs.variants import Variant
from pipeline.errors import ConfigError


@dataclass(frozen=True)
class ClientSetup:
    """A client before any training: the tasks it owns, and the name or form of its variant."""

    tasks: Sequence[Task]
    variant: str | Variant


@dataclass(frozen=True)
class Visit:
    """An episode of some policy: the task and what was done. Only the actions are used; every world answers them anew."""

    task: Task
    actions: tuple[str, ...]


@dataclass(frozen=True)
class Settings:
    """How much is sampled.

    ``tasks`` matched tasks are played in at most ``worlds`` worlds; per task there are the oracle's script of every world, at most
    ``deviations`` one-action departures from them and ``walks`` random walks. In worlds that draw, a script is repeated for ``seeds``
    seeds, fewer (but 8) where that passes ``episodes`` per world. The classifier reads ``read_turns`` turns and at most ``documents``
    texts per turn, in ``folds`` folds of tasks. ``success_pays`` is the return of a perfect episode, by which values become shares of one
    success (B = 1).
    """

    tasks: int = 30
    worlds: int = 8
    deviations: int = 8
    walks: int = 3
    seeds: int = 64
    episodes: int = 30_000
    read_turns: int = 8
    documents: int = 900
    folds: int = 5
    success_pays: float = 10.0
    seed: int = 0


@dataclass(frozen=True)
class Home:
    """A world that clients live in. ``mute`` is the same world without the mark by which it reveals itself."""

    name: str
    variant: Variant
    clients: tuple[str, ...]

    @property
    def mute(self) -> Variant:
        """The variant, revealing nothing."""
        return replace(self.variant, reveal="none")


def find_homes(world: World, clients: Mapping[str, ClientSetup]) -> list[Home]:
    """The different worlds of the clients, most clients first. Raises ``ConfigError`` without clients or for an unknown variant."""
    if not clients:
        raise ConfigError("there are no clients to diagnose")
    residents: dict[Variant, list[str]] = {}
    for client, setup in clients.items():
        try:
            variant = world.variant(setup.variant)
        except ValueError as error:
            raise ConfigError(f"client {client}: {error}") from error
        if variant.unperturbed:
            # However it is called, it answers as the default world does.
            variant = Variant(reveal=variant.reveal, label=variant.label)
        residents.setdefault(variant, []).append(client)
    taken: dict[str, int] = {}
    homes = []
    for variant, names in sorted(residents.items(), key=lambda item: -len(item[1])):
        name = str(variant)
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1 or (variant.family in world.families and world.families[variant.family].per_client):
            name = f"{name} of {names[0]}"
        homes.append(Home(name, variant, tuple(names)))
    return homes


def sample_homes(homes: Sequence[Home], most: int, seed: int) -> list[Home]:
    """At most ``most`` worlds: all of them, else the most populous half and a draw from the rest."""
    if len(homes) <= most:
        return list(homes)
    sure = (most + 1) // 2
    drawn = random.Random(f"homes {seed}").sample(range(sure, len(homes)), most - sure)
    return [homes[place] for place in [*range(sure), *sorted(drawn)]]


def matched_tasks(homes: Sequence[Home], clients: Mapping[str, ClientSetup], most: int, seed: int) -> list[Task]:
    """At most ``most`` different tasks, drawn from the residents of every world by turns. Raises ``ConfigError`` where there are none."""
    rng = random.Random(f"tasks {seed}")
    piles = []
    for home in homes:
        owned = {task.id: task for client in home.clients for task in clients[client].tasks}
        pile = list(owned.values())
        rng.shuffle(pile)
        piles.append(pile)
    chosen: dict[str, Task] = {}
    while len(chosen) < most and any(piles):
        for pile in piles:
            while pile:
                task = pile.pop()
                if task.id not in chosen:
                    chosen[task.id] = task
                    break
            if len(chosen) == most:
                break
    if not chosen:
        raise ConfigError("the clients own no tasks")
    return list(chosen.values())
