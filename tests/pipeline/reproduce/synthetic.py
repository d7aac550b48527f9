"""Results that never happened, made by one honest rule: success = ceiling times how far learning got times what the worlds allow.

Every number of an arm follows from its outcomes: rates are counts over ``n_eval`` tasks, means are means of the worlds' rates.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from pipeline.reproduce.results import SCHEMA, Arm, Cost, CurvePoint, DriftPoint, Matrix, Missing, Results

ROUNDS = 15
EVERY = 5
CLIENTS = 8
N_EVAL = 200
CEILING = 0.88
START = 0.22


def synthetic_results(seeds: Sequence[int] = (0, 1, 2), missing: Sequence[Missing] = ()) -> Results:
    """A small file with every family, both algorithms and all three modes."""
    arms = [arm for seed in seeds for arm in synthetic_arms(seed)]
    gone = {(gap.name, gap.seed) for gap in missing}
    kept = tuple(arm for arm in arms if (arm.name, arm.seed) not in gone and (arm.name, None) not in gone)
    versions = {"python": "3.11.9", "fedagent-ray": "0.1.0", "torch": "2.13.0"}
    return Results(
        SCHEMA,
        "2 cores, 23 GiB memory, Linux x86_64",
        versions,
        "fedagent reproduce tale --seeds 3",
        "2026-11-20T12:00:00+00:00",
        not missing,
        tuple(missing),
        kept,
    )


def synthetic_arms(seed: int) -> list[Arm]:
    """All arms of one seed."""
    return [
        synthetic_arm("uniform", seed, label="alike clients"),
        synthetic_arm("uniform-ppo", seed, label="alike clients", algorithm="ppo"),
        synthetic_arm("central", seed, label="centralized", mode="centralized", versus="uniform"),
        synthetic_arm("central-ppo", seed, label="centralized", mode="centralized", algorithm="ppo"),
        *(synthetic_arm(f"local-{i}", seed, label=f"local, client {i}", mode="local", share=0.93) for i in range(3)),
        *(
            synthetic_arm(f"{axis}-{end}", seed, label=f"{axis}, {end}", family="task", variant=axis, severity=value, bound=bound)
            for axis in ("preference", "coverage", "hardness", "joint")
            for end, value, bound in (("near", 0.05, 1.02), ("extreme", 0.95, 2.2))
        ),
        synthetic_arm("order4", seed, label="rows in other orders", variant="rank_wrapper", worlds=4, share=0.75, reachable=1.0),
        synthetic_arm("buy2", seed, label="two buttons", variant="checkout", severity=0.5, worlds=2, share=0.5, versus="uniform"),
        synthetic_arm("buy4", seed, label="four buttons", variant="checkout", worlds=4, share=0.25, versus="uniform"),
        synthetic_arm("buy4-ppo", seed, label="four buttons", variant="checkout", worlds=4, share=0.25, algorithm="ppo", versus="buy4"),
        synthetic_arm("buy4-off-path", seed, label="never met", family="escape", variant="navigation", worlds=3, share=1.0, versus="buy4"),
        synthetic_arm("buy4-name", seed, label="name shown", family="escape", variant="checkout", worlds=4, share=0.4, reveal="name"),
        synthetic_arm("buy4-hint", seed, label="button named", family="escape", variant="checkout", worlds=4, share=0.97, reveal="hint"),
        *(
            _bandit(f"bandit-{delta:g}-{kind}", seed, delta, kind)
            for delta in (0.0, 0.2, 0.5, 0.8, 1.0)
            for kind in ("silent", "memory", "revealed")
        ),
        synthetic_arm("alfworld", seed, label="homes alike", family="alfworld", variant=None),
        synthetic_arm("alfworld-words", seed, label="words swapped", family="alfworld", variant="words", worlds=2, share=0.6),
    ]


def synthetic_arm(
    name: str,
    seed: int,
    *,
    label: str = "",
    family: str | None = None,
    variant: str | None = None,
    severity: float | None = None,
    algorithm: str = "grpo",
    mode: str = "federated",
    worlds: int = 1,
    share: float = 1.0,
    reachable: float | None = None,
    reveal: str = "none",
    versus: str | None = None,
    **more: Any,
) -> Arm:
    """One arm. ``share`` of the ceiling is reached over ``worlds`` worlds; ``reachable`` is what a shared policy could have."""
    rng = random.Random(f"{name} {seed}")
    level = CEILING * min(1.0, share + rng.uniform(-0.02, 0.02))
    names = ["default"] if worlds == 1 else [f"{variant}:m{i}" for i in range(worlds)]
    tilt = [1 + 0.3 * math.cos(i) if worlds > 1 else 1.0 for i in range(worlds)]
    final: dict[str, float] = {}
    curve = []
    for round in range(0, ROUNDS + 1, EVERY):
        gone = 1 - math.exp(-round / 4)
        rates = {w: _rate(rng, (START * share + (level - START * share) * gone) * t) for w, t in zip(names, tilt, strict=True)}
        final = rates
        control = rates[names[0]]
        curve.append(
            CurvePoint(
                round,
                512 * round,
                _mean(list(rates.values())),
                min(rates.values()),
                control,
                _rate(rng, level * gone, 64) if round else None,
            )
        )
    clients = tuple(f"c{i:03d}" for i in range(CLIENTS // 2))
    homes = tuple(names[i % worlds] for i in range(len(clients)))
    cells = tuple(tuple(_rate(rng, 0.9 * CEILING if home == w else 0.1) for w in names) for home in homes)
    matrix = Matrix(clients, tuple(names), cells, homes) if worlds > 1 and mode == "federated" else None
    federated = mode == "federated"
    # One world of `worlds` pays for what any policy does, unless the row says that more can be had.
    reach = (1.0 if worlds == 1 or reveal != "none" else 1 / worlds) if reachable is None else reachable
    return Arm(
        name=name,
        label=label or name,
        family=family or ("environment" if worlds > 1 else "uniform"),  # type: ignore[arg-type]
        variant=variant,
        severity=severity if severity is not None or worlds == 1 else 1.0,
        algorithm=algorithm,
        mode=mode,  # type: ignore[arg-type]
        seed=seed,
        rounds=ROUNDS,
        episodes=512 * ROUNDS,
        n_eval=N_EVAL,
        mean_worlds=_mean(list(final.values())),
        worst_world=min(final.values()),
        control=final[names[0]],
        floor=CEILING * reach if worlds > 1 else None,
        kind="none" if worlds == 1 or reveal != "none" else "floor" if reach < 1 else "slack",
        after_local=_mean([cells[i][names.index(home)] for i, home in enumerate(homes)]) if matrix else None,
        cpu_seconds=46.0 if algorithm == "grpo" else 80.0,
        wall_seconds=52.0 if algorithm == "grpo" else 90.0,
        curve=tuple(curve),
        start=curve[0].mean_worlds,
        reveal=reveal,
        alone=_rate(rng, 0.95 * CEILING) if worlds > 1 else None,
        worlds=final,
        matrix=matrix,
        drift=tuple(_drift(rng, r, 1 / worlds, algorithm) for r in range(1, ROUNDS + 1)) if federated else (),
        cost=Cost(11.0, 33.0, 0.1, 2.5, 1.4, 1.05e6, 4.7e7 if federated else 0.0),
        versus=versus,
        floor_how="one world of each behaviour pays" if worlds > 1 else "",
        settings={"algorithm.name": algorithm, "federation.mode": mode},
        key=f"{abs(hash_of(name)):016x}"[:16],
        **more,
    )


def _bandit(name: str, seed: int, delta: float, kind: str) -> Arm:
    rng = random.Random(f"{name} {seed}")
    lost = {"silent": delta / 2, "memory": 0.3 * delta / 2, "revealed": 0.02}[kind]
    best = (1 + delta) / 2
    lean = rng.uniform(0, 0.2) * lost
    worlds = {"conflict:a": max(0.0, best - lost + lean), "conflict:b": max(0.0, best - lost - lean)}
    mean, worst = _mean(list(worlds.values())), min(worlds.values())
    curve = (CurvePoint(0, 0, 0.5, 0.5, 0.5), CurvePoint(15, 7680, mean, worst, worlds["conflict:a"], mean))
    return Arm(
        name=name,
        label=f"bandit, delta {delta:g}, {kind}",
        family="bandit",
        variant="conflict",
        severity=1.0,
        algorithm="grpo",
        mode="federated",
        seed=seed,
        rounds=15,
        episodes=7680,
        n_eval=400,
        mean_worlds=mean,
        worst_world=worst,
        control=worlds["conflict:a"],
        floor=best - delta / 2 if kind == "silent" else None,
        kind="floor" if kind == "silent" else "none",
        after_local=None,
        cpu_seconds=6.0,
        wall_seconds=7.0,
        curve=curve,
        start=0.5,
        reveal="hint" if kind == "revealed" else "none",
        worlds=worlds,
        delta=delta,
        worst_gap=best - worst,
        floor_gap=delta / 2 if kind == "silent" else None,
        twist="memory" if kind == "memory" else "",
        settings={"world.options": {"delta": delta}},
        key=f"{abs(hash_of(name)):016x}"[:16],
    )


def hash_of(name: str) -> int:
    """A number of a name, the same in every process."""
    return random.Random(name).getrandbits(60)


def _drift(rng: random.Random, round: int, alike: float, algorithm: str) -> DriftPoint:
    step = 1.0 if algorithm == "grpo" else 0.7
    cosine = min(1.0, alike * 0.6 + rng.uniform(0, 0.05))
    return DriftPoint(round, cosine, 0.8 * step, math.sqrt((1 + 3 * cosine) / 4), 0.05 * step, 0.03 * step, 0.02 * step)


def _rate(rng: random.Random, probability: float, n: int = N_EVAL) -> float:
    return sum(rng.random() < probability for _ in range(n)) / n


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
