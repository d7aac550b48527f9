"""Building the embedded model of the toy worlds: demonstrations, warm start, gates, folder. Seeded; about a minute on one core.

Owns the order of the steps. ``python -m pipeline.embedded.toys.build OUT`` does the same from the command line.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from pipeline.embedded import warmstart
from pipeline.embedded.folder import Progress, encode, rich_progress, write_folder
from pipeline.embedded.gates import Sampler
from pipeline.embedded.toys import gates
from pipeline.embedded.toys.demos import Amounts, record
from pipeline.embedded.toys.gates import Gates, Measured
from pipeline.embedded.toys.tokenizer import NUMBERS, make_tokenizer
from pipeline.embedded.warmstart import Recipe, Shape


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is built. ``passes`` is how often each turn is used."""

    seed: int = 0
    passes: int = 1
    amounts: Amounts = field(default_factory=Amounts)
    shape: Shape = field(default_factory=Shape)
    recipe: Recipe = field(default_factory=Recipe)
    gates: Gates = field(default_factory=Gates)
    gate_tasks: int = 130


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
    total, done = plan.amounts.bandits + plan.amounts.guesses, 0

    def count(new: int) -> None:
        nonlocal done
        done += new
        say("demonstrations", done, total)

    turns = record(plan.amounts, plan.seed, count)
    tokenizer = make_tokenizer()
    rows = encode(tokenizer, turns, say, (tokenizer.eos_token_id,))
    model = new_model(tokenizer, plan)
    loss = warmstart.train(model, rows * plan.passes, plan.recipe, plan.seed, lambda n, of, _: say("warm start", n, of))
    say("gates", 0, 1)
    measured = gates.measure(Sampler(model, tokenizer, plan.seed), plan.gate_tasks)
    say("gates", 1, 1)
    gates.check(measured, plan.gates)
    described = {
        "command": f"fedagent model build --world toys --out DIR --seed {plan.seed}",
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "turns": len(rows),
        "final_loss": round(loss, 4),
        "measured": measured.as_dict(),
        "plan": asdict(plan),
    }
    write_folder(out, model, tokenizer, gates.MAX_NEW_TOKENS, described)
    return measured


def new_model(tokenizer: Any, plan: Plan) -> Any:
    """A fresh model in which near numbers begin alike, and so do what is read and what is written of one word.

    To the start vector of a number n, the sines and cosines of n at wavelengths from 4 to 400 are added, which makes comparing easy.
    """
    model = warmstart.new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, plan.seed, plan.shape)
    vocabulary = tokenizer.get_vocab()
    lengths = torch.logspace(math.log10(4.0), math.log10(400.0), plan.shape.width // 2)
    with torch.no_grad():
        vectors = model.model.embed_tokens.weight
        for number in range(NUMBERS):
            angles = 2 * math.pi * number / lengths
            waves = warmstart.INITIAL_STD * 2**0.5 * torch.cat([angles.sin(), angles.cos()])
            vectors[vocabulary[str(number)]] = 0.5**0.5 * (vectors[vocabulary[str(number)]] + waves)
        model.lm_head.weight.copy_(vectors)
    return model


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: build into a folder and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.embedded.toys.build", description=build.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    measured = build(options.out, options.seed)
    print(json.dumps(measured.as_dict(), indent=1))


if __name__ == "__main__":
    main()
