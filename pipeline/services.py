"""What the round loop asks of the parts that do the work, as interfaces.

``pipeline.cluster`` implements them with Ray actors; tests implement them with plain objects. A ``Handle`` is opaque: parameters and
episodes travel as handles between services and never through the controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import FedAgentError

Handle = Any
CLEANUP_S = 10.0
"""Seconds that work has to clean up after its deadline."""
T = TypeVar("T")


@dataclass(frozen=True)
class EpisodeLogTarget:
    """Where the client side writes its episodes, and what it notes beside them."""

    path: Path
    round: int
    epoch: int
    limit: int | None = None


@dataclass(frozen=True)
class Trained:
    """What a learner group made of a batch: handles to the new parameters and optimizer moments, and scalars.

    ``content`` is the hash of the new parameters, the last part of the adapter's name.
    """

    state: Handle
    optimizer: Handle | None
    content: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Published:
    """A version of the shared agent: its name and a handle to its parameters."""

    name: str
    round: int
    state: Handle
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class UpdateMeta:
    """A ``ClientUpdate`` without its tensors."""

    client: str
    round: int
    base_version: str
    n_tasks: int
    n_episodes: int
    n_tokens: int
    metrics: Mapping[str, float]


class Rollouts(Protocol):
    """Engines that run episodes."""

    async def publish(self, name: str, state: Handle) -> None:
        """Make an adapter (or whole weights) available under a name that is never used again."""

    async def drop(self, name: str) -> None:
        """Forget a name."""

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        """Run episodes; a handle to them, in the order of ``specs``, and scalars about them."""


class Learners(Protocol):
    """A pool of learner groups; a call waits for a free one."""

    async def update(
        self,
        client: str,
        round: int,
        epoch: int,
        seed: int,
        start: Handle,
        episodes: Handle,
        optimizer: Handle | None,
        anchor: Handle | None,
    ) -> Trained:
        """Train ``start`` on ``episodes``. ``anchor`` holds the round's start, for FedProx and for a KL anchor of ``round``."""

    async def difference(self, before: Handle, after: Handle) -> Handle:
        """``after - before``, float32: what leaves the client."""

    async def distributions(self, state: Handle, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Handle:
        """Log-probabilities of the whole vocabulary under ``state`` at every token of given responses."""


class AggregatorService(Protocol):
    """The parameter server."""

    async def begin(self, version: Published, clients: Sequence[str], policy: Handle | None = None) -> None:
        """Open a round. ``policy`` are the version's distributions on the shared prompts, where drift is measured."""

    async def add(self, meta: UpdateMeta, delta: Handle, moments: Handle | None, policy: Handle | None = None) -> None:
        """Fold a client in. ``moments`` are its optimizer's, where the server averages those; ``policy`` its distributions on the shared
        prompts, where drift is measured."""

    async def skip(self, client: str) -> None:
        """A client will not report."""

    async def finish(self) -> tuple[Published, Handle]:
        """Close the round: the new version, and a handle to the mean optimizer moments (of None, unless clients sent theirs)."""


class Parts(Protocol):
    """All parts of a run in progress: the services, and what starts and ends them. ``pipeline.cluster`` puts them on Ray actors,
    ``pipeline.inside`` into this process."""

    rollouts: Any
    learners: Any
    aggregator: Any
    tracker: Any

    async def ready(self) -> None:
        """Wait until engines and learners have loaded."""

    async def initial(self) -> Published:
        """The shared agent before the first round."""

    def restore(self, checkpoint: Any) -> Published:
        """The shared agent of a checkpoint."""

    def put(self, value: Any) -> Handle:
        """A handle to a value."""

    async def fetch(self, handle: Handle) -> Any:
        """The value behind a handle."""

    async def self_test_start(self, state: Handle) -> float:
        """Compare engine and learner before the first rollout. Raises ``SelfTestError``; the largest gap otherwise."""

    async def self_test_after(self, state: Handle) -> None:
        """Compare them after the first update."""

    def close(self) -> None:
        """End everything that the run started."""


async def within(seconds: float, work: Awaitable[T], who: str, error: type[FedAgentError]) -> T:
    """``work``'s result, or ``error`` naming who was waited for and how long. Work that is cut short has ``CLEANUP_S`` to clean up."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            # Not wait_for: it would wait for ever for a clean-up that asks the very actor that hangs.
            task.cancel()
            await asyncio.wait({task}, timeout=CLEANUP_S)
            raise error(f"waited {seconds:g} s for {who} without an answer")
        return task.result()
    finally:
        task.cancel()
