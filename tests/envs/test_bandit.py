from __future__ import annotations

import math

import pytest

from envs.bandit import SUCCESS_REWARD, BanditWorld
from envs.base import make_world
from envs.prompts import PromptSpec, parse, render
from envs.variants import Variant, distinctness


def transcript(world: BanditWorld, variant: str | Variant, seeds: range = range(40)) -> list[object]:
    env, out = world.make(variant), []
    for seed, task in zip(seeds, world.tasks("train"), strict=False):
        out.append(env.reset(seed=seed, options={"task": task}))
        out += [env.step(world.arms[(seed + play) % len(world.arms)]) for play in range(world.horizon)]
    return out


def share_paid(world: BanditWorld, variant: str | Variant, arm: str, n: int = 2000) -> float:
    env, task = world.make(variant), world.tasks("train")[0]
    paid = 0.0
    for seed in range(n):
        env.reset(seed=seed, options={"task": task})
        paid += env.step(arm)[1] / SUCCESS_REWARD
    return paid / n


def test_an_episode_of_one_play() -> None:
    world = BanditWorld(delta=1.0)
    env, task = world.make(), world.tasks("train")[0]
    observation, info = env.reset(seed=0, options={"task": task})
    assert observation == "Play 1 of 1. Arms: a, b."
    assert info == {"admissible": ["a", "b"], "score": 0.0, "success": False}
    observation, reward, terminated, truncated, info = env.step("a")
    assert (observation, reward, terminated, truncated) == ("Arm a paid. The game is over.", 10.0, True, False)
    assert info == {"admissible": [], "score": 1.0, "success": True}
    with pytest.raises(ValueError, match="call reset first"):
        env.step("a")


def test_score_and_return_over_several_plays() -> None:
    world = BanditWorld(delta=1.0, horizon=3)
    env = world.make()
    env.reset(seed=0, options={"task": world.tasks("train")[0]})
    rewards = [env.step("a")[1], env.step("b")[1]]
    observation, reward, terminated, _, info = env.step("a")
    assert [*rewards, reward] == pytest.approx([10 / 3, 0.0, 10 / 3])
    assert terminated
    assert info["score"] == pytest.approx(2 / 3)
    assert info["success"]
    assert observation.startswith("Arm a paid.")


def test_what_is_no_arm_pays_nothing_and_costs_the_play() -> None:
    world = BanditWorld(delta=1.0)
    env = world.make()
    env.reset(seed=0, options={"task": world.tasks("train")[0]})
    observation, reward, terminated, _, info = env.step("z")
    assert (observation, reward, terminated, info["success"]) == ("No such arm. The game is over.", 0.0, True, False)


def test_silent_replies_say_nothing_of_what_paid() -> None:
    world = BanditWorld(delta=1.0, horizon=2, silent=True)
    env = world.make()
    env.reset(seed=0, options={"task": world.tasks("train")[0]})
    said = env.step("a")[0]
    env.reset(seed=0, options={"task": world.tasks("train")[0]})
    assert said.replace("Arm a", "Arm b") == env.step("b")[0]


@pytest.mark.parametrize("variant", ["default", "conflict:b", "conflict:b@0.5", "same_ranking", "off_path"])
def test_arms_pay_as_often_as_the_closed_form_says(variant: str) -> None:
    world = BanditWorld(delta=0.5)
    for arm, value in zip(world.arms, world.values(variant), strict=True):
        assert abs(share_paid(world, variant, arm) - value) < 4 * math.sqrt(0.25 / 2000)


def test_probabilities_of_the_families() -> None:
    world = BanditWorld(delta=0.5)
    assert world.values() == (0.75, 0.25)
    assert world.values("conflict:a") == (0.75, 0.25)
    assert world.values("conflict:b") == (0.25, 0.75)
    assert world.values("same_ranking") == pytest.approx((0.45, 0.15))
    assert world.values("off_path") == pytest.approx((0.75, 0.05))
    assert world.values(Variant("payoffs", options=(("values", "0.9, 0.1"),))) == (0.9, 0.1)
    assert BanditWorld(arms=4, delta=0.8).values("conflict:c") == pytest.approx((0.1, 0.1, 0.9, 0.1))


@pytest.mark.parametrize("severity", [0.0, 0.25, 0.5, 1.0])
def test_two_worlds_in_conflict_are_severity_times_delta_apart(severity: float) -> None:
    world = BanditWorld(delta=0.8)
    plain, other = world.values(), world.values(Variant("conflict", "b", severity))
    assert max(abs(a - b) for a, b in zip(plain, other, strict=True)) == pytest.approx(severity * 0.8)


@pytest.mark.parametrize("family", ["conflict:b", "same_ranking", "off_path", "payoffs"])
def test_severity_zero_is_the_unperturbed_world(family: str) -> None:
    world = BanditWorld(horizon=2)
    assert transcript(world, f"{family}@0") == transcript(world, "default")


def test_the_first_observation_is_unchanged_unless_the_world_reveals_itself() -> None:
    world = BanditWorld()
    task = world.tasks("train")[0]

    def first(variant: str) -> str:
        return world.make(variant).reset(seed=3, options={"task": task})[0]

    for variant in world.variants:
        if not variant.endswith((":c", ":d")):
            assert first(variant) == first("default")
    assert first("conflict:b+hint") == first("default") + "\nArm b pays best here"
    assert first("conflict:a+hint") == first("default") + "\nArm a pays best here"
    assert len({first("conflict:a+name"), first("conflict:b+name")}) == 2


@pytest.mark.parametrize("reveal", ["name", "cue", "hint"])
def test_a_mark_is_the_only_change(reveal: str) -> None:
    world = BanditWorld(horizon=2)
    plain, marked = transcript(world, "conflict:b"), transcript(world, f"conflict:b+{reveal}")
    marks = {str(shown[0]).removeprefix(str(hidden[0])) for hidden, shown in zip(plain, marked, strict=True)}  # type: ignore[index]
    assert len(marks) == 1
    assert marks.pop().startswith("\n")
    assert [hidden[1:] for hidden in plain] == [shown[1:] for shown in marked]  # type: ignore[index]


def test_a_hint_may_be_wrong_as_often_as_asked() -> None:
    world = BanditWorld()
    env, task = world.make(Variant("conflict", "b", reveal="hint", options=(("hint_error", 0.25),))), world.tasks("train")[0]
    right = sum("Arm b pays" in env.reset(seed=seed, options={"task": task})[0] for seed in range(2000))
    assert abs(right / 2000 - 0.75) < 0.04


def test_equal_seeds_give_equal_episodes_and_other_seeds_others() -> None:
    world = BanditWorld(horizon=3)
    assert transcript(world, "conflict:b") == transcript(world, "conflict:b")
    assert transcript(world, "default") != transcript(world, "default", range(40, 80))


def test_the_task_tells_the_good_arm_in_a_contextual_world() -> None:
    world = BanditWorld(contextual=True, arms=4, delta=1.0)
    best = {}
    for task in world.tasks("train")[:40]:
        (arm,) = world.oracle(task)
        best.setdefault(task.category, set()).add(arm)
        env = world.make()
        env.reset(seed=0, options={"task": task})
        assert env.step(arm)[4]["success"]
    assert sorted(map(sorted, best.values())) == [["a"], ["b"], ["c"], ["d"]]


def test_splits_are_disjoint_and_hold_all_halls() -> None:
    world = make_world("bandit", train=60, heldout=20, seed=5, max_steps=8)
    train, heldout = world.tasks("train"), world.tasks("heldout")
    assert (len(train), len(heldout), len({task.id for task in (*train, *heldout)})) == (60, 20, 80)
    assert {task.category for task in train} == {"red", "blue", "green", "white"}
    assert all(task.category in task.instruction for task in train)
    assert [task.id for task in make_world("bandit", train=60, heldout=20, seed=5).tasks("train")] == [task.id for task in train]


def test_probes_tell_the_worlds_apart() -> None:
    world = BanditWorld()
    plain = world.probe()
    assert distinctness(plain, world.probe("conflict:a")).same
    for variant in ("conflict:b", "same_ranking", "off_path"):
        assert not distinctness(plain, world.probe(variant)).same


def test_the_prompt_is_short_and_its_answer_is_an_arm() -> None:
    spec = PromptSpec(world="bandit")
    world = BanditWorld()
    task = world.tasks("train")[0]
    observation, info = world.make().reset(seed=0, options={"task": task})
    prompt = render(spec, task.instruction, [], observation, info["admissible"])
    assert task.instruction in prompt
    assert "'a'," in prompt
    assert len(prompt) < 600
    assert parse(spec, "<think>x</think><action>B</action>").action == "b"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delta": 1.5}, "delta is 1.5; allowed: 0 to 1"),
        ({"arms": 5}, "arms is 5; allowed: 2 to 4"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 9, "max_steps": 8}, "max_steps is 8: an episode takes 9 plays"),
        ({"values": (0.5, 1.2)}, "an arm pays with probability 1.2"),
    ],
)
def test_refused_options(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make_world("bandit", **options)


@pytest.mark.parametrize(
    ("variant", "complaint"),
    [
        ("conflict:c", "this world has the arms a, b"),
        ("conflct:b", "did you mean 'conflict'"),
        (Variant("payoffs", options=(("values", "0.5"),)), "this world has 2 arms"),
        (Variant("payoffs", options=(("values", "0.5,much"),)), "option values"),
        (Variant("off_path", options=(("factor", 2.0),)), "allowed: 0 to 1"),
    ],
)
def test_refused_variants(variant: str | Variant, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        BanditWorld().make(variant)
    if isinstance(variant, Variant) or ":c" in variant:
        with pytest.raises(ValueError, match=complaint):
            BanditWorld().define({"mine": variant if isinstance(variant, Variant) else Variant.parse(variant)})


def test_reset_needs_a_bandit_task() -> None:
    with pytest.raises(ValueError, match="reset needs a bandit task"):
        BanditWorld().make().reset(options={})
    with pytest.raises(ValueError, match="unknown split"):
        BanditWorld().tasks("test")  # type: ignore[arg-type]
