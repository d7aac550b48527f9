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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from actors.critic import CriticLearner
from actors.merging import MergedBase
from actors.policy import Policy
from actors.stepping import Place, over_rows, take_steps
from actors.totals import Totals
from actors.zero import ZeroParameters, start_engine
from envs.plugins import loaded
from pipeline.aggregation.lora import split_merged
from pipeline.algorithms import make_algorithm
from pipeline.algorithms.base import MicroBatch, Rows
from pipeline.algorithms.batching import MicroPlan, collate, padding_waste, plan_update
from pipeline.config.algorithm import AlgorithmConfig
from pipeline.config.critic import CriticConfig, clients_keep_critics
from pipeline.config.learner import LearnerConfig
from pipeline.config.model import ModelConfig
from pipeline.episodes import Episode, FloatArray, State
from pipeline.errors import ConfigError, LearnerError
from pipeline.models import build_model, is_lora, set_state, split_critic, state_hash, state_parameters
from pipeline.moments import Moments, split
from pipeline.plugins import load as load_plugins


@dataclass(frozen=True)
class LearnerSettings:
    """What a learner is built from; small enough to send to another process."""

    model_path: Path
    model: ModelConfig
    learner: LearnerConfig
    algorithm: AlgorithmConfig
    critic: CriticConfig = field(default_factory=CriticConfig)
    prox_mu: float = 0.0
    temperature: float = 1.0
    freeze_a: bool = False
    gpu: bool = False
    plugins: tuple[str, ...] = field(default_factory=loaded)
    """Loaded first: those of the process that made the settings, unless they say otherwise."""

    @property
    def clients_keep(self) -> bool:
        """Whether an update gives something that the client keeps beside the state: optimizer moments, or its critic."""
        return self.learner.optimizer_state != "reset" or clients_keep_critics(self.algorithm, self.critic)


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
        load_plugins(settings.plugins)
        check_settings(settings)
        self.settings = settings
        self.rank, self.world_size = rank, world_size
        self._clock = clock
        self.algorithm = make_algorithm(settings.algorithm, settings.critic)
        self.device = torch.device("cuda" if settings.gpu else "cpu")
        self._place = Place(rank, world_size, self.device, settings.learner.micro_batch_tokens)
        torch.set_num_threads(settings.learner.threads)
        deepspeed = _import_deepspeed(settings.gpu, rank, world_size)
        learner = settings.learner
        model = build_model(settings.model_path, settings.model, seed=0, freeze_a=settings.freeze_a)
        self._frozen = self._frozen_copy(model)
        self.policy = Policy(model.to(self.device), settings.model.dtype, gradient_checkpointing=learner.gradient_checkpointing)
        self.engine = start_engine(deepspeed, self.policy, learner, learner.lr, world_size)
        self.parameters = ZeroParameters(self.engine, state_parameters(self.policy.model), learner.zero_stage)
        self._base = MergedBase(self.policy.model)
        self.critic = CriticLearner(settings, self.algorithm, deepspeed, self._place) if self.algorithm.needs_critic else None

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
        policy, critic = split_critic(start)
        merged = self._load(policy)
        own, others = split(optimizer)
        self.parameters.load_moments(own)
        if settings.temperature != 1.0 and len(rows):
            # Engines record log-probabilities at temperature 1; the policy that acted is the tempered one.
            rows = replace(rows, logprobs=self._score(rows, settings.temperature))
        if self.critic is not None:
            self.critic.load(critic, optimizer.kept if optimizer is not None else {}, others)
            rows = self.algorithm.credit(rows, self.critic.values(rows), reference)
        center = self._center(anchor) if settings.prox_mu > 0 and anchor is not None else None
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

        def loss(step: int, micro: MicroPlan, last: bool) -> torch.Tensor:
            value = self._loss(collate(rows, micro, reference, self.device), plans[step].tokens, totals, first=step == 0)
            return value + self._prox(center, totals) if last and center is not None else value

        # A critic that knows nothing yet would make noise of the first updates.
        warming = self.critic is not None and request.round <= settings.critic.warmup_rounds
        taken = take_steps(
            self.engine,
            self.parameters,
            [] if warming else plans,
            loss,
            place=self._place,
            grad_clip=learner.grad_clip,
            who=f"{request}",
            setting="learner.lr",
            enough=totals.moved_enough(settings.algorithm.target_kl),
        )
        trained = self.parameters.read()
        metrics = totals.metrics(rows, taken)
        metrics["padding_waste"] = padding_waste(plans, rows.lengths)
        metrics["update_norm"] = math.sqrt(sum(float(np.sum(np.square(v - policy[k], dtype=np.float64))) for k, v in trained.items()))
        moments = self.parameters.read_moments() if learner.optimizer_state != "reset" else None
        if self.critic is not None:
            metrics |= self.critic.train(f"{request}", rows, plans)
            trained, moments = self.critic.take_along(trained, moments)
        metrics["seconds"] = self._clock() - began
        state = {**trained, **merged}
        return UpdateResult(state, moments, UpdateReport(state_hash(state), metrics))

    def score(self, state: State, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probabilities of given responses after given prompts under ``state``, at temperature 1 whatever the setting."""
        self._load(state)
        return [value.tolist() for value in self._score(given_rows(prompts, responses), temperature=1.0)]

    def distributions(self, state: State, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> FloatArray:
        """Log-probabilities of the whole vocabulary under ``state`` at every token of given responses [tokens of all, V], float32.

        At the sampling temperature: these are the distributions that the agent draws from.
        """
        self._load(state)
        temperature = self.settings.temperature

        def forward(batch: MicroBatch) -> torch.Tensor:
            values: torch.Tensor = self.engine(batch.input_ids, batch.positions, batch.targets, temperature, whole=True)[0]
            return values

        return np.concatenate(over_rows(given_rows(prompts, responses), forward, self._place))

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

    def _center(self, anchor: State) -> dict[str, torch.Tensor]:
        """What FedProx pulls the policy towards."""
        return self.parameters.tensors(split_merged(split_critic(anchor)[0])[0], self.device)

    def _reference(self, rows: Rows, anchor: State | None) -> list[FloatArray]:
        """The KL anchor's log-probabilities of every row, each computed once whatever the number of passes."""
        temperature = self.settings.temperature
        if self.settings.algorithm.kl_anchor == "base":
            self._base.set({})
            return self._score(rows, temperature, frozen=True)
        assert anchor is not None
        if self._frozen is not None:
            set_state(self._frozen.model, split_critic(anchor)[0])
            return self._score(rows, temperature, frozen=True)
        self._load(anchor)
        return self._score(rows, temperature)

    def _load(self, state: State) -> State:
        """Load a client's parameters, and under them what rule ``merge`` folded into the base; returns the latter as part of a state."""
        adapter, changes = split_merged(split_critic(state)[0])
        self._base.set(changes)
        self.parameters.load(adapter)
        return {name: value for name, value in split_critic(state)[0].items() if name not in adapter}

    def _score(self, rows: Rows, temperature: float, *, frozen: bool = False) -> list[FloatArray]:
        """Log-probabilities per row."""
        module: Any = self._frozen if frozen and self._frozen is not None else self.engine
        adapter = not (frozen and self._frozen is None)

        def forward(batch: MicroBatch) -> torch.Tensor:
            values: torch.Tensor = module(
                batch.input_ids, batch.positions, batch.targets, temperature, with_entropy=False, adapter=adapter
            )[0]
            return values

        return over_rows(rows, forward, self._place)

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


def given_rows(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Rows:
    """Rows of given responses, to look at: nothing was sampled, and nothing is to be learned from them."""
    return Rows(
        tokens=[np.array([*p, *r], np.int64) for p, r in zip(prompts, responses, strict=True)],
        response_lengths=np.array([len(r) for r in responses], np.int64),
        logprobs=[np.zeros(len(r), np.float32) for r in responses],
        advantages=np.zeros(len(responses), np.float32),
        episodes=np.zeros(len(responses), np.int64),
        groups=np.zeros(len(responses), np.int64),
    )


def difference(before: State, after: State) -> dict[str, FloatArray]:
    """``after - before``, float32: all that leaves a client of its parameters."""
    return {name: value - before[name] for name, value in split_merged(after)[0].items()}


def check_settings(settings: LearnerSettings) -> None:
    """Raise ``ConfigError`` for combinations that cannot work, before anything is loaded."""
    if settings.learner.zero_stage == 3:
        if settings.prox_mu > 0:
            raise ConfigError("learner.zero_stage 3 cannot be combined with aggregation.prox_mu: use stage 2")
        if settings.model.adapter == "lora":
            raise ConfigError("learner.zero_stage 3 is for model.adapter `full`: an adapter's optimizer is small, use stage 0, 1 or 2")


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
