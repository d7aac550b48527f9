"""From what an agent sees to token ids, and from sampled ids back to an action: the only place where rollout text meets a tokenizer.

Knows prompt forms (``envs.prompts``) and a tokenizer. Knows nothing of engines or environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from envs.prompts import ParsedAction, PromptSpec, parse, render
from pipeline.errors import DataError

_REMEMBERED = 8192


class Prompter(Protocol):
    """Writes prompts and reads responses, in token ids."""

    def encode(self, instruction: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> list[int]:
        """Ids of the prompt for the next action."""
        ...

    def decode(self, response_ids: Sequence[int]) -> ParsedAction:
        """The action that a response stands for."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """Readable text of prompt or response, special tokens included; for looking at, never for training."""
        ...


@dataclass
class ChatPrompter:
    """One user message, written with the tokenizer's chat template. ``spec`` is the prompt form."""

    tokenizer: Any
    spec: PromptSpec
    _wrap: tuple[str, str] | None = field(default=None, init=False)
    _ids: Any = field(default=None, init=False, repr=False)
    _parsed: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Find out what the chat template puts around a message. Raises ``DataError`` for a tokenizer without a template."""
        if not getattr(self.tokenizer, "chat_template", None):
            raise DataError(
                "the model's tokenizer has no chat template; use an instruction-tuned model or add chat_template.jinja to its folder"
            )
        marker = "task: x\ny = [1] $2.50 'z'"
        before, found, after = self._template(marker).partition(marker)
        self._wrap = (before, after) if found else None
        # Episodes of a group meet the same pages and give the same answers: half of the calls are repetitions.
        self._ids = lru_cache(_REMEMBERED)(self._encoded)
        self._parsed = lru_cache(_REMEMBERED)(self._decoded)

    def encode(self, instruction: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> list[int]:
        """Ids of the prompt, generation prompt included."""
        text = render(self.spec, instruction, history, observation, admissible)
        # A template that trims or rewrites the message cannot be replayed by pasting; text with outer blanks is rendered in full.
        wrapped = self._wrap[0] + text + self._wrap[1] if self._wrap and text == text.strip() else self._template(text)
        return list(self._ids(wrapped))

    def decode(self, response_ids: Sequence[int]) -> ParsedAction:
        """The action in a response; stop and padding tokens are not part of it."""
        parsed: ParsedAction = self._parsed(tuple(response_ids))
        return parsed

    def text(self, ids: Sequence[int]) -> str:
        """Text of ids with special tokens shown."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def _encoded(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def _decoded(self, response_ids: tuple[int, ...]) -> ParsedAction:
        return parse(self.spec, self.tokenizer.decode(list(response_ids), skip_special_tokens=True))

    def _template(self, text: str) -> str:
        return str(self.tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False))
