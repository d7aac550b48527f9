"""Section ``model``: the language model and the part of it that clients train."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class LoraConfig(Section):
    """Low-rank adapters (Hu et al. 2021), applied with peft."""

    rank: int = Field(8, ge=1, le=512, description="Rank r of the factors A [r, in] and B [out, r].")
    alpha: float = Field(16.0, gt=0, le=4096, description="Scale: the weight change is (alpha / rank) * B A.")
    targets: Literal["all-linear"] | tuple[str, ...] = Field(
        "all-linear", description="Module names to adapt, or `all-linear` for every projection but the output head."
    )


class ModelConfig(Section):
    """Which model, in which precision, and what of it is trained."""

    name: str = Field(
        "embedded", min_length=1, description="`embedded`, `smollm2-135m`, a Hugging Face id, or a folder with a Hugging Face model."
    )
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Precision of the weights in the engine and the learner.")
    adapter: Literal["lora", "full"] = Field("lora", description="Clients train a LoRA adapter, or all weights.")
    lora: LoraConfig = Field(LoraConfig(), description="LoRA settings; only with `adapter: lora`.")
