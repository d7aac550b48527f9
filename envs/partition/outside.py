"""Partitions from outside: functions that say which client owns which tasks, in place of the knobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from envs.base import Task
from envs.partition.spec import PartitionError
from envs.registry import Registry, RegistryError

Deal = Callable[..., Mapping[str, Sequence[str]]]
"""``deal(tasks, clients, *, size, seed, **options)``: ids of every client's tasks, by client. ``tasks`` are the train tasks in order,
``clients`` the names, ``size`` the tasks that a client should own. The same arguments must give the same partition in every process."""

PARTITIONS: Registry[Deal] = Registry("partition", {})

D = TypeVar("D", bound=Deal)


def register_partition(name: str) -> Callable[[D], D]:
    """Decorate a function (``Deal``) as the partition ``name``. Raises ``RegistryError`` for a name that is taken."""

    def decorate(deal: D) -> D:
        if isinstance(deal, type) or not callable(deal):
            raise RegistryError(f"partition {name!r}: expected a function of tasks and clients, got {deal!r}")
        PARTITIONS.add(name, deal)
        return deal

    return decorate


def deal_outside(
    name: str, tasks: Sequence[Task], clients: Sequence[str], *, size: int, seed: int, options: Mapping[str, Any]
) -> dict[str, list[str]]:
    """Ids of every client's tasks as the partition ``name`` deals them.

    Raises ``PartitionError`` for options that it does not take, for what it refuses itself, and for a result of another form.
    """
    deal = PARTITIONS.get(name)
    try:
        dealt = deal(tuple(tasks), tuple(clients), size=size, seed=seed, **options)
    except TypeError as error:
        raise PartitionError(f"options = {dict(options)}: {error}") from error
    except ValueError as error:
        raise PartitionError(f"name = {name!r}: {error}") from error
    if not isinstance(dealt, Mapping):
        raise PartitionError(f"name = {name!r}: gave a {type(dealt).__name__} where task ids by client were expected")
    found: dict[str, list[str]] = {}
    for client, ids in dealt.items():
        found[client] = list(ids)
        if strange := [task for task in found[client] if not isinstance(task, str)]:
            raise PartitionError(f"name = {name!r}: client {client} was given {strange[0]!r}, which is no task id (a text)")
        if len(set(found[client])) < len(found[client]):
            twice = next(task for task in found[client] if found[client].count(task) > 1)
            raise PartitionError(f"name = {name!r}: client {client} was given task {twice!r} twice")
    return found
