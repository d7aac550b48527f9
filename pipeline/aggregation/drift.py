"""How far the clients of a round drift apart: in their parameters and in what they would do. Streaming; memory does not grow with clients.

Parameters are compared as they are sent: whole weights, or the factors A and B of an adapter. All clients of a round start from the same
factors, so that their changes are comparable entry by entry; the change of B A itself is, to first order, a linear image of them. A
critic's parameters are left out. Policies are compared on prompts that everybody may see.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from pipeline.aggregation.mean import Float64Array, squared_norm
from pipeline.episodes import FloatArray, State
from pipeline.models import CRITIC

SAMPLE = 2**19
"""Parameters up to which every one counts for the cosine; of larger states an even sample of about this many does, which is right to some
0.002 and costs a tenth of the mean."""
BLOCK = 16_384
"""Parameters handled at a time: they stay in cache."""
_VANISHING = 1e-20
"""Squares of float32 that add up to less may have lost digits on the way."""
_LEAST_LOG = -100.0
"""Log-probabilities below this count as this: a probability of 4e-44, which float32 cannot hold."""


def policy_names(names: Iterable[str]) -> list[str]:
    """Names of the policy's parameters among those of a state, sorted: all but a critic's."""
    return sorted(name for name in names if not name.startswith(CRITIC))


def policy_norm(squares: Mapping[str, float]) -> float:
    """The norm of a change, from the squared norms of its arrays by name; a critic's are left out."""
    return math.sqrt(math.fsum(squares[name] for name in policy_names(squares)))


class UpdateDrift:
    """Mean pairwise cosine of client updates d_i, from unit vectors u_i = d_i / |d_i|: (|sum u|^2 - n) / (n (n - 1)).

    Exact up to ``SAMPLE`` parameters; of more, blocks spread evenly over every array are compared, as many of each as is its share.
    A client that did not move has no direction and is left out.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """``shapes`` of the arrays that clients send, by name."""
        sizes = {name: math.prod(shapes[name]) for name in policy_names(shapes)}
        share = min(1.0, SAMPLE / max(1, sum(sizes.values())))
        self._blocks = [(name, begin, end) for name, size in sizes.items() for begin, end in _spread(size, math.ceil(share * size))]
        self._sum: Float64Array = np.zeros(sum(end - begin for _, begin, end in self._blocks), np.float64)
        self.clients = 0
        """Clients that moved."""

    def add(self, delta: State) -> None:
        """Take a client's update in: finite float32 arrays."""
        pieces = [np.ascontiguousarray(delta[name]).reshape(-1)[begin:end] for name, begin, end in self._blocks]
        squared = math.fsum(squared_norm(piece) for piece in pieces)
        if squared < _VANISHING:
            squared = math.fsum(float(np.square(piece, dtype=np.float64).sum()) for piece in pieces)
        if squared == 0.0:
            return
        term, scale, at = np.empty(BLOCK, np.float64), 1.0 / math.sqrt(squared), 0
        for piece in pieces:
            self._sum[at : at + piece.size] += np.multiply(piece, scale, out=term[: piece.size], dtype=np.float64)
            at += piece.size
        self.clients += 1

    def cosine(self) -> float | None:
        """Mean cosine over pairs of clients, in [-1/(n - 1), 1]; None with fewer than two that moved."""
        n = self.clients
        if n < 2:
            return None
        return min(1.0, (float(self._sum @ self._sum) - n) / (n * (n - 1)))


class PolicyDrift:
    """How far clients' policies are apart, from log-probabilities [positions, vocabulary] at the same positions of the same prompts.

    ``start`` are those of the agent that all clients started from. Natural logarithms, float64 sums.
    """

    def __init__(self, start: FloatArray) -> None:
        self._start = np.maximum(start, np.float32(_LEAST_LOG))
        self._sum: Float64Array = np.zeros(start.shape, np.float64)
        self._entropies = self._shifts = 0.0
        self.clients = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what a client sends."""
        return self._sum.shape

    def add(self, logprobs: FloatArray) -> None:
        """Take a client's policy in."""
        logs = np.maximum(logprobs, np.float32(_LEAST_LOG)).astype(np.float64)
        shares = np.exp(logs)
        self._sum += shares
        positions = max(1, len(logs))
        self._entropies += -float((shares * logs).sum()) / positions
        self._shifts += float((shares * (logs - self._start)).sum()) / positions
        self.clients += 1

    def divergence(self) -> float | None:
        """Generalised Jensen-Shannon divergence in nats, mean over positions: the entropy of the clients' mixture less their mean entropy,
        which is their mean KL divergence from the mixture (Lin 1991). From 0 to log n; None with fewer than two clients."""
        if self.clients < 2:
            return None
        mixture = self._sum / self.clients
        entropy = -float((mixture * np.log(np.maximum(mixture, math.exp(_LEAST_LOG)))).sum()) / max(1, len(mixture))
        return max(0.0, entropy - self._entropies / self.clients)

    def shift(self) -> float | None:
        """KL(client || start) in nats, mean over positions and clients; None without clients."""
        return max(0.0, self._shifts / self.clients) if self.clients else None


def _spread(size: int, kept: int) -> list[tuple[int, int]]:
    """Blocks [begin, end) that hold ``kept`` of ``size`` elements, evenly spread; all of them, in order, when ``kept`` is ``size``."""
    count = -(-kept // BLOCK)
    borders = [kept * i // count for i in range(count + 1)] if count else [0]
    skipped = [(size - kept) * (2 * i + 1) // (2 * count) for i in range(count)]
    return [(begin + gap, end + gap) for begin, end, gap in zip(borders, borders[1:], skipped, strict=False)]
