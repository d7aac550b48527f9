"""One browser in a shop, call for call like the published text environment, without a browser, a web server or Java.

Owns sessions, action parsing and navigation, and says what it needs of a shop (``Shop``) and of one that answers clicks differently
(``Clicks``). Every environment draws from its own copy of the shop's random stream, so that nothing is
shared between two of them.
"""

from __future__ import annotations

import json
import math
import random
import re
import string
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, Protocol, TypeAlias

from envs.webshop import pages
from envs.webshop.goals import Goal, Goals
from envs.webshop.pages import Kind, Page, Target
from envs.webshop.records import Product, Profile
from envs.webshop.reward import RewardParts

Mode: TypeAlias = Literal["text", "text_rich"]

BASE_URL = "http://127.0.0.1:3000"
_ACTION = re.compile(r"(.+)\[(.+)\]")
_PAGE_NAMES = ("search_results", "item_page", "item_sub_page", "done")
_SUB_PAGES = {name.lower(): name for name in pages.SUB_PAGES}
_REMEMBERED_SESSIONS = 4096


class Clicks(Protocol):
    """What clicks do in a shop whose controls do not all do what they say. The text of a page does not depend on it."""

    def landing(self, page: Page, clicked: str, asin: str | None) -> tuple[str, bool]:
        """The control that a click on ``clicked`` works as, and whether the purchase it makes is charged a fee that no budget allows."""

    def chosen(self, product: Product, name: str, value: str) -> str:
        """The value of option ``name`` that a click on ``value`` sets."""


class Shop(Protocol):
    """What a browser needs of a shop. Positions number what the shop can show."""

    profile: Profile
    results_per_page: int
    goals: Goals

    @property
    def clicks(self) -> Clicks | None:
        """What clicks do where they do not do what they say."""

    def find(self, keywords: Sequence[str], rng: random.Random) -> Sequence[int]:
        """Positions of the hits for a split query, best first."""

    def product_at(self, position: int) -> Product:
        """The product at a position."""

    def product(self, asin: str) -> Product:
        """The product with this id. Raises ``KeyError``."""

    def price(self, asin: str) -> float:
        """The price (dollars) at which a product is sold."""

    def score(self, product: Product, options: Mapping[str, str], goal: Goal, price: float | None = None) -> RewardParts:
        """``reward`` and its parts of a purchase, at another ``price`` than the shop's where one is given."""

    def session_rng(self) -> random.Random:
        """The random stream of a new browser."""


def parse_action(action: str) -> tuple[str, str | None]:
    """Name and argument of ``name[argument]`` at the start of ``action``; the whole text and None when there is no such form."""
    match = _ACTION.match(action)
    return (match[1], match[2]) if match else (action, None)


@dataclass
class _Session:
    """Where one shopper stands."""

    id: str
    goal_index: int
    instruction: str
    keywords: list[str] = field(default_factory=list)
    page: int = 1
    asin: str | None = None
    opened: set[str] = field(default_factory=set)
    options: dict[str, str] = field(default_factory=dict)


class ShopEnv:
    """One browser in a shop, with the interface of the published text environment."""

    def __init__(
        self,
        shop: Shop,
        mode: Mode,
        show_attrs: bool,
        num_prev_obs: int = 0,
        num_prev_actions: int = 0,
        session_prefix: str | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if mode not in ("text", "text_rich"):
            raise ValueError(f"unknown observation mode {mode!r}: choose 'text' or 'text_rich'")
        self.shop, self.mode, self.show_attrs = shop, mode, show_attrs
        self.num_prev_obs, self.num_prev_actions, self.session_prefix = num_prev_obs, num_prev_actions, session_prefix
        self.prev_obs: list[str] = []
        self.prev_actions: list[str] = []
        self._rng = rng or shop.session_rng()
        self._goal_of: OrderedDict[str, int] = OrderedDict()
        self.purchase: dict[str, Any] | None = None
        """asin, options, price, reward and parts (``info``) of the latest purchase since the last ``reset`` by the caller."""
        self._session: _Session
        self._page: Page
        self._restart(None, None)

    @property
    def session(self) -> str:
        """Id of the current session."""
        return self._session.id

    @property
    def goal(self) -> Goal:
        """Goal of the current session."""
        return self.shop.goals[self._session.goal_index]

    @property
    def observation(self) -> str:
        """The current page in the environment's mode."""
        return pages.render_text(self._page) if self.mode == "text" else pages.render_rich(self._page, self._session.opened)

    def reset(self, session: int | str | None = None, instruction_text: str | None = None) -> str:
        """Start a session and return its first page.

        An int picks the goal of that index (negative ones count from the end; ``IndexError`` beyond). A text is a session id; None draws
        one. Both take a goal drawn by weight, and a session id that was seen before keeps its goal. ``instruction_text`` replaces the
        attribute of that name and nothing on the page, as published.
        """
        self.purchase = None
        return self._restart(session, instruction_text)

    def _restart(self, session: int | str | None, instruction_text: str | None) -> str:
        label = "".join(self._rng.choices(string.ascii_lowercase, k=10)) if session is None else str(session)
        label = (self.session_prefix or "") + label
        index = self._goal_of.get(label)
        if index is None:
            index = int(session) if isinstance(session, Integral) else self.shop.goals.draw(self._rng)
            goal = self.shop.goals[index]
            self._goal_of[label] = index
            if len(self._goal_of) > _REMEMBERED_SESSIONS:
                self._goal_of.popitem(last=False)
        else:
            goal = self.shop.goals[index]
        self._session = _Session(label, index, goal["instruction_text"])
        self._show_index()
        self.instruction_text = self._session.instruction if instruction_text is None else instruction_text
        observation = self.observation
        self.prev_obs, self.prev_actions = [observation], []
        return observation

    def available_actions(self) -> dict[str, Any]:
        """``has_search_bar`` and ``clickables`` of the current page."""
        return {"has_search_bar": self._page.has_search_bar, "clickables": list(self._page.targets)}

    get_available_actions = available_actions

    def applies(self, action: str) -> bool:
        """Whether ``action`` would do something on the current page."""
        name, argument = parse_action(action)
        if not argument:
            return False
        return name == "search" or (name == "click" and argument.lower() in self._page.targets and argument.lower() != "search")

    def step(self, action: str) -> tuple[str, float, bool, None]:
        """Carry out ``search[words]`` or ``click[target]``, else leave the page as it is. Returns observation, reward, done, None."""
        reward, done = 0.0, False
        if self.applies(action):
            name, argument = parse_action(action)
            assert argument is not None
            if name == "search":
                self._search(argument.lower().split(" "), 1)
            else:
                reward, done = self._click(argument.lower())
        observation = self.observation
        texts = [observation]
        self.prev_actions.append(action)
        for back in range(1, 1 + max(self.num_prev_obs, self.num_prev_actions)):
            if len(self.prev_actions) >= back and self.num_prev_actions >= back:
                texts.append(self.prev_actions[-back])
            if len(self.prev_obs) >= back and self.num_prev_obs >= back:
                texts.append(self.prev_obs[-back])
        self.prev_obs.append(observation)
        if done and self.shop.profile == "fed":
            self._restart(None, None)
        return pages.SEPARATOR.join(reversed(texts)), reward, done, None

    def _show_index(self) -> None:
        self._page = pages.index_page(f"{BASE_URL}/{self._session.id}", self._session.instruction)

    def _search(self, keywords: list[str], page: int) -> None:
        state, shop = self._session, self.shop
        state.keywords, state.page, state.asin, state.options = keywords, page, None, {}
        hits = shop.find(keywords, self._rng)
        size = shop.results_per_page
        shown = [shop.product_at(position) for position in hits[(page - 1) * size : page * size]]
        url = f"{BASE_URL}/search_results/{state.id}/{'+'.join(keywords)}/{page}"
        self._page = pages.results_page(url, state.instruction, page, len(hits), shown)

    def _item(self, clicked: str, target: Target) -> None:
        state = self._session
        if target.kind is Kind.LINK:
            state.asin = clicked.upper()
            state.opened.add(state.asin)
        elif target.kind is Kind.OPTION:
            rule = self.shop.clicks
            value = clicked if rule is None else rule.chosen(self._product(), target.name, clicked)
            state.options[target.name.lower()] = value
        product = self._product()
        url = f"{BASE_URL}/item_page/{state.id}/{state.asin}/{'+'.join(state.keywords)}/{state.page}/{json.dumps(state.options)}"
        self._page = pages.item_page(url, state.instruction, product, self.show_attrs)

    def _product(self) -> Product:
        if self._session.asin is None:
            raise KeyError("no product is open")
        return self.shop.product(self._session.asin)

    def _sub_page(self, name: str) -> None:
        state = self._session
        url = f"{BASE_URL}/item_sub_page/{state.id}/{state.asin}/{'+'.join(state.keywords)}/{state.page}/{name}/{state.options}"
        self._page = pages.sub_page(url, state.instruction, self._product(), name)

    def _buy(self, fee: bool) -> float:
        state = self._session
        product = self._product()
        price = math.inf if fee else self.shop.price(product.asin)
        parts = self.shop.score(product, state.options, self.goal, price)
        reward = float(parts.pop("reward"))
        self.purchase = {
            "asin": product.asin,
            "options": dict(state.options),
            "price": price,
            "reward": reward,
            "info": dict(parts),
        }
        self._page = pages.done_page(f"{BASE_URL}/done/{state.id}/{state.asin}/{state.options}", product.asin, state.options, reward)
        return reward

    def _click(self, clicked: str) -> tuple[float, bool]:
        """Buttons go by their text, whatever kind of target carries it, and by the kind of page they stand on."""
        state, fee = self._session, False
        if self.shop.clicks is not None:
            clicked, fee = self.shop.clicks.landing(self._page, clicked, state.asin)
        target = self._page.targets.get(clicked, Target(Kind.BUTTON))
        # as published, the kind of page is read from the address, which also holds the query
        where = next((name for name in _PAGE_NAMES if name in self._page.url), "")
        if clicked == pages.BUY.lower():
            return self._buy(fee), True
        if clicked == pages.BACK.lower():
            state.keywords, state.page, state.asin, state.opened, state.options = [], 1, None, set(), {}
            self._show_index()
        elif clicked == pages.NEXT.lower() and where == "search_results":
            self._search(state.keywords, state.page + 1)
        elif clicked == pages.PREVIOUS.lower() and where == "search_results":
            self._search(state.keywords, state.page - 1)
        elif clicked == pages.PREVIOUS.lower() and where == "item_page":
            self._search(state.keywords, state.page)
        elif clicked in _SUB_PAGES:
            self._sub_page(_SUB_PAGES[clicked])
        else:
            self._item(clicked, target)
        return 0.0, False
