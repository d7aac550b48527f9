"""Building the embedded model: catalogues, demonstrations, tokenizer, warm start, gates, folder. Seeded; a few minutes on one core.

Owns the order of the steps and the folder's contents. ``python -m pipeline.embedded.build OUT`` does the same from the command line.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from envs.base import Task, World, make_world
from envs.webshop import generate
from pipeline.embedded import gates, warmstart
from pipeline.embedded.demos import Amounts, Shop, record, write_lookalike
from pipeline.embedded.folder import Progress, encode, rich_progress, write_folder
from pipeline.embedded.gates import Gates, Measured, Sampler
from pipeline.embedded.shopper import Skill
from pipeline.embedded.tokenizer import train_tokenizer
from pipeline.embedded.visit import Turn
from pipeline.embedded.warmstart import Recipe

PRODUCTS = 400
CATALOGUE_SEED = 0
"""The embedded catalogue: ``world.products`` and ``world.data_seed`` by default."""

WORLD_OPTIONS: dict[str, Any] = {"results_per_page": 4, "max_steps": 8, "heldout": 400}


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is built. ``sisters`` and ``lookalikes`` are catalogue seeds used for demonstrations only."""

    seed: int = 0
    amounts: Amounts = field(default_factory=Amounts)
    skill: Skill = field(default_factory=Skill)
    recipe: Recipe = field(default_factory=Recipe)
    gates: Gates = field(default_factory=Gates)
    sisters: tuple[int, ...] = tuple(range(1001, 1006))
    lookalikes: tuple[int, ...] = tuple(range(1006, 1009))
    gate_tasks: int = 300


def build(
    out_dir: Path | str, seed: int = 0, scale: float = 1.0, *, plan: Plan | None = None, progress: Progress | None = None
) -> Measured:
    """Build the model into ``out_dir`` (replaced when it exists) and return what the gates measured.

    ``scale`` multiplies the number of demonstrated turns; ``plan`` takes the place of both. Without ``progress``, bars are drawn on the
    terminal. The same plan gives the same folder on the same machine and library versions. Raises ``GateError`` when a gate is missed;
    then nothing is written.
    """
    plan = plan or Plan(seed=seed, amounts=Amounts().scaled(scale))
    if progress is not None:
        return _build(Path(out_dir), plan, progress)
    with rich_progress() as bars:
        return _build(Path(out_dir), plan, bars)


def _build(out: Path, plan: Plan, say: Progress) -> Measured:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _steps(out, plan, say)
    finally:
        torch.set_num_threads(threads)


def _steps(out: Path, plan: Plan, say: Progress) -> Measured:
    with tempfile.TemporaryDirectory(prefix="fedagent-build-") as scratch:
        world, shops = _shops(plan, Path(scratch), say)
        turns = _demonstrations(shops, plan, say)
        tokenizer = train_tokenizer(text for turn in turns[:: max(1, len(turns) // 30_000)] for text in (turn.prompt, turn.response))
        rows = encode(tokenizer, turns, say)
        model = warmstart.new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, plan.seed)
        loss = warmstart.train(model, rows, plan.recipe, plan.seed, lambda done, total, _: say("warm start", done, total))
        say("gates", 0, 1)
        measured = gates.measure(Sampler(model, tokenizer, plan.seed), world, world.tasks("heldout")[: plan.gate_tasks])
        say("gates", 1, 1)
        gates.check(measured, plan.gates)
        write_folder(out, model, tokenizer, gates.MAX_NEW_TOKENS, _described(model, tokenizer, plan, measured, loss, len(rows)))
    return measured


def embedded_world(folder: Path | None = None, cache_dir: Path | None = None) -> World:
    """The world of the embedded model: the generated catalogue with four results per page and eight turns."""
    data = folder or generate.ensure_generated(cache_dir, PRODUCTS, CATALOGUE_SEED)
    return make_world("webshop", data_dir=data, cache_dir=cache_dir, **WORLD_OPTIONS)


def _shops(plan: Plan, scratch: Path, say: Progress) -> tuple[World, list[Shop]]:
    """The embedded world, and the shops to record in: its train tasks, sister catalogues, catalogues with lookalikes."""
    total = 1 + len(plan.sisters) + len(plan.lookalikes)
    world = embedded_world(generate.write(scratch / "embedded", PRODUCTS, CATALOGUE_SEED), scratch / "cache")
    shops = [Shop(world, world.tasks("train"))]
    say("catalogues", 1, total)
    for seed in (*plan.sisters, *plan.lookalikes):
        fake = seed in plan.lookalikes
        folder = (write_lookalike if fake else generate.write)(scratch / f"catalogue-{seed}", PRODUCTS, seed)
        sister = embedded_world(folder, scratch / "cache")
        tasks: Sequence[Task] = [*sister.tasks("train"), *sister.tasks("heldout")]
        shops.append(Shop(sister, tasks, lookalike=fake))
        say("catalogues", len(shops), total)
    return world, shops


def _demonstrations(shops: Sequence[Shop], plan: Plan, say: Progress) -> list[Turn]:
    amounts = plan.amounts
    total = amounts.episodes + amounts.results + amounts.leaving + amounts.buying
    done = 0

    def count(new: int) -> None:
        nonlocal done
        done += new
        say("demonstrations", done, total)

    turns = record(shops, plan.amounts, plan.skill, plan.seed, count)
    random.Random(f"turns-{plan.seed}").shuffle(turns)
    return turns


def _described(model: Any, tokenizer: Any, plan: Plan, measured: Measured, loss: float, rows: int) -> dict[str, Any]:
    return {
        "command": f"fedagent model build --out DIR --seed {plan.seed}",
        "catalogue": {
            "products": PRODUCTS,
            "seed": CATALOGUE_SEED,
            "key": generate.catalogue_key(PRODUCTS, CATALOGUE_SEED),
            **WORLD_OPTIONS,
        },
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "turns": rows,
        "final_loss": round(loss, 4),
        "measured": measured.as_dict(),
        "plan": asdict(plan),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: build into a folder and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.embedded.build", description=build.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0, help="number of demonstrated turns, times this")
    options = parser.parse_args(arguments)
    measured = build(options.out, options.seed, options.scale)
    print(json.dumps(measured.as_dict(), indent=1))


if __name__ == "__main__":
    main()
