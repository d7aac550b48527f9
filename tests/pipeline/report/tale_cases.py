"""Results of the size of a full reproduction, on the rule of ``tests.pipeline.reproduce.synthetic``: about 60 arms over three seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pipeline.reproduce.results import Arm, Missing, Results
from tests.pipeline.reproduce.synthetic import synthetic_arm, synthetic_results

RUNGS = (
    ("order4", "rows in other orders", "rank_wrapper", 4, 0.75, 1.0),
    ("lookrec2", "look-alikes one can go back from", "lookalike", 2, 0.68, 0.75),
    ("lookhid2", "hidden look-alikes", "lookalike", 2, 0.46, 0.5),
    ("buy2", "two buttons", "checkout", 2, 0.44, 0.5),
    ("buy4", "four buttons", "checkout", 4, 0.22, 0.25),
    ("hid2buy4", "hidden look-alikes and four buttons", "checkout_lookalike", 8, 0.1, 0.125),
)
"""Name, label, variant, worlds, share reached, share that a shared policy could reach."""
HATCHES = (("hint", "button named", 0.97, "hint"), ("name", "name shown", 0.3, "name"), ("off", "never met", 1.0, "none"))
PUBLISHED = (("catalog_split", 0.9), ("bm25_reweight", 0.85), ("field_subset", 0.8))


def full_results(seeds: Sequence[int] = (0, 1, 2), missing: Sequence[Missing] = ()) -> Results:
    """The small file's arms, the whole ladder under both algorithms, controls, hatches with both algorithms, and both for the bandit."""
    base = synthetic_results(seeds)
    replaced = {rung[0] for rung in RUNGS} | {"buy4-ppo", "buy4-name", "buy4-hint", "buy4-off-path"}
    arms = [arm for arm in base.arms if arm.name not in replaced]
    for seed in seeds:
        arms += [*_ladder(seed), *_controls(seed), *_hatches(seed), *_tasks(seed), *_alfworld(seed)]
    arms += [replace(arm, name=f"{arm.name}-ppo", algorithm="ppo") for arm in arms if arm.family == "bandit"]
    gone = {(gap.name, gap.seed) for gap in missing}
    kept = tuple(arm for arm in arms if (arm.name, arm.seed) not in gone and (arm.name, None) not in gone)
    return replace(base, arms=kept, missing=tuple(missing), complete=not missing)


def _ladder(seed: int) -> list[Arm]:
    arms = []
    for name, label, variant, worlds, share, reachable in RUNGS:
        shared = {"label": label, "variant": variant, "worlds": worlds, "severity": 1.0}
        arms.append(synthetic_arm(name, seed, share=share, reachable=reachable, versus="uniform", **shared))
        arms.append(synthetic_arm(f"{name}-ppo", seed, share=share + 0.02, reachable=reachable, algorithm="ppo", versus=name, **shared))
    for variant, share in PUBLISHED:
        for severity in (0.5, 1.0):
            label = f"{variant.replace('_', ' ')} at {severity:g}"
            reach = min(1.0, share * (1.5 - severity / 2))
            arms.append(
                synthetic_arm(
                    f"{variant}-{severity}", seed, label=label, variant=variant, severity=severity, worlds=4, share=reach, reachable=1.0
                )
            )
    return arms


def _controls(seed: int) -> list[Arm]:
    four = {"variant": "checkout", "worlds": 4, "severity": 1.0, "share": 0.24, "versus": "buy4"}
    return [
        synthetic_arm("buy4-central", seed, label="four buttons: centralized on the mixture", mode="centralized", twist="mixture", **four),
        synthetic_arm("buy4-prox", seed, label="four buttons: FedProx", twist="prox", **four),
        synthetic_arm(
            "buy4-batch", seed, label="four buttons: PPO, 8x batch", algorithm="ppo", twist="batch", **{**four, "versus": "buy4-ppo"}
        ),
    ]


def _hatches(seed: int) -> list[Arm]:
    arms = []
    for algorithm, tail in (("grpo", ""), ("ppo", "-ppo")):
        for name, label, share, reveal in HATCHES:
            shared = {"family": "escape", "worlds": 4, "severity": 1.0, "reveal": reveal, "algorithm": algorithm, "share": share}
            variant = "checkout" if reveal != "none" else "navigation"
            versus = f"buy4-{name}" if tail else "buy4"
            arms.append(synthetic_arm(f"buy4-{name}{tail}", seed, label=label, variant=variant, versus=versus, **shared))
    return arms


def _tasks(seed: int) -> list[Arm]:
    return [
        synthetic_arm(
            f"preference-{end}-ppo", seed, label=f"preference, {end}", family="task", variant="preference", severity=v, algorithm="ppo"
        )
        for end, v in (("near", 0.05), ("extreme", 0.95))
    ]


def _alfworld(seed: int) -> list[Arm]:
    return [
        synthetic_arm(
            "alfworld-central", seed, label="homes alike, centralized", family="alfworld", variant=None, mode="centralized", share=0.9
        )
    ]
