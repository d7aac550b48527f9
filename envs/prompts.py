"""What an agent reads and how its answer becomes an action: one place for all worlds and models.

Pure text: knows nothing of tokenizers, engines or environments. A prompt is the content of one user message and shows a window:
the task, the last few (observation, action) pairs, the present observation, and the actions on offer.

Four templates. ``tags`` asks for reasoning between think tags and an action between action tags, as FedAgent and verl-agent do. In the
others the whole answer is the action: ``short`` is the few-token form that the embedded shop model was trained on, and ``memory`` the one
of the embedded ALFWorld model, which shows a notebook (``envs.memory``) of the whole episode in place of a window. ``plain`` is the
task and the turns as they are, for worlds of few words such as the toy worlds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from envs.memory import recall

Template = Literal["short", "tags", "memory", "plain"]

SEPARATOR = " [SEP] "
"""Stands between the visible texts of a WebShop page."""

NO_ACTION = "none"
REJECTED = "invalid"
"""How the short form shows that nothing was done yet, and that an action had no effect."""


@dataclass(frozen=True)
class PromptSpec:
    """Which prompt to write. ``history`` counts past turns shown (``memory`` reads all of them); a longer prompt than ``max_chars`` is
    written without them."""

    template: Template = "tags"
    history: int = 2
    list_actions: bool = True
    max_chars: int = 13000
    world: str = "webshop"


@dataclass(frozen=True)
class ParsedAction:
    """``action`` is sent to the environment in any case; ``valid`` says whether the answer had the asked-for form.

    ``valid`` is about form only. Whether an action could be applied is for the environment to say (``info["admissible"]``).
    """

    action: str
    valid: bool


@dataclass(frozen=True)
class WorldText:
    """What a prompt says about a world. ``tail`` is how many last characters stand in for an answer without action tags."""

    role: str
    goal: str
    actions: str
    tail: int


WORLD_TEXTS: dict[str, WorldText] = {
    "webshop": WorldText(
        role="You are an expert agent that shops on the WebShop website.",
        goal="Your shopping task: {task}",
        actions="Actions on offer now (put your own words into a search):",
        tail=20,
    ),
    "alfworld": WorldText(
        role="You are an expert agent operating in the ALFRED Embodied Environment.",
        goal="Your task is to: {task}",
        actions="Actions that are possible now:",
        tail=30,
    ),
    "bandit": WorldText(
        role="You are an expert agent that plays machines with several arms.",
        goal="Your task: {task}",
        actions="Arms that you can play now:",
        tail=1,
    ),
    "guess": WorldText(
        role="You are an expert agent that finds a number by guessing.",
        goal="Your task: {task}",
        actions="Numbers that you can say now:",
        tail=5,
    ),
}
OTHER_WORLD = WorldText(
    role="You are an expert agent that acts in a text world.",
    goal="Your task: {task}",
    actions="Actions on offer now:",
    tail=30,
)


def render(spec: PromptSpec, task: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    """The content of the single user message.

    ``task`` is the instruction; ``history`` holds (observation, action) of all past turns, oldest first; ``observation`` is the
    present page as the environment gave it; ``admissible`` the action texts on offer.
    """
    write = {"short": _render_short, "memory": _render_memory, "plain": _render_plain, "tags": _render_tags}[spec.template]
    text = write(spec, task, history, observation, admissible)
    if len(text) > spec.max_chars and history:
        text = write(spec, task, (), observation, admissible)
    return text


def parse(spec: PromptSpec, text: str) -> ParsedAction:
    """The action in a model's answer and whether the answer was well-formed."""
    if spec.template == "memory":
        return _parse_memory(text)
    if spec.template == "plain":
        return _parse_plain(text)
    return _parse_short(text) if spec.template == "short" else _parse_tags(text, _world_text(spec).tail)


def applicable(action: str, admissible: Sequence[str]) -> bool:
    """Whether a WebShop action would have an effect, given the action texts on offer. Searching is possible on every page."""
    if _SEARCH.fullmatch(action):
        return True
    return action.lower() in admissible and action.lower() != "click[search]"


def shown_page(task: str, observation: str) -> list[str]:
    """The texts of a WebShop page after the task; all of them where the task is not among them."""
    parts = observation.split(SEPARATOR)
    return parts[parts.index(task) + 1 :] if task in parts else parts


# --- short ---------------------------------------------------------------------------------------------------------------------

_SEARCH = re.compile(r"search\[.*[^\s\]].*\]", re.DOTALL)
_SHORT_ACTION = re.compile(r"(?:search|click)\[[^\[\]]*[^\[\]\s][^\[\]]*\]")
_NOT_A_LINK = ("page ", "price:", "rating:", "$", "search")


def _render_short(spec: PromptSpec, task: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    window = history[-spec.history :] if spec.history else ()
    last = [action if _took_effect(task, seen, action) else REJECTED for seen, action in window] or [NO_ACTION]
    lines = [task, *(f"Last: {action}" for action in last), f"Page: {SEPARATOR.join(shown_page(task, observation))}"]
    if spec.list_actions:
        lines.append(f"Can: {' '.join(admissible)}")
    return "\n".join([*lines, "Action: "])


def _took_effect(task: str, seen: str, action: str) -> bool:
    """Whether an action had an effect on a page, as far as the page's own texts tell: a click needs its target among them."""
    if not _SHORT_ACTION.fullmatch(action):
        return False
    name, _, target = action[:-1].partition("[")
    target = target.lower()
    if name == "search":
        return True
    return not target.startswith(_NOT_A_LINK) and target in (part.lower() for part in shown_page(task, seen))


def _parse_short(text: str) -> ParsedAction:
    """The whole answer is the action. The closing bracket is the stop token, which some decoders leave out: it is put back."""
    action = text.strip()
    if "[" in action and "]" not in action:
        action += "]"
    return ParsedAction(action, bool(_SHORT_ACTION.fullmatch(action)))


# --- memory --------------------------------------------------------------------------------------------------------------------

_COMMAND = re.compile(r"[a-z]+(?: [a-z0-9]+)*")


def _render_memory(spec: PromptSpec, task: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    lines = [task, *recall(task, history, observation).lines()]
    if spec.list_actions:
        lines.append(f"Can: {', '.join(admissible)}")
    return "\n".join([*lines, "Action:"])


def _parse_memory(text: str) -> ParsedAction:
    """The whole answer is the action: words and numbers."""
    action = " ".join(text.split())
    return ParsedAction(action, bool(_COMMAND.fullmatch(action)))


# --- plain ---------------------------------------------------------------------------------------------------------------------

_WORDS = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")


def _render_plain(spec: PromptSpec, task: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    window = history[-spec.history :] if spec.history else ()
    lines = [task, *(f"{seen}\n> {action}" for seen, action in window), observation]
    if spec.list_actions:
        lines.append(f"Can: {', '.join(admissible)}")
    return "\n".join([*lines, "Action:"])


def _parse_plain(text: str) -> ParsedAction:
    """The whole answer is the action: words and numbers."""
    action = " ".join(text.lower().split())
    return ParsedAction(action, bool(_WORDS.fullmatch(action)))


# --- tags ----------------------------------------------------------------------------------------------------------------------

_CJK = re.compile(r"[\u4e00-\u9fff]")


def _world_text(spec: PromptSpec) -> WorldText:
    return WORLD_TEXTS.get(spec.world, OTHER_WORLD)


def _quoted(spec: PromptSpec, task: str, observation: str) -> str:
    """A WebShop page with each text in single quotes, unless it comes quoted; other observations as they are."""
    if spec.world != "webshop":
        return observation
    return SEPARATOR.join(part if part.startswith("'") else f"'{part}'" for part in shown_page(task, observation))


def _render_tags(spec: PromptSpec, task: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> str:
    world = _world_text(spec)
    done = len(history)
    window = list(enumerate(history, start=1))[-spec.history :] if spec.history else []
    lines = [world.role, world.goal.format(task=task)]
    if window:
        lines.append(f"You have taken {done} step{'s' * (done != 1)} so far. The last {len(window)}, with what you saw before each:")
        lines += [f"[Observation {k}: {_quoted(spec, task, seen)}, Action {k}: '{action}']" for k, (seen, action) in window]
    lines.append(f"This is step {done + 1}. You see: {_quoted(spec, task, observation)}")
    if spec.list_actions:
        lines += [world.actions, "[", *(f"'{action}'," for action in admissible), "]"]
    lines.append("Think first, step by step, about where you are and what helps the task; write this between <think> and </think>.")
    lines.append("Then choose one action and write it between <action> and </action>.")
    return "\n".join(lines)


def _parse_tags(text: str, tail: int) -> ParsedAction:
    """The rules of verl-agent's projections: first action tags, both think tags, no CJK ideograph; the action is lower-cased."""
    lowered = text.lower()
    start, end = lowered.find("<action>"), lowered.find("</action>")
    if start < 0 or end < 0:
        return ParsedAction(lowered[-tail:], False)
    action = lowered[start + len("<action>") : end].strip()
    return ParsedAction(action, "<think>" in text and "</think>" in text and not _CJK.search(text))
