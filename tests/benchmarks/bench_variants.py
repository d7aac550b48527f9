"""What every WebShop variant does: where the wanted product ranks, what stays in reach, how far it is from the unperturbed shop.

Run: ``python -m tests.benchmarks.bench_variants [--data FOLDER] [--tasks 200] [--family NAME ...]``. Prints one row per member and asserts
nothing. Without ``--data`` the generated catalogue of 400 products is used (4 rows a page, 8 actions), else the folder's (10 rows, 15).

Columns: median rank of the first good row for the query "attributes kind" (1 is best); reach, the share of train tasks that the scripted
oracle still solves; habit, the share that the unperturbed shop's solution still solves when carried out here row for row; Jaccard of the
first ten hits, share of queries with another first hit, and share of replies that differ, all against the unperturbed shop; and
milliseconds: to make the variant for the first time, and for one oracle plan.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envs.base import Task
from envs.reachability import reachability
from envs.variants import Probe, Variant, distinctness
from envs.webshop.generate import ensure_generated
from envs.webshop.oracle import purchases, typeable
from envs.webshop.variants import FAMILIES
from envs.webshop.world import WebShopWorld

CLIENTS = 3
"""Clients shown of a family that is drawn per client."""


def target_rank(world: WebShopWorld, variant: Variant, tasks: Sequence[Task]) -> float:
    """Median rank of the first row that solves the task, from 1; not among the hits counts as infinity."""
    shop, rng, ranks = world._variants.shop(variant), variant.rng("bench"), []
    for task in tasks:
        goal = world.shop.goals[task.payload["goal"]]
        good = {purchase.position for purchase in purchases(shop, goal)}
        if not good:
            continue
        query = typeable(f"{' '.join(goal['attributes'])} {goal['query']}").lower()
        hits = list(shop.find(query.split(" "), rng))
        ranks.append(min((hits.index(position) + 1 for position in good if position in hits), default=float("inf")))
    return statistics.median(ranks)


def habit(world: WebShopWorld, variant: Variant, tasks: Sequence[Task]) -> float:
    """Share of tasks that the unperturbed shop's solution solves in the variant, with the row of the same place opened on a page."""
    plain, env, solved = world.make(), world.make(variant), 0
    for task in tasks:
        there, here = (place.reset(options={"task": task})[1] for place in (plain, env))
        for action in world.oracle(task):
            followed = action
            rows, shown = results(there), results(here)
            if action in rows and rows.index(action) < len(shown):
                followed = shown[rows.index(action)]
            _, _, terminated, truncated, here = env.step(followed)
            there = plain.step(action)[4]
            if terminated or truncated:
                break
        solved += here["success"]
    return solved / len(tasks)


def results(info: Mapping[str, Any]) -> list[str]:
    """Clicks on the rows of a results page; none on another page."""
    offered = list(info["admissible"])
    return offered[offered.index("click[next >]") + 1 :] if "click[next >]" in offered else []


def row(world: WebShopWorld, name: str, variant: Variant, tasks: Sequence[Task], base: Probe) -> str:
    """One line of the table."""
    variant = world.variant(variant)
    begin = time.perf_counter()
    world.make(variant)
    made = time.perf_counter() - begin
    begin = time.perf_counter()
    for task in tasks:
        world.oracle(task, variant)
    planned = (time.perf_counter() - begin) / len(tasks)
    reach = reachability(world, variant, tasks).share
    far = distinctness(base, world.probe(variant))
    return (
        f"{name:36} {target_rank(world, variant, tasks):6.1f} {reach:6.2f} {habit(world, variant, tasks):6.2f} {far.jaccard:8.2f} "
        f"{far.top1:6.2f} {far.replies:8.2f} {made * 1e3:8.1f} {planned * 1e3:8.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="data folder; default: the generated catalogue")
    parser.add_argument("--tasks", type=int, default=200, help="train tasks per row")
    parser.add_argument("--family", nargs="*", choices=sorted(FAMILIES), help="families to show; default: all")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        if asked.data:
            world = WebShopWorld(asked.data, cache_dir=cache)
        else:
            folder = ensure_generated(cache, 400, 0)
            world = WebShopWorld(folder, results_per_page=4, max_steps=8, heldout=400, cache_dir=cache)
        train, base = list(world.tasks("train")), world.probe()
        head = (
            f"{'variant':36} {'rank':>6} {'reach':>6} {'habit':>6} {'Jaccard':>8} {'top-1':>6} {'replies':>8} {'make ms':>8} {'plan ms':>8}"
        )
        print(head, flush=True)
        step = max(1, len(train) // asked.tasks)
        mixed = train[::step][: asked.tasks]
        print(row(world, "default", Variant(), mixed, base), flush=True)
        for family in FAMILIES.values():
            if asked.family and family.name not in asked.family:
                continue
            for member in family.members:
                print(row(world, f"{family.name}:{member}", Variant(family.name, member), mixed, base), flush=True)
            for client in range(CLIENTS if family.per_client else 0):
                own = train[client * asked.tasks : (client + 1) * asked.tasks]
                variant = Variant(family.name, stream=client, protected=tuple(task.id for task in own))
                print(row(world, f"{family.name} (client {client})", variant, own, base), flush=True)


if __name__ == "__main__":
    main()
