"""The list of arms hangs together: names, references, settings that every section accepts, and all that the tale needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.base import Task
from envs.variants import DEFAULT
from pipeline.errors import ConfigError
from pipeline.heterogeneity import set_up
from pipeline.reproduce.arms import DELTAS, LABELS, RUNGS, SHOP, ArmSpec, tale
from pipeline.reproduce.trials import Trial, changed, chosen, in_order
from pipeline.schedule import Schedule, sample_clients

ARMS = tale()
BY_NAME = {arm.name: arm for arm in ARMS}


def test_names_are_unique_and_references_lead_somewhere() -> None:
    assert len(BY_NAME) == len(ARMS)
    for arm in ARMS:
        for other in (arm.versus, arm.ceiling, *arm.alone):
            assert other is None or other in BY_NAME, f"{arm.name} refers to {other}"
        if arm.ceiling:
            assert BY_NAME[arm.ceiling].algorithm == arm.algorithm, arm.name


@pytest.mark.parametrize("quick", [False, True])
def test_every_arm_is_a_valid_configuration(quick: bool) -> None:
    for arm in tale(quick):
        config = Trial(arm, 3).config(Path("labels.json"))
        assert config.run.seed == 3
        assert config.resources.layout == "process"
        assert config.evaluation.tasks >= 200, f"{arm.name}: intervals need tasks"
        # The last 100 held-out tasks of the shop are for tuning.
        assert config.world.name != "webshop" or config.evaluation.skip + config.evaluation.tasks <= 300


def test_all_parts_of_the_tale_are_there() -> None:
    def of(family: str, algorithm: str = "grpo") -> list[ArmSpec]:
        return [arm for arm in ARMS if arm.family == family and arm.algorithm == algorithm]

    for algorithm in ("grpo", "ppo"):
        plain = [arm.mode for arm in of("uniform", algorithm) if not arm.twist]
        assert sorted(plain) == ["centralized", "federated", "local", "local", "local"]
    assert {(arm.variant, arm.severity) for arm in of("task")} >= {
        (axis, end) for axis, end in (("preference", 0.95), ("coverage", 0.9), ("hardness", 0.95), ("joint", 0.95), ("joint", 0.05))
    }
    assert {rung.family for rung in RUNGS} >= {"catalog_split", "bm25_reweight", "field_subset", "rank_wrapper", "lookalike", "checkout"}
    ladder = [rung for rung in RUNGS if rung.ppo]
    assert len(ladder) >= 6
    assert (ladder[0], ladder[-1]) == (next(rung for rung in RUNGS if rung.name == "catalog"), RUNGS[-1]), "from the top to the bottom"
    same = [name for name in BY_NAME["rank"].settings if not name.startswith(("world.variant", "evaluation.worlds"))]
    for rung in ladder:
        ppo = BY_NAME[f"{rung.name}-ppo"].settings
        assert {n: ppo[n] for n in same} == {n: BY_NAME["rank"].settings[n] for n in same}, "same tasks, same budget"
    assert {arm.twist for arm in ARMS} >= {"mixture", "same_world", "alone", "window", "prox", "batch", "memory", "long"}
    assert {arm.reveal for arm in of("escape")} >= {"none", "name", "cue", "hint"}
    assert {arm.delta for arm in of("bandit")} == set(DELTAS) == {arm.delta for arm in of("bandit", "ppo")}
    assert len(of("alfworld")) >= 3
    assert {arm.family for arm in tale(quick=True)} == {"uniform", "task", "environment", "escape", "bandit"}


@pytest.mark.parametrize("name", ["catalog", "hid2buy4", "rank", "field", "buy4", "catalog-published", "escape-off-path"])
def test_every_world_of_the_clients_is_measured(name: str) -> None:
    """A mean over clients of which some live in worlds that nobody measured is another number than its floor's."""
    made = set_up(Trial(BY_NAME[name], 0).config())
    worlds = {world for world in made.assignment.names.values() if world != DEFAULT}
    assert len(worlds) <= made.config.evaluation.worlds


def test_equal_episodes_under_both_algorithms() -> None:
    for name in ("uniform", "rank", "buy4", "bandit-0.5-silent"):
        grpo, ppo = (Trial(BY_NAME[n], 0).config().algorithm for n in (name, f"{name}-ppo"))
        assert grpo.tasks_per_epoch * grpo.group_size == ppo.tasks_per_epoch * ppo.group_size
    big, usual = (Trial(BY_NAME[n], 0).config().algorithm for n in ("rank-ppo-batch", "rank-ppo"))
    assert big.tasks_per_epoch * big.group_size == 8 * usual.tasks_per_epoch * usual.group_size


def test_keys_follow_what_decides() -> None:
    arm = BY_NAME["buy4"]
    key = Trial(arm, 0).key
    assert Trial(arm, 1).key == key
    assert Trial(changed([arm], ["--run.keep_checkpoints=5", "--resources.engine_threads", "2"])[0], 0).key == key
    assert Trial(changed([arm], ["--federation.rounds", "20"])[0], 0).key != key
    own = str(arm.settings["federation.rounds"])
    assert Trial(changed([arm], ["--federation.rounds", own])[0], 0).key == key, "what it is already"


def test_no_arm_does_anothers_work() -> None:
    seen: dict[str, str] = {}
    for arm in ARMS:
        other = seen.setdefault(Trial(arm, 0).key, arm.name)
        assert other == arm.name, f"{arm.name} and {other} have the same settings"


def test_changed_arms_are_checked_like_a_command_line() -> None:
    arm = changed([BY_NAME["buy4"]], ["--federation.rounds=20", "--learner.lr", "5e-4"])[0]
    config = Trial(arm, 0).config()
    assert (config.federation.rounds, config.learner.lr) == (20, 5e-4)
    other = Trial(changed([BY_NAME["buy4"]], ["--rollout.backend", "transformers"])[0], 0).config()
    assert (other.rollout.backend, other.federation.rounds) == ("transformers", SHOP["federation.rounds"])
    wrong = changed([BY_NAME["buy4"]], ["--federation.round=20"])[0]
    with pytest.raises(ConfigError, match=r"arm 'buy4': .*did you mean .*federation.rounds"):
        Trial(wrong, 0).config()
    machine = changed([BY_NAME["bandit-0.5-silent"]], ["--world.options", '{"horizon": 2, "delta": 0.3}'])[0]
    assert (machine.delta, Trial(machine, 0).config().world.options["horizon"]) == (0.3, 2)
    with pytest.raises(ConfigError, match="no labels were made"):
        Trial(BY_NAME["hardness-extreme"], 0).config()
    assert LABELS in BY_NAME["hardness-extreme"].settings.values()


def test_chosen_arms() -> None:
    assert [arm.name for arm in chosen(ARMS, ["buy2*", "uniform"])] == ["uniform", "buy2", "buy2-ppo"]
    assert chosen(ARMS, []) == ARMS
    with pytest.raises(ConfigError, match="--only nothing: no arm has such a name"):
        chosen(ARMS, ["uniform", "nothing"])


def test_the_important_come_first_and_the_short_last() -> None:
    trials = in_order(ARMS, 3)
    assert len(trials) == 3 * len(ARMS)
    assert len({trial.id for trial in trials}) == len(trials)
    tiers = [trial.arm.tier for trial in trials]
    assert tiers == sorted(tiers)
    first = [trial.seed for trial in trials if trial.arm.tier == 1]
    assert first == sorted(first), "a whole seed of them before the next"
    last = [trial.estimate for trial in trials if trial.arm.tier == 3]
    assert last == sorted(last, reverse=True), "the pool ends evenly"


def test_seeds_share_no_schedule() -> None:
    """Who trains, on what, with which random numbers: nothing of seed 0 turns up under seed 1, not even shifted by rounds."""
    arm = BY_NAME["buy4"]
    tasks = [Task(f"t{i}", f"task {i}", str(i % 5)) for i in range(2000)]
    schedules = [Schedule(Trial(arm, seed).config(), tasks) for seed in (0, 1)]
    rounds = [[s.plan(r) for r in range(1, 13)] for s in schedules]
    seeds = [{spec.seed for plan in own for client in plan.clients for epoch in client.epochs for spec in epoch} for own in rounds]
    assert not seeds[0] & seeds[1]
    learner = [{client.seed for plan in own for client in plan.clients} for own in rounds]
    assert not learner[0] & learner[1]
    names = [[plan.names for plan in own] for own in rounds]
    for shift in range(-11, 12):
        pairs = [(names[0][r], names[1][r + shift]) for r in range(12) if 0 <= r + shift < 12]
        # Four of eight clients: two independent draws agree one time in seventy.
        assert sum(a == b for a, b in pairs) <= 2
    owned = [[{task.id for task in part} for part in s.partition.values()] for s in schedules]
    overlap = [len(a & b) / len(a) for a, b in zip(*owned, strict=True)]
    assert max(overlap) < 0.35
    assert sample_clients(schedules[0].config.federation, 0, 1) == names[0][0]
