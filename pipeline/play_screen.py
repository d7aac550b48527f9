"""What a person sees when they play: pages as lines, the numbered actions, two worlds side by side, the result. Text only.

Owns layout and colours. Knows no world's rules, reads no input and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from envs.prompts import SEPARATOR

NARROW = 96
"""Fewer columns than this show two worlds one above the other."""

_PRODUCT = re.compile(r"'?B[0-9A-Z]{9}'?")

Line = tuple[str, ...]
"""One line of a page: one text, or the cells of a row."""


@dataclass(frozen=True)
class Shown:
    """One world's page as a screen needs it. ``over`` is empty while the episode goes on."""

    name: str
    observation: str
    over: str = ""


def page_lines(observation: str) -> list[Line]:
    """The texts of a page, each on its line; a shop's results as rows of id, title and price."""
    if SEPARATOR not in observation:
        return [(line,) for line in observation.strip().splitlines() if line.strip()] or [("",)]
    parts, lines, at = observation.split(SEPARATOR), [], 0
    while at < len(parts):
        # A row needs its title and its price: an id alone, as after a purchase, is a text like others.
        row = _PRODUCT.fullmatch(parts[at]) is not None and at + 2 < len(parts) and "$" in parts[at + 2]
        lines.append(tuple(parts[at : at + 3]) if row else (parts[at],))
        at += 3 if row else 1
    return lines


def differing(first: Sequence[Line], second: Sequence[Line]) -> tuple[set[int], set[int]]:
    """Numbers of the lines of each page that the other lacks at that place."""
    left, right = set(range(len(first))), set(range(len(second)))
    for a, b, size in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        left -= set(range(a, a + size))
        right -= set(range(b, b + size))
    return left, right


class Screen:
    """Writes to a console. ``width`` columns are what it has."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def heading(self, world: str, names: Sequence[str], task: str, number: str) -> None:
        """Which world, which variants and the task."""
        self._console.print()
        self._console.print(Text.assemble((world, "bold"), "  ", (" | ".join(names), "cyan")))
        self._console.print(Panel(Text(task), title=Text(f"task {number}"), title_align="left", border_style="dim"))

    def pages(self, shown: Sequence[Shown]) -> None:
        """One page, or two beside or above each other with the lines that differ marked ``*``."""
        if len(shown) == 1:
            self._console.print(self._panel(shown[0], set()))
            return
        first, second = shown
        left, right = differing(page_lines(first.observation), page_lines(second.observation))
        panels = [self._panel(first, left, "*"), self._panel(second, right, "*")]
        if self._console.width < NARROW:
            self._console.print(Group(*panels))
        else:
            grid = Table.grid(expand=True, padding=(0, 1))
            grid.add_column(ratio=1)
            grid.add_column(ratio=1)
            grid.add_row(*panels)
            self._console.print(grid)
        if first.over or second.over:
            return
        count = len(left | right)
        said = f"{count} line{'s' * (count != 1)} differ{'s' * (count == 1)} (*)" if left or right else "Both worlds answer the same."
        self._console.print(Text(said, style="dim"))

    def _panel(self, shown: Shown, marked: set[int], mark: str = "") -> RenderableType:
        body = Table.grid(padding=(0, 1))
        if mark:
            body.add_column(width=1)
        body.add_column(overflow="fold")
        for number, line in enumerate(page_lines(shown.observation)):
            text = Text("  ").join(Text(cell, style="bold" if i == 0 and len(line) > 1 else "") for i, cell in enumerate(line))
            if number in marked:
                text.stylize("yellow")
            body.add_row(*([mark if number in marked else ""] if mark else []), text)
        title = Text(f"{shown.name}{': ' + shown.over if shown.over else ''}")
        return Panel(body, title=title, title_align="left", border_style="dim" if shown.over else "blue")

    def actions(self, actions: Sequence[str], only: Mapping[str, str]) -> None:
        """The actions by number (numbers stand for themselves), in as many columns as fit. ``only`` marks those on offer in one of two
        worlds."""
        if not actions:
            return
        cells = []
        numbered = not all(action.isdecimal() for action in actions)
        for number, action in enumerate(actions, start=1):
            note = f" ({only[action]} only)" if action in only else ""
            cells.append(Text.assemble((f"{number:>3} " if numbered else "", "cyan"), action, (note, "yellow")))
        widest = max(cell.cell_len for cell in cells) + 2
        columns = max(1, min(len(cells), self._console.width // widest))
        rows = -(-len(cells) // columns)
        grid = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(columns):
            grid.add_column(overflow="fold")
        for row in range(rows):
            grid.add_row(*(cells[i] if (i := row + column * rows) < len(cells) else Text("") for column in range(columns)))
        self._console.print(grid)

    def result(self, name: str, info: Mapping[str, Any], reward: float, steps: int, over: str) -> None:
        """How an episode ended: success, score, reward, and the parts of the score where the world tells them."""
        good = bool(info.get("success"))
        head = Text.assemble((("success" if good else "no success"), "bold green" if good else "bold red"), f" in {name}: {over}")
        lines: list[RenderableType] = [
            head,
            Text(f"score {float(info.get('score', 0.0)):.3g}, reward {reward:g}, {steps} step{'s' * (steps != 1)}"),
        ]
        parts = info.get("parts")
        if isinstance(parts, Mapping) and parts:
            grid = Table.grid(padding=(0, 2))
            for part, value in parts.items():
                grid.add_row(Text(str(part), style="dim"), Text(f"{value:.3g}" if isinstance(value, float) else str(value)))
            lines += [Text("parts of the score:", style="dim"), grid]
        self._console.print(Panel(Group(*lines), border_style="green" if good else "red"))

    def say(self, text: str, style: str = "") -> None:
        """A sentence."""
        self._console.print(Text(text, style=style))
