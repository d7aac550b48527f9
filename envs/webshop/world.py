"""WebShop as a world of tasks: the split into held-out and train tasks, the environment an agent acts in, and a scripted solution.

Goals 0..heldout-1 are held out, all others are for training, as in the published runs. Knows nothing of prompts, models or clients.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from envs.base import Split, Task, TextEnv, World
from envs.reveal import mark
from envs.variants import DEFAULT, Family, Probe, Variant
from envs.webshop.env import ShopEnv
from envs.webshop.goals import Goal
from envs.webshop.oracle import solution
from envs.webshop.pages import SEPARATOR
from envs.webshop.records import Profile
from envs.webshop.shop import WebShop
from envs.webshop.variants import FAMILIES, Variants, VariantShop, hint, probes

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

    The observation is the page after the instruction, with ``mark`` before it where there is one. Besides ``admissible``
    (``search[<your query>]`` where there is a search bar, then ``click[x]``), ``score`` and ``success``, ``info`` has ``task_text`` (the
    task as read from the page), ``applied`` (whether the action did something) and, after a purchase, ``parts`` (of the score). The reward
    is 10 for a purchase with score 1, else 0; the episode is truncated after ``max_steps`` actions. An action that makes the published
    environment fail (such as ``search[<a> x]``) is not applied. With ``noise`` (the variant) pages are drawn anew at every view, from a
    stream that ``reset(seed=...)`` starts again.
    """

    def __init__(
        self,
        shop: WebShop | VariantShop,
        max_steps: int = 15,
        quote: bool = False,
        show_attrs: bool = False,
        mark: str = "",
        noise: Variant | None = None,
    ) -> None:
        self._shop, self._max_steps, self._quote, self._show_attrs = shop, max_steps, quote, show_attrs
        self._mark, self._noise_of = mark, noise
        self._noise = None if noise is None else fresh_noise(noise)
        self._browser: ShopEnv | None = None
        self._task_text = ""
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``. Raises ``ValueError`` when there is none."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, Task) or "goal" not in task.payload:
            raise ValueError('reset needs a WebShop task: reset(options={"task": world.tasks("train")[0]})')
        if self._noise_of is not None and seed is not None:
            self._noise = self._noise_of.rng("pages", seed)
        self._browser = self._shop.text_env(show_attrs=self._show_attrs, rng=self._noise)
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
        page = f"{self._mark}{SEPARATOR}{page}" if self._mark else page
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
    families: ClassVar[Mapping[str, Family]] = FAMILIES

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
        self._variants = Variants(self.shop, max_steps, heldout)

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

    def make(self, variant: str | Variant = DEFAULT) -> WebShopTextEnv:
        """A fresh environment on the shared catalogue, as the variant shows it."""
        found = self.variant(variant)
        shop = self._variants.shop(found)
        noise = found if isinstance(shop, VariantShop) and shop.stochastic else None
        return WebShopTextEnv(shop, self.max_steps, self._quote, self._show_attrs, mark(found, FAMILIES, hint(found), "shop"), noise)

    def describe(self, variant: str | Variant = DEFAULT) -> str:
        """What its hint says, whether it is revealed or not."""
        return hint(self.variant(variant))

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """Search for the product, open it, choose its options and buy it, by the rules of the variant.

        Of several queries the one that shows the product earliest. With ``stochastic`` pages it holds for the first episode of a fresh
        environment that is reset without a seed.
        """
        found = self.variant(variant)
        shop = self._variants.shop(found)
        goal = self.shop.goals[int(task.payload["goal"])]
        noise = None
        if isinstance(shop, VariantShop) and shop.stochastic:
            noise = fresh_noise(found)
            shop.text_env(rng=noise)
        return solution(shop, goal, self.max_steps, noise)

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """Ids on the first result pages (at least ten) for queries made of held-out goals, and every page along scripted walks."""
        found = self.variant(variant)
        shop, rng = self._variants.shop(found), found.rng("probe")
        goals = [self.shop.goals[index] for index in probes.spaced(probes.QUERIES, len(self._ranges["heldout"]))]
        size = shop.results_per_page
        depth = size * -(-probes.RANKED // size)
        rankings = tuple(
            tuple(shop.product_at(position).asin for position in shop.find(query.split(" "), rng)[:depth])
            for query in probes.queries(self.shop, goals)
        )
        env = self.make(found)
        replies: list[str] = []
        for index in probes.spaced(probes.SCRIPTED_GOALS, len(self._ranges["heldout"])):
            task = self.tasks("heldout")[index]
            for script in probes.scripts(self.shop, self.shop.goals[index]):
                replies += _replies(env, task, script)
        return Probe(rankings, tuple(replies))

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


def fresh_noise(variant: Variant) -> random.Random:
    """The stream from which a fresh environment of a stochastic variant draws."""
    return variant.rng("pages")


def _replies(env: WebShopTextEnv, task: Task, script: Sequence[str]) -> list[str]:
    """What an environment answers along a script; "" for the actions after the end of the episode."""
    observation, info = env.reset(seed=0, options={"task": task})
    out = [observation]
    for action in script:
        if action == probes.SECOND_ROW:
            offered = info["admissible"]
            rows = offered[offered.index("click[next >]") + 1 :] if "click[next >]" in offered else []
            action = rows[1] if len(rows) > 1 else action
        observation, _, terminated, truncated, info = env.step(action)
        out.append(observation)
        if terminated or truncated:
            break
    return out + [""] * (1 + len(script) - len(out))
