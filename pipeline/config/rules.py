"""What settings mean together: combinations that cannot work, and options that cannot matter for the chosen strategy.

An option that cannot matter is refused only when it was set explicitly: a study that turns a knob to no effect should hear of it.
Reads configurations, nothing else.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.config.algorithm import ALGORITHMS
from pipeline.config.config import Config


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one setting."""

    path: str
    value: Any
    message: str
    idle: bool = False
    """The value is fine, it only cannot matter."""


Rule = Callable[[Config], Iterator[Problem]]


def problems(config: Config) -> list[Problem]:
    """All problems of a configuration whose single values are valid."""
    return [problem for rule in RULES for problem in rule(config)]


def adapter_slots_needed(config: Config) -> int:
    """LoRA adapters that may meet in one batch: one per client in flight, and the shared one."""
    return clients_in_flight(config) + 1


def clients_in_flight(config: Config) -> int:
    """Clients that may train at the same time: enough to keep every engine and every learner group busy while another waits."""
    if config.federation.mode != "federated":
        return 1
    return min(config.federation.clients_per_round, 2 * (config.rollout.engines + config.learner.groups))


def value_of(config: Config, path: str) -> Any:
    """The value of a dotted setting."""
    value: Any = config
    for part in path.split("."):
        value = getattr(value, part)
    return value


def is_set(config: Config, path: str) -> bool:
    """Whether a setting was given explicitly."""
    section: Any = config
    for part in path.split("."):
        if part not in section.model_fields_set:
            return False
        section = getattr(section, part)
    return True


def _unused(config: Config, because: str, *paths: str) -> Iterator[Problem]:
    for path in paths:
        if is_set(config, path):
            yield Problem(path, value_of(config, path), f"cannot matter {because}; leave it out", idle=True)


def _clients(config: Config) -> Iterator[Problem]:
    federation = config.federation
    if federation.clients_per_round > federation.clients:
        yield Problem(
            "federation.clients_per_round",
            federation.clients_per_round,
            f"more than federation.clients = {federation.clients}; allowed: 1 to {federation.clients}",
        )
    if federation.mode == "local" and federation.local_client >= federation.clients:
        yield Problem(
            "federation.local_client", federation.local_client, f"allowed: 0 to {federation.clients - 1} (federation.clients - 1)"
        )
    if federation.mode != "local":
        yield from _unused(
            config, f"with federation.mode = {federation.mode} (it chooses the client of mode local)", "federation.local_client"
        )
    if federation.mode != "federated":
        yield from _unused(
            config,
            f"with federation.mode = {federation.mode}: one client trains and nothing is averaged",
            "federation.quorum",
            "aggregation.weighting",
            "evaluation.clients",
        )
        if config.learner.optimizer_state == "average":
            yield Problem(
                "learner.optimizer_state",
                "average",
                f"there is nothing to average with federation.mode = {federation.mode}; use keep or reset",
            )


def _tasks(config: Config) -> Iterator[Problem]:
    federation, algorithm = config.federation, config.algorithm
    if federation.partition.file is not None:
        # The schedule compares with what the file gives every client.
        return
    owned = federation.tasks_per_client * (federation.clients if federation.mode == "centralized" else 1)
    if algorithm.tasks_per_epoch > owned:
        yield Problem(
            "algorithm.tasks_per_epoch",
            algorithm.tasks_per_epoch,
            f"a batch takes distinct tasks, but a client owns {owned}; allowed: 1 to {owned}, or raise federation.tasks_per_client",
        )


def _suits(rule: str, adapter: str) -> bool:
    """Whether a rule can average the parameters of that ``model.adapter``."""
    from pipeline.plugins import RULES

    if rule in RULES.own:
        return (rule == "full") == (adapter == "full")
    adapters: frozenset[str] = RULES.get(rule).adapters  # type: ignore[attr-defined]
    return adapter in adapters


def _outside(config: Config) -> Iterator[Problem]:
    """Options that only what plug-ins register has."""
    from pipeline.plugins import ALGORITHMS as OBJECTIVES
    from pipeline.plugins import RULES

    rule, partition, algorithm = config.aggregation.rule, config.federation.partition, config.algorithm.name
    if rule is None or rule in RULES.own:
        yield from _unused(config, f"with aggregation.rule = {rule or 'null'}, which has none", "aggregation.options")
    if algorithm in OBJECTIVES.own:
        yield from _unused(config, f"with algorithm.name = {algorithm}, which has none", "algorithm.options")
    if partition.name is None:
        yield from _unused(config, "without federation.partition.name", "federation.partition.options")


def _adapter(config: Config) -> Iterator[Problem]:
    rule = config.aggregation.rule
    if config.model.adapter == "full":
        yield from _unused(
            config, "with model.adapter = full", "model.lora.rank", "model.lora.alpha", "model.lora.targets", "rollout.adapter_slots"
        )
        if rule is not None and not _suits(rule, "full"):
            yield Problem("aggregation.rule", rule, "averages LoRA factors, but model.adapter = full; use full, or model.adapter = lora")
        return
    if rule is not None and not _suits(rule, "lora"):
        yield Problem(
            "aggregation.rule",
            rule,
            "averages whole weights, but model.adapter = lora; use product, factors, frozen_a or merge, or model.adapter = full",
        )
    if config.learner.zero_stage == 3:
        yield Problem(
            "learner.zero_stage",
            3,
            "partitions weights that LoRA does not train, and adapters come out empty; allowed with model.adapter = lora: 0, 1, 2",
        )
    slots, needed = config.rollout.adapter_slots, adapter_slots_needed(config)
    if slots is not None and slots < needed:
        yield Problem(
            "rollout.adapter_slots",
            slots,
            f"the plan needs {needed} ({clients_in_flight(config)} clients in flight and the shared adapter); "
            f"allowed: {needed} or more, or leave it out",
        )
    if config.model.lora.targets != "all-linear" and not config.model.lora.targets:
        yield Problem("model.lora.targets", [], "no module would be trained; name some, or use all-linear")


def _algorithm(config: Config) -> Iterator[Problem]:
    algorithm = config.algorithm
    traits = ALGORITHMS.get(algorithm.name)
    if traits is None:
        near = difflib.get_close_matches(algorithm.name, ALGORITHMS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield Problem("algorithm.name", algorithm.name, f"allowed: {' | '.join(ALGORITHMS)}{hint}")
        return
    yield from _unused(config, f"with algorithm.name = {algorithm.name}", *traits.unused)
    if algorithm.group_size < traits.smallest_group:
        yield Problem(
            "algorithm.group_size",
            algorithm.group_size,
            f"{algorithm.name} compares episodes of one task; allowed: {traits.smallest_group} to 1024",
        )
    if algorithm.kl_coef == 0:
        yield from _unused(config, "with algorithm.kl_coef = 0", "algorithm.kl_estimator", "algorithm.kl_anchor", "algorithm.kl_in")
    elif algorithm.kl_in == "reward" and algorithm.kl_estimator == "k3_unbiased":
        yield Problem(
            "algorithm.kl_estimator", "k3_unbiased", "differs from k3 as a loss alone; allowed with algorithm.kl_in = reward: k1, k2, k3"
        )
    for switch in ("normalize_std", "whiten"):
        if not getattr(algorithm, switch):
            yield from _unused(config, f"with algorithm.{switch} = false", "algorithm.std_floor")


def _critic(config: Config) -> Iterator[Problem]:
    traits = ALGORITHMS.get(config.algorithm.name)
    if traits is None or not traits.critic:
        return
    critic, federation = config.critic, config.federation
    if federation.mode != "federated":
        yield from _unused(
            config, f"with federation.mode = {federation.mode}: one client trains and nothing is averaged", "critic.federate"
        )
    elif not critic.federate and config.learner.optimizer_state == "average":
        yield Problem(
            "critic.federate",
            False,
            "the server would average the optimizer moments of critics that it does not have; "
            "allowed with learner.optimizer_state = average: true",
        )
    if critic.warmup_rounds >= federation.rounds:
        yield Problem(
            "critic.warmup_rounds",
            critic.warmup_rounds,
            f"the policy would never be trained in federation.rounds = {federation.rounds}; allowed: 0 to {federation.rounds - 1}",
        )


def _learner(config: Config) -> Iterator[Problem]:
    learner = config.learner
    if learner.zero_stage == 3 and config.aggregation.prox_mu > 0:
        yield Problem("learner.zero_stage", 3, "partitions the weights that aggregation.prox_mu compares; allowed with it: 0, 1, 2")
    if learner.mini_batch < learner.workers:
        yield Problem(
            "learner.mini_batch",
            learner.mini_batch,
            f"every one of learner.workers = {learner.workers} needs a row; allowed: {learner.workers} or more",
        )


WORLD_SETTINGS: dict[str, tuple[str, ...]] = {
    "webshop": ("profile", "human_goals", "results_per_page", "products"),
    "alfworld": ("games", "room_size", "task_types", "heldout_split"),
}
"""Settings that one world alone has."""


def _world(config: Config) -> Iterator[Problem]:
    world = config.world
    if world.data is not None:
        made = ("products", "data_seed", "games", "room_size")
        yield from _unused(config, "with world.data, which brings its own tasks", *(f"world.{name}" for name in made))
    for owner, names in WORLD_SETTINGS.items():
        if world.name != owner:
            yield from _unused(config, f"with world.name = {world.name}", *(f"world.{name}" for name in names))
    if world.name in WORLD_SETTINGS:
        yield from _unused(config, f"with world.name = {world.name}, which has settings of its own", "world.options")
    elif world.data is not None:
        yield from _unused(config, f"with world.name = {world.name}, which has no data", "world.data")


def _evaluation(config: Config) -> Iterator[Problem]:
    heldout, tasks, skip = config.world.heldout, config.evaluation.tasks, config.evaluation.skip
    if heldout is not None and skip >= heldout:
        yield Problem("evaluation.skip", skip, f"world.heldout = {heldout} tasks are held out; allowed: 0 to {heldout - 1}")
    elif heldout is not None and tasks > heldout - skip and is_set(config, "evaluation.tasks"):
        left = f", evaluation.skip = {skip} passed over" if skip else ""
        yield Problem("evaluation.tasks", tasks, f"world.heldout = {heldout} tasks are held out{left}; allowed: 1 to {heldout - skip}")
    if not config.evaluation.clients:
        yield from _unused(config, "without evaluation.clients", "evaluation.client_tasks")


def _rollout(config: Config) -> Iterator[Problem]:
    rollout, gpus = config.rollout, config.resources.engine_gpus
    if not rollout.self_test:
        yield from _unused(config, "with rollout.self_test = false", "rollout.self_test_tolerance")
    if rollout.backend == "transformers":
        yield from _unused(
            config,
            "with rollout.backend = transformers",
            "rollout.kv_cache_gb",
            "rollout.gpu_memory_utilization",
            "rollout.tensor_parallel",
            "rollout.max_batched_tokens",
        )
    elif gpus > 0:
        yield from _unused(config, f"with resources.engine_gpus = {gpus:g}: GPU engines size their own cache", "rollout.kv_cache_gb")
        if rollout.tensor_parallel > gpus:
            yield Problem(
                "rollout.tensor_parallel", rollout.tensor_parallel, f"needs as many GPUs per engine, but resources.engine_gpus = {gpus:g}"
            )
    else:
        yield from _unused(
            config, "with resources.engine_gpus = 0: engines run on CPUs", "rollout.gpu_memory_utilization", "rollout.tensor_parallel"
        )
    context = rollout.max_context
    if context is not None:
        if context <= rollout.max_new_tokens:
            yield Problem(
                "rollout.max_context",
                context,
                f"leaves no room for a prompt beside rollout.max_new_tokens = {rollout.max_new_tokens}; raise it",
            )


def _places(config: Config) -> Iterator[Problem]:
    if not config.tracking.mlflow:
        yield from _unused(config, "with tracking.mlflow = false", "tracking.uri", "tracking.experiment", "tracking.clients")
    if config.resources.address is not None:
        yield from _unused(
            config, "with resources.address: a cluster that exists has its own", "resources.cpus", "resources.object_store_gb"
        )


def _partition(config: Config) -> Iterator[Problem]:
    partition = config.federation.partition
    section = "federation.partition"
    knobs = [name for name in ("preference", "coverage", "hardness") if getattr(partition, name) is not None]
    if partition.name is not None:
        others = (*knobs, "scenes", "file", "min_size", "mean_size", "max_size", "easy_mean", "reference")
        yield from _unused(config, f"with {section}.name = {partition.name}", *(f"{section}.{name}" for name in others))
        return
    if partition.scenes is not None:
        if config.world.name != "alfworld":
            yield Problem(f"{section}.scenes", partition.scenes, f"rooms are ALFWorld's, but world.name = {config.world.name}")
        others = (*knobs, "file", "labels", "min_size", "mean_size", "max_size", "easy_mean")
        yield from _unused(config, f"with {section}.scenes", *(f"{section}.{name}" for name in others))
        return
    if partition.file is not None:
        others = (*knobs, "labels", "min_size", "mean_size", "max_size", "easy_mean", "seed", "reference")
        names = (*(f"{section}.{name}" for name in others), "federation.tasks_per_client")
        yield from _unused(config, f"with {section}.file, which names every client's tasks", *names)
        return
    if partition.coverage is None:
        yield from _unused(config, f"without {section}.coverage", *(f"{section}.{name}" for name in ("min_size", "mean_size", "max_size")))
    if partition.hardness is None:
        yield from _unused(config, f"without {section}.hardness", f"{section}.easy_mean")
    elif partition.labels is None:
        yield Problem(f"{section}.hardness", partition.hardness, f"needs {section}.labels; `fedagent data label` writes such a file")
    if partition.reference and len(knobs) != 1:
        yield Problem(
            f"{section}.reference",
            True,
            f"the published constructors use one knob at a time, here are {len(knobs)}; set one of preference, coverage, hardness, scenes",
        )


def _variant(config: Config) -> Iterator[Problem]:
    variant, section = config.world.variant, "world.variant"
    if variant.family != "default":
        return
    others = ("members", "severity", "options", "seed", "min_reachable", "reach_tasks", "reference")
    yield from _unused(config, f"with {section}.family = default", *(f"{section}.{name}" for name in others))
    if variant.reveal == "none":
        yield from _unused(config, f"with {section}.family = default", "evaluation.worlds", "evaluation.world_tasks")


def _layout(config: Config) -> Iterator[Problem]:
    if config.resources.layout != "process":
        return
    for path in ("rollout.engines", "learner.groups", "learner.workers"):
        if (value := value_of(config, path)) != 1:
            yield Problem(path, value, "one process holds one engine and one learner; allowed: 1 with resources.layout = process")
    for path in ("resources.engine_gpus", "resources.learner_gpus"):
        if value_of(config, path):
            yield Problem(path, value_of(config, path), "runs on the CPU with resources.layout = process; allowed: 0")
    idle = ("address", "cpus", "object_store_gb", "engine_cpus", "learner_cpus", "env_cpus", "placement_timeout_s")
    names = (*(f"resources.{name}" for name in idle), "rollout.env_workers", "rollout.env_deadline_s")
    yield from _unused(config, "with resources.layout = process", *names)


RULES: tuple[Rule, ...] = (
    _clients,
    _tasks,
    _partition,
    _variant,
    _adapter,
    _outside,
    _algorithm,
    _critic,
    _learner,
    _world,
    _evaluation,
    _rollout,
    _places,
    _layout,
)
