"""What the parts of a run are built from: prompt form, engine and learner settings of a prepared run, whatever the layout."""

from __future__ import annotations

from actors.engines import EngineSpec
from actors.learning import LearnerSettings
from actors.prompting import ChatPrompter
from actors.rollout import RolloutSpec
from envs.prompts import PromptSpec
from pipeline.config import Config
from pipeline.models import ModelSource, load_tokenizer
from pipeline.planning import Prepared


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
