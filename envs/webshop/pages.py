"""What a shop page holds and how it is shown as text: visible text nodes in order, click targets, and the two renderings.

Text nodes are those an HTML parser would find in the published templates. Knows nothing of sessions, searching or scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from envs.webshop.records import Product

SEPARATOR = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
_SPACES = " \n\t\f\r"


class Kind(Enum):
    """What a text node is: plain text, a button, an option value, or a product link."""

    TEXT = "text"
    BUTTON = "button"
    OPTION = "option"
    LINK = "link"


class Node(NamedTuple):
    """A visible text node."""

    text: str
    kind: Kind = Kind.TEXT


class Target(NamedTuple):
    """What a click leads to. ``name`` is the option name for an option."""

    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its address, its visible nodes, and its click targets by the text to be clicked."""

    url: str
    nodes: tuple[Node, ...]
    targets: Mapping[str, Target]
    has_search_bar: bool = False


def _visible(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Drop empty nodes and blank ones with a line break; other blank nodes become one space."""
    out = []
    for node in nodes:
        if node.text.strip(_SPACES):
            out.append(node)
        elif node.text and "\n" not in node.text:
            out.append(Node(" ", node.kind))
    return tuple(out)


def _page(url: str, nodes: Sequence[Node], options: Mapping[str, Sequence[str]] | None = None, has_search_bar: bool = False) -> Page:
    targets: dict[str, Target] = {}
    for kind in (Kind.BUTTON, Kind.LINK):
        targets.update({node.text.lower(): Target(kind) for node in nodes if node.kind is kind})
    for name, values in (options or {}).items():
        targets.update({value: Target(Kind.OPTION, name) for value in values})
    return Page(url, _visible(nodes), targets, has_search_bar)


def _button(text: str) -> Node:
    return Node(text, Kind.BUTTON)


def _head(instruction: str) -> list[Node]:
    return [Node("Instruction:"), Node(instruction), _button(BACK)]


def index_page(url: str, instruction: str) -> Page:
    """The start page with the search bar."""
    return _page(url, [Node("WebShop"), Node("Instruction: "), Node(instruction), _button("Search")], has_search_bar=True)


def results_page(url: str, instruction: str, page: int, total: int, products: Sequence[Product]) -> Page:
    """Page ``page`` of ``total`` hits, showing ``products``."""
    nodes = [*_head(instruction), Node(f"Page {page} (Total results: {total})")]
    if page > 1:
        nodes.append(_button(PREVIOUS))
    nodes.append(_button(NEXT))
    for product in products:
        nodes += [Node(product.asin, Kind.LINK), Node(product.title), Node(product.price_tag)]
    return _page(url, nodes)


def item_page(url: str, instruction: str, product: Product, show_attributes: bool) -> Page:
    """The page of one product with its options."""
    nodes = [*_head(instruction), _button(PREVIOUS)]
    for name, values in product.options.items():
        nodes.append(Node(name))
        nodes += [Node(value, Kind.OPTION) for value in values]
    nodes += [Node(product.title), Node(f"Price: {product.price_tag}"), Node("Rating: N.A.")]
    nodes += [_button(name) for name in SUB_PAGES if name != "Attributes" or show_attributes]
    return _page(url, [*nodes, _button(BUY)], product.options)


def sub_page(url: str, instruction: str, product: Product, name: str) -> Page:
    """One of ``SUB_PAGES`` of a product. There are never reviews."""
    texts: list[str] = []
    if name == "Description":
        texts = [product.description]
    elif name == "Features":
        texts = [f" {bullet}" for bullet in product.bullets]
    elif name == "Attributes":
        texts = [*(f" {attribute}" for attribute in product.attributes), product.category, product.query, product.product_category]
    return _page(url, [*_head(instruction), _button(PREVIOUS), *map(Node, texts)])


def options_json(options: Mapping[str, str]) -> str:
    """Chosen options as the done page prints them: sorted, ASCII, with the characters escaped that are special in HTML."""
    text = json.dumps(options, sort_keys=True)
    for char, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("'", "\\u0027")):
        text = text.replace(char, escape)
    return text


_DONE_MIDDLE = (
    *(
        "attrs",
        "None",
        "category",
        "None",
        "query",
        "None",
        "product category",
        "None",
        "Target",
        "asin",
        "options",
        "attrs",
        "price upper",
    ),
    *("instuction text", "category", "product category", "query", "Goal ", "None", "Reward", "Your score (min 0.0, max 1.0)"),
)


def done_page(url: str, asin: str, options: Mapping[str, str], reward: float) -> Page:
    """The page after the purchase."""
    texts = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)", "Purchased", "asin", asin]
    texts += ["options", options_json(options), *_DONE_MIDDLE, str(reward), "Reward Details ", "None"]
    return _page(url, [Node(text) for text in texts])


def render_text(page: Page) -> str:
    """Mode ``text``: stripped nodes joined by `` [SEP] ``, without marks."""
    return SEPARATOR.join(node.text.strip() for node in page.nodes)


def render_rich(page: Page, opened: set[str]) -> str:
    """Mode ``text_rich``: a line per node, with marks for what can be clicked and what has been. ``opened`` holds the asins opened."""
    out = ""
    for text, kind in page.nodes:
        if kind is Kind.BUTTON:
            line = f"[button] {text} [button_]"
        elif kind is Kind.OPTION:
            # as published: an option counts as chosen when its quoted text occurs in the address
            chosen = f'"{text}"' in page.url
            line = f"  [clicked button] {text} [clicked button_]" if chosen else f"  [button] {text} [button_]"
            out = f"You have clicked {text}.\n{out}" if chosen else out
        elif kind is Kind.LINK:
            line = f"\n[clicked button] {text} [clicked button_]" if text in opened else f"\n[button] {text} [button_]"
        else:
            line = text
        out += f"{line}\n"
    return out
