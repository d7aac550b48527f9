"""The modules that DeepSpeed wraps: a language model that returns log-probabilities of response tokens only, or their values.

Owns the forward pass. Knows nothing of losses, optimizers or workers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch

from pipeline.algorithms.losses import token_logprobs
from pipeline.models import is_lora


class Backbone(torch.nn.Module):
    """Computes only what response tokens need: the output head, and the token-wise parts of the last layer, see no prompt positions.

    A windowed row has some four response tokens after seventy of prompt, so that a small model's pass gets a third cheaper.
    """

    def __init__(self, model: Any, dtype: str, *, gradient_checkpointing: bool) -> None:
        super().__init__()
        self.model = model
        self._narrow_to: torch.Tensor | None = None
        self._bfloat16 = dtype == "bfloat16"
        # Dropout would make the learner's policy differ from the sampler's.
        model.eval()
        if gradient_checkpointing:
            for module in model.modules():
                if isinstance(module, torch.nn.Dropout):
                    module.p = 0.0
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.train()

    def train(self, mode: bool = True) -> Self:
        """Ignored: the mode is fixed at construction, and DeepSpeed switches it freely."""
        return self

    @property
    def plain(self) -> Any:
        """The Hugging Face model itself, with or without an adapter inside."""
        return self.model.get_base_model() if is_lora(self.model) else self.model

    def hidden(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """The last layer's output at ``positions`` [n] of the flattened [B * L]: [n, H]."""
        self._narrow_to = positions
        states = self.plain.base_model(input_ids=input_ids, use_cache=False).last_hidden_state
        self._narrow_to = None
        picked: torch.Tensor = states.flatten(0, 1)[positions]
        return picked

    def _autocast(self, like: torch.Tensor) -> AbstractContextManager[Any]:
        return torch.autocast(like.device.type, dtype=torch.bfloat16) if self._bfloat16 else nullcontext()

    def _narrow_last_layer(self, output: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        """Make the last layer's query, output and feed-forward parts skip positions that nothing reads, if the model has the usual names.

        Undone unless ``output``, of ids, positions and targets, stays what it was.
        """
        layers = getattr(self.plain.base_model, "layers", None)
        if layers is None:
            return
        last = layers[-1]
        attention = getattr(last, "self_attn", None)
        parts = [
            part for part in (getattr(attention, "q_proj", None), getattr(attention, "o_proj", None), getattr(last, "mlp", None)) if part
        ]
        device = next(self.plain.parameters()).device
        ids = torch.arange(6, device=device).view(2, 3) % self.plain.config.vocab_size
        positions, targets = torch.tensor([1, 2, 4], device=device), torch.tensor([0, 1, 2], device=device) % self.plain.config.vocab_size
        with torch.no_grad():
            whole = output(ids, positions, targets)
            for part in parts:
                part.forward = self._narrowed(part.forward)
            try:
                narrow = output(ids, positions, targets)
                agrees = torch.allclose(whole, narrow, rtol=1e-4, atol=1e-2 if self._bfloat16 else 1e-5)
            except (RuntimeError, TypeError, AttributeError):
                agrees = False
        if not agrees:
            self._narrow_to = None
            for part in parts:
                del part.forward

    def _narrowed(self, whole: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        def forward(hidden: torch.Tensor) -> torch.Tensor:
            index = self._narrow_to
            if index is None:
                return whole(hidden)
            part = whole(hidden.flatten(0, 1)[index])
            spread = part.new_zeros(hidden.shape[0] * hidden.shape[1], part.shape[-1]).index_copy(0, index, part)
            return spread.view(*hidden.shape[:2], -1)

        return forward


class Policy(Backbone):
    """Log-probabilities of response tokens."""

    def __init__(self, model: Any, dtype: str, *, gradient_checkpointing: bool = False) -> None:
        super().__init__(model, dtype, gradient_checkpointing=gradient_checkpointing)
        self._head_apart = self._probe()
        # A checkpointed layer is computed again in the backward pass, when the positions may be those of another batch.
        if self._head_apart and not gradient_checkpointing:
            self._narrow_last_layer(lambda ids, positions, targets: self(ids, positions, targets)[0])

    def forward(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        targets: torch.Tensor,
        temperature: float = 1.0,
        entropy_gradient: bool = False,
        with_entropy: bool = True,
        adapter: bool = True,
        whole: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability and entropy per target [n], float32; with ``whole`` those of the whole vocabulary [n, V] and no entropy.

        ``input_ids`` [B, L] is padded on the right, ``positions`` [n] index the flattened [B * L] positions that predict
        ``targets`` [n]. ``adapter=False`` computes them without the LoRA adapter.
        """
        switched: AbstractContextManager[Any] = nullcontext() if adapter else self.model.disable_adapter()
        with switched, self._autocast(input_ids):
            plain = self.plain
            if self._head_apart:
                picked = self.hidden(input_ids, positions)
                head = plain.get_output_embeddings()
            else:
                picked = plain(input_ids=input_ids, use_cache=False).logits.flatten(0, 1)[positions]
                head = torch.nn.Identity()
            if whole:
                logprobs = torch.log_softmax(head(picked).float() / temperature, -1)
                return logprobs, logprobs.new_zeros(0)
            return token_logprobs(
                picked, head, targets, temperature=temperature, entropy_gradient=entropy_gradient, with_entropy=with_entropy
            )

    def _probe(self) -> bool:
        """Whether the head alone makes the model's logits: some models scale or cap them afterwards."""
        plain = self.plain
        head = plain.get_output_embeddings()
        if head is None or not hasattr(plain, "base_model"):
            return False
        device = next(plain.parameters()).device
        ids = torch.arange(4, device=device)[None] % plain.config.vocab_size
        with torch.no_grad(), self._autocast(ids):
            whole = plain(input_ids=ids, use_cache=False).logits
            apart = head(plain.base_model(input_ids=ids, use_cache=False).last_hidden_state)
        return whole.shape == apart.shape and torch.allclose(whole.float(), apart.float(), rtol=1e-4, atol=1e-4)


class Critic(Backbone):
    """Values of response tokens, each predicted from what comes before the token: a backbone and a scalar head."""

    def __init__(self, model: Any, head: torch.nn.Linear, dtype: str, *, gradient_checkpointing: bool = False) -> None:
        super().__init__(model, dtype, gradient_checkpointing=gradient_checkpointing)
        self.head = head
        if not gradient_checkpointing:
            self._narrow_last_layer(lambda ids, positions, _: self._states(ids, positions))

    def forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Value per response token [n], float32; arguments as for ``Policy``."""
        values: torch.Tensor = self.head(self._states(input_ids, positions)).squeeze(-1)
        return values

    def _states(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        with self._autocast(input_ids):
            return self.hidden(input_ids, positions).float()
