"""A scripted shopper for the generated WebShop catalogue: it reads the same window as a model and knows nothing else.

Owns how a task text and a page are read, what the right next action is, and a clumsy version of it whose mistakes are independent.
Mistakes are put on decisions that are easy to represent (options, buying); picking a row, the hard one, stays clean: a model does not
learn a hard decision from a noisy teacher.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from envs.prompts import SEPARATOR
from envs.webshop import lexicon

Decision = Literal["search", "row", "option", "buy", "back"]
History = Sequence[tuple[str, str]]

_TASK = re.compile(
    r"find me (?P<what>.+?)(?: with (?P<options>[^,]+: .+?))?(?:, and price lower than (?P<limit>[0-9.]+) dollars)?", re.IGNORECASE
)
_ATTRIBUTES = tuple(a.lower() for a in lexicon.ATTRIBUTES)
_NOUNS = tuple(noun.lower() for category in lexicon.CATEGORIES for noun in category.nouns[: lexicon.FIRST_NOUNS])
_VALUES = {"color": tuple(c.lower() for c in lexicon.COLOURS), "size": tuple(s.lower() for s in lexicon.SIZES)}
_BACK, _PREV, _NEXT, _BUY = "click[back to search]", "click[< prev]", "click[next >]", "click[buy now]"
_HINT = "Buy with: "
CONTROLS = ("buy now", "description", "features", "reviews")
"""What completes a purchase: the first, unless a shop says otherwise in words."""


@dataclass(frozen=True)
class Wish:
    """What a task asks for. ``options`` are (name, value) in the order of the text; ``limit`` in dollars."""

    attribute: str
    noun: str
    options: tuple[tuple[str, str], ...]
    limit: float

    @property
    def query(self) -> str:
        """The words to search for."""
        return f"{self.attribute} {self.noun}"


@dataclass(frozen=True)
class ResultRow:
    """One product on a results page."""

    asin: str
    title: str
    price: float


@dataclass(frozen=True)
class Page:
    """A page, read. ``rows`` on results pages; ``title``, ``price``, ``texts`` and what completes the purchase (``buys``) on item pages."""

    kind: Literal["search", "results", "item", "sub", "done"]
    rows: tuple[ResultRow, ...] = ()
    title: str = ""
    price: float = 0.0
    texts: tuple[str, ...] = ()
    buys: str = CONTROLS[0]


def read_task(instruction: str) -> Wish:
    """Raises ``ValueError`` for a text that does not come from the generated catalogue."""
    match = _TASK.fullmatch(instruction.strip())
    words = match["what"].lower().split(" ", 1) if match else []
    if match is None or len(words) != 2 or words[0] not in _ATTRIBUTES:
        raise ValueError(f"not a task of the generated catalogue: {instruction!r}")
    options = tuple((name, value) for name, _, value in (part.partition(": ") for part in (match["options"] or "").split(", and ")) if name)
    return Wish(words[0], words[1], options, float(match["limit"] or "inf"))


def read_page(observation: str) -> Page:
    """A page as the world shows it, after the instruction. Raises ``ValueError`` for results whose rows are not (id, title, price)."""
    parts = observation.split(SEPARATOR)
    if "Buy Now" in parts:
        at = next(i for i, part in enumerate(parts) if part.startswith("Price: "))
        buys = parts[0].removeprefix(_HINT) if parts[0].startswith(_HINT) else CONTROLS[0]
        return Page("item", title=parts[at - 1].lower(), price=_dollars(parts[at]), texts=tuple(parts), buys=buys)
    if "Next >" in parts:
        cells = parts[parts.index("Next >") + 1 :]
        if len(cells) % 3:
            raise ValueError(f"a results page with {len(cells)} texts after its buttons, not a multiple of 3: {observation!r}")
        rows = tuple(ResultRow(cells[k].lower(), cells[k + 1].lower(), _dollars(cells[k + 2])) for k in range(0, len(cells), 3))
        return Page("results", rows=rows)
    if "< Prev" in parts:
        return Page("sub")
    return Page("search") if parts[-1:] == ["Search"] else Page("done")


def fits(wish: Wish, title: str, price: float) -> bool:
    """Whether a product's title and price are what is asked for (options show only on its own page)."""
    return price <= wish.limit and has_words(wish.attribute, title) and has_words(wish.noun, title)


def has_words(words: str, title: str) -> bool:
    """Whether all of ``words`` are words of ``title``."""
    return set(words.split()) <= set(title.split())


def valid_rows(wish: Wish, page: Page, history: History) -> list[ResultRow]:
    """Rows that fit, in page order, without the one that was just opened and left again."""
    tried = ""
    if len(history) >= 2 and history[-1][1] == _PREV:
        tried = history[-2][1][len("click[") : -1]
    return [row for row in page.rows if fits(wish, row.title, row.price) and row.asin != tried]


def chosen(history: History) -> dict[str, str]:
    """Options set by the last two actions, as far as a two-turn window shows them."""
    values = {value: name for name, several in _VALUES.items() for value in several}
    recent = [action[len("click[") : -1] for _, action in history[-2:] if action.startswith("click[")]
    return {values[value]: value for value in recent if value in values}


def right_action(wish: Wish, page: Page, history: History) -> tuple[Decision, str]:
    """The kind of decision that a page asks for, and the first right action."""
    if page.kind == "search":
        return "search", f"search[{wish.query}]"
    if page.kind == "results":
        rows = valid_rows(wish, page, history)
        return ("row", f"click[{rows[0].asin}]") if rows else ("back", _BACK)
    if page.kind == "item":
        if not fits(wish, page.title, page.price) or any(value not in page.texts for _, value in wish.options):
            return "back", _PREV
        done = chosen(history)
        for name, value in wish.options:
            if done.get(name) != value:
                return "option", f"click[{value}]"
        return "buy", f"click[{page.buys}]"
    return "back", _PREV if page.kind == "sub" else _BACK


@dataclass(frozen=True)
class Skill:
    """Probabilities of doing the right thing, per decision. ``skip`` leaves an option out; the rest of ``option`` picks another value."""

    search: float = 0.80
    row: float = 0.92
    option: float = 0.66
    skip: float = 0.14
    buy: float = 0.66
    back: float = 0.90


def clumsy_action(wish: Wish, page: Page, history: History, skill: Skill, rng: random.Random) -> str:
    """``right_action`` with independent mistakes. A mistake once made is not noticed (an option counts as set, whatever its value)."""
    decision, action = right_action(wish, page, history)
    if page.kind == "search":
        return action if rng.random() < skill.search else f"search[{_poor_query(wish, rng)}]"
    if page.kind == "results":
        if decision == "row":
            return action if rng.random() < skill.row else f"click[{rng.choice(page.rows).asin}]"
        if page.rows and rng.random() > skill.back:
            return rng.choice([_NEXT, f"click[{rng.choice(page.rows).asin}]"])
        return action
    if page.kind == "item":
        if decision == "back" and rng.random() < skill.back:
            return action
        return _careless_item_action(wish, page, history, skill, rng)
    return action


def _careless_item_action(wish: Wish, page: Page, history: History, skill: Skill, rng: random.Random) -> str:
    done = chosen(history)
    for name, value in wish.options:
        if name in done:
            continue
        luck = rng.random()
        others = [v for v in _VALUES[name] if v != value and v in page.texts]
        if luck < skill.option and value in page.texts:
            return f"click[{value}]"
        if luck < skill.option + skill.skip or not others:
            return f"click[{page.buys}]"
        return f"click[{rng.choice(others)}]"
    if rng.random() < skill.buy:
        return f"click[{page.buys}]"
    return f"click[{rng.choice([*(control for control in CONTROLS if control != page.buys), '< prev'])}]"


def _poor_query(wish: Wish, rng: random.Random) -> str:
    """A search that misses: half of the words, a wrong word, or words that no product has."""
    return rng.choice(
        [
            wish.noun,
            wish.noun,
            wish.attribute,
            f"{rng.choice(_ATTRIBUTES)} {wish.noun}",
            f"{rng.choice(_ATTRIBUTES)} {wish.noun}",
            f"{wish.attribute} {rng.choice(_NOUNS)}",
            wish.noun[: len(wish.noun) // 2] + wish.attribute[:2],
        ]
    )


def _dollars(text: str) -> float:
    """The price in a tag such as ``$35.0`` or ``Price: $35.0`` (the lower one of a range)."""
    return float(text.rpartition(": ")[2].split(" to ")[0].lstrip("$"))


def rearranged(observation: str, order: Literal["inverted", "shuffled"], rng: random.Random) -> str:
    """A results page with its rows in another order; other pages unchanged."""
    parts = observation.split(SEPARATOR)
    if "Next >" not in parts:
        return observation
    first = parts.index("Next >") + 1
    rows = [parts[k : k + 3] for k in range(first, len(parts), 3)]
    if order == "inverted":
        rows.reverse()
    else:
        rng.shuffle(rows)
    return SEPARATOR.join([*parts[:first], *(text for row in rows for text in row)])
