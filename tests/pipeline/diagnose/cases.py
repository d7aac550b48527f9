"""Built federations whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence

from envs.bandit import BanditWorld
from envs.base import World
from envs.variants import Variant
from pipeline.diagnose import ClientSetup, Diagnosis, Settings, diagnose

QUICK = Settings(tasks=20)


def clients_in(world: World, variants: Sequence[str | Variant], n: int = 6, size: int = 20) -> dict[str, ClientSetup]:
    """``n`` clients with tasks of their own, in the variants by turns."""
    tasks = world.tasks("train")
    return {f"c{i:03d}": ClientSetup(tasks[i * size : (i + 1) * size], variants[i % len(variants)]) for i in range(n)}


def payoffs(*values: float) -> Variant:
    """A bandit variant with these probabilities."""
    return Variant("payoffs", options=(("values", ",".join(map(str, values))),))


def bandit(first: Sequence[float], second: Sequence[float], horizon: int = 1, settings: Settings = QUICK) -> Diagnosis:
    """Half of the clients in a bandit with the first probabilities, half with the second."""
    world = BanditWorld(values=first, horizon=horizon)
    return diagnose(world, clients_in(world, ["default", payoffs(*second)]), settings)
