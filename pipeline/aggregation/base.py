"""What an aggregation rule is: how checked client updates become the next global state. Knows nothing of order, weights or transport."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pipeline.aggregation.drift import policy_norm
from pipeline.aggregation.mean import StreamingMean
from pipeline.episodes import FloatArray, State


class Rule(ABC):
    """One round after another: ``begin``, ``fold`` per client in a fixed order, ``finish``.

    ``sent`` holds the shapes of the arrays that every client must send. ``adapters`` are the values of ``model.adapter`` whose parameters
    the rule can average. What a rule keeps from one round to the next is not in checkpoints: the global state alone is.
    """

    name: ClassVar[str]
    adapters: ClassVar[frozenset[str]] = frozenset({"full", "lora"})
    sent: Mapping[str, tuple[int, ...]]

    @abstractmethod
    def begin(self, state: State) -> None:
        """Open a round that starts at ``state``. Raises ``AggregationError`` when the state does not suit the rule."""

    def check(self, who: str, delta: State) -> None:
        """Raise ``AggregationError`` naming ``who`` for a difference that the rule cannot take; keys, shapes and values are right."""
        del who, delta

    @abstractmethod
    def fold(self, delta: State, weight: float) -> None:
        """Take a client in."""

    @abstractmethod
    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """The new state and scalars about the round; ``update_norm`` always: the norm of the mean difference, a critic's part left out
        (``policy_norm``)."""


class MeanRule(Rule):
    """FedAvg (McMahan et al. 2017, arXiv 1602.05629): the start plus the weighted mean difference, array by array."""

    name = "full"
    adapters = frozenset({"full"})

    def begin(self, state: State) -> None:
        """See ``Rule``."""
        self.start = state
        self.sent = {name: tuple(value.shape) for name, value in state.items()}
        self.mean = StreamingMean(self.sent)

    def fold(self, delta: State, weight: float) -> None:
        """See ``Rule``."""
        self.mean.add(delta, weight)

    def finish(self) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """See ``Rule``."""
        state, squares = self.mean.added_to(self.start)
        return state, {"update_norm": policy_norm(squares)}
