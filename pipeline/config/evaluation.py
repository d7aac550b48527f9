"""Section ``evaluation``: measuring the shared agent on tasks that nobody trained on."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class EvaluationConfig(Section):
    """Every held-out task once, seeded, in the unperturbed world; where clients' worlds differ, some of those as well."""

    every: int = Field(5, ge=0, le=100_000, description="Rounds between evaluations; 0 evaluates only before the first and after the last.")
    tasks: int = Field(300, ge=1, le=100_000, description="Held-out tasks used (the first ones of the split).")
    skip: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Held-out tasks passed over before those: what is tuned on the rest is measured on tasks of its own.",
    )
    temperature: float = Field(1.0, gt=0, le=5, description="Temperature of the sampled evaluation.")
    greedy: bool = Field(True, description="Also evaluate greedily, before the first round and after the last.")
    clients: bool = Field(False, description="Also evaluate the last round's clients with their own parameters, before averaging.")
    worlds: int = Field(
        8, ge=0, le=1000, description="Clients' worlds in which the shared agent is also measured, where they differ (sampled); 0 for none."
    )
    probe_prompts: int = Field(
        8, ge=0, le=1000, description="Held-out prompts on which clients' policies are compared every round; 0 measures no policy drift."
    )
    world_tasks: int = Field(100, ge=1, le=100_000, description="Held-out tasks in each of those worlds, at most evaluation.tasks.")
    client_tasks: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Held-out tasks for the clients' own parameters, at most those of the shared agent. Default: as many.",
    )
