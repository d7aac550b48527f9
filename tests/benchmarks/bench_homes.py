"""ALFWorld's variants: what the scripted oracle still reaches, what its unperturbed plan still reaches, and how far answers differ.

Generated kitchens (``--data`` names a public folder instead). ``habit`` carries the unperturbed solution out in the variant.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from envs.alfworld.world import AlfWorldWorld
from envs.base import Task
from envs.reachability import reachability
from envs.variants import Variant, distinctness


def habit(world: AlfWorldWorld, variant: Variant, tasks: Sequence[Task]) -> float:
    """Share of tasks that the unperturbed solution solves in the variant."""
    solved = 0
    for task in tasks:
        env = world.make(variant)
        _, info = env.reset(options={"task": task})
        for action in world.oracle(task):
            _, _, terminated, truncated, info = env.step(action)
            if terminated or truncated:
                break
        solved += bool(info["success"])
    return solved / len(tasks)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="public ALFWorld games (default: 60 generated kitchens)")
    parser.add_argument("--tasks", type=int, default=40)
    args = parser.parse_args()
    world = AlfWorldWorld(args.data) if args.data else AlfWorldWorld(games=60, heldout=8)
    tasks = world.tasks("train")[: args.tasks]
    plain = world.probe()
    print(f"{len(tasks)} tasks, {plain.questions} probe replies")
    print(f"{'variant':30} {'reach':>6} {'habit':>6} {'steps':>6} {'other replies':>14}")
    for name in world.variants:
        variant = world.variant(name)
        reach = reachability(world, variant, tasks)
        apart = distinctness(plain, world.probe(variant))
        print(f"{name:30} {reach.share:6.2f} {habit(world, variant, tasks):6.2f} {reach.steps:6.1f} {apart.replies:14.3f}")


if __name__ == "__main__":
    main()
