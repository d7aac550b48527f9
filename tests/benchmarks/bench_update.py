"""A GRPO update against TRL's ``GRPOTrainer`` (P3): same model, adapter, rows, mini-batches, old log-probabilities and optimizer.

Run: ``python -m tests.benchmarks.bench_update [--repeats 5]``. Prints one line per number; asserts nothing. Ours is
``LearnerWorker.update`` whole: rows, advantages, reference, DeepSpeed steps, content hash. TRL's is the least that its trainer does for
the same rows: reference log-probabilities without the adapter, its loss, backward, clipping and AdamW, without its generation,
logging and data loading, on rows that are padded beforehand. Its KL correction is off, so that both minimise the same loss.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipeline.algorithms.base import Rows
from pipeline.algorithms.batching import plan_update
from pipeline.algorithms.grpo import GRPO
from pipeline.config import AlgorithmConfig, LearnerConfig, ModelConfig
from pipeline.episodes import Episode
from pipeline.models import get_state, load_model, load_tokenizer, set_state
from tests.episode_cases import episode, turn
from tests.tiny_model import make_tiny_model, random_adapter

SEED = 11
CONFIG = AlgorithmConfig(entropy_coef=0.0)
SHAPES = {
    "demo: 40-100 prompt, 2-6 response tokens": ((40, 100), (2, 7)),
    "long: 200-400 prompt, 16-64 response tokens": ((200, 401), (16, 65)),
}


def batch_of_episodes(prompt: tuple[int, int], response: tuple[int, int]) -> list[Episode]:
    """Eight groups of eight episodes of 3-6 turns."""
    rng = np.random.default_rng(0)

    def one() -> Any:
        ids = rng.integers(3, 300, int(rng.integers(*response))).tolist()
        return turn(
            rng.integers(3, 300, int(rng.integers(*prompt))).tolist(), ids, logprobs=(-5.7 + 0.1 * rng.standard_normal(len(ids))).tolist()
        )

    return [
        episode([one() for _ in range(int(rng.integers(3, 7)))], 10.0 * bool(rng.random() < 0.5), task=f"t{group}", group=group)
        for group in range(8)
        for _ in range(8)
    ]


def padded(values: list[Any], dtype: torch.dtype, *, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Values as a matrix, and its mask."""
    width = max(len(v) for v in values)
    data, mask = torch.zeros(len(values), width, dtype=dtype), torch.zeros(len(values), width, dtype=torch.long)
    for row, value in enumerate(values):
        place = slice(width - len(value), width) if left else slice(0, len(value))
        data[row, place], mask[row, place] = torch.as_tensor(np.asarray(value), dtype=dtype), 1
    return data, mask


def trl_batches(rows: Rows, learner: LearnerConfig) -> list[dict[str, torch.Tensor]]:
    """The mini-batches that our plan makes of ``rows``, in TRL's layout."""
    batches = []
    for plan in plan_update(rows, passes=1, mini_batch=learner.mini_batch, workers=1, budget=10**9, seed=SEED):
        index = np.concatenate([m.rows for m in plan.workers[0]])
        lengths = rows.response_lengths[index].tolist()
        prompt_ids, prompt_mask = padded([rows.tokens[i][:-n] for i, n in zip(index, lengths, strict=True)], torch.long, left=True)
        completion_ids, completion_mask = padded([rows.tokens[i][-n:] for i, n in zip(index, lengths, strict=True)], torch.long)
        batches.append(
            {
                "prompt_ids": prompt_ids,
                "prompt_mask": prompt_mask,
                "completion_ids": completion_ids,
                "completion_mask": completion_mask,
                "advantages": torch.from_numpy(rows.advantages[index]),
                "old_per_token_logps": padded([rows.logprobs[i] for i in index], torch.float32)[0],
                "num_items_in_batch": torch.tensor(float(plan.tokens)),
            }
        )
    return batches


def trl_trainer(folder: Path, config: ModelConfig, out: Path) -> Any:
    """TRL's trainer around the same model and adapter."""
    import trl
    from datasets import Dataset
    from peft import LoraConfig

    trainer = trl.GRPOTrainer(
        model=load_model(folder),
        peft_config=LoraConfig(r=config.lora.rank, lora_alpha=config.lora.alpha, target_modules="all-linear", task_type="CAUSAL_LM"),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(out),
            loss_type="bnpo",
            beta=CONFIG.kl_coef,
            epsilon=CONFIG.clip_low,
            epsilon_high=CONFIG.clip_high,
            delta=CONFIG.dual_clip,
            use_bias_correction_kl=False,
            per_device_train_batch_size=2,
            num_generations=2,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            report_to=[],
        ),
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=load_tokenizer(folder),
    )
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return trainer


def trl_update(trainer: Any, batches: list[dict[str, torch.Tensor]], learner: LearnerConfig) -> list[float]:
    """The least that TRL's trainer does for these rows; the losses of its steps."""
    model = trainer.model
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, lr=learner.lr, betas=(learner.beta1, learner.beta2), weight_decay=learner.weight_decay, fused=True
    )
    losses = []
    for batch in batches:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
        with torch.no_grad(), model.disable_adapter():
            ref = trainer._get_per_token_logps_and_entropies(model, ids, mask, batch["completion_ids"].shape[1])[0]
        loss = trainer._compute_loss(model, {**batch, "ref_per_token_logps": ref})
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, learner.grad_clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def race(folder: Path, out: Path, name: str, repeats: int) -> None:
    """One shape of rows."""
    from actors.learning import LearnerSettings, LearnerWorker, UpdateRequest

    model = ModelConfig()
    learner = LearnerConfig()
    episodes = batch_of_episodes(*SHAPES[name])
    start = random_adapter(folder, model.lora, 1, scale=0.02)
    worker = LearnerWorker(LearnerSettings(folder, model, learner, CONFIG))
    rows = GRPO(CONFIG).rows(episodes)
    batches = trl_batches(rows, learner)
    trainer = trl_trainer(folder, model, out)
    mine, theirs = [], []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        result = worker.update(UpdateRequest("bench", 0, 0, SEED), start, episodes)
        mine.append(time.perf_counter() - began)
        set_state(trainer.model, start)
        began = time.perf_counter()
        losses = trl_update(trainer, batches, learner)
        theirs.append(time.perf_counter() - began)
    weights = [b["num_items_in_batch"].item() for b in batches]
    loss = float(np.average(losses, weights=weights))
    final = get_state(trainer.model)
    gap = max(float(np.abs(final[k] - v).max()) for k, v in result.state.items())
    ours, trl = statistics.median(mine[1:]), statistics.median(theirs[1:])
    tokens = int(rows.lengths.sum())
    print(f"{name} ({len(rows)} rows, {tokens} tokens, {len(batches)} steps)")
    print(f"  fedagent {ours:.3f} s ({tokens / ours:,.0f} tokens/s)   TRL {trl:.3f} s   ratio {ours / trl:.2f}x")
    print(
        f"  mean loss {result.report.metrics['loss']:.6f} against {loss:.6f}; largest difference of an adapter weight afterwards {gap:.1e}"
    )


def main() -> None:
    """Run all shapes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        tiny = make_tiny_model(Path(folder) / "tiny", scale=0.05)
        for name in SHAPES:
            race(tiny, Path(folder) / "out", name, args.repeats)


if __name__ == "__main__":
    main()
