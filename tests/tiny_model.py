"""A randomly initialised two-layer model with a small tokenizer, as a Hugging Face folder: enough to run engines and learners."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from pipeline.config.model import LoraConfig
from pipeline.episodes import FloatArray

TEMPLATE = "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}{% if add_generation_prompt %}<|agent|>{% endif %}"


def make_tiny_model(folder: Path, *, seed: int = 0, tied: bool = False, family: str = "qwen2", scale: float = 0.2) -> Path:
    """Write the model; ``scale`` is the standard deviation of its weights, large enough that outputs are far from uniform.

    Vocabulary: 256 bytes, specials, then nothing; padded to 320. The end token is ``]``, as in the embedded model.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    folder.mkdir(parents=True, exist_ok=True)
    n_vocab, end = _write_tokenizer(folder)
    shape = {
        "vocab_size": n_vocab,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "initializer_range": scale,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": 0,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(Qwen2Config(**shape)) if family == "qwen2" else LlamaForCausalLM(LlamaConfig(**shape))
    model.save_pretrained(str(folder))
    return folder


def random_adapter(model_path: Path, config: LoraConfig, seed: int, scale: float = 0.1) -> dict[str, FloatArray]:
    """An adapter with non-zero A and B, as a state."""
    from pipeline.models import attach_lora, get_state, load_model

    rng = np.random.default_rng(seed)
    state = get_state(attach_lora(load_model(model_path), config, seed))
    return {name: (scale * rng.standard_normal(value.shape)).astype(np.float32) for name, value in state.items()}


def random_weights(model_path: Path, seed: int, scale: float = 0.05) -> dict[str, FloatArray]:
    """The model's weights plus noise, as a whole-weights state."""
    from pipeline.models import get_state, load_model

    rng = np.random.default_rng(seed)
    state = get_state(load_model(model_path))
    return {name: (value + scale * rng.standard_normal(value.shape)).astype(np.float32) for name, value in state.items()}


def _write_tokenizer(folder: Path) -> tuple[int, int]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|pad|>": 0, "<|user|>": 1, "<|agent|>": 2} | {symbol: i + 3 for i, symbol in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="]", additional_special_tokens=["<|user|>", "<|agent|>"]
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(str(folder))
    json.loads((folder / "tokenizer_config.json").read_text())
    return 320, vocab["]"]
