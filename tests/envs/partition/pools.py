"""Task pools for tests of partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from envs.base import Task
from envs.partition import Labels
from envs.partition.spec import BoolArray

NEUTRAL = {"c0": 2564, "c1": 1602, "c2": 962, "c3": 769, "c4": 513}
"""The synthetic pool of the goldens."""


def pool(counts: Mapping[str, int], seed: int = 7) -> list[Task]:
    """Tasks ``t0`` and on, so many of each category, in a shuffled order."""
    flat = [name for name, number in counts.items() for _ in range(number)]
    order = np.random.RandomState(seed).permutation(len(flat))
    return [Task(f"t{i}", f"do {i}", flat[place]) for i, place in enumerate(order.tolist())]


def labels(tasks: Sequence[Task], easy: Iterable[bool] | BoolArray) -> Labels:
    """Labels of all tasks."""
    return Labels({task.id: float(flag) for task, flag in zip(tasks, easy, strict=True)})


def blind(tasks: Sequence[Task], rate: float, seed: int = 11) -> Labels:
    """Labels that know nothing of categories."""
    return labels(tasks, np.random.RandomState(seed).rand(len(tasks)) < rate)


def fingerprint(indices: Iterable[int]) -> str:
    """The goldens' hash of a client's tasks."""
    return hashlib.sha256(",".join(map(str, sorted(int(i) for i in indices))).encode()).hexdigest()[:16]
