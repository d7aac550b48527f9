"""What every family owes: severity 0 is the unperturbed world, more severity is more difference, every process builds the same, and
typos are named."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from envs.base import Task
from envs.prompts import PromptSpec, render
from envs.reachability import distances, reachability, require_distinct
from envs.reveal import mark
from envs.variants import DEFAULT, REVEALS, Reveal, Variant, distinctness
from envs.webshop.pages import SEPARATOR
from envs.webshop.variants import FAMILIES, hint
from envs.webshop.world import WebShopWorld

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = 3


def owned(world: WebShopWorld, client: int) -> list[Task]:
    return list(world.tasks("train"))[client * 100 : (client + 1) * 100]


def members(world: WebShopWorld, family: str, **changes: object) -> list[Variant]:
    """Every member of a family, or three clients of one that is drawn per client."""
    if FAMILIES[family].per_client:
        found = [Variant(family, stream=c, protected=tuple(task.id for task in owned(world, c))) for c in range(CLIENTS)]
    else:
        found = [Variant(family, member, stream=11) for member in FAMILIES[family].members]
    return [replace(variant, **changes) for variant in found]  # type: ignore[arg-type]


def wander(world: WebShopWorld, variant: str | Variant, task: Task, rng: random.Random, steps: int = 8) -> list[object]:
    """Everything that an environment says along random admissible actions and odd ones."""
    env = world.make(variant)
    seen: list[object] = [env.reset(options={"task": task})]
    words = task.instruction.split()
    for _ in range(steps):
        admissible = seen[-1][-1]["admissible"]  # type: ignore[index]
        action = rng.choice(["search[<c> fashion]", "search[<q> x]", "search[<r>]", "nonsense", *admissible])
        if rng.random() < 0.35 or action.startswith("search[<your"):
            action = f"search[{' '.join(rng.sample(words, 3))}]"
        step = env.step(action)
        seen.append(step)
        if step[2] or step[3]:
            break
    return seen


EVERY = [(family, index) for family in FAMILIES for index in range(len(FAMILIES[family].members) or CLIENTS)]


@pytest.mark.parametrize(("family", "index"), EVERY)
def test_severity_0_is_the_unperturbed_world_byte_for_byte(generated_world: WebShopWorld, family: str, index: int) -> None:
    world = generated_world
    variant = members(world, family, severity=0.0)[index]
    assert world.probe(variant) == world.probe()
    for number in range(0, 100, 9):
        task = world.tasks("heldout")[number]
        assert wander(world, variant, task, random.Random(number)) == wander(world, DEFAULT, task, random.Random(number))
        assert world.oracle(task, variant) == world.oracle(task)


@pytest.mark.parametrize("family", FAMILIES)
def test_members_differ_from_each_other(generated_world: WebShopWorld, family: str) -> None:
    found = distances(generated_world, {str(i): variant for i, variant in enumerate(members(generated_world, family))})
    require_distinct(found)
    assert len(found) == len(members(generated_world, family)) * (len(members(generated_world, family)) - 1) // 2


def test_two_equal_variants_are_named(generated_world: WebShopWorld) -> None:
    named = {"a": "checkout:reviews", "b": "checkout:features", "c": Variant("checkout", "reviews", reveal="name", label="7")}
    with pytest.raises(ValueError, match="'a' and 'c' answer alike"):
        require_distinct(distances(generated_world, named))


@pytest.mark.parametrize(("family", "index"), [(family, index) for family, index in EVERY if family != "bm25_reweight"])
def test_more_severity_is_more_difference(generated_world: WebShopWorld, family: str, index: int) -> None:
    base = generated_world.probe()
    measured = []
    for severity in (0.0, 0.3, 0.6, 1.0):
        found = distinctness(base, generated_world.probe(members(generated_world, family, severity=severity)[index]))
        measured.append((1 - found.jaccard) + found.top1 + found.replies)
    # each two products of a blended ranking change places at most once on the way, but the first ten as a set may step back a little
    slack = 0.05 if family == "field_subset" else 0.0
    assert all(later >= earlier - slack for earlier, later in pairwise(measured)), measured
    if FAMILIES[family].per_client or FAMILIES[family].members[index] not in ("control", "full"):
        assert measured[-1] > measured[1] - slack
        assert measured[-1] > 0


def test_a_corner_is_approached_in_a_straight_line(generated_world: WebShopWorld) -> None:
    base = generated_world.probe()
    jaccard = [
        distinctness(base, generated_world.probe(Variant("bm25_reweight", "flat_no_length", severity))).jaccard
        for severity in (0.0, 0.5, 0.9, 1.0)
    ]
    assert jaccard == sorted(jaccard, reverse=True)
    assert jaccard[-1] < 0.8


@pytest.mark.parametrize("family", FAMILIES)
def test_every_task_stays_within_reach(generated_world: WebShopWorld, family: str) -> None:
    for client, variant in enumerate(members(generated_world, family)):
        tasks = owned(generated_world, client if FAMILIES[family].per_client else 0)
        reach = reachability(generated_world, variant, tasks[::4])
        assert (reach.share, reach.missed) == (1.0, ()), str(variant)
        assert reach.steps <= generated_world.max_steps


def test_what_cannot_be_reached_is_listed(generated_world: WebShopWorld) -> None:
    tasks = owned(generated_world, 0)
    alone = Variant("catalog_split", options=(("keep_ratio", 0.0),), protected=(tasks[0].id,))
    asin = tasks[0].payload["asin"]
    reach = reachability(generated_world, alone, tasks)
    assert reach.missed == tuple(task.id for task in tasks if task.payload["asin"] != asin)
    assert 0 < reach.share == reach.solved / 100 < 0.2
    assert reachability(generated_world, alone, ()).share == 1.0


_SCRIPT = """
import hashlib, json, sys
from envs.variants import Variant
from envs.webshop.world import WebShopWorld
folder, cache = sys.argv[1:3]
world = WebShopWorld(folder, results_per_page=4, max_steps=8, heldout=400, cache_dir=cache)
out = {}
for family, member in json.loads(sys.argv[3]):
    probe = world.probe(Variant(family, member, 0.7, stream=5, protected=(world.tasks("train")[3].id,)))
    out[f"{family}:{member}"] = hashlib.sha256(repr(probe).encode()).hexdigest()
print(json.dumps(out))
"""


def test_every_process_builds_the_same(generated_world: WebShopWorld) -> None:
    world = generated_world
    wanted = [(family, member) for family in FAMILIES for member in (FAMILIES[family].members or ("",))]
    folder = next(path for path in world.shop.catalogue.folder.parent.glob("generated-400-0-*") if path.is_dir())
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(world.shop.catalogue.folder.parent.parent), json.dumps(wanted)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77", "PATH": ""})
    protected = (world.tasks("train")[3].id,)
    here = {
        f"{family}:{member}": hashlib.sha256(
            repr(world.probe(Variant(family, member, 0.7, stream=5, protected=protected))).encode()
        ).hexdigest()
        for family, member in wanted
    }
    assert json.loads(done.stdout) == here


def test_making_is_cheap_and_what_is_kept_is_bounded(generated_world: WebShopWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.webshop.variants.build.KEPT_SHOPS", 10)
    made = generated_world._variants
    for client in range(40):
        generated_world.make(Variant("catalog_split", stream=client))
    assert len(made._shops) <= 10
    one = made.shop(Variant("checkout", "reviews", reveal="name", label="3"))
    assert made.shop(Variant("checkout", "reviews", reveal="cue")) is one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank_wraper", "did you mean 'rank_wrapper'"),
        ("rank_wrapper:inverted", "did you mean 'invert'"),
        ("field_subset:nam", "did you mean 'name'"),
        ("checkout:descripton", "did you mean 'description'"),
        ("checkout:description@1.5", "allowed: 0 to 1"),
        ("checkout:description@-1", "allowed: 0 to 1"),
        ("checkout:description+nam", "did you mean 'name'"),
        ("lookalike:colour", "did you mean 'color'"),
    ],
)
def test_typos_are_answered_with_the_nearest_name(generated_world: WebShopWorld, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generated_world.make(text)


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("catalog_split", {"divergance": 0.5}, "did you mean 'divergence'"),
        ("catalog_split", {"divergence": 1.5}, "divergence = 1.5.*allowed: 0 to 1"),
        ("catalog_split", {"keep_ratio": -1.0}, "keep_ratio = -1.*allowed: 0 to 1"),
        ("lookalike", {"rate": 2.0}, "rate = 2.*allowed: 0 to 1"),
        ("lookalike", {"reference": True}, "needs the published look-alikes"),
        ("lookalike", {"file": "/nowhere/at/all.json"}, "no such file or folder. Correct option file"),
        ("rank_wrapper", {"depth": 51}, "depth = 51.*0.*to 50"),
        ("checkout", {"others": "free"}, "choose one of fee, neutral"),
    ],
)
def test_bad_options_are_refused(generated_world: WebShopWorld, family: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        generated_world.make(Variant(family, options=tuple(options.items())))  # type: ignore[arg-type]


def test_a_protected_task_of_another_shop_is_refused(generated_world: WebShopWorld) -> None:
    with pytest.raises(ValueError, match="no product 'B0NOWHERE1'"):
        generated_world.make(Variant("catalog_split", protected=("B0NOWHERE1_12",)))


# --- reveal --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reveal", ["name", "cue", "hint"])
@pytest.mark.parametrize("text", ["checkout:features", "rank_wrapper:invert", "catalog_split", DEFAULT, "selection:next@0"])
def test_reveal_adds_exactly_its_mark(generated_world: WebShopWorld, text: str, reveal: Reveal) -> None:
    world = generated_world
    plain = replace(Variant.parse(text), label="4")
    shown = replace(plain, reveal=reveal)
    added = mark(world.variant(shown), FAMILIES, hint(world.variant(shown)), "shop")
    assert added
    for number in range(4):
        task = world.tasks("heldout")[number * 7]
        without = wander(world, plain, task, random.Random(number))
        marked = wander(world, shown, task, random.Random(number))
        assert [(f"{added}{SEPARATOR}{seen[0]}", *seen[1:]) for seen in without] == marked  # type: ignore[index]
    spec = PromptSpec(template="short", list_actions=False)
    observation, info = world.make(shown).reset(options={"task": task})
    assert f"\nPage: {added}{SEPARATOR}Search\n" in render(spec, task.instruction, [], observation, info["admissible"])
    assert world.oracle(task, shown) == world.oracle(task, plain)


def test_marks_differ_between_the_members_of_a_family() -> None:
    for family in FAMILIES.values():
        variants = [Variant(family.name, member) for member in family.members] or [Variant(family.name, stream=s) for s in range(5)]
        for reveal in ("name", "cue"):
            marks = {mark(replace(variant, reveal=reveal), FAMILIES) for variant in (*variants, Variant())}
            assert len(marks) == len(variants) + 1
        hints = {hint(variant) for variant in variants}
        assert len(hints) == len(variants) or family.per_client or family.name == "lookalike"
        assert all(hints)
    assert mark(Variant("checkout", "reviews"), FAMILIES, "x") == ""
    assert set(REVEALS) == {"none", "name", "cue", "hint"}


def test_the_embedded_tokenizer_can_encode_every_mark() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(ROOT / "pipeline" / "embedded" / "weights" / "tokenizer.json"))
    for family in FAMILIES.values():
        for variant in [Variant(family.name, member) for member in family.members] or [Variant(family.name)]:
            for reveal in ("name", "cue", "hint"):
                text = mark(replace(variant, reveal=reveal), FAMILIES, hint(variant), "shop")
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                assert tokenizer.decode(ids, skip_special_tokens=False) == text.lower()
                assert len(ids) < 40


def test_quotes_go_around_a_mark_as_well(generated_world: WebShopWorld) -> None:
    quoting = WebShopWorld.__new__(WebShopWorld)
    quoting.__dict__.update(generated_world.__dict__, _quote=True)
    env = quoting.make("checkout:reviews+hint")
    assert env.reset(options={"task": quoting.tasks("train")[0]})[0] == "'Buy with: reviews' [SEP] 'Search'"
