"""Policy-gradient losses per token, and the log-probabilities that they need from hidden states."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

_LOG_RATIO_BOUND = 20.0
_CHUNK_ELEMENTS = 2**26


def clipped_policy_loss(
    logprobs: torch.Tensor, old_logprobs: torch.Tensor, advantages: torch.Tensor, *, low: float, high: float, dual: float | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Clipped surrogate (Schulman et al. 2017, eq. 7) with dual clip (Ye et al. 2020, eq. 5): loss, ratio and "was clipped", per token.

    ``dual`` bounds the loss of a token with negative advantage A by -dual * A, however large the ratio has grown.
    """
    ratio = (logprobs - old_logprobs).clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(plain, clipped)
    was_clipped = clipped > plain
    if dual is not None:
        bounded = torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss)
        was_clipped = was_clipped | (bounded < loss)
        loss = bounded
    return loss, ratio, was_clipped


def clipped_value_loss(
    values: torch.Tensor, old_values: torch.Tensor, targets: torch.Tensor, clip: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Half the squared error of a value that may move by ``clip`` from the old one, or of the value itself where that is worse: loss and
    "was clipped" per token, as in Schulman's own code for PPO (see Engstrom et al. 2020, arXiv 2005.12729, section 3). ``clip`` None
    leaves the plain error."""
    plain = (values - targets).square()
    if clip is None:
        return 0.5 * plain, torch.zeros_like(plain, dtype=torch.bool)
    near = old_values + (values - old_values).clamp(-clip, clip)
    bounded = (near - targets).square()
    return 0.5 * torch.maximum(plain, bounded), bounded > plain


def token_logprobs(
    hidden: torch.Tensor,
    head: Callable[[torch.Tensor], torch.Tensor],
    targets: torch.Tensor,
    *,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
    with_entropy: bool = True,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target and entropy of its distribution, natural log, float32, from hidden states [n, H].

    The distribution is softmax(head(hidden) / temperature). Vocabularies so large that [n, V] would not fit are done in pieces,
    recomputed in the backward pass.
    """

    def piece(h: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = head(h).float()
        if temperature != 1.0:
            logits = logits / temperature
        logp = torch.log_softmax(logits, -1)
        if not with_entropy:
            entropy = logp.new_zeros(len(t))
        elif entropy_gradient:
            entropy = -(logp.exp() * logp).sum(-1)
        else:
            with torch.no_grad():
                entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(-1, t[:, None]).squeeze(-1), entropy

    size = max(1, _CHUNK_ELEMENTS // max(1, getattr(head, "out_features", 1)))
    if len(targets) <= size:
        return piece(hidden, targets)
    pieces = [
        checkpoint(piece, h, t, use_reentrant=False) for h, t in zip(torch.split(hidden, size), torch.split(targets, size), strict=True)
    ]
    return torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces])
