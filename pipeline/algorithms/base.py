"""What every algorithm works on and offers: rows (one per turn), micro-batches of their tokens, and a loss over response tokens.

Knows nothing of models, optimizers or workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from pipeline.episodes import Episode, FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Training rows. Row i is ``tokens[i]`` (prompt then response), of which the last ``response_lengths[i]`` were generated.

    ``logprobs[i]`` are the sampler's log-probabilities of the response. ``metrics`` are scalars about the batch as a whole.
    With a critic, ``rewards[i]`` is what row i earns at its end, and ``credit`` adds one advantage, old value and value target per response
    token, which take the place of ``advantages``.
    """

    tokens: Sequence[IntArray]
    response_lengths: IntArray
    logprobs: Sequence[FloatArray]
    advantages: FloatArray
    episodes: IntArray
    groups: IntArray
    rewards: FloatArray | None = None
    token_advantages: Sequence[FloatArray] | None = None
    old_values: Sequence[FloatArray] | None = None
    value_targets: Sequence[FloatArray] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> IntArray:
        """Tokens per row, prompt and response."""
        return np.fromiter((len(t) for t in self.tokens), np.int64, len(self.tokens))

    @property
    def n_response_tokens(self) -> int:
        """Tokens that enter the loss."""
        return int(self.response_lengths.sum())


@dataclass(frozen=True)
class MicroBatch:
    """Rows in one forward pass: B rows padded on the right to L tokens, n response tokens in all, rows one after the other.

    Right padding needs no attention mask under causal attention: no response token can see what comes after it.
    ``positions`` index the flattened [B * L] hidden states that predict the response tokens. A batch of ``weight`` 0 only keeps
    data-parallel workers in step.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    rows: IntArray
    ref_logprobs: torch.Tensor | None = None
    old_values: torch.Tensor | None = None
    value_targets: torch.Tensor | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Loss:
    """A sum over response tokens (to be divided by a global denominator), and what happened: sums and maxima over tokens."""

    total: torch.Tensor
    sums: Mapping[str, torch.Tensor]
    maxima: Mapping[str, torch.Tensor]


class Algorithm(ABC):
    """An objective. Stateless but for its configuration."""

    needs_reference: bool
    """Whether ``loss`` needs the anchor's log-probabilities."""

    needs_critic: bool = False
    """Whether there is a critic to train, which ``credit`` and ``value_loss`` are about."""

    needs_entropy: bool
    """Whether the entropy needs a gradient."""

    passes: int
    """Passes over a batch of rows."""

    @abstractmethod
    def rows(self, episodes: Sequence[Episode]) -> Rows:
        """Rows of the episodes of one client's rollout batch."""

    @abstractmethod
    def loss(self, batch: MicroBatch, logprobs: torch.Tensor, entropy: torch.Tensor, ref_logprobs: torch.Tensor | None) -> Loss:
        """Loss of a micro-batch. ``logprobs``, ``entropy`` and ``ref_logprobs`` are [n], one value per response token."""

    def credit(self, rows: Rows, values: Sequence[FloatArray], ref_logprobs: Sequence[FloatArray] | None) -> Rows:
        """Advantages and value targets from the critic's ``values`` before the update, one per response token of each row.

        ``values`` and targets are in the critic's own units, advantages in those of the rewards.
        """
        raise NotImplementedError(f"{type(self).__name__} has no critic")

    def value_loss(self, batch: MicroBatch, values: torch.Tensor) -> Loss:
        """Loss of the critic on a micro-batch; ``values`` are [n]."""
        raise NotImplementedError(f"{type(self).__name__} has no critic")
