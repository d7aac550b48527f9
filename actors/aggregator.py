"""The parameter server as a Ray actor: builds one ``pipeline.aggregation.Aggregator`` and forwards calls to it.

Parameters travel through the object store: pass them as references, and they arrive as read-only arrays without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.aggregation import make_aggregator
from pipeline.aggregation.fedavg import Weighting
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState, State
from pipeline.errors import AggregationError
from pipeline.moments import Moments, MomentsLike, flatten, unflatten
from pipeline.plugins import load as load_plugins
from pipeline.services import UpdateMeta

Head = tuple[str, int, Mapping[str, float]]
"""Version name, round and scalars of a global state."""


class AggregatorActor:
    """The forwarded calls, which raise ``AggregationError``. A plain class: ``ray.remote(AggregatorActor)`` makes the actor."""

    def __init__(
        self,
        rule: str,
        weighting: Weighting,
        lora_alpha: float,
        options: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
    ) -> None:
        load_plugins(plugins)
        self._aggregator = make_aggregator(rule, weighting, lora_alpha=lora_alpha, options=options)

    def begin(self, name: str, round: int, clients: Sequence[str], state: State, policy: FloatArray | None = None) -> None:
        """Open the round after ``round``, which starts at version ``name``. Pass ``state`` and ``policy`` as references."""
        self._aggregator.begin(GlobalState(name, round, state), clients, policy)

    def add(self, meta: UpdateMeta, delta: State, moments: MomentsLike | None = None, policy: FloatArray | None = None) -> None:
        """Fold a client in. Pass ``delta``, ``moments`` and ``policy`` as references."""
        update = ClientUpdate(
            client=meta.client,
            round=meta.round,
            base_version=meta.base_version,
            delta=delta,
            n_tasks=meta.n_tasks,
            n_episodes=meta.n_episodes,
            n_tokens=meta.n_tokens,
            metrics=meta.metrics,
            policy=policy,
        )
        if moments is not None and moments.kept:
            raise AggregationError(f"client {meta.client}, round {meta.round}: parameters that stay with the client came to the server")
        self._aggregator.add(update, None if moments is None else flatten(moments))

    def skip(self, client: str) -> None:
        """``client`` will not report."""
        self._aggregator.skip(client)

    def finish(self) -> tuple[State, Head]:
        """Close the round: the new state and its head. Call with ``num_returns=2``, so that the state stays in the object store."""
        done = self._aggregator.finish()
        return done.state, (done.version, done.round, dict(done.metrics))

    def mean_moments(self) -> Moments | None:
        """Mean optimizer moments of the round that was closed last; None unless clients sent them."""
        mean = self._aggregator.mean_moments()
        return None if mean is None else unflatten(mean)
