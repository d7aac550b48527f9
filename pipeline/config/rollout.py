"""Section ``rollout``: engines, sampling, prompts and environment pools."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class RolloutConfig(Section):
    """How episodes are generated."""

    backend: Literal["vllm", "transformers"] = Field("vllm", description="Rollout engine; `transformers` is the deterministic reference.")
    engines: int = Field(1, ge=1, le=1024, description="Rollout actors, each with one engine.")
    temperature: float = Field(1.0, gt=0, le=5, description="Sampling temperature of training episodes.")
    max_new_tokens: int = Field(
        12, ge=1, le=8192, description="Longest response of a turn, in tokens. Default: 12; other models than the embedded one 512."
    )
    max_context: int | None = Field(
        None,
        ge=32,
        le=1_048_576,
        description="Longest prompt plus response, in tokens. Default: the smaller of the model's limit and 4096.",
    )
    template: Literal["auto", "short", "memory", "plain", "tags"] = Field(
        "auto",
        description="Prompt form: `short` for the embedded shop model, `memory` (a notebook of the episode) for that of ALFWorld, "
        "`plain` for that of the toy worlds, `tags` (think and action tags) for others; `auto` chooses.",
    )
    history: int = Field(2, ge=0, le=1000, description="Past turns shown in a prompt.")
    max_num_seqs: int = Field(256, ge=1, le=65_536, description="Sequences that an engine decodes at once.")
    max_batched_tokens: int = Field(16_384, ge=64, le=1_048_576, description="Tokens that an engine processes in one step.")
    kv_cache_gb: float = Field(1.0, gt=0, le=4096, description="Key-value cache of a CPU engine, in GiB; ignored by GPU engines.")
    gpu_memory_utilization: float = Field(0.6, gt=0, le=1, description="Share of a GPU's memory that an engine takes.")
    tensor_parallel: int = Field(1, ge=1, le=64, description="GPUs per engine.")
    adapter_slots: int | None = Field(None, ge=1, le=4096, description="LoRA adapters in one batch. Default: what the plan needs.")
    self_test: bool = Field(True, description="Compare engine and learner log-probabilities before training and after the first update.")
    self_test_tolerance: float | None = Field(
        None, gt=0, le=10, description="Largest accepted log-probability gap. Default: 0.002 for float32, 0.1 for bfloat16."
    )
    env_workers: int = Field(1, ge=1, le=4096, description="Environment processes per engine.")
    env_slots: int = Field(256, ge=1, le=65_536, description="Environments per process.")
    env_deadline_s: float = Field(60.0, gt=0, le=3600, description="Seconds that one batch of environment steps may take.")
    env_retries: int = Field(2, ge=0, le=100, description="Fresh attempts of an episode whose environment died or timed out.")
