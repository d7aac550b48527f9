"""Section ``learner``: DeepSpeed groups and the optimizer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class LearnerConfig(Section):
    """How rows become a new adapter."""

    groups: int = Field(1, ge=1, le=1024, description="Learner groups; each trains one client at a time.")
    workers: int = Field(1, ge=1, le=1024, description="Data-parallel DeepSpeed workers per group.")
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage.")
    lr: float = Field(
        1e-3,
        gt=0,
        le=1,
        description="Learning rate of AdamW. Default: 1e-3, with LoRA 5e-3; other models than the embedded one 1e-6, with LoRA 1e-5.",
    )
    weight_decay: float = Field(0.01, ge=0, le=1, description="Weight decay of AdamW.")
    beta1: float = Field(0.9, ge=0, lt=1, description="First moment decay of AdamW.")
    beta2: float = Field(0.999, ge=0, lt=1, description="Second moment decay of AdamW.")
    grad_clip: float = Field(1.0, gt=0, le=1e6, description="Largest gradient norm.")
    mini_batch: int = Field(64, ge=1, le=1_000_000, description="Rows (turns) per optimizer step, over all workers.")
    micro_batch_tokens: int = Field(8192, ge=64, le=10_000_000, description="Padded tokens per forward pass of one worker.")
    optimizer_state: Literal["reset", "keep", "average"] = Field(
        "reset", description="AdamW moments between a client's visits: fresh, the client's own, or averaged by the server."
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads per worker.")
    gradient_checkpointing: bool = Field(False, description="Recompute activations in the backward pass to save memory.")
