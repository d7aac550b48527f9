"""What the parts of a run are built from and begin with, whatever the layout: prompt form, engine and learner settings, first version."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any

from actors.engines import EngineSpec
from actors.learning import LearnerSettings
from actors.prompting import ChatPrompter
from actors.rollout import RolloutSpec
from envs.prompts import PromptSpec
from pipeline.aggregation import version_name
from pipeline.checkpoint import Checkpoint
from pipeline.config import Config
from pipeline.config.critic import servers_average_critics
from pipeline.episodes import State
from pipeline.models import ModelSource, initial_state, load_tokenizer
from pipeline.planning import Prepared
from pipeline.selftest import disturbed
from pipeline.services import Handle, Published


def prompt_spec(config: Config) -> PromptSpec:
    """The prompt form of a resolved configuration: an embedded model's own one, or the published one with tags and a list of actions."""
    template = config.rollout.template
    assert template != "auto", "the configuration is resolved"
    return PromptSpec(template=template, history=config.rollout.history, list_actions=template == "tags", world=config.world.name)


def make_prompter(config: Config, model: ModelSource) -> ChatPrompter:
    """The prompter that the engines use."""
    return ChatPrompter(load_tokenizer(model.path), prompt_spec(config))


def rollout_spec(prepared: Prepared) -> RolloutSpec:
    """What every rollout actor is built from."""
    config: Config = prepared.config
    rollout = config.rollout
    lora = config.model.lora if config.model.adapter == "lora" else None
    merge = config.aggregation.rule == "merge"
    engine = EngineSpec(
        backend=rollout.backend,
        model_path=prepared.model.path,
        dtype=config.model.dtype,
        lora=None if merge else lora,
        adapter_slots=max(prepared.plan.adapter_slots, 1),
        max_context=rollout.max_context,
        max_num_seqs=rollout.max_num_seqs,
        max_batched_tokens=rollout.max_batched_tokens,
        kv_cache_gb=rollout.kv_cache_gb,
        gpu_memory_utilization=rollout.gpu_memory_utilization,
        tensor_parallel=rollout.tensor_parallel,
        threads=config.resources.engine_threads,
        seed=config.run.seed,
    )
    return RolloutSpec(
        engine,
        prepared.spec,
        prompt_spec(config),
        env_workers=rollout.env_workers,
        env_slots=rollout.env_slots,
        env_deadline_s=rollout.env_deadline_s,
        env_retries=rollout.env_retries,
        merge=lora if merge else None,
    )


def learner_settings(config: Config, model: ModelSource) -> LearnerSettings:
    """What every learner is built from."""
    return LearnerSettings(
        model_path=model.path,
        model=config.model,
        learner=config.learner,
        algorithm=config.algorithm,
        critic=config.critic,
        prox_mu=config.aggregation.prox_mu,
        temperature=config.rollout.temperature,
        freeze_a=config.aggregation.rule == "frozen_a",
        gpu=config.resources.learner_gpus > 0,
    )


class Beginning(ABC):
    """What the parts of a run do alike in every layout: the first version of the shared agent, and when engine and learner are compared."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._config = prepared, prepared.config

    @abstractmethod
    def put(self, value: Any) -> Handle:
        """A handle to a value."""

    @abstractmethod
    async def fetch(self, handle: Handle) -> Any:
        """The value behind a handle."""

    @abstractmethod
    async def self_test(self, state: Handle, when: str) -> float:
        """Compare engine and learner under ``state``. Raises ``SelfTestError``; the largest gap otherwise."""

    async def initial(self) -> Published:
        """The shared agent before the first round: a fresh adapter, or the model's own weights."""
        config = self._config
        critic = servers_average_critics(config.algorithm, config.critic)
        state: State = await asyncio.to_thread(initial_state, self._prepared.model.path, config.model, config.run.seed, critic=critic)
        return Published(version_name(0, state), 0, self.put(state))

    def restore(self, checkpoint: Checkpoint) -> Published:
        """The shared agent of a checkpoint."""
        state = checkpoint.state
        return Published(state.version, state.round, self.put(state.state), state.metrics)

    async def self_test_start(self, state: Handle) -> float:
        """The test before the first rollout, under a disturbed copy of the start: an adapter whose B is not zero."""
        return await self.self_test(self.put(disturbed(await self.fetch(state), self._config.run.seed)), "at the start")

    async def self_test_after(self, state: Handle) -> None:
        """The test after the first update."""
        await self.self_test(state, "after the first update")
