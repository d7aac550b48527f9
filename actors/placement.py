"""What a run needs of a cluster, whether the cluster has it, and the placement group that holds it.

Owns the mapping from configuration to Ray bundles and the life of the cluster connection. A cluster that this process
did not start is never stopped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.config import Config
from pipeline.errors import PlacementError

ROLES = ("aggregator", "tracker", "rollout", "environment", "learner")
"""Actor roles in the order of their bundles."""

DRIVER_CPUS = 0.1
"""Share of the process that drives a trial's round loop; it mostly waits."""


@dataclass(frozen=True)
class Need:
    """``count`` actors of a role; ``cpus`` and ``gpus`` are per actor."""

    role: str
    count: int
    cpus: float
    gpus: float = 0.0

    def bundle(self) -> dict[str, float]:
        """The Ray bundle of one such actor. Never empty: Ray refuses empty bundles."""
        resources = {"CPU": max(self.cpus, 0.001)}
        if self.gpus > 0:
            resources["GPU"] = self.gpus
        return resources


def needs(config: Config) -> tuple[Need, ...]:
    """The actors of a run with their resources, by role."""
    res = config.resources
    return (
        Need("aggregator", 1, 0.1),
        Need("tracker", 1 if config.tracking.mlflow else 0, 0.05),
        Need("rollout", config.rollout.engines, res.engine_cpus, res.engine_gpus),
        Need("environment", config.rollout.engines * config.rollout.env_workers, res.env_cpus),
        Need("learner", config.learner.groups * config.learner.workers, res.learner_cpus, res.learner_gpus),
    )


def bundles(wanted: tuple[Need, ...]) -> list[dict[str, float]]:
    """One bundle per actor, in the order of the roles."""
    return [need.bundle() for need in wanted for _ in range(need.count)]


def trial_needs(config: Config) -> tuple[Need, ...]:
    """A trial of a sweep: its driver first, then the actors of its run; with ``resources.layout = process`` one process that holds all.

    Tune reserves the bundles of these as one placement group before the trial starts, and ``Placement`` puts the actors into that same
    group: a trial never waits for resources that it, or the sweep above it, holds.
    """
    if config.resources.layout == "process":
        return (Need("trial", 1, 1.0),)
    return (Need("driver", 1, DRIVER_CPUS), *needs(config))


def totals(wanted: tuple[Need, ...]) -> dict[str, float]:
    """Summed resources, by name."""
    total: dict[str, float] = {"CPU": 0.0, "GPU": 0.0}
    for need in wanted:
        total["CPU"] += need.count * need.bundle()["CPU"]
        total["GPU"] += need.count * need.gpus
    return {name: round(amount, 3) for name, amount in total.items() if amount > 0}


def check_fit(wanted: tuple[Need, ...], nodes: list[Mapping[str, float]]) -> None:
    """Raise ``PlacementError`` when the actors cannot be placed on ``nodes`` (resources per node), saying what is missing.

    First-fit decreasing, as a necessary and nearly sufficient check; the placement group has the last word.
    """
    available = {name: sum(node.get(name, 0.0) for node in nodes) for name in ("CPU", "GPU")}
    missing = [
        f"{name}: the plan needs {amount:g}, the cluster has {available.get(name, 0.0):g}"
        for name, amount in totals(wanted).items()
        if amount > available.get(name, 0.0) + 1e-6
    ]
    if missing:
        table = "; ".join(f"{n.count} {n.role} x {n.cpus:g} CPU" + (f" {n.gpus:g} GPU" if n.gpus else "") for n in wanted if n.count)
        raise PlacementError(
            f"the plan does not fit the cluster ({'; '.join(missing)}). Actors: {table}. "
            "Lower --rollout.engines, --learner.groups, --learner.workers or the --resources.* shares, or add nodes."
        )
    free = [dict(node) for node in nodes]
    each = [(need, need.bundle()) for need in wanted for _ in range(need.count)]
    for need, bundle in sorted(each, key=lambda nb: (-nb[1].get("GPU", 0.0), -nb[1]["CPU"])):
        for node in free:
            if all(node.get(name, 0.0) + 1e-6 >= amount for name, amount in bundle.items()):
                for name, amount in bundle.items():
                    node[name] = node.get(name, 0.0) - amount
                break
        else:
            largest = max((node.get("CPU", 0.0) for node in nodes), default=0.0)
            raise PlacementError(
                f"no node has room for one more {need.role} ({bundle}); the largest of {len(nodes)} nodes has {largest:g} CPU. "
                f"Lower its share under --resources or use larger nodes."
            )


def cluster_nodes() -> list[Mapping[str, float]]:
    """Resources of every live node of the connected cluster."""
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


@contextlib.contextmanager
def connect(config: Config) -> Iterator[bool]:
    """Join the cluster named by the configuration or RAY_ADDRESS, or start a local one for the length of the block.

    Yields whether this process started the cluster. Only then is it stopped at the end.
    """
    import ray

    res = config.resources
    if ray.is_initialized():
        yield False
        return
    address = res.address or os.environ.get("RAY_ADDRESS")
    address = None if address == "local" else address
    runtime_env = {"env_vars": worker_environment(config)}
    common: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": config.run.log_level in ("debug", "info"),
        "namespace": f"fedagent-{config.run.name}-{os.getpid()}",
        "runtime_env": runtime_env,
    }
    if address:
        try:
            ray.init(address=address, **common)
        except Exception as error:
            raise PlacementError(
                f"cannot join the Ray cluster at {address!r}: {error}. Is it running, and is RAY_AUTH_MODE the same here?"
            ) from error
    else:
        ray.init(
            address="local",
            num_cpus=res.cpus or os.cpu_count(),
            object_store_memory=int(res.object_store_gb * 2**30),
            include_dashboard=False,
            **common,
        )
    try:
        yield not address
    finally:
        ray.shutdown()


def worker_environment(config: Config) -> dict[str, str]:
    """Environment variables of every actor process, less those that a submitted job has set for all its processes already."""
    wanted = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_DEDUP_LOGS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **{
            name: os.environ[name]
            for name in ("WEBSHOP_DATA", "ALFWORLD_DATA", "FEDAGENT_CACHE", "HF_HUB_OFFLINE", "HF_HOME")
            if name in os.environ
        },
    }
    # Ray refuses a driver that names a variable which the submitted job's runtime environment names too.
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}")
    taken = ((job.get("runtime_env") or {}).get("env_vars")) or {}
    return {name: value for name, value in wanted.items() if name not in taken}


def reserved_group(config: Config) -> Any | None:
    """The placement group that this process runs in, when it was reserved for a trial of this configuration; else None."""
    from ray.util.placement_group import get_current_placement_group

    group = get_current_placement_group()
    if group is None or config.resources.layout == "process":
        return None
    return group if same_bundles(group.bundle_specs, bundles(trial_needs(config))) else None


def same_bundles(found: Sequence[Mapping[str, float]], wanted: Sequence[Mapping[str, float]]) -> bool:
    """Whether two lists of bundles ask for the same, in the same order."""
    plain = [[{name: round(amount, 6) for name, amount in bundle.items() if amount} for bundle in side] for side in (found, wanted)]
    return plain[0] == plain[1]


class Placement:
    """A placement group with one bundle per actor, and the scheduling options that put an actor into its bundle.

    Inside a trial of a sweep that is the trial's own group, which outlives it; else a new one.
    """

    def __init__(self, config: Config) -> None:
        from ray.util.placement_group import placement_group

        wanted = needs(config)
        self._needs = {need.role: need for need in wanted}
        self.group = reserved_group(config)
        self._owned = self.group is None
        # In a trial's group the first bundle is that of the process that asks.
        first = 0 if self._owned else 1
        self._first: dict[str, int] = {}
        for need in wanted:
            self._first[need.role] = first
            first += need.count
        if not self._owned:
            return
        check_fit(wanted, cluster_nodes())
        self.group = placement_group(bundles(wanted), strategy="PACK")
        timeout = config.resources.placement_timeout_s
        if not self.group.wait(math.ceil(timeout)):
            import ray

            free = ray.available_resources()
            self.remove()
            raise PlacementError(
                f"waited {timeout:g} s for {totals(wanted)}; the cluster has that much but only "
                f"{ {k: round(v, 2) for k, v in free.items() if k in ('CPU', 'GPU')} } is free. Is another job running?"
            )

    def bundle(self, role: str, index: int) -> int:
        """Number of the bundle of actor ``index`` of ``role``."""
        need = self._needs[role]
        if not 0 <= index < need.count:
            raise PlacementError(f"the plan has {need.count} actors of role {role!r}, asked for number {index}")
        return self._first[role] + index

    def cpus(self, role: str) -> float:
        """CPUs of one actor of ``role``."""
        return self._needs[role].bundle()["CPU"]

    def gpus(self, role: str) -> float:
        """GPUs of one actor of ``role``."""
        return self._needs[role].gpus

    def strategy(self, role: str, index: int) -> Any:
        """The scheduling strategy that puts actor ``index`` of ``role`` into its bundle."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(placement_group=self.group, placement_group_bundle_index=self.bundle(role, index))

    def remove(self) -> None:
        """Give the resources back; actors still in the group end. A trial's group is left to who made it."""
        if not self._owned:
            return
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self.group)
