"""WebShop as a world of tasks: the split into held-out and train tasks, the environment an agent acts in, and a scripted solution.

Goals 0..heldout-1 are held out, all others are for training, as in the published runs. Knows nothing of prompts, models or clients.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from envs.base import Split, Task, TextEnv, World
from envs.webshop.env import ShopEnv
from envs.webshop.goals import Goal
from envs.webshop.pages import SEPARATOR
from envs.webshop.records import Product, Profile
from envs.webshop.reward import MATCH, normalize_color, similarity
from envs.webshop.shop import WebShop

SUCCESS_REWARD = 10.0
SEARCH_ACTION = "search[<your query>]"


def goal_label(goal: Goal) -> str:
    """The published id of a goal: product id and MD5 of the sorted options, or of the instruction when there is no dict of options."""
    options = goal["goal_options"]
    text = str(sorted(options.items())) if isinstance(options, Mapping) and options else goal["instruction_text"]
    return f"{goal['asin']}_{int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(), 16)}"


def split_page(text: str) -> tuple[str, str]:
    """Task text and the rest of a page in mode ``text``; an empty text and the whole page after a purchase, where no task is shown."""
    parts = text.split(SEPARATOR)
    head = parts[1:] if parts[:2] == ["WebShop", "Instruction:"] else parts
    if head[0] != "Instruction:" or len(head) < 2:
        return "", text
    return head[1], SEPARATOR.join(head[2:])


def quoted(page: str) -> str:
    """Every part of a page in single quotes, as the published wrapper shows it."""
    return SEPARATOR.join(f"'{part}'" for part in page.split(SEPARATOR))


class WebShopTextEnv(TextEnv):
    """One episode at a time in a shop.

    The observation is the page after the instruction. Besides ``admissible`` (``search[<your query>]`` where there is a search bar,
    then ``click[x]``), ``score`` and ``success``, ``info`` has ``task_text`` (the task as read from the page), ``applied`` (whether the
    action did something) and, after a purchase, ``parts`` (of the score). The reward is 10 for a purchase with score 1, else 0; the
    episode is truncated after ``max_steps`` actions. An action that makes the published environment fail (such as ``search[<a> x]``) is
    not applied.
    """

    def __init__(self, shop: WebShop, max_steps: int = 15, quote: bool = False, show_attrs: bool = False) -> None:
        self._shop, self._max_steps, self._quote, self._show_attrs = shop, max_steps, quote, show_attrs
        self._browser: ShopEnv | None = None
        self._task_text = ""
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``. Raises ``ValueError`` when there is none."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, Task) or "goal" not in task.payload:
            raise ValueError('reset needs a WebShop task: reset(options={"task": world.tasks("train")[0]})')
        self._browser = self._shop.text_env(show_attrs=self._show_attrs)
        page = self._browser.reset(session=int(task.payload["goal"]))
        self._task_text, shown = split_page(page)
        self._steps = 0
        return self._shown(shown), self._info(self._browser, applied=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one action. Raises ``ValueError`` when the episode is over or was never started."""
        browser = self._browser
        if browser is None:
            raise ValueError("the episode is over (or was never started): call reset first")
        self._steps += 1
        before = replace(browser._session, opened=set(browser._session.opened), options=dict(browser._session.options))
        applied = browser.applies(action)
        try:
            page, score, done, _ = browser.step(action)
        except (LookupError, TypeError, ValueError):
            browser._session = before
            page, score, done, applied = browser.observation, 0.0, False, False
        truncated = not done and self._steps >= self._max_steps
        info = self._info(browser, applied, score, done)
        if done or truncated:
            self._browser = None
        return self._shown(split_page(page)[1]), SUCCESS_REWARD if info["success"] else 0.0, done, truncated, info

    def _shown(self, page: str) -> str:
        return quoted(page) if self._quote else page

    def _info(self, browser: ShopEnv, applied: bool, score: float = 0.0, done: bool = False) -> dict[str, Any]:
        info: dict[str, Any] = {
            "admissible": [],
            "score": score,
            "success": done and score == 1.0,
            "applied": applied,
            "task_text": self._task_text,
        }
        if done:
            assert browser.purchase is not None
            info["parts"] = browser.purchase["info"]
        else:
            available = browser.available_actions()
            search = [SEARCH_ACTION] if available["has_search_bar"] else []
            info["admissible"] = search + [f"click[{target}]" for target in available["clickables"]]
        return info


class WebShopWorld(World):
    """The tasks of one data folder.

    Options: ``data_dir``; ``profile``, ``human_goals``, ``seed`` and ``results_per_page`` as in ``WebShop``; ``max_steps`` actions per
    episode; the first ``heldout`` goals are never trained on, of which the first ``heldout_use`` are offered (all by default), and of
    the rest the first ``train_use``; ``quote`` and ``show_attrs`` change how pages are shown. Raises ``ValueError`` for options that
    leave a split empty.
    """

    name: ClassVar[str] = "webshop"

    def __init__(
        self,
        data_dir: Path | str,
        profile: Profile = "fed",
        human_goals: bool = False,
        seed: int = 42,
        results_per_page: int = 10,
        max_steps: int = 15,
        heldout: int = 500,
        heldout_use: int | None = None,
        train_use: int | None = None,
        quote: bool = False,
        show_attrs: bool = False,
        cache_dir: Path | str | None = None,
    ) -> None:
        self.shop = WebShop(data_dir, human_goals, profile, seed, results_per_page, cache_dir=cache_dir)
        self.max_steps = max_steps
        self._quote, self._show_attrs = quote, show_attrs
        goals = len(self.shop.goals)
        if not 0 < heldout < goals:
            raise ValueError(f"heldout is {heldout}: this catalogue has {goals} goals, so choose 1 to {goals - 1}")
        self.heldout = heldout
        self._ranges = {
            "heldout": range(0, heldout if heldout_use is None else min(heldout, heldout_use)),
            "train": range(heldout, goals if train_use is None else min(goals, heldout + train_use)),
        }
        empty = [split for split, indices in self._ranges.items() if not indices]
        if empty:
            raise ValueError(f"split {empty[0]!r} would have no task: heldout_use and train_use need to be at least 1")
        self._tasks: dict[Split, list[Task]] = {}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks in goal order. Ids are the published ones; the n-th goal with the same product and options gets the suffix ``#n``."""
        if split not in self._ranges:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(self._ranges)}")
        if split not in self._tasks:
            wanted = self._ranges[split]
            seen: Counter[str] = Counter()
            made = []
            for index in range(wanted.stop):
                goal = self.shop.goals[index]
                label = goal_label(goal)
                seen[label] += 1
                if index in wanted:
                    name = label if seen[label] == 1 else f"{label}#{seen[label]}"
                    made.append(Task(name, goal["instruction_text"], goal["category"], {"goal": index, "asin": goal["asin"]}))
            self._tasks[split] = made
        return self._tasks[split]

    def make(self, variant: str = "default") -> WebShopTextEnv:
        """A fresh environment on the shared catalogue."""
        if variant not in self.variants:
            raise ValueError(f"unknown variant {variant!r}: choose one of {', '.join(self.variants)}")
        return WebShopTextEnv(self.shop, self.max_steps, self._quote, self._show_attrs)

    def oracle(self, task: Task) -> list[str]:
        """Search for the product, open it, choose its options and buy it.

        The query is the one of title, title with options, and instruction that shows the product earliest. When none shows it, the list
        is the one for the first page and does not solve the task.
        """
        goal = self.shop.goals[int(task.payload["goal"])]
        product = self.shop.product(goal["asin"])
        wishes = goal["goal_options"]
        words = " ".join(wishes.values() if isinstance(wishes, Mapping) else wishes)
        position = self.shop.catalogue.position(product.asin)
        candidates = (product.title, f"{product.title} {words}", goal["instruction_text"])
        queries = [query for query in map(_typeable, candidates) if query]
        ranks = [_rank(self.shop.find(query.lower().split(" "), self.shop.session_rng()), position) for query in queries]
        best = min(range(len(ranks)), key=ranks.__getitem__)
        page = 0 if ranks[best] == _ABSENT else ranks[best] // self.shop.results_per_page
        clicks = ["next >"] * page + [product.asin.lower(), *_choices(product, wishes), "buy now"]
        return [f"search[{queries[best]}]", *(f"click[{target}]" for target in clicks)]

    def overlap(self) -> Mapping[str, int]:
        """What the offered held-out tasks share with the train tasks.

        ``heldout_tasks`` and ``train_tasks`` in all; ``products`` wanted in both splits; ``tasks_on_shared_products`` held-out tasks whose
        product is also a train target; ``tasks_with_same_target`` held-out tasks for which a train task wants the same product with the
        same options.
        """
        heldout, train = self.tasks("heldout"), self.tasks("train")
        products = {task.payload["asin"] for task in train}
        targets = {task.id.partition("#")[0] for task in train}
        return {
            "heldout_tasks": len(heldout),
            "train_tasks": len(train),
            "products": len({task.payload["asin"] for task in heldout} & products),
            "tasks_on_shared_products": sum(task.payload["asin"] in products for task in heldout),
            "tasks_with_same_target": sum(task.id.partition("#")[0] in targets for task in heldout),
        }


_ABSENT = 1 << 30


def _rank(hits: Sequence[int], position: int) -> int:
    return hits.index(position) if position in hits else _ABSENT


def _typeable(query: str) -> str:
    """A query that survives the action syntax: no brackets, no line breaks, no operator in front."""
    for char in "[]\n<>":
        query = query.replace(char, " ")
    return " ".join(query.split())


def _choices(product: Product, wishes: Mapping[str, str] | Sequence[str]) -> list[str]:
    """Option values to click, at most one per option name, that meet as many wishes as can be met.

    Clicking what a synthetic goal names does not always count: the bought value is reduced to a colour word that the wish may not hold
    ("rectangular" holds "tan"), so other values of the product are tried as well.
    """
    wanted = [str(normalize_color(wish)) for wish in (wishes.items() if isinstance(wishes, Mapping) else wishes)]
    named = set(wishes.values() if isinstance(wishes, Mapping) else wishes)
    per_name: list[list[tuple[frozenset[int], str]]] = []
    for values in product.options.values():
        kept: dict[frozenset[int], str] = {}
        for value in sorted(values, key=lambda value: value not in named):
            met = frozenset(place for place, wish in enumerate(wanted) if similarity(str(normalize_color(value)), wish) > MATCH)
            kept.setdefault(met, value)
        per_name.append([(frozenset(), ""), *kept.items()])
    best = max(
        itertools.product(*per_name),
        key=lambda picks: (len(frozenset().union(*(met for met, _ in picks))), sum(value in named for _, value in picks)),
    )
    return [value for _, value in best if value]
