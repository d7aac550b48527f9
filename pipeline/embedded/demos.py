"""Demonstrated turns for the warm start, recorded on the real WebShop engine with generated catalogues.

Owns which situations are shown and how often. Three kinds: whole episodes of a clumsy shopper, extra results pages with the clean choice
(the first row that fits; rows in page, inverted or random order, a quarter of them where the price decides), extra turns of leaving a
product that does not fit and picking another, and extra turns of buying with the control that a shop names. Some episodes are in shops
that say in words which control buys; some carry a name or sign that tells nothing, so that a model is not thrown by a mark that it never
saw. Knows nothing of tokens.

Demonstrations never use held-out tasks of the embedded catalogue. Most come from sister catalogues (same words, other products and prices).
Measured: with five sisters the model picks rows by knowing the products: 80 % right on shuffled pages of the embedded catalogue (59 % by
chance), 34-36 % on catalogues it never saw (61-62 % by chance). With a hundred sisters and results pages alone, which leave reading as
the only way, this model was still at chance after 1000 updates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envs.base import Task, World
from envs.reveal import CUES
from envs.variants import DEFAULT
from envs.webshop import generate, lexicon
from pipeline.embedded import shopper
from pipeline.embedded.shopper import Skill
from pipeline.embedded.visit import Order, Turn, Visit


@dataclass(frozen=True)
class Amounts:
    """How many turns of each kind. ``price_share`` of the results turns are on pages where the price decides."""

    episodes: int = 70_000
    results: int = 70_000
    leaving: int = 14_000
    buying: int = 24_000
    price_share: float = 0.25
    lookalike_share: float = 0.15
    inverted_share: float = 0.40
    sister_share: float = 0.85
    told_share: float = 0.25
    marked_share: float = 0.10
    max_steps: int = 8

    def scaled(self, factor: float) -> Amounts:
        """The same mixture, ``factor`` times as many turns."""
        return replace(self, **{kind: max(1, round(getattr(self, kind) * factor)) for kind in ("episodes", "results", "leaving", "buying")})


@dataclass(frozen=True)
class Shop:
    """A world and the tasks in it that may be demonstrated. In a ``lookalike`` shop some products have a copy with other options."""

    world: World
    tasks: Sequence[Task]
    lookalike: bool = False


def lookalike_records(n: int, seed: int) -> generate.Records:
    """The catalogue of ``(n, seed)`` with a copy of every asked-for product: same title and price, other options."""
    rng = random.Random(f"lookalikes-{n}-{seed}")
    records = generate.generate(n, seed)
    asked = [item for item in records.items if "instruction" in records.attributes[item["asin"]]]
    taken = {item["asin"] for item in records.items}
    free = [asin for asin in generate.id_pool(n) if asin not in taken]
    for item, asin in zip(asked, rng.sample(free, len(asked)), strict=True):
        copy = {**item, "asin": asin, "customization_options": _other_options(item["customization_options"], rng)}
        records.items.insert(rng.randrange(len(records.items) + 1), copy)
        records.attributes[asin] = {"attributes": records.attributes[item["asin"]]["attributes"]}
        records.title_nouns[asin] = records.title_nouns[item["asin"]]
    return records


def _other_options(options: dict[str, list[dict[str, str]]], rng: random.Random) -> dict[str, list[dict[str, str]]]:
    """Colours that the original lacks (and one that it has); without colours, one size alone."""
    if "Color" not in options:
        return {"Size": [rng.choice(options["Size"])]}
    has = [value["value"] for value in options["Color"]]
    colours = [colour for colour in lexicon.COLOURS if colour not in has] + [rng.choice(has)]
    rng.shuffle(colours)
    return {**options, "Color": [{"value": colour} for colour in colours]}


def record(shops: Sequence[Shop], amounts: Amounts, skill: Skill, seed: int, progress: Callable[[int], None] | None = None) -> list[Turn]:
    """All demonstrated turns, in order of recording. Calls ``progress`` with the number of turns just added."""
    rng = random.Random(f"demos-{seed}")
    home, *sisters = [shop for shop in shops if not shop.lookalike]
    fakes = [shop for shop in shops if shop.lookalike]
    if not sisters or not fakes:
        raise ValueError("demonstrations need the embedded shop, at least one sister shop and one with lookalikes")
    turns: list[Turn] = []

    def collect(count: int, source: Callable[[], list[Turn]]) -> None:
        stop = len(turns) + count
        while len(turns) < stop:
            new = source()[: stop - len(turns)]
            turns.extend(new)
            if progress is not None and new:
                progress(len(new))

    def plain() -> Shop:
        return rng.choice(sisters) if rng.random() < amounts.sister_share else home

    def episode() -> list[Turn]:
        shop = rng.choice(fakes if rng.random() < amounts.lookalike_share else [plain()])
        order: Order = "inverted" if rng.random() < amounts.inverted_share else "page"
        luck = rng.random()
        variant = _told(rng) if luck < amounts.told_share else DEFAULT
        mark = _mark(rng) if amounts.told_share <= luck < amounts.told_share + amounts.marked_share else ""
        return list(_episode(Visit(shop.world, rng.choice(shop.tasks), order, rng, variant, mark), skill, amounts.max_steps, rng))

    def results(price_decides: bool) -> list[Turn]:
        shop = plain()
        order: Order = rng.choice(["page", "inverted", "shuffled", "shuffled"])
        return _results_turn(shop, rng.choice(shop.tasks), order, price_decides, rng)

    def leaving() -> list[Turn]:
        shop = rng.choice(fakes if rng.random() < 0.5 else [plain()])
        order: Order = "inverted" if rng.random() < amounts.inverted_share else "page"
        return _leaving_turns(shop, rng.choice(shop.tasks), order, rng)

    def buying() -> list[Turn]:
        return _buying_turn(plain(), rng)

    with_price = round(amounts.results * amounts.price_share)
    collect(amounts.episodes, episode)
    collect(amounts.results - with_price, lambda: results(False))
    collect(with_price, lambda: results(True))
    collect(amounts.leaving, leaving)
    collect(amounts.buying, buying)
    return turns


def _told(rng: random.Random) -> str:
    """A shop that says which control buys."""
    return f"checkout:{rng.choice(shopper.CONTROLS).replace(' ', '_')}+hint"


def _mark(rng: random.Random) -> str:
    """A name or signs that say nothing."""
    if rng.random() < 0.5:
        return f"shop {rng.choice('bdfgklmnprstvz')}{rng.randint(1, 999)}"
    return "".join(rng.choice(CUES) for _ in range(rng.randint(1, 2)))


def _buying_turn(shop: Shop, rng: random.Random) -> list[Turn]:
    """The clean way through a product's page in a shop that says which control buys, or nothing where the first row does not do."""
    visit = Visit(shop.world, rng.choice(shop.tasks), "page", rng, _told(rng))
    turns: list[Turn] = []
    for _ in range(8):
        decision, action = shopper.right_action(visit.wish, visit.page, visit.history)
        if decision == "back":
            return []
        if decision in ("option", "buy"):
            turns.append(visit.turn(action))
        if decision == "buy":
            return turns
        visit.step(action)
    return []


def _episode(visit: Visit, skill: Skill, max_steps: int, rng: random.Random) -> Iterator[Turn]:
    for _ in range(max_steps):
        action = shopper.clumsy_action(visit.wish, visit.page, visit.history, skill, rng)
        yield visit.turn(action)
        if visit.step(action):
            return


def _results_turn(shop: Shop, task: Task, order: Order, price_decides: bool, rng: random.Random) -> list[Turn]:
    """The clean choice on a results page; nothing where no row fits, or where ``price_decides`` is asked for and it does not."""
    visit = Visit(shop.world, task, order, rng)
    visit.step(f"search[{visit.wish.query if rng.random() < 0.75 else visit.wish.noun}]")
    decision, action = shopper.right_action(visit.wish, visit.page, visit.history)
    if decision != "row":
        return []
    if price_decides:
        anyhow = replace(visit.wish, limit=float("inf"))
        if shopper.valid_rows(anyhow, visit.page, visit.history)[0].asin == action[len("click[") : -1]:
            return []
    return [visit.turn(action)]


def _leaving_turns(shop: Shop, task: Task, order: Order, rng: random.Random) -> list[Turn]:
    """Open a row that turns out not to fit, leave it, and pick another: two turns, or none where the opened row fits."""
    visit = Visit(shop.world, task, order, rng)
    visit.step(f"search[{visit.wish.query}]")
    rows = shopper.valid_rows(visit.wish, visit.page, visit.history) if shop.lookalike else list(visit.page.rows)
    if not rows:
        return []
    visit.step(f"click[{rng.choice(rows).asin}]")
    turns: list[Turn] = []
    for expected in ("item", "results"):
        decision, action = shopper.right_action(visit.wish, visit.page, visit.history)
        if visit.page.kind != expected or (expected == "item" and decision != "back"):
            return turns
        turns.append(visit.turn(action))
        visit.step(action)
    return turns


def write_lookalike(out_dir: Path, n: int, seed: int) -> Path:
    """Write the catalogue with lookalikes of ``(n, seed)`` as a data folder."""
    generate.write_records(out_dir, lookalike_records(n, seed), {"generator": generate.GENERATOR_VERSION, "lookalikes of": [n, seed]})
    return out_dir
