"""The one way to a partition: from tasks, clients and a spec to who owns what.

Layers are drawn one after the other, each from streams of its own: sizes, category mixes, shares of easy tasks; then every client fills its
cells (category x label) with tasks of its own draw, without replacement (FedAgent paper, D4). Sizes alone are dealt out evenly, and with no
knob at all clients get slices of one permutation. Knows no world and no configuration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from envs.base import Task
from envs.partition import reference
from envs.partition.coverage import client_sizes, deal
from envs.partition.explicit import places
from envs.partition.hardness import Labels, easy_counts, easy_mean
from envs.partition.preference import category_counts, client_mixes
from envs.partition.spec import BoolArray, Drawn, FloatArray, IntArray, Partition, PartitionError, PartitionSpec, concentration, examples
from envs.partition.streams import stream
from envs.partition.uniform import even_slices, uniform_slices


def client_names(clients: int) -> tuple[str, ...]:
    """``c000`` and on; as many digits as the largest number needs, at least three."""
    width = max(3, len(str(clients - 1)))
    return tuple(f"c{number:0{width}d}" for number in range(clients))


def build_partition(
    tasks: Sequence[Task],
    clients: Sequence[str] | int,
    spec: PartitionSpec,
    *,
    seed: int = 0,
    labels: Labels | None = None,
    assignment: Mapping[str, Sequence[str]] | None = None,
    source: str = "",
) -> Partition:
    """Deal ``tasks`` out to ``clients`` (their names, or how many).

    ``labels`` say which tasks are easy; ``hardness`` needs them, and else they are only measured. ``assignment`` (task ids by client, from
    the file ``source``) stands in for the knobs. The same arguments give the same partition in every process.
    Raises ``PartitionError`` where tasks, labels or settings do not allow it.
    """
    names = client_names(clients) if isinstance(clients, int) else tuple(clients)
    _check_tasks(tasks)
    if not names or len(set(names)) < len(names):
        raise PartitionError(f"clients: {len(names)} names, {len(set(names))} of them different; name each client once, and at least one")
    easy = None if labels is None else labels.flags(tasks)
    if assignment is not None:
        if spec.knobs or spec.reference:
            raise PartitionError(f"partition file {source}: names every client's tasks; leave {', '.join(spec.knobs) or 'reference'} out")
        found = tuple(places(assignment, names, tasks, source))
        return Partition(spec, seed, names, tasks, found, easy, source=source or "explicit")
    _check_enough(len(tasks), len(names), spec)
    if spec.hardness is not None:
        if easy is None:
            raise PartitionError("hardness: needs labels of easy and hard tasks; `fedagent data label` writes them (setting labels)")
        easy_mean(spec, easy)
    if spec.preference is not None and len({task.category for task in tasks}) == 1:
        raise PartitionError(
            f"preference: all {len(tasks)} train tasks are of category {tasks[0].category!r}, so clients cannot prefer any; leave it out"
        )
    if spec.reference and spec.knobs:
        return Partition(spec, seed, names, tasks, _published(tasks, len(names), spec, easy), easy)
    if not spec.knobs:
        if spec.given_order or spec.reference:
            owned = tuple(np.arange(part.start, part.start + spec.size) for part in uniform_slices(len(tasks), len(names), spec.size))
        else:
            order = stream(seed, "partition").permutation(len(tasks))
            owned = tuple(order[part] for part in even_slices(len(tasks), len(names), spec.size))
        return Partition(spec, seed, names, tasks, owned, easy, Drawn(np.full(len(names), spec.size)))
    return _drawn(tasks, names, spec, seed, easy)


def _drawn(tasks: Sequence[Task], names: tuple[str, ...], spec: PartitionSpec, seed: int, easy: BoolArray | None) -> Partition:
    clients = len(names)
    sizes = client_sizes(clients, spec, len(tasks), seed)
    blank = Partition(spec, seed, names, tasks, (), easy)
    mixes = None if spec.preference is None else client_mixes(clients, blank.pool_mix, spec.preference, seed)
    if spec.knobs == ("coverage",):
        return Partition(spec, seed, names, tasks, tuple(deal(len(tasks), sizes, stream(seed, "deal"))), easy, Drawn(sizes))
    shares: FloatArray | None = None
    notes: tuple[str, ...] = ()
    if spec.hardness is None:
        parts = [(np.ones(len(tasks), dtype=bool), sizes)]
    else:
        assert easy is not None
        counts, shares, notes = easy_counts(sizes, spec, easy, seed)
        parts = [(easy, counts), (~easy, sizes - counts)]
    hands: list[list[IntArray]] = [[] for _ in names]
    for kind, (member, numbers) in enumerate(parts):
        cells = [np.flatnonzero(member & (blank.category_of == category)) for category in range(len(blank.categories))]
        capacity = np.array([len(cell) for cell in cells], dtype=np.int64)
        for client in range(clients):
            mix: FloatArray = blank.pool_mix if mixes is None else mixes[client]
            wanted = category_counts(int(numbers[client]), mix, capacity, stream(seed, "categories", kind, client))
            rng = stream(seed, "tasks", kind, client)
            pairs = zip(cells, wanted.tolist(), strict=True)
            hands[client] += [rng.choice(cell, size=n, replace=False, shuffle=False) for cell, n in pairs if n]
    owned = tuple(np.sort(np.concatenate(hand)).astype(np.int64) for hand in hands)
    return Partition(spec, seed, names, tasks, owned, easy, Drawn(sizes, mixes, shares), notes=notes)


def _published(tasks: Sequence[Task], clients: int, spec: PartitionSpec, easy: BoolArray | None) -> tuple[IntArray, ...]:
    if spec.preference is not None:
        categories = [task.category for task in tasks]
        return tuple(reference.published_preference(categories, client, spec.size, spec.preference) for client in range(clients))
    if spec.coverage is not None:
        return tuple(reference.published_coverage(len(tasks), clients, *spec.bounds(), concentration(spec.coverage)))
    assert spec.hardness is not None
    assert easy is not None
    return tuple(reference.published_hardness(easy, clients, spec.size, concentration(spec.hardness)))


def _check_tasks(tasks: Sequence[Task]) -> None:
    if not tasks:
        raise PartitionError("there are no train tasks to deal out")
    counted = Counter(task.id for task in tasks)
    if len(counted) < len(tasks):
        twice = [name for name, number in counted.items() if number > 1]
        raise PartitionError(f"task ids must be unique: {examples(twice)} stand there more than once")
    empty = [task.id for task in tasks if not task.category.strip()]
    if empty:
        raise PartitionError(f"{len(empty)} of {len(tasks)} train tasks have an empty category, for instance {examples(empty)}; name one")


def _check_enough(tasks: int, clients: int, spec: PartitionSpec) -> None:
    """Raise where a client cannot get the tasks that it needs."""
    low, mean, high = spec.bounds()
    given_low = spec.min_size is not None and low > tasks
    wanted = "min_size" if spec.coverage is not None and given_low else "mean_size" if spec.coverage is not None else "tasks_per_client"
    need = max(low, mean)
    if need > tasks:
        number = low if wanted == "min_size" else mean
        raise PartitionError(
            f"{wanted} = {number}, but the world has only {tasks} train tasks, so none of the {clients} clients can get that many; "
            f"lower it to {tasks} or less, or use a larger world"
        )
    if spec.reference and high > tasks:
        raise PartitionError(
            f"coverage: the published sizes go up to {high} tasks, the world has only {tasks}; set mean_size and max_size to at most that"
        )
