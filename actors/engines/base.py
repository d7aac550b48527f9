"""What an engine is: requests in, generations out, adapters by name. Owns the naming rules of adapters and the agreement test.

Knows nothing of vLLM, transformers, environments or Ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pipeline.config.model import LoraConfig
from pipeline.episodes import Sampling, State
from pipeline.errors import EngineError
from pipeline.models import load_tokenizer, state_hash


@dataclass(frozen=True)
class Generation:
    """A finished request. ``logprobs[i]`` is the natural log-probability of ``token_ids[i]`` at temperature 1 over the full
    vocabulary, whatever the sampling temperature. The stop token is included; there is always at least one token."""

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass
class EngineStats:
    """Running totals of an engine. ``seconds`` is time spent inside ``step``."""

    requests: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    published: int = 0
    publish_seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens read and written per second of engine time."""
        return (self.prompt_tokens + self.response_tokens) / self.seconds if self.seconds else 0.0


class Engine(Protocol):
    """A text generator that serves several adapters at once. One thread calls it.

    Adapter names are never reused: an engine may key caches by name.
    """

    max_context: int
    """Longest prompt plus response, in tokens."""
    capacity: int
    """Requests that the engine works on at once; more may be added and wait."""
    adapters_at_once: int
    """Different adapters that one batch may mix; 1 for whole weights."""
    stats: EngineStats

    @property
    def pending(self) -> int:
        """Requests added and not yet returned by ``step``."""
        ...

    def add(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, adapter: str, seed: int) -> None:
        """Queue a request. Raises ``EngineError`` for an adapter that is not published, or a prompt that leaves no room."""
        ...

    def step(self) -> list[Generation]:
        """Do one unit of work; the requests that finished with it."""
        ...

    def publish(self, name: str, state: State) -> None:
        """Make ``state`` available as ``name``. The same content again is accepted; other content is an ``EngineError``."""
        ...

    def drop(self, name: str) -> None:
        """Forget an adapter once its last request has finished. New requests for it are refused at once."""
        ...

    def score(self, prompt_ids: Sequence[int], response_ids: Sequence[int], adapter: str) -> list[float]:
        """Log-probabilities of a given response at temperature 1."""
        ...

    def close(self) -> None:
        """Release what the engine holds. It cannot be used afterwards."""
        ...


@dataclass(frozen=True)
class EngineSpec:
    """How to build an engine, small enough to send to another process.

    ``max_context`` None means the smaller of the model's limit and 4096. ``lora`` None means whole weights.
    ``adapter_slots`` is the number of adapters that one batch may mix.
    """

    backend: Literal["vllm", "transformers"]
    model_path: Path
    dtype: Literal["float32", "bfloat16"] = "float32"
    lora: LoraConfig | None = None
    adapter_slots: int = 8
    max_context: int | None = None
    max_num_seqs: int = 256
    max_batched_tokens: int = 16_384
    kv_cache_gb: float = 1.0
    gpu_memory_utilization: float = 0.6
    tensor_parallel: int = 1
    threads: int = 1
    seed: int = 0


def make_engine(spec: EngineSpec) -> Engine:
    """Build the engine of ``spec``. Raises ``EngineError`` when the backend is not installed or refuses the model."""
    if spec.backend == "transformers":
        from actors.engines.transformers_engine import TransformersEngine

        return TransformersEngine(spec)
    from actors.engines.vllm_engine import VllmEngine

    return VllmEngine(spec)


@dataclass
class AdapterNames:
    """Which names are live, which are on their way out, and what content every name ever had."""

    _content: dict[str, str] = field(default_factory=dict)
    _live: set[str] = field(default_factory=set)
    _leaving: set[str] = field(default_factory=set)
    _running: dict[str, int] = field(default_factory=dict)

    def publish(self, name: str, state: State) -> bool:
        """Register ``name``; False when it is live already with the same content. Raises ``EngineError`` for other content."""
        if not name:
            raise EngineError("an adapter needs a name")
        content = state_hash(state)
        known = self._content.setdefault(name, content)
        if known != content:
            raise EngineError(
                f"adapter {name!r} was published before with other content ({known}, now {content}); names are never reused: "
                "put round, epoch and content hash into the name"
            )
        if name in self._live:
            return False
        if name in self._leaving:
            self._leaving.discard(name)
            self._live.add(name)
            return False
        self._live.add(name)
        return True

    def start(self, name: str) -> None:
        """Count a request for ``name``. Raises ``EngineError`` unless it is live."""
        self.require(name)
        self._running[name] = self._running.get(name, 0) + 1

    def require(self, name: str) -> None:
        """Raise ``EngineError`` unless ``name`` is live."""
        if name not in self._live:
            what = "was dropped" if name in self._content else "was never published"
            raise EngineError(f"adapter {name!r} {what}; live adapters: {', '.join(sorted(self._live)) or 'none'}")

    def finish(self, name: str) -> bool:
        """Count a request of ``name`` as done; True when ``name`` was dropped and can be freed now."""
        self._running[name] -= 1
        if self._running[name]:
            return False
        del self._running[name]
        if name in self._leaving:
            self._leaving.discard(name)
            return True
        return False

    def drop(self, name: str) -> bool:
        """Refuse new requests for ``name``; True when it can be freed now. Raises ``EngineError`` unless it is live."""
        self.require(name)
        self._live.discard(name)
        if self._running.get(name):
            self._leaving.add(name)
            return False
        return True

    @property
    def live(self) -> frozenset[str]:
        """Names that requests may use."""
        return frozenset(self._live)


def stop_token_ids(model_path: Path) -> list[int]:
    """Ids that end a response: those of the model's configuration files and the tokenizer's end-of-sequence token."""
    found: set[int] = set()
    for file in ("config.json", "generation_config.json"):
        if (model_path / file).is_file():
            ids = json.loads((model_path / file).read_text()).get("eos_token_id")
            found.update(ids if isinstance(ids, list) else [] if ids is None else [ids])
    end = load_tokenizer(model_path).eos_token_id
    if end is not None:
        found.add(int(end))
    return sorted(found)


def model_limit(model_path: Path) -> int:
    """Longest sequence that the model's positions allow, in tokens."""
    config = json.loads((model_path / "config.json").read_text())
    return int(config.get("max_position_embeddings", 4096))


def checkpoint_shapes(model_path: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of a model's weights by name, read from the headers of its safetensors files; empty for other formats."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(model_path.glob("*.safetensors")):
        with safe_open(str(file), framework="numpy") as weights:
            shapes |= {name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()}
    return shapes


def check_fit(name: str, state: State, shapes: Mapping[str, tuple[int, ...]], lora: LoraConfig | None) -> None:
    """Raise ``EngineError`` where ``state`` does not fit a checkpoint of ``shapes``.

    Engines are lenient: vLLM pads a factor that is too narrow and ignores modules and weights that it does not know.
    """
    if not shapes:
        return
    for key, value in state.items():
        expected = _expected_shape(key, shapes, lora)
        if expected is None:
            raise EngineError(
                f"adapter {name!r}: the model has no weight for {key!r}; the state belongs to another model or adapter setting"
            )
        if tuple(value.shape) != expected:
            raise EngineError(f"adapter {name!r}: {key} has shape {tuple(value.shape)}, the model asks for {expected}")
    if lora is None:
        missing = sorted(shapes.keys() - state.keys() - {"lm_head.weight"})
        if missing:
            raise EngineError(f"weights {name!r} lack {len(missing)} of the model's tensors, first {missing[0]!r}")


def _expected_shape(key: str, shapes: Mapping[str, tuple[int, ...]], lora: LoraConfig | None) -> tuple[int, ...] | None:
    if lora is None:
        return shapes.get(key)
    module, separator, factor = key.removeprefix("base_model.model.").partition(".lora_")
    weight = shapes.get(f"{module}.weight")
    if not separator or weight is None:
        return None
    return (lora.rank, weight[1]) if factor == "A.weight" else (weight[0], lora.rank)


def check_room(engine: Engine, request_id: str, n_prompt: int, n_new: int) -> None:
    """Raise ``EngineError`` when a prompt of ``n_prompt`` tokens and ``n_new`` new ones do not fit ``engine.max_context``."""
    if n_prompt < 1 or n_new < 1:
        raise EngineError(f"request {request_id}: needs at least one prompt token and one new token, got {n_prompt} and {n_new}")
    if n_prompt + n_new > engine.max_context:
        raise EngineError(
            f"request {request_id}: {n_prompt} prompt tokens and {n_new} new ones exceed the engine's context of {engine.max_context}; "
            "raise rollout.max_context or lower rollout.max_new_tokens"
        )


def check_agreement(engine_scores: Sequence[Sequence[float]], learner_scores: Sequence[Sequence[float]], tolerance: float) -> float:
    """Largest absolute difference between log-probabilities of the same tokens from the engine and from the learner.

    Raises ``EngineError`` when it exceeds ``tolerance``, is not a number, or the shapes differ.
    """
    worst, where = 0.0, (0, 0)
    if len(engine_scores) != len(learner_scores) or not engine_scores:
        raise EngineError(f"agreement test: the engine scored {len(engine_scores)} responses, the learner {len(learner_scores)}")
    for i, (ours, theirs) in enumerate(zip(engine_scores, learner_scores, strict=True)):
        if len(ours) != len(theirs):
            raise EngineError(f"agreement test: response {i} has {len(ours)} engine scores and {len(theirs)} learner scores")
        for j, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            gap = abs(a - b)
            # `not gap <= x` rather than `gap > x`: a NaN counts as disagreement.
            if not gap <= worst:
                worst, where = gap, (i, j)
                if gap != gap:
                    break
    if not worst <= tolerance:
        i, j = where
        raise EngineError(
            f"engine and learner disagree: log-probability of token {j} of response {i} is {engine_scores[i][j]:.6f} in the engine and "
            f"{learner_scores[i][j]:.6f} in the learner, gap {worst:.6f}, tolerance {tolerance:g}; training on such samples is unsound. "
            "Check that both load the same base model and that the last weight update reached the engine"
        )
    return worst
