"""The arms of the tale: what is run, beside what it is read, and what no shared policy can pass there. Data, no work.

Every arm is a difference to one base per world, in dotted settings. Arms of one seed share the schedule, the tasks and the streams of
draws, so differences are taken seed by seed. To change what is run, change this file; the runner does again what has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pipeline.reproduce.floors import Rule

Settings = Mapping[str, Any]
Family = Literal["uniform", "task", "environment", "escape", "bandit", "alfworld"]

LABELS = "{labels}"
"""Stands for the file of easy and hard tasks, which is made before the first arm that needs it."""
EASY_TURNS = 4
"""A task is easy when the oracle does it in so many turns."""

BASE: Settings = {
    "resources.layout": "process",
    "rollout.backend": "vllm",
    "rollout.kv_cache_gb": 0.25,
    "rollout.self_test": False,
    "model.adapter": "full",
    "run.save_episodes": "none",
    "run.keep_checkpoints": 1,
    "run.checkpoint_every": 3,
    "tracking.mlflow": False,
    "evaluation.greedy": False,
    # Measured before the first round and after the last; training success is there every round.
    "evaluation.every": 0,
}
SHOP: Settings = {
    **BASE,
    "federation.clients": 8,
    "federation.clients_per_round": 4,
    "federation.local_epochs": 2,
    "federation.rounds": 5,
    "evaluation.tasks": 200,
}
HOMES: Settings = {**SHOP, "world.name": "alfworld", "federation.rounds": 4, "federation.local_epochs": 1}
MACHINES: Settings = {
    **BASE,
    "world.name": "bandit",
    "federation.clients": 2,
    "federation.clients_per_round": 2,
    "federation.local_epochs": 1,
    "federation.rounds": 12,
    "federation.tasks_per_client": 200,
    "algorithm.tasks_per_epoch": 16,
    "algorithm.group_size": 8,
    "evaluation.tasks": 400,
}
APART: Settings = {
    "evaluation.worlds": 4,
    "evaluation.world_tasks": 200,
    "world.variant.min_reachable": 0.0,
    "world.variant.reach_tasks": 5,
}
"""Where worlds differ. Targets out of reach are a property of some published variants; the floor says what can be reached."""
EIGHT: Settings = {"evaluation.worlds": 8}
"""Where every client lives in a world of its own: a mean over clients needs all of them."""
AFTER_LOCAL: Settings = {"evaluation.clients": True, "evaluation.client_tasks": 25}
PPO: Settings = {"algorithm.name": "ppo"}
ALONE: Settings = {"learner.lr": 5e-4, "learner.optimizer_state": "keep"}
"""One learner makes eight updates in sequence where four clients average two each: half the rate, and it keeps its moments."""

DELTAS = (0.0, 0.2, 0.5, 0.8, 1.0)
PLAYS: Mapping[str, int] = {"silent": 1, "memory": 2, "revealed": 1}
"""Plays of a bandit episode. Where replies say nothing, or all is said at once, one play is like another; memory takes a second one."""
MEMORY_ROUNDS = 18
"""To play again what paid takes half as many rounds again to learn."""


@dataclass(frozen=True)
class ArmSpec:
    """An arm. ``settings`` are complete but for the seed; ``rule`` finds its floor, under the ceiling of arm ``ceiling``; ``alone`` names
    the arms of one client in each of its worlds. ``tier`` 1 is done first; ``quick`` arms are in the short form too."""

    name: str
    label: str
    family: Family
    settings: Settings
    variant: str | None = None
    severity: float | None = None
    rule: Rule = "none"
    ceiling: str | None = None
    versus: str | None = None
    twist: str = ""
    alone: tuple[str, ...] = ()
    tier: int = 2
    quick: bool = False

    @property
    def algorithm(self) -> str:
        """Its algorithm."""
        return str(self.settings.get("algorithm.name", "grpo"))

    @property
    def mode(self) -> str:
        """Who learns from whose tasks."""
        return str(self.settings.get("federation.mode", "federated"))

    @property
    def world(self) -> str:
        """The world's name."""
        return str(self.settings.get("world.name", "webshop"))

    @property
    def reveal(self) -> str:
        """What the worlds tell of themselves."""
        return str(self.settings.get("world.variant.reveal", "none"))

    @property
    def delta(self) -> float | None:
        """The bandit's distance between good and bad arms."""
        options = self.settings.get("world.options") if self.world == "bandit" else None
        delta = options.get("delta") if isinstance(options, Mapping) else None
        return float(delta) if isinstance(delta, int | float) else None


@dataclass(frozen=True)
class Rung:
    """Worlds of a ladder: a family of variants with members and options. ``ppo``: trained by PPO as well."""

    name: str
    label: str
    family: str
    rule: Rule = "shared"
    members: int | Sequence[str] | None = None
    more: Settings = field(default_factory=dict)
    alone: tuple[str, ...] = ()
    tier: int = 1
    quick: bool = False
    ppo: bool = True

    @property
    def settings(self) -> Settings:
        """What makes its worlds."""
        chosen = {} if self.members is None else {"world.variant.members": self.members}
        return {**APART, "world.variant.family": self.family, **chosen, **self.more}


RUNGS: Sequence[Rung] = (
    Rung("bm25", "search weighs words otherwise", "bm25_reweight", tier=2, ppo=False),
    Rung("catalog", "other products on sale", "catalog_split", more=EIGHT),
    Rung("lookalike", "look-alikes that miss a part", "lookalike", ppo=False),
    Rung("field", "search reads other texts", "field_subset"),
    Rung("buy2", "one of two buttons buys", "checkout", "one_of", 2, quick=True, alone=("alone-buy-description",)),
    Rung(
        "recoverable",
        "look-alikes told apart on their page",
        "lookalike",
        members=("recoverable_first", "recoverable_last"),
        ppo=False,
    ),
    Rung("rank", "rows in other orders", "rank_wrapper", quick=True),
    Rung("buy4", "one of four buttons buys", "checkout", "one_of", 4, quick=True, alone=("alone-buy-description",)),
    Rung("hid2buy4", "four buttons and hidden look-alikes", "checkout_lookalike", "one_of", more=EIGHT),
)
"""From near the ceiling down to collapse, in the order in which they came out: same tasks, same budget."""

PUBLISHED: Sequence[Rung] = tuple(
    Rung(f"{name}-published", f"{label}, as published", family, more={"world.variant.reference": True, **more}, tier=3, ppo=False)
    for name, label, family, more in (
        ("catalog", "other products on sale", "catalog_split", EIGHT),
        ("bm25", "search weighs words otherwise", "bm25_reweight", {}),
        ("field", "search reads other texts", "field_subset", {}),
        ("rank", "rows in other orders", "rank_wrapper", {}),
    )
)
"""The published variants, defects and assignment included. The published look-alikes are a file of their own: our rung stands for them."""


def tale(quick: bool = False) -> tuple[ArmSpec, ...]:
    """All arms, or those of the short form."""
    arms = (*_uniform(), *_task(), *_ladder(), *_controls(), *_escape(), *_bandit(), *_alfworld())
    return tuple(arm for arm in arms if arm.quick) if quick else arms


def _uniform() -> Iterator[ArmSpec]:
    for algorithm, end, name in (({}, "", "GRPO"), (PPO, "-ppo", "PPO")):
        shop = {**SHOP, **algorithm}
        first = not end
        yield ArmSpec(f"uniform{end}", f"alike clients, {name}", "uniform", {**shop, **AFTER_LOCAL}, tier=1, quick=True)
        central = {**shop, "federation.mode": "centralized", **ALONE}
        yield ArmSpec(f"central{end}", f"centralized, {name}", "uniform", central, versus=f"uniform{end}", tier=1, quick=first)
        for client in range(3):
            local = {**shop, "federation.mode": "local", "federation.local_client": client, **ALONE}
            label = f"local, client {client}, {name}"
            quick = first and client == 0
            yield ArmSpec(f"local-{client}{end}", label, "uniform", local, versus=f"uniform{end}", tier=1 if first else 3, quick=quick)
    # Averaging is slower than pooling at first: whether it also ends lower takes longer runs.
    longer = {**SHOP, "federation.rounds": 2 * SHOP["federation.rounds"]}
    yield ArmSpec("uniform-long", "alike clients, GRPO, twice the rounds", "uniform", longer, twist="long", tier=3)
    pooled = {**longer, "federation.mode": "centralized", **ALONE}
    yield ArmSpec("central-long", "centralized, GRPO, twice the rounds", "uniform", pooled, versus="uniform-long", twist="long", tier=3)


def _task() -> Iterator[ArmSpec]:
    crowd = {**SHOP, "federation.clients": 10, "federation.tasks_per_client": 60, "federation.partition.min_size": 10}
    knobs = {
        "preference": ("category mixes", 0.05, 0.95),
        "coverage": ("numbers of tasks", 0.05, 0.9),
        "hardness": ("shares of easy tasks", 0.05, 0.95),
    }
    for axis, (what, near, extreme) in knobs.items():
        for end, value in (("near", near), ("extreme", extreme)):
            yield _split(f"{axis}-{end}", f"{what}, {'near-uniform' if end == 'near' else end}", axis, value, crowd, {axis: value})
    yield _split("joint-near", "all three, near-uniform", "joint", 0.05, crowd, {axis: knob[1] for axis, knob in knobs.items()})
    yield _split("joint-extreme", "all three, extreme", "joint", 0.95, crowd, {axis: knob[2] for axis, knob in knobs.items()})


def _split(name: str, label: str, axis: str, value: float, crowd: Settings, knobs: Mapping[str, float]) -> ArmSpec:
    settings = {**crowd, **{f"federation.partition.{knob}": level for knob, level in knobs.items()}}
    if "coverage" not in knobs:
        del settings["federation.partition.min_size"]
    if "hardness" in knobs:
        settings["federation.partition.labels"] = LABELS
    versus = f"{axis}-near" if name.endswith("-extreme") else None
    return ArmSpec(name, label, "task", settings, axis, value, versus=versus, tier=1, quick=axis == "preference")


def _ladder() -> Iterator[ArmSpec]:
    for rung in (*RUNGS, *PUBLISHED):
        settings = {**SHOP, **({} if rung in PUBLISHED else AFTER_LOCAL), **rung.settings}
        plain = ArmSpec(rung.name, rung.label, "environment", settings, rung.family, 1.0, rung.rule, "uniform", "uniform")
        yield replace(plain, alone=rung.alone, tier=rung.tier, quick=rung.quick)
        if rung.ppo:
            own = {**settings, **PPO}
            ppo = ArmSpec(f"{rung.name}-ppo", rung.label, "environment", own, rung.family, 1.0, rung.rule, "uniform-ppo", rung.name)
            yield replace(ppo, alone=rung.alone, tier=rung.tier, quick=rung.name == "rank")


def _rung(name: str) -> Rung:
    return next(rung for rung in RUNGS if rung.name == name)


def _controls() -> Iterator[ArmSpec]:
    """What tells the causes of a fall apart."""
    yield _control("rank", "mixture", "centralized on the mixture of worlds", {"federation.mode": "centralized", **ALONE})
    yield _control("rank", "prox", "FedProx, mu = 0.1", {"aggregation.prox_mu": 0.1})
    alike = {"world.variant.members": ("invert",)}
    yield _control("rank", "same_world", "all clients in the world invert", alike, "same-rank-invert")
    # 512 episodes in a batch in place of 64, one epoch in each of two rounds: 1.6 times the episodes, a fifth of the steps.
    big = {**PPO, **AFTER_LOCAL, "algorithm.group_size": 8, "learner.mini_batch": 512, "federation.local_epochs": 1, "federation.rounds": 2}
    yield _control("rank", "batch", "PPO, batches eight times as large", big, "rank-ppo-batch", "rank-ppo")
    yield _control("recoverable", "window", "eight past turns in the prompt", {"rollout.history": 8}, "recoverable-history")
    for name, member in (
        ("rank", "invert"),
        ("buy", "description"),
    ):
        rung = _rung("buy4" if name == "buy" else name)
        settings = {**SHOP, **rung.settings, "world.variant.members": (member,), "federation.mode": "local", **ALONE}
        label = f"one client alone in the world {member}"
        yield ArmSpec(f"alone-{name}-{member}", label, "environment", settings, rung.family, 1.0, twist="alone", tier=2)


def _control(name: str, twist: str, label: str, change: Settings, own_name: str = "", versus: str = "") -> ArmSpec:
    rung = _rung(name)
    settings = {**SHOP, **rung.settings, **change}
    ppo = settings.get("algorithm.name") == "ppo"
    one_world = len(change.get("world.variant.members", (0, 0))) == 1
    return ArmSpec(
        own_name or f"{name}-{twist}",
        f"{rung.label}: {label}",
        "environment",
        settings,
        rung.family,
        1.0,
        "none" if one_world else rung.rule,
        "uniform-ppo" if ppo else "uniform",
        versus or name,
        twist,
    )


def _escape() -> Iterator[ArmSpec]:
    """The hidden twin is buy4."""
    twin = _rung("buy4")
    for name, label, family, members in (
        ("off-path", "the controls that differ are not needed", "navigation", None),
        ("same-ranking", "texts differ, the best product does not", "field_subset", ("full", "name_bullets", "desc_features", "no_name")),
    ):
        chosen = {} if members is None else {"world.variant.members": members}
        settings = {**SHOP, **APART, "world.variant.family": family, **chosen}
        yield ArmSpec(f"escape-{name}", label, "escape", settings, family, 1.0, "shared", "uniform", "buy4", tier=1)
    for reveal, label in (("name", "the shop's arbitrary name"), ("cue", "a subtle mark"), ("hint", "the page names the button")):
        settings = {**SHOP, **twin.settings, "world.variant.reveal": reveal}
        yield ArmSpec(
            f"escape-{reveal}",
            f"revealed: {label}",
            "escape",
            settings,
            twin.family,
            1.0,
            "shared",
            "uniform",
            "buy4",
            tier=1,
            quick=reveal == "hint",
        )


def _bandit() -> Iterator[ArmSpec]:
    for delta in DELTAS:
        for kind in ("silent", "memory", "revealed"):
            if delta == 0 and kind != "silent":
                continue
            for algorithm in ("grpo", "ppo"):
                yield machine(delta, kind, algorithm)


def machine(delta: float, kind: str, algorithm: str) -> ArmSpec:
    """Two clients, each with another good arm of two: ``silent`` replies, replies that say what paid (``memory``), or ``revealed``."""
    settings: dict[str, Any] = {
        **MACHINES,
        "world.options": {"horizon": PLAYS[kind], "arms": 2, "delta": delta, "silent": kind != "memory", "heldout": 400},
        "evaluation.worlds": 2,
        "evaluation.world_tasks": 400,
        "world.variant.family": "conflict",
        "world.variant.min_reachable": 0.0,
    }
    if kind == "memory":
        settings["federation.rounds"] = MEMORY_ROUNDS
    if delta == 0:
        # Two worlds that are the same would be refused as a conflict.
        settings["world.variant.severity"] = 0.0
    if kind == "revealed":
        settings["world.variant.reveal"] = "hint"
    if algorithm == "ppo":
        settings |= {**PPO, "algorithm.tasks_per_epoch": 128, "algorithm.group_size": 1}
    grpo = f"bandit-{delta:g}-{kind}"
    words = {"silent": "replies say nothing", "memory": "replies say what paid", "revealed": "the good arm is named"}[kind]
    label = f"bandit, delta {delta:g}, {words}"
    quick = delta in (0.5, 1.0) and kind != "memory" and algorithm == "grpo"
    spec = ArmSpec(grpo, label, "bandit", settings, "conflict", 1.0, "bandit", twist="memory" if kind == "memory" else "", quick=quick)
    return spec if algorithm == "grpo" else replace(spec, name=f"{grpo}-ppo", versus=grpo)


def _alfworld() -> Iterator[ArmSpec]:
    yield ArmSpec("alfworld", "homes alike", "alfworld", HOMES, tier=3)
    # Half the rate of these homes, as in the shop.
    central = {**HOMES, "federation.mode": "centralized", "learner.lr": 7.5e-4, "learner.optimizer_state": "keep"}
    yield ArmSpec("alfworld-central", "homes alike, centralized", "alfworld", central, versus="alfworld", tier=3)
    for name, label, family, members in (
        ("appliance", "what heats and cools differs", "appliance", 3),
        ("words3", "heat and cool swapped, or other words", "words", 3),
    ):
        settings = {**HOMES, **APART, "world.variant.family": family, "world.variant.members": members}
        yield ArmSpec(f"alfworld-{name}", label, "alfworld", settings, family, 1.0, "shared", "alfworld", "alfworld", tier=3)
