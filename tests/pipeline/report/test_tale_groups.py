from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.report.tale.groups import Group, difference, group_arms
from pipeline.reproduce.results import Arm
from pipeline.statistics import t_interval, wilson
from tests.pipeline.reproduce.synthetic import synthetic_arm


def groups_of(*arms: Arm) -> list[Group]:
    return group_arms([arm.plain() for arm in arms])


def at_rate(name: str, seed: int, rate: float, **more: object) -> Arm:
    return replace(synthetic_arm(name, seed), mean_worlds=rate, **more)  # type: ignore[arg-type]


def test_seeds_of_an_arm_become_one_group_and_other_arms_do_not() -> None:
    arms = [synthetic_arm("uniform", s) for s in (2, 0, 1)] + [synthetic_arm("uniform-ppo", 0, algorithm="ppo")]
    found = groups_of(*arms)
    assert [(g.text("name"), g.seeds) for g in found] == [("uniform", [0, 1, 2]), ("uniform-ppo", [0])]
    assert [g.id for g in found] == [0, 1]
    assert found[0].n == 600


def test_means_and_intervals_over_seeds() -> None:
    rates = [0.80, 0.85, 0.93]
    (group,) = groups_of(*(at_rate("a", s, r) for s, r in enumerate(rates)))
    summary = group.values["mean_worlds"]
    assert summary.mean == pytest.approx(0.86)
    assert (summary.low, summary.high) == pytest.approx(t_interval(rates))
    assert summary.boot_low is not None
    assert 0.80 <= summary.boot_low <= 0.86


def test_one_seed_has_the_interval_of_its_tasks_and_no_interval_over_seeds() -> None:
    (group,) = groups_of(at_rate("a", 0, 0.8, control=0.75))
    assert (group.values["mean_worlds"].low, group.values["mean_worlds"].high) == pytest.approx(wilson(160, 200))
    assert (group.values["control"].low, group.values["control"].high) == pytest.approx(wilson(150, 200))
    assert group.values["mean_worlds"].boot_low is None


def test_curves_are_averaged_by_round_over_the_seeds_that_measured_it() -> None:
    arms = [synthetic_arm("a", s) for s in (0, 1)]
    short = replace(arms[1], curve=arms[1].curve[:2])
    (group,) = groups_of(arms[0], short)
    curve = group.plain()["curve"]
    assert curve["round"] == [0, 5, 10, 15]
    means, lows = curve["metrics"]["mean_worlds"]["mean"], curve["metrics"]["mean_worlds"]["low"]
    assert means[0] == pytest.approx(sum(a.curve[0].mean_worlds or 0 for a in arms) / 2, abs=1e-4)
    assert means[3] == pytest.approx(arms[0].curve[3].mean_worlds, abs=1e-4)
    assert lows[0] is not None
    assert lows[3] is None
    assert curve["metrics"]["train"]["mean"][0] is None


def test_a_metric_that_nobody_measured_is_left_out() -> None:
    arm = replace(synthetic_arm("a", 0), after_local=None, drift=(), matrix=None)
    plain = groups_of(arm)[0].plain()
    assert "after_local" not in plain["values"]
    assert plain["drift"]["metrics"] == {}
    assert plain["matrices"] == []


def test_the_matrix_is_averaged_where_seeds_have_the_same_clients_and_worlds() -> None:
    arms = [synthetic_arm("buy4", s, variant="checkout", worlds=4, share=0.25) for s in (0, 1)]
    matrices = groups_of(*arms)[0].plain()["matrices"]
    assert [m["seed"] for m in matrices] == ["mean", 0, 1]
    cells = [a.matrix.rates[0][1] for a in arms if a.matrix]
    assert matrices[0]["rates"][0][1] == pytest.approx(sum(c for c in cells if c is not None) / 2, abs=1e-4)
    assert matrices[1]["clients"][-1] == "shared agent"
    worlds = arms[0].worlds or {}
    assert matrices[1]["rates"][-1] == pytest.approx([worlds[w] for w in matrices[1]["worlds"]])
    other = replace(arms[1], matrix=replace(arms[1].matrix, worlds=("w", "x", "y", "z")))  # type: ignore[type-var]
    assert [m["seed"] for m in groups_of(arms[0], other)[0].plain()["matrices"]] == [0, 1]


def test_differences_are_paired_by_seed() -> None:
    a = groups_of(*(at_rate("a", s, r) for s, r in enumerate((0.50, 0.70, 0.90))))[0]
    b = groups_of(*(at_rate("b", s, r) for s, r in enumerate((0.48, 0.66, 0.88))))[0]
    found = difference(a, b, label="a minus b")
    assert found is not None
    assert found["mean"] == pytest.approx(0.0267, abs=1e-4)
    assert (found["low"], found["high"]) == pytest.approx(t_interval([0.02, 0.04, 0.02]), abs=1e-4)
    assert found["paired"] is True
    lonely = groups_of(at_rate("c", 7, 0.5))[0]
    assert difference(a, lonely) is None
    assert difference(a, None) is None


def test_cost_is_the_mean_of_a_run() -> None:
    arms = [synthetic_arm("a", s) for s in (0, 1)]
    dear = replace(arms[1], cpu_seconds=100.0, cost=replace(arms[1].cost, tokens=3e6))
    cost = groups_of(arms[0], dear)[0].plain()["cost"]
    assert cost["runs"] == 2
    assert cost["cpu_seconds"] == pytest.approx(73.0)
    assert cost["tokens"] == pytest.approx((1.05e6 + 3e6) / 2)
