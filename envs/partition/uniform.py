"""Uniform partition: equal slices of a task list, the published ones and even ones. Knows indices only, not tasks or clients' names."""

from __future__ import annotations

import numpy as np

from envs.partition.spec import IntArray


def even_slices(n: int, clients: int, size: int) -> list[IntArray]:
    """``size`` neighbouring indices for every client, as even as whole numbers allow.

    Disjoint where there are enough tasks for all. Else the list is a ring on which the slices begin at equal distances: every task has an
    owner, any two tasks have equally many up to one or two, and neighbours share the same everywhere, also across the list's ends.
    Raises ``ValueError`` as ``uniform_slices`` does.
    """
    if clients * size <= n:
        return [np.arange(part.start, part.start + size) for part in uniform_slices(n, clients, size)]
    uniform_slices(n, clients, size)
    return [(client * n // clients + np.arange(size)) % n for client in range(clients)]


def uniform_slices(n: int, clients: int, minimum: int) -> list[range]:
    """Indices that each client owns under the published rule.

    Client ``c`` owns ``[c * (n // clients), (c + 1) * (n // clients))``. A slice shorter than ``minimum`` is widened on both sides (the
    smaller half on the left); what does not fit at one end of the list goes to the other side, so that the slice has exactly
    ``minimum`` indices and neighbours overlap.

    Raises ``ValueError`` when there are no clients, or fewer tasks than ``minimum``.
    """
    if clients < 1 or minimum < 1:
        raise ValueError(f"uniform partition: {clients} clients, at least {minimum} tasks each; both must be 1 or more")
    if n < minimum:
        raise ValueError(f"uniform partition: a client must own at least {minimum} tasks, but there are only {n}")
    base = n // clients
    if base >= minimum:
        return [range(c * base, (c + 1) * base) for c in range(clients)]
    left = (minimum - base) // 2
    slices = []
    for c in range(clients):
        start = min(max(c * base - left, 0), n - minimum)
        slices.append(range(start, start + minimum))
    return slices
