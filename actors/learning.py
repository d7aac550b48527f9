"""One data-parallel learner: DeepSpeed around a policy, trained on the rows of one client at a time.

A plain object; ``actors.learner`` puts it into Ray actors. A client is a start state, its episodes and perhaps its optimizer
moments: all are swapped in, used and swapped out, so that one learner serves any number of clients.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from actors.merging import MergedBase
from actors.policy import Policy
from actors.zero import ZeroParameters, deepspeed_config
from pipeline.aggregation.lora import split_merged
from pipeline.algorithms import make_algorithm
from pipeline.algorithms.base import MicroBatch, Rows
from pipeline.algorithms.batching import MicroPlan, collate, padding_waste, plan_update
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.learner import LearnerConfig
from pipeline.config.model import ModelConfig
from pipeline.episodes import Episode, FloatArray, State
from pipeline.errors import ConfigError, LearnerError
from pipeline.models import build_model, is_lora, set_state, state_hash, state_parameters
from pipeline.moments import Moments


@dataclass(frozen=True)
class LearnerSettings:
    """What a learner is built from; small enough to send to another process."""

    model_path: Path
    model: ModelConfig
    learner: LearnerConfig
    algorithm: AlgorithmConfig
    prox_mu: float = 0.0
    temperature: float = 1.0
    freeze_a: bool = False
    gpu: bool = False


@dataclass(frozen=True)
class UpdateRequest:
    """Whose update this is. ``seed`` fixes the order of rows."""

    client: str
    round: int
    epoch: int
    seed: int

    def __str__(self) -> str:
        return f"client {self.client}, round {self.round}, epoch {self.epoch}"


@dataclass(frozen=True)
class UpdateReport:
    """What is small about an update: the content hash of the new state, and scalars."""

    content: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class UpdateResult:
    """A client's new parameters and, if they are kept, its optimizer moments."""

    state: dict[str, FloatArray]
    optimizer: Moments | None
    report: UpdateReport


class LearnerWorker:
    """Worker ``rank`` of ``world_size``. Before it is built, ``torch.distributed`` must be initialised if there are others.

    All workers of a group are given the same arguments in the same order; each works out its own share.
    """

    def __init__(
        self, settings: LearnerSettings, *, rank: int = 0, world_size: int = 1, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        check_settings(settings)
        self.settings = settings
        self.rank, self.world_size = rank, world_size
        self._clock = clock
        self.algorithm = make_algorithm(settings.algorithm)
        self.device = torch.device("cuda" if settings.gpu else "cpu")
        torch.set_num_threads(settings.learner.threads)
        deepspeed = _import_deepspeed(settings.gpu, rank, world_size)
        learner = settings.learner
        model = build_model(settings.model_path, settings.model, seed=0, freeze_a=settings.freeze_a)
        self._frozen = self._frozen_copy(model)
        self.policy = Policy(model.to(self.device), settings.model.dtype, gradient_checkpointing=learner.gradient_checkpointing)
        trained = [p for p in model.parameters() if p.requires_grad]
        adamw = torch.optim.AdamW(
            trained, lr=learner.lr, betas=(learner.beta1, learner.beta2), weight_decay=learner.weight_decay, fused=learner.zero_stage < 3
        )
        self.engine, *_ = deepspeed.initialize(
            model=self.policy, optimizer=adamw, config=deepspeed_config(learner, world_size), dist_init_required=False
        )
        self.parameters = ZeroParameters(self.engine, state_parameters(self.policy.model), learner.zero_stage)
        self._base = MergedBase(self.policy.model)

    def update(
        self,
        request: UpdateRequest,
        start: State,
        episodes: Sequence[Episode],
        optimizer: Moments | None = None,
        anchor: State | None = None,
    ) -> UpdateResult:
        """Train ``start`` on ``episodes``. ``anchor`` is the round's start, for FedProx and for a KL anchor of ``round``.

        Bitwise reproducible for equal arguments. Raises ``LearnerError`` naming client and round for a loss that is not finite.
        """
        began = self._clock()
        settings = self.settings
        if anchor is None and (settings.prox_mu > 0 or (self.algorithm.needs_reference and settings.algorithm.kl_anchor == "round")):
            raise LearnerError(f"{request}: FedProx and the KL anchor `round` need the round's start, and none was given")
        rows = self.algorithm.rows(episodes)
        reference = self._reference(rows, anchor) if self.algorithm.needs_reference and len(rows) else None
        merged = self._load(start)
        self.parameters.load_moments(optimizer)
        if settings.temperature != 1.0 and len(rows):
            # Engines record log-probabilities at temperature 1; the policy that acted is the tempered one.
            rows = replace(rows, logprobs=self._score(rows, settings.temperature))
        center = self.parameters.tensors(split_merged(anchor)[0], self.device) if settings.prox_mu > 0 and anchor is not None else None
        learner = settings.learner
        plans = plan_update(
            rows,
            passes=self.algorithm.passes,
            mini_batch=learner.mini_batch,
            workers=self.world_size,
            budget=learner.micro_batch_tokens,
            seed=request.seed,
        )
        totals = Totals(self.world_size, self.device)
        for step, plan in enumerate(plans):
            mine = plan.workers[self.rank]
            for at, micro in enumerate(mine):
                last = at + 1 == len(mine)
                self.engine.set_gradient_accumulation_boundary(last)
                batch = collate(rows, micro, reference, self.device)
                loss = self._loss(batch, plan.tokens, totals, first=step == 0)
                if last and center is not None:
                    loss = loss + self._prox(center, totals)
                if not math.isfinite(loss.item()):
                    raise LearnerError(
                        f"{request}: the loss of step {step + 1} of {len(plans)} is {loss.item()}; lower learner.lr or clip more"
                    )
                self.engine.backward(loss)
            norm = self.parameters.step(learner.grad_clip)
            if not math.isfinite(norm):
                raise LearnerError(f"{request}: the gradient norm of step {step + 1} of {len(plans)} is {norm}")
            totals.grad_norm += norm
        trained = self.parameters.read()
        keep = learner.optimizer_state != "reset"
        metrics = totals.metrics(rows, len(plans), self.algorithm.passes)
        metrics["padding_waste"] = padding_waste(plans, rows.lengths)
        metrics["update_norm"] = math.sqrt(sum(float(np.sum(np.square(v - start[k], dtype=np.float64))) for k, v in trained.items()))
        moments = self.parameters.read_moments() if keep else None
        metrics["seconds"] = self._clock() - began
        state = {**trained, **merged}
        return UpdateResult(state, moments, UpdateReport(state_hash(state), metrics))

    def score(self, state: State, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of given responses after given prompts under ``state``, at temperature 1 whatever the setting."""
        self._load(state)
        rows = Rows(
            tokens=[np.array([*p, *r], np.int64) for p, r in zip(prompts, responses, strict=True)],
            response_lengths=np.array([len(r) for r in responses], np.int64),
            logprobs=[np.zeros(len(r), np.float32) for r in responses],
            advantages=np.zeros(len(responses), np.float32),
            episodes=np.zeros(len(responses), np.int64),
            groups=np.zeros(len(responses), np.int64),
        )
        return [value.tolist() for value in self._score(rows, temperature=1.0)]

    def _loss(self, batch: MicroBatch, denominator: int, totals: Totals, *, first: bool) -> torch.Tensor:
        """This worker's part of the mini-batch's token mean, times the number of workers because DeepSpeed averages over them."""
        logprobs, entropy = self.engine(
            batch.input_ids, batch.positions, batch.targets, self.settings.temperature, entropy_gradient=self.algorithm.needs_entropy
        )
        out = self.algorithm.loss(batch, logprobs, entropy, batch.ref_logprobs)
        if batch.weight:
            totals.add(out.sums, out.maxima)
            if first:
                gap = (logprobs.detach() - batch.old_logprobs).abs()
                totals.add({"logprob_gap": gap.sum(), "_first_tokens": gap.new_tensor(float(len(gap)))}, {"logprob_gap_max": gap.max()})
        total: torch.Tensor = out.total * (batch.weight * self.world_size / denominator)
        return total

    def _prox(self, center: Mapping[str, torch.Tensor], totals: Totals) -> torch.Tensor:
        """FedProx (Li et al. 2020): mu/2 ||w - w_round||^2, whose gradient joins the others before clipping."""
        named = self.parameters.named
        distance = torch.stack([(named[name] - value).square().sum() for name, value in center.items() if named[name].requires_grad]).sum()
        term: torch.Tensor = 0.5 * self.settings.prox_mu * distance
        totals.prox += term.item()
        return term

    def _reference(self, rows: Rows, anchor: State | None) -> list[FloatArray]:
        """The KL anchor's log-probabilities of every row, each computed once whatever the number of passes."""
        temperature = self.settings.temperature
        if self.settings.algorithm.kl_anchor == "base":
            self._base.set({})
            return self._score(rows, temperature, frozen=True)
        assert anchor is not None
        if self._frozen is not None:
            set_state(self._frozen.model, anchor)
            return self._score(rows, temperature, frozen=True)
        self._load(anchor)
        return self._score(rows, temperature)

    def _load(self, state: State) -> State:
        """Load a client's parameters, and under them what rule ``merge`` folded into the base; returns the latter as part of a state."""
        adapter, changes = split_merged(state)
        self._base.set(changes)
        self.parameters.load(adapter)
        return {name: value for name, value in state.items() if name not in adapter}

    def _score(self, rows: Rows, temperature: float, *, frozen: bool = False) -> list[FloatArray]:
        """Log-probabilities per row. Rows with equal tokens are computed once, and workers share the work."""
        first: dict[bytes, int] = {}
        owner = [
            first.setdefault(t.tobytes() + n.to_bytes(4), i)
            for i, (t, n) in enumerate(zip(rows.tokens, rows.response_lengths.tolist(), strict=True))
        ]
        unique = np.array(sorted(set(owner)), np.int64)
        plan = _share(unique, rows, self.world_size, self.settings.learner.micro_batch_tokens)
        found: dict[int, FloatArray] = {}
        module: Any = self._frozen if frozen and self._frozen is not None else self.engine
        with torch.no_grad():
            for micro in plan[self.rank]:
                batch = collate(rows, micro, device=self.device)
                values, _ = module(
                    batch.input_ids,
                    batch.positions,
                    batch.targets,
                    temperature,
                    with_entropy=False,
                    adapter=not (frozen and self._frozen is None),
                )
                ends = np.cumsum(rows.response_lengths[micro.rows])
                found.update(zip(micro.rows.tolist(), np.split(values.float().cpu().numpy(), ends[:-1]), strict=True))
        if self.world_size > 1:
            parts: list[Any] = [None] * self.world_size
            torch.distributed.all_gather_object(parts, found)
            found = {row: value for part in parts for row, value in part.items()}
        return [found[i] for i in owner]

    def _frozen_copy(self, trained: Any) -> Policy | None:
        """A second model that holds the KL anchor; LoRA needs none, its anchor is the same model without or with another adapter."""
        if not self.algorithm.needs_reference or is_lora(trained):
            return None
        if self.settings.learner.zero_stage == 3:
            raise ConfigError(
                "learner.zero_stage 3 with model.adapter `full` cannot hold a KL anchor: set algorithm.kl_coef to 0 or use stage 2"
            )
        model = copy.deepcopy(trained)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        return Policy(model.to(self.device), self.settings.model.dtype)


def difference(before: State, after: State) -> dict[str, FloatArray]:
    """``after - before``, float32: all that leaves a client of its parameters."""
    return {name: value - before[name] for name, value in split_merged(after)[0].items()}


class Totals:
    """Sums and maxima over an update, added up over workers at the end."""

    def __init__(self, world_size: int, device: torch.device) -> None:
        self._world_size, self._device = world_size, device
        self._sums: dict[str, torch.Tensor] = {}
        self._maxima: dict[str, torch.Tensor] = {}
        self.grad_norm = 0.0
        self.prox = 0.0

    def add(self, sums: Mapping[str, torch.Tensor], maxima: Mapping[str, torch.Tensor]) -> None:
        """Take in a micro-batch."""
        for name, value in sums.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        for name, value in maxima.items():
            self._maxima[name] = torch.maximum(self._maxima[name], value) if name in self._maxima else value

    def metrics(self, rows: Rows, steps: int, passes: int) -> dict[str, float]:
        """Means per response token (of all passes), maxima, and counts."""
        sums, maxima = self._reduced(self._sums, max=False), self._reduced(self._maxima, max=True)
        first_tokens = sums.pop("_first_tokens", 0.0)
        tokens = rows.n_response_tokens * passes
        gap = sums.pop("logprob_gap", 0.0)
        metrics = {name: value / tokens if tokens else 0.0 for name, value in sums.items()}
        metrics |= maxima
        metrics["logprob_gap"] = gap / first_tokens if first_tokens else 0.0
        metrics["grad_norm"] = self.grad_norm / steps if steps else 0.0
        metrics["prox"] = self.prox / steps if steps else 0.0
        metrics |= {
            "rows": float(len(rows)),
            "tokens": float(rows.n_response_tokens),
            "tokens_total": float(rows.lengths.sum()),
            "steps": float(steps),
        }
        return metrics | dict(rows.metrics)

    def _reduced(self, values: Mapping[str, torch.Tensor], *, max: bool) -> dict[str, float]:
        if self._world_size == 1:
            return {name: float(value) for name, value in values.items()}
        # A worker whose share was empty has seen no names, so names travel with values.
        parts: list[Any] = [None] * self._world_size
        torch.distributed.all_gather_object(parts, {name: float(value) for name, value in values.items()})
        names = sorted({name for part in parts for name in part})
        combine: Callable[[list[float]], float] = _largest if max else math.fsum
        return {name: combine([part[name] for part in parts if name in part]) for name in names}


def _largest(values: list[float]) -> float:
    return max(values)


def check_settings(settings: LearnerSettings) -> None:
    """Raise ``ConfigError`` for combinations that cannot work, before anything is loaded."""
    if settings.learner.zero_stage == 3:
        if settings.prox_mu > 0:
            raise ConfigError("learner.zero_stage 3 cannot be combined with aggregation.prox_mu: use stage 2")
        if settings.model.adapter == "lora":
            raise ConfigError("learner.zero_stage 3 is for model.adapter `full`: an adapter's optimizer is small, use stage 0, 1 or 2")


def _share(unique: np.ndarray[Any, np.dtype[np.int64]], rows: Rows, workers: int, budget: int) -> tuple[tuple[MicroPlan, ...], ...]:
    from pipeline.algorithms.batching import plan_step

    return plan_step(unique, rows.lengths, rows.response_lengths, workers=workers, budget=budget).workers


def _import_deepspeed(gpu: bool, rank: int, world_size: int) -> Any:
    """DeepSpeed, set up for this process: device, quiet logs, and a process group (of one, if none was initialised)."""
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)})
    if not gpu:
        os.environ["DS_ACCELERATOR"] = "cpu"
    if not torch.distributed.is_initialized():
        if world_size > 1:
            raise LearnerError("torch.distributed must be initialised before a worker of a larger group is built")
        from torch.distributed import HashStore  # type: ignore[attr-defined]

        torch.distributed.init_process_group("nccl" if gpu else "gloo", store=HashStore(), rank=0, world_size=1)
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    import deepspeed
    import deepspeed.ops

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # On CPU DeepSpeed would compile a shared-memory collective at first start (a minute, and a compiler): gloo is enough here.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="nccl" if gpu else "gloo", auto_mpi_discovery=False, verbose=False)
    return deepspeed
