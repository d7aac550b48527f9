"""Stage content, family ``catalog_split``: which products a client's shop has on sale.

Every product that is not protected gets a number, mixed of one that all clients share and one of the client's own; those with the largest
numbers are taken off sale. Goals, prices, texts and scores of the search stay those of the whole catalogue. Owns the choice of products,
in the sound and in the published form; knows nothing of searching.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from envs.partition.uniform import uniform_slices
from envs.webshop.goals import Goals

SHARED_SEED = 42


def on_sale(total: int, protected: Collection[int], divergence: float, keep: float, own: np.random.Generator) -> npt.NDArray[np.bool_]:
    """A flag per product, in order of ids: all ``protected`` ones (by their place in that order) and the share ``keep`` of the others.

    ``divergence`` in [0, 1] is the weight of the client's ``own`` draw: at 0 all clients keep the same products. With a smaller ``keep``
    nothing returns that was gone before. Raises ``ValueError`` for numbers out of range.
    """
    _in_range(divergence, keep)
    shared = np.random.Generator(np.random.PCG64(SHARED_SEED)).random(total)
    return _keep_smallest((1 - divergence) * shared + divergence * own.random(total), protected, keep)


def published_on_sale(total: int, targets: Collection[int], divergence: float, keep: float, client: int) -> npt.NDArray[np.bool_]:
    """The published choice for client number ``client``, in the form of ``on_sale``."""
    _in_range(divergence, keep)
    shared = np.random.RandomState(SHARED_SEED).rand(total)
    own = np.random.RandomState((SHARED_SEED + 1000 * client) % 2**32).rand(total)
    return _keep_smallest((1 - divergence) * shared + divergence * own, targets, keep)


def _in_range(divergence: float, keep: float) -> None:
    for name, value in (("divergence", divergence), ("keep_ratio", keep)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"option {name} = {value:g} of variant 'catalog_split'; allowed: 0 to 1")


def _keep_smallest(numbers: npt.NDArray[np.float64], protected: Collection[int], keep: float) -> npt.NDArray[np.bool_]:
    flags = np.zeros(len(numbers), dtype=bool)
    flags[list(protected)] = True
    candidates = np.flatnonzero(~flags)
    order = candidates[np.argsort(numbers[candidates], kind="stable")]
    flags[order[: round(keep * len(candidates))]] = True
    return flags


def published_targets(goals: Goals, first: int, client: int, clients: int, minimum: int) -> set[str]:
    """Ids of the products that the published code protects for client number ``client``: those of its slice of the train goals (from
    index ``first``), but in the order in which goals are made instead of the order in which they are served."""
    made = generation_order(goals)[first:]
    return {made[index] for index in uniform_slices(len(made), clients, minimum)[client]}


def generation_order(goals: Goals) -> list[str]:
    """Product ids of all goals in the order in which they are made, grouped by product: the published code protects by this order,
    while tasks are served in a shuffled one."""
    positions = sorted((goals.product_position(index), index) for index in range(len(goals)))
    return [goals.catalogue.asin(position) for position, _ in positions]
