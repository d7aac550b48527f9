"""The parameter server as a Ray actor: builds one ``pipeline.aggregation.Aggregator`` and forwards calls to it.

Parameters travel through the object store: pass them as references, and they arrive as read-only arrays without a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.aggregation import make_aggregator
from pipeline.aggregation.fedavg import RuleName, Weighting
from pipeline.episodes import ClientUpdate, GlobalState, State
from pipeline.moments import Moments, MomentsLike, flatten, unflatten
from pipeline.services import UpdateMeta

Head = tuple[str, int, Mapping[str, float]]
"""Version name, round and scalars of a global state."""


class AggregatorActor:
    """The forwarded calls, which raise ``AggregationError``. A plain class: ``ray.remote(AggregatorActor)`` makes the actor."""

    def __init__(self, rule: RuleName, weighting: Weighting, lora_alpha: float) -> None:
        self._aggregator = make_aggregator(rule, weighting, lora_alpha=lora_alpha)

    def begin(self, name: str, round: int, clients: Sequence[str], state: State) -> None:
        """Open the round after ``round``, which starts at version ``name``. Pass ``state`` as a reference."""
        self._aggregator.begin(GlobalState(name, round, state), clients)

    def add(self, meta: UpdateMeta, delta: State, moments: MomentsLike | None = None) -> None:
        """Fold a client in. Pass ``delta`` and ``moments`` as references."""
        update = ClientUpdate(
            client=meta.client,
            round=meta.round,
            base_version=meta.base_version,
            delta=delta,
            n_tasks=meta.n_tasks,
            n_episodes=meta.n_episodes,
            n_tokens=meta.n_tokens,
            metrics=meta.metrics,
        )
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
