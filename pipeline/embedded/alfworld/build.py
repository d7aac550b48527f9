"""Building the embedded ALFWorld model: games, demonstrations, tokenizer, warm start, gates, folder. Seeded; a few minutes on one core.

Owns the order of the steps, which games are for what, and the model's start. ``python -m pipeline.embedded.alfworld.build OUT`` does the
same from the command line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from envs.alfworld import TASK_TYPES, AlfWorld
from envs.alfworld import generate as games
from envs.alfworld.generate import Settings
from envs.alfworld.placement import ROOMS
from pipeline.embedded import warmstart
from pipeline.embedded.alfworld import gates
from pipeline.embedded.alfworld.demos import Amounts, record, renamed, things
from pipeline.embedded.alfworld.gates import Gates, Measured
from pipeline.embedded.alfworld.housekeeper import Skill
from pipeline.embedded.alfworld.tokenizer import make_tokenizer, relatives
from pipeline.embedded.folder import Progress, encode, rich_progress, write_folder
from pipeline.embedded.gates import Sampler
from pipeline.embedded.warmstart import Recipe, Row, Shape

DEMONSTRATION_SEED = 1001
"""Seed of the demonstrated rooms and games; runs use others (``world.data_seed`` is 0 by default)."""

NUMBER_WEIGHT = 0.5
"""How much of the start vector of ``cabinet 2`` is the number's, beside that of ``cabinet``."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is built. ``renamed`` is the share of turns with exchanged names, ``passes`` how often each is used."""

    seed: int = 0
    games: int = 1800
    passes: int = 5
    renamed: float = 0.7
    amounts: Amounts = field(default_factory=Amounts)
    skill: Skill = field(default_factory=Skill)
    shape: Shape = field(default_factory=Shape)
    recipe: Recipe = field(default_factory=lambda: Recipe(lr=4e-3))
    gates: Gates = field(default_factory=Gates)
    gate_games: int = 300
    wide_games: int = 120


def build(out_dir: Path | str, seed: int = 0, *, plan: Plan | None = None, progress: Progress | None = None) -> Measured:
    """Build the model into ``out_dir`` (replaced when it exists) and return what the gates measured.

    ``plan`` takes the place of ``seed``. Without ``progress``, bars are drawn on the terminal. The same plan gives the same folder on the
    same machine and library versions. Raises ``GateError`` when a gate is missed; then nothing is written.
    """
    plan = plan or Plan(seed=seed)
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
        shown, heldout, wide = _worlds(plan, Path(scratch), say)
        names = shown.games("train")
        done = 0

        def count(new: int) -> None:
            nonlocal done
            done += new
            say("demonstrations", done, len(names))

        turns = record(shown, names, plan.skill, plan.amounts, plan.seed, count)
        tokenizer = make_tokenizer(things())
        rows = encode(tokenizer, turns, say, (tokenizer.eos_token_id,))
        model = new_model(tokenizer, plan)
        used = list(renamed(rows, tokenizer, plan.renamed, plan.passes, plan.seed))
        loss = train(model, used, plan, say)
        say("gates", 0, 1)
        sampler = Sampler(model, tokenizer, plan.seed)
        held = _heldout(heldout, plan.gate_games)
        measured = gates.measure(sampler, heldout, held, names[:: max(1, len(names) // plan.gate_games)], plan.amounts.max_steps, shown)
        say("gates", 1, 1)
        gates.check(measured, plan.gates)
        everywhere = gates.play(sampler, wide, wide.games("valid_unseen"), 1.0, plan.amounts.max_steps)
        described = {
            "command": f"fedagent model build --world alfworld --out DIR --seed {plan.seed}",
            "games": {
                "seed": DEMONSTRATION_SEED,
                "count": len(names),
                "max_steps": plan.amounts.max_steps,
                "heldout_seed": Settings().seed,
            },
            "parameters": sum(p.numel() for p in model.parameters()),
            "vocabulary": len(tokenizer),
            "turns": len(rows),
            "final_loss": round(loss, 4),
            "measured": measured.as_dict(),
            "all_rooms_and_task_types": {"success": everywhere.success, "by_type": dict(everywhere.by_type), "games": plan.wide_games},
            "plan": asdict(plan),
        }
        write_folder(out, model, tokenizer, gates.MAX_NEW_TOKENS, described)
    return measured


def new_model(tokenizer: Any, plan: Plan) -> Any:
    """A fresh model whose vectors of numbered things start near those of their kind, and whose output head starts as its embedding.

    Both make copying easy: what is read and what is written of one thing begin alike, and so do an ``apple`` and an ``apple 1``.
    """
    model = warmstart.new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, plan.seed, plan.shape)
    vocabulary = tokenizer.get_vocab()
    generator = torch.Generator().manual_seed(plan.seed)
    scale = (1.0 + NUMBER_WEIGHT**2) ** -0.5
    with torch.no_grad():
        vectors = model.model.embed_tokens.weight
        found = relatives(vocabulary)
        numbers = {
            number: torch.randn(vectors.shape[1], generator=generator) * warmstart.INITIAL_STD
            for number in sorted({number for _, number in found.values()})
        }
        for token, (kind, number) in found.items():
            vectors[vocabulary[token]] = (vectors[vocabulary[kind]] + NUMBER_WEIGHT * numbers[number]) * scale
        model.lm_head.weight.copy_(vectors)
    return model


def train(model: Any, rows: Sequence[Row], plan: Plan, say: Progress) -> float:
    """The warm start; the last smoothed loss."""
    return warmstart.train(model, rows, plan.recipe, plan.seed, lambda done, total, _: say("warm start", done, total))


def _worlds(plan: Plan, scratch: Path, say: Progress) -> tuple[AlfWorld, AlfWorld, AlfWorld]:
    """Demonstrated games in all rooms and of all task types; the held-out games of the default world; held-out games of all kinds."""
    half = plan.gate_games // 2
    wanted = (
        Settings(games=plan.games, seen=0, unseen=1, rooms=ROOMS, task_types=TASK_TYPES, scenes=80, seed=DEMONSTRATION_SEED),
        Settings(games=1, seen=half, unseen=plan.gate_games - half),
        Settings(games=1, seen=0, unseen=plan.wide_games, rooms=ROOMS, task_types=TASK_TYPES),
    )
    found = []
    for place, settings in enumerate(wanted):
        say("games", place, len(wanted))
        found.append(AlfWorld(games.write(scratch / f"games-{place}", settings, scratch / "cache"), scratch / "cache"))
    say("games", len(wanted), len(wanted))
    return found[0], found[1], found[2]


def _heldout(world: AlfWorld, most: int) -> list[str]:
    return [*world.games("valid_seen"), *world.games("valid_unseen")][:most]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: build into a folder and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.embedded.alfworld.build", description=build.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    measured = build(options.out, options.seed)
    print(json.dumps(measured.as_dict(), indent=1))


if __name__ == "__main__":
    main()
