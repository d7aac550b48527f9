"""The GRPO loss and its gradient against TRL's own trainer on the same model, tokens, advantages and old log-probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from pipeline.algorithms.batching import MicroPlan, collate
from pipeline.algorithms.grpo import GRPO
from pipeline.algorithms.losses import token_logprobs
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.models import load_model, load_tokenizer
from tests.episode_cases import random_episodes
from tests.tiny_model import make_tiny_model

pytestmark = pytest.mark.slow


def padded(values: list[Any], *, left: bool, fill: float, dtype: torch.dtype) -> torch.Tensor:
    width = max(len(v) for v in values)
    rows = [[fill] * (width - len(v)) + list(v) if left else list(v) + [fill] * (width - len(v)) for v in values]
    return torch.tensor(rows, dtype=dtype)


@pytest.mark.parametrize(("dual", "kl_coef", "estimator"), [(3.0, 0.04, "k3"), (3.0, 0.04, "k3_unbiased"), (None, 0.0, "k3")])
def test_loss_and_gradient_equal_trl(tmp_path: Path, dual: float | None, kl_coef: float, estimator: Literal["k3", "k3_unbiased"]) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    folder = make_tiny_model(tmp_path / "tiny", scale=0.1)
    episodes = random_episodes(2, 4, gap=0.5)
    config = AlgorithmConfig(kl_coef=kl_coef, kl_estimator=estimator, entropy_coef=0.0, dual_clip=dual, clip_low=0.2, clip_high=0.3)
    algorithm = GRPO(config)
    rows = algorithm.rows(episodes)
    rng = np.random.default_rng(1)
    # Sampler log-probabilities on both sides of the clip range, and for some tokens beyond the dual clip.
    model = load_model(folder)
    batch = collate(rows, MicroPlan(np.arange(len(rows))))
    with torch.no_grad():
        hidden = model.model(batch.input_ids).last_hidden_state.flatten(0, 1)[batch.positions]
        exact, _ = token_logprobs(hidden, model.lm_head, batch.targets)
    ends = np.cumsum(rows.response_lengths)[:-1]
    old = np.split((exact.numpy() + rng.normal(0, 0.7, len(exact))).astype(np.float32), ends)
    ref = np.split((exact.numpy() + rng.normal(0, 0.3, len(exact))).astype(np.float32), ends)

    trainer = trl.GRPOTrainer(
        model=load_model(folder),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(
            output_dir=str(tmp_path / "out"),
            loss_type="bnpo",
            beta=kl_coef,
            epsilon=0.2,
            epsilon_high=0.3,
            delta=dual,
            use_bias_correction_kl=estimator == "k3_unbiased",
            per_device_train_batch_size=2,
            num_generations=2,
            gradient_accumulation_steps=1,
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
    responses = [t[-n:] for t, n in zip(rows.tokens, rows.response_lengths.tolist(), strict=True)]
    prompts = [t[:-n] for t, n in zip(rows.tokens, rows.response_lengths.tolist(), strict=True)]
    wanted = trainer._compute_loss(
        trainer.model,
        {
            "prompt_ids": padded(prompts, left=True, fill=0, dtype=torch.long),
            "prompt_mask": padded([[1] * len(p) for p in prompts], left=True, fill=0, dtype=torch.long),
            "completion_ids": padded(responses, left=False, fill=0, dtype=torch.long),
            "completion_mask": padded([[1] * len(r) for r in responses], left=False, fill=0, dtype=torch.long),
            "advantages": torch.from_numpy(rows.advantages),
            "old_per_token_logps": padded(old, left=False, fill=0.0, dtype=torch.float32),
            "ref_per_token_logps": padded(ref, left=False, fill=0.0, dtype=torch.float32),
            "num_items_in_batch": torch.tensor(float(rows.n_response_tokens)),
        },
    )
    wanted.backward()

    rows = replace(rows, logprobs=old)
    batch = collate(rows, MicroPlan(np.arange(len(rows))), ref)
    hidden = model.model(batch.input_ids).last_hidden_state.flatten(0, 1)[batch.positions]
    logprobs, entropy = token_logprobs(hidden, model.lm_head, batch.targets)
    out = algorithm.loss(batch, logprobs, entropy, batch.ref_logprobs)
    loss = out.total / rows.n_response_tokens
    loss.backward()
    assert out.sums["clip_fraction"] > 10
    assert loss.item() == pytest.approx(wanted.item(), abs=1e-5)
    theirs = dict(trainer.model.named_parameters())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, theirs[name].grad, atol=1e-5, rtol=1e-4)
