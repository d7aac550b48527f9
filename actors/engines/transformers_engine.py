"""The reference engine on transformers: bitwise the same answer to a request whatever else is in the batch and whenever it arrived.

Requests are worked off in waves of one adapter and one padded prompt length, always with the same number of rows, so that every
matrix product of a request has the same shape in every run. Slow, simple, and exact. Knows nothing of vLLM.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from actors.engines.base import AdapterNames, EngineSpec, EngineStats, Generation, check_room, model_limit, stop_token_ids
from pipeline.episodes import Sampling, State
from pipeline.errors import EngineError
from pipeline.models import attach_lora, load_model, set_state

_BUCKET = 32
"""Prompts are padded to a multiple of this, in tokens."""


@dataclass(frozen=True)
class _Request:
    id: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    adapter: str
    seed: int

    @property
    def padded(self) -> int:
        return -(-len(self.prompt_ids) // _BUCKET) * _BUCKET


class TransformersEngine:
    """See ``Engine``. ``step`` answers one wave of at most ``rows`` requests completely."""

    def __init__(self, spec: EngineSpec, *, rows: int = 16) -> None:
        import torch

        torch.set_num_threads(spec.threads)
        self._spec, self._rows = spec, rows
        model = load_model(spec.model_path, spec.dtype)
        self._model: Any = attach_lora(model, spec.lora, seed=0).eval() if spec.lora else model
        self._stop = np.array(stop_token_ids(spec.model_path))
        self.max_context = min(model_limit(spec.model_path), spec.max_context or 4096)
        self.capacity = spec.max_num_seqs
        self.adapters_at_once = spec.adapter_slots if spec.lora else 1
        self.stats = EngineStats()
        self._names = AdapterNames()
        self._states: dict[str, State] = {}
        self._loaded: str | None = None
        self._queue: dict[tuple[str, int, int], list[_Request]] = {}

    @property
    def pending(self) -> int:
        """Requests added and not yet returned."""
        return sum(len(wave) for wave in self._queue.values())

    def add(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, adapter: str, seed: int) -> None:
        """Queue a request."""
        check_room(self, request_id, len(prompt_ids), sampling.max_new_tokens)
        self._names.start(adapter)
        request = _Request(request_id, tuple(prompt_ids), sampling, adapter, seed)
        self._queue.setdefault((adapter, request.padded, sampling.max_new_tokens), []).append(request)

    def step(self) -> list[Generation]:
        """Answer one wave: the longest queue of requests that share adapter and padded length."""
        if not self._queue:
            return []
        started = time.perf_counter()
        key = max(self._queue, key=lambda k: len(self._queue[k]))
        waiting = self._queue.pop(key)
        wave, rest = waiting[: self._rows], waiting[self._rows :]
        if rest:
            self._queue[key] = rest
        self._load(key[0])
        generations = self._generate(wave)
        for request, generation in zip(wave, generations, strict=True):
            self.stats.requests += 1
            self.stats.prompt_tokens += len(request.prompt_ids)
            self.stats.response_tokens += len(generation.token_ids)
            if self._names.finish(request.adapter):
                del self._states[request.adapter]
        self.stats.steps += 1
        self.stats.seconds += time.perf_counter() - started
        return generations

    def publish(self, name: str, state: State) -> None:
        """Keep ``state`` until requests ask for it."""
        if self._names.publish(name, state):
            self._states[name] = state
            self.stats.published += 1

    def drop(self, name: str) -> None:
        """Forget an adapter once its last request has finished."""
        if self._names.drop(name):
            del self._states[name]

    def score(self, prompt_ids: Sequence[int], response_ids: Sequence[int], adapter: str) -> list[float]:
        """Log-probabilities of ``response_ids`` in one forward pass."""
        import torch

        self._names.require(adapter)
        self._load(adapter)
        ids = torch.tensor([[*prompt_ids, *response_ids]])
        with torch.inference_mode():
            logits = self._model(input_ids=ids).logits[0, len(prompt_ids) - 1 : -1].float()
            table = logits.log_softmax(-1)
        return [float(table[i, token]) for i, token in enumerate(response_ids)]

    def close(self) -> None:
        """Let go of the model."""
        self._model = None
        self._queue.clear()

    def _load(self, name: str) -> None:
        if name != self._loaded:
            started = time.perf_counter()
            if name not in self._states:
                raise EngineError(f"adapter {name!r} was freed while requests still needed it")
            set_state(self._model, self._states[name])
            self._loaded = name
            self.stats.publish_seconds += time.perf_counter() - started

    def _generate(self, wave: Sequence[_Request]) -> list[Generation]:
        """Sample responses of a wave. Prompts start at column 0 and are padded on the right, new tokens follow the padding."""
        import torch
        from transformers import DynamicCache

        rows, width, longest = self._rows, wave[0].padded, wave[0].sampling.max_new_tokens
        ids = torch.zeros((rows, width), dtype=torch.long)
        mask = torch.zeros((rows, width + longest), dtype=torch.long)
        mask[:, 0] = 1
        lengths = torch.ones(rows, dtype=torch.long)
        # One uniform per token and request, drawn ahead: the draw depends on the request's seed alone.
        uniforms = np.zeros((rows, longest))
        for row, request in enumerate(wave):
            n = len(request.prompt_ids)
            ids[row, :n] = torch.tensor(request.prompt_ids)
            mask[row, :n] = 1
            lengths[row] = n
            uniforms[row] = np.random.default_rng(request.seed).random(longest)
        tokens: list[list[int]] = [[] for _ in wave]
        logprobs: list[list[float]] = [[] for _ in wave]
        open_rows = set(range(len(wave)))
        cache = DynamicCache()
        positions = torch.arange(width).expand(rows, width)
        with torch.inference_mode():
            hidden = self._model(input_ids=ids, attention_mask=mask[:, :width], position_ids=positions, past_key_values=cache).logits
            logits = hidden[torch.arange(rows), lengths - 1]
            for step in range(longest):
                chosen, table = self._choose(logits, wave, uniforms[:, step])
                for row in list(open_rows):
                    token = int(chosen[row])
                    tokens[row].append(token)
                    logprobs[row].append(float(table[row, token]))
                    if token in self._stop or len(tokens[row]) == longest:
                        open_rows.discard(row)
                if not open_rows:
                    break
                mask[:, width + step] = 1
                logits = self._model(
                    input_ids=torch.from_numpy(chosen)[:, None],
                    attention_mask=mask[:, : width + step + 1],
                    position_ids=(lengths + step)[:, None],
                    past_key_values=cache,
                ).logits[:, -1]
        return [Generation(r.id, tuple(t), tuple(lp)) for r, t, lp in zip(wave, tokens, logprobs, strict=True)]

    def _choose(self, logits: Any, wave: Sequence[_Request], uniform: Any) -> tuple[Any, Any]:
        """Next token of every row and the log-probabilities [rows, vocabulary] at temperature 1."""
        table = logits.float().log_softmax(-1).numpy()
        chosen = table.argmax(-1).astype(np.int64)
        for row, request in enumerate(wave):
            if request.sampling.temperature > 0:
                chosen[row] = _draw(table[row].astype(np.float64), request.sampling, uniform[row])
        return chosen, table


def _draw(logprobs: Any, sampling: Sampling, uniform: float) -> int:
    """Inverse-transform sampling from a tempered and, with ``top_p`` below 1, truncated distribution (Holtzman et al. 2020)."""
    scaled = logprobs / sampling.temperature
    probabilities = np.exp(scaled - scaled.max())
    if sampling.top_p < 1:
        order = np.argsort(-probabilities, kind="stable")
        mass = np.cumsum(probabilities[order]) / probabilities.sum()
        probabilities[order[1:][mass[:-1] >= sampling.top_p]] = 0.0
    cumulative = np.cumsum(probabilities)
    return min(int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")), int(np.flatnonzero(probabilities)[-1]))
