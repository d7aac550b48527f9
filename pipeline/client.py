"""What one client does in a round: run episodes with its current adapter, train on them, repeat, and send the difference.

Pure orchestration over ``pipeline.services``. Episodes and parameters stay handles; of a client only ``UpdateMeta`` (allow-listed
scalars), the parameter difference and its policy's distributions on shared prompts go on to the aggregator.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EnvironmentFailure, FedAgentError, LearnerError
from pipeline.privacy_boundary import check_metrics
from pipeline.services import EpisodeLogTarget, Handle, Learners, Published, Rollouts, UpdateMeta

if TYPE_CHECKING:
    from pipeline.selftest import Probe

Clock = Callable[[], float]


@dataclass(frozen=True)
class ClientWork:
    """A client's part of a round: the episodes of every local epoch, in order."""

    client: str
    round: int
    epochs: tuple[tuple[EpisodeSpec, ...], ...]
    seed: int


@dataclass(frozen=True)
class ClientResult:
    """What came of it. ``record`` goes to ``metrics.jsonl`` on the client's side; ``meta``, ``delta`` and ``policy`` leave the client."""

    meta: UpdateMeta
    delta: Handle
    state: Handle
    optimizer: Handle | None
    record: Mapping[str, object]
    policy: Handle | None = None
    """Its distributions on the shared prompts, which leave the client too."""


@dataclass(frozen=True)
class ClientFailure:
    """A client that did not report: the first attempt's traceback is kept, for it is usually the cause of the others."""

    client: str
    round: int
    error: str
    traceback: str
    attempts: int


@dataclass
class Means:
    """Weighted means of the scalars of several batches."""

    sums: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, scalars: Mapping[str, float], weight: float) -> None:
        """Take a batch of ``weight`` episodes in; what is not finite is left out."""
        for name, value in scalars.items():
            if math.isfinite(value):
                self.sums[name] = self.sums.get(name, 0.0) + weight * value
                self.weights[name] = self.weights.get(name, 0.0) + weight

    def means(self) -> dict[str, float]:
        """The means, by name."""
        return {name: total / self.weights[name] for name, total in self.sums.items() if self.weights[name] > 0}


ROLLOUT_MEANS = ("success", "score", "turns", "invalid", "ret")
LEARNER_MEANS = (
    "loss", "pg_loss", "kl", "approx_kl", "entropy", "clip_fraction", "grad_norm", "steps", "logprob_gap", "zero_variance", "padding_waste",
    "value_loss", "value_clip_fraction", "value_mean", "explained_variance", "critic_grad_norm",
)  # fmt: skip


async def train_client(
    work: ClientWork,
    start: Published,
    rollouts: Rollouts,
    learners: Learners,
    sampling: Sampling,
    *,
    optimizer: Handle | None,
    needs_anchor: bool,
    log: Callable[[int], EpisodeLogTarget | None],
    on_batch: Callable[[Mapping[str, float]], None],
    shared: Probe | None = None,
    clock: Clock = time.monotonic,
) -> ClientResult:
    """One client-round, at whose end the policy is looked at on the ``shared`` prompts. Raises whatever the services raise; adapters that
    it published are dropped in any case."""
    state, adapter = start.state, start.name
    published: list[str] = []
    totals: dict[str, float] = {"episodes": 0, "tokens": 0, "failed_episodes": 0, "rollout_seconds": 0, "train_seconds": 0}
    means = Means()
    try:
        for epoch, specs in enumerate(work.epochs):
            began = clock()
            episodes, scalars = await rollouts.run(specs, adapter, sampling, log(epoch))
            rolled = clock()
            on_batch(scalars)
            if scalars.get("failed", 0) >= scalars["episodes"]:
                raise EnvironmentFailure(
                    f"client {work.client}, round {work.round}, epoch {epoch}: the environment of every episode failed"
                )
            trained = await learners.update(
                work.client, work.round, epoch, work.seed + epoch, state, episodes, optimizer, start.state if needs_anchor else None
            )
            loss = trained.metrics.get("loss", 0.0)
            if not math.isfinite(loss):
                raise LearnerError(f"client {work.client}, round {work.round}, epoch {epoch}: the loss is {loss}")
            totals["episodes"] += scalars["episodes"]
            totals["failed_episodes"] += scalars.get("failed", 0)
            totals["tokens"] += scalars["tokens_prompt"] + scalars["tokens_response"]
            totals["rollout_seconds"] += rolled - began
            totals["train_seconds"] += clock() - rolled
            means.add({k: scalars[k] for k in ROLLOUT_MEANS if k in scalars}, scalars["episodes"])
            means.add({k: trained.metrics[k] for k in LEARNER_MEANS if k in trained.metrics}, scalars["episodes"])
            state, optimizer = trained.state, trained.optimizer
            if epoch + 1 < len(work.epochs):
                adapter = f"{work.client}-{work.round}-{epoch + 1}-{trained.content}"
                # Before it is published: a publish that is cut short must be undone too.
                published.append(adapter)
                await rollouts.publish(adapter, state)
        delta = await learners.difference(start.state, state)
        policy = None if shared is None else await learners.distributions(state, shared.prompts, shared.responses)
    finally:
        for name in published:
            await rollouts.drop(name)
    metrics = {**means.means(), **totals, "epochs": float(len(work.epochs))}
    meta = UpdateMeta(
        client=work.client,
        round=work.round,
        base_version=start.name,
        n_tasks=len({spec.task.id for specs in work.epochs for spec in specs}),
        n_episodes=int(totals["episodes"]),
        n_tokens=int(totals["tokens"]),
        metrics=check_metrics(metrics),
    )
    record = {"kind": "client", "round": work.round, "client": work.client, **metrics}
    return ClientResult(meta, delta, state, optimizer, record, policy)


def failure(client: str, round: int, errors: Sequence[BaseException]) -> ClientFailure:
    """The record of a client whose attempts all failed. ``errors`` are in the order in which they happened."""
    first = errors[0]
    text = "".join(traceback.format_exception(first))
    cause = getattr(first, "cause", None) or first
    # Messages of other errors may quote what an agent saw; they stay on the client's side, in the traceback.
    shown = (str(cause).strip().splitlines() or [""])[-1] if isinstance(cause, FedAgentError) else "see the client's traceback"
    return ClientFailure(client, round, f"{type(cause).__name__}: {shown}", text, len(errors))
