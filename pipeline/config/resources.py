"""Section ``resources``: what the run asks of Ray."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class ResourcesConfig(Section):
    """Resources per actor. Fractions are scheduling shares, not limits."""

    layout: Literal["actors", "process"] = Field(
        "actors", description="Ray actors, or everything in one process without Ray: for small models, where starting actors costs more."
    )
    address: str | None = Field(None, description="Ray cluster to join. Default: RAY_ADDRESS, else a local cluster that ends with the run.")
    cpus: int | None = Field(None, ge=1, le=4096, description="CPUs of a local cluster. Default: all.")
    object_store_gb: float = Field(1.0, ge=0.1, le=4096, description="Object store of a local cluster, in GiB.")
    engine_cpus: float = Field(0.5, ge=0, le=256, description="CPUs reserved per rollout actor.")
    engine_gpus: float = Field(0.0, ge=0, le=16, description="GPUs reserved per rollout actor.")
    engine_threads: int = Field(1, ge=1, le=256, description="CPU threads per rollout engine.")
    learner_cpus: float = Field(0.5, ge=0, le=256, description="CPUs reserved per learner worker.")
    learner_gpus: float = Field(0.0, ge=0, le=16, description="GPUs reserved per learner worker.")
    env_cpus: float = Field(0.2, ge=0, le=256, description="CPUs reserved per environment process.")
    placement_timeout_s: float = Field(60.0, gt=0, le=86_400, description="Seconds to wait for the actors to be placed.")
    start_timeout_s: float = Field(600.0, gt=0, le=86_400, description="Seconds to wait for engines and learners to load.")
