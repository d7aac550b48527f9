"""Who trains in a round, on which tasks, with which seeds: pure functions of (configuration, seed, round, client).

Nothing here remembers anything: a resumed run computes the same plan as the run that was interrupted. Every draw has its own stream,
named by what it is for, so that no two streams are shifted copies of each other and adding one does not move the others.
Knows nothing of models, engines or Ray.
"""

from __future__ import annotations

import bisect
import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from envs.base import Task
from envs.partition import Partition
from envs.partition.build import client_names as numbered_clients
from envs.partition.streams import stream
from envs.variants import DEFAULT
from pipeline.config import Config, FederationConfig
from pipeline.episodes import EpisodeSpec
from pipeline.errors import ConfigError
from pipeline.partitioning import partition_tasks

POOLED = "pooled"
"""Name of the one client of ``mode: centralized``."""


def _words(seed: int, purpose: Sequence[object]) -> list[int]:
    digest = hashlib.sha256("\x1f".join(str(part) for part in (seed, *purpose)).encode()).digest()
    return [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]


def derived_seed(seed: int, *purpose: object) -> int:
    """A seed in [0, 2**31) for ``purpose``: fits torch, numpy and vLLM alike."""
    return _words(seed, purpose)[0] & 0x7FFFFFFF


def episode_seed(seed: int, round: int, client: str, epoch: int, group: int, member: int) -> int:
    """Seed of one episode, in [0, 2**31)."""
    return derived_seed(seed, "episode", round, client, epoch, group, member)


def client_names(federation: FederationConfig) -> tuple[str, ...]:
    """All clients of the federation, ``c000`` and on; as many digits as the largest number needs, at least three."""
    return numbered_clients(federation.clients)


def sample_clients(federation: FederationConfig, seed: int, round: int) -> tuple[str, ...]:
    """Clients that train in ``round`` (1, 2, ...), in ascending order.

    ``centralized`` has one client that owns everyone's tasks, ``local`` has the chosen one. A federated round samples
    ``clients_per_round`` clients uniformly without replacement: from a stream of its own per round, or with ``schedule: reference`` by
    the published ``random.Random(seed + round - 1).sample(range(clients), clients_per_round)``.
    """
    if round < 1:
        raise ValueError(f"round {round}: rounds are counted from 1")
    if federation.mode == "centralized":
        return (POOLED,)
    names = client_names(federation)
    if federation.mode == "local":
        return (names[federation.local_client],)
    if federation.clients_per_round >= federation.clients:
        return names
    if federation.schedule == "reference":
        chosen = random.Random(seed + round - 1).sample(range(federation.clients), federation.clients_per_round)
    else:
        chosen = stream(seed, "clients", round).choice(federation.clients, federation.clients_per_round, replace=False).tolist()
    return tuple(names[number] for number in sorted(chosen))


def epochs_per_round(federation: FederationConfig) -> int:
    """Rollout batches that one client trains on in a round: one client alone does the work of all that a federated round samples."""
    if federation.mode == "federated":
        return federation.local_epochs
    return federation.local_epochs * min(federation.clients_per_round, federation.clients)


def pooled(partition: Mapping[str, Sequence[Task]]) -> dict[str, tuple[Task, ...]]:
    """The union of all clients' tasks as the property of one."""
    return {POOLED: tuple({task.id: task for part in partition.values() for task in part}.values())}


def draw_tasks(client: str, draw: int, tasks: Sequence[Task], n: int, seed: int) -> list[Task]:
    """The client's ``draw``-th batch of ``n`` tasks (counted from 0 over all its visits and epochs).

    The client goes through its tasks in passes: every task once, in an order of its own per pass, before any comes again. No batch
    holds a task twice, not even one that spans two passes. Raises ``ValueError`` when ``n`` exceeds the client's tasks.
    """
    size = len(tasks)
    if n > size:
        raise ValueError(f"client {client}: a batch of {n} distinct tasks from {size}")
    return [tasks[i] for i in _positions(client, draw, size, n, seed)]


def _positions(client: str, draw: int, size: int, n: int, seed: int) -> list[int]:
    first, last = draw * n, (draw + 1) * n
    order: list[int] = []
    batch: list[int] = []
    for number in range((last - 1) // size + 1):
        begin = number * size
        tail = set(order[size - begin % n :]) if number and begin % n else set()
        order = stream(seed, "tasks", client, number).permutation(size).tolist()
        if tail:
            # The batch that spans the two passes takes its remaining tasks from those that it does not hold yet.
            need = n - len(tail)
            head = [i for i in order if i not in tail][:need]
            chosen = set(head)
            order = head + [i for i in order if i not in chosen]
        batch += order[max(first - begin, 0) : max(last - begin, 0)]
    return batch


@dataclass(frozen=True)
class ClientPlan:
    """A client's part of a round: the episodes of every local epoch, and the seed of its training."""

    client: str
    epochs: tuple[tuple[EpisodeSpec, ...], ...]
    seed: int

    @property
    def tasks(self) -> tuple[tuple[Task, ...], ...]:
        """Tasks of each epoch, in the order of their groups."""
        return tuple(tuple({spec.group: spec.task for spec in specs}.values()) for specs in self.epochs)


@dataclass(frozen=True)
class RoundPlan:
    """A round, completely: who trains on what."""

    round: int
    clients: tuple[ClientPlan, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The sampled clients."""
        return tuple(plan.client for plan in self.clients)

    @property
    def n_episodes(self) -> int:
        """Training episodes of the round."""
        return sum(len(specs) for plan in self.clients for specs in plan.epochs)


@dataclass(frozen=True)
class Summary:
    """What a whole run covers, known before it starts."""

    clients: int
    visited: int
    visits_max: int
    tasks_owned: int
    tasks_used: int
    tasks_per_client: int
    shared_owners: int
    episodes: int


@dataclass(frozen=True)
class Schedule:
    """The plan of every round of a run over the train tasks of its world."""

    config: Config
    tasks: Sequence[Task] = field(repr=False)
    worlds: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Name of each client's variant; clients that are not in it meet the default world."""

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.config.run.seed

    @cached_property
    def owned(self) -> Mapping[str, tuple[Task, ...]]:
        """Tasks by client; with ``centralized`` the one pooled client."""
        owned = pooled(self.partition) if self.config.federation.mode == "centralized" else self.partition
        batch = self.config.algorithm.tasks_per_epoch
        for client, tasks in owned.items():
            if len(tasks) < batch:
                partition = self.config.federation.partition
                more = "raise federation.partition.min_size" if partition.coverage else "raise federation.tasks_per_client"
                if partition.file is not None:
                    more = f"give the client more in {partition.file}"
                raise ConfigError(
                    f"algorithm.tasks_per_epoch = {batch}: client {client} owns {len(tasks)} tasks; lower it to {len(tasks)}, or {more}"
                )
        return owned

    @cached_property
    def drawn(self) -> Partition:
        """The partition of the train tasks. Raises ``ConfigError`` or ``DataError`` where tasks, files or settings do not allow it."""
        return partition_tasks(self.config.federation, client_names(self.config.federation), self.tasks, self.seed)

    @cached_property
    def partition(self) -> dict[str, tuple[Task, ...]]:
        """Tasks of every client of the federation, whoever trains on them."""
        return self.drawn.by_client()

    @cached_property
    def _owner(self) -> Mapping[str, str]:
        """The first client that owns a task, by task id."""
        owners: dict[str, str] = {}
        for client, tasks in self.partition.items():
            for task in tasks:
                owners.setdefault(task.id, client)
        return owners

    def world(self, client: str, task: Task) -> str:
        """The name of the variant in which ``client`` meets ``task``: its own, and for the pooled client that of the task's owner."""
        return self.worlds.get(self._owner[task.id] if client == POOLED else client, DEFAULT)

    @cached_property
    def _visited(self) -> dict[str, list[int]]:
        return {}

    @cached_property
    def _counted(self) -> list[int]:
        return [0]

    def sample(self, round: int) -> tuple[str, ...]:
        """Clients of a round."""
        return sample_clients(self.config.federation, self.seed, round)

    def visits(self, client: str, round: int) -> int:
        """How often ``client`` was sampled before ``round``, whether or not it reported."""
        while self._counted[0] < round - 1:
            self._counted[0] += 1
            for name in self.sample(self._counted[0]):
                self._visited.setdefault(name, []).append(self._counted[0])
        return bisect.bisect_left(self._visited.get(client, []), round)

    def plan(self, round: int) -> RoundPlan:
        """The plan of a round (1, 2, ...). Raises ``ConfigError`` when the tasks do not suffice."""
        return RoundPlan(round, tuple(self._client_plan(name, round) for name in self.sample(round)))

    def _client_plan(self, client: str, round: int) -> ClientPlan:
        algorithm, epochs = self.config.algorithm, epochs_per_round(self.config.federation)
        owned = self.owned[client]
        first = self.visits(client, round) * epochs
        batches = []
        for epoch in range(epochs):
            drawn = draw_tasks(client, first + epoch, owned, algorithm.tasks_per_epoch, self.seed)
            batches.append(
                tuple(
                    EpisodeSpec(
                        client=client,
                        task=task,
                        group=group,
                        seed=episode_seed(self.seed, round, client, epoch, group, member),
                        variant=self.world(client, task),
                    )
                    for group, task in enumerate(drawn)
                    for member in range(algorithm.group_size)
                )
            )
        return ClientPlan(client, tuple(batches), derived_seed(self.seed, "client", round, client))

    def summary(self) -> Summary:
        """Clients visited and distinct tasks used over the whole run.

        ``shared_owners`` counts tasks that more than one client owns.
        """
        federation, n = self.config.federation, self.config.algorithm.tasks_per_epoch
        last, epochs = federation.rounds, epochs_per_round(federation)
        visits = {name: self.visits(name, last + 1) for name in self.owned}
        used: set[str] = set()
        for name, count in visits.items():
            drawn, tasks = count * epochs * n, self.owned[name]
            if drawn >= len(tasks):
                used.update(task.id for task in tasks)
            elif drawn:
                used.update(task.id for draw in range(count * epochs) for task in draw_tasks(name, draw, tasks, n, self.seed))
        owners: dict[str, int] = {}
        for tasks in self.owned.values():
            for task in tasks:
                owners[task.id] = owners.get(task.id, 0) + 1
        return Summary(
            clients=federation.clients,
            visited=sum(count > 0 for count in visits.values()),
            visits_max=max(visits.values()),
            tasks_owned=len(owners),
            tasks_used=len(used),
            tasks_per_client=max(len(tasks) for tasks in self.owned.values()),
            shared_owners=sum(count > 1 for count in owners.values()),
            episodes=sum(visits.values()) * epochs * n * self.config.algorithm.group_size,
        )
