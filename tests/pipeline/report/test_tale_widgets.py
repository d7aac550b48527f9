from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipeline.report.tale.groups import Group, group_arms
from pipeline.report.tale.published import CITATIONS
from pipeline.report.tale.story import beside, headlines
from pipeline.report.tale.tables import shares
from pipeline.report.tale.widgets import counterpart, group_ids, hidden_twin, plan_widgets, splits
from pipeline.reproduce.results import Missing, Results
from tests.pipeline.report.tale_cases import RUNGS, full_results


def groups_of(results: Results) -> list[Group]:
    return group_arms([arm.plain() for arm in results.arms])


def without(*names: str) -> list[Group]:
    return groups_of(full_results(missing=[Missing(name, None, "not run") for name in names]))


@pytest.fixture(scope="module")
def groups() -> list[Group]:
    return groups_of(full_results())


def named(groups: list[Group], name: str) -> Group:
    return next(g for g in groups if g.text("name") == name)


def ladder(groups: list[Group], key: str = "webshop") -> list[dict[str, Any]]:
    spec = plan_widgets(groups).widgets["ladder"]
    rungs: list[dict[str, Any]] = next(x for x in spec["ladders"] if x["key"] == key)["rungs"]
    return rungs


def test_every_arm_is_in_a_widget_of_its_own_family(groups: list[Group]) -> None:
    widgets = plan_widgets(groups).widgets
    homes = {"uniform": "uniform", "task": "task", "environment": "ladder", "escape": "hatches", "bandit": "bandit", "alfworld": "ladder"}
    drawn = {name: group_ids(spec) for name, spec in widgets.items()}
    for g in groups:
        if g.text("name") != "alfworld-central":
            assert g.id in drawn[homes[g.text("family")]], g.title
        assert g.id in drawn["compare"]
        assert g.id in drawn["cost"]
    assert named(groups, "alfworld-central").id in drawn["uniform"]


def test_a_whole_file_lacks_only_what_it_does_not_hold(groups: list[Group]) -> None:
    lacks = plan_widgets(groups).lacks
    assert lacks["bandit"] == lacks["hatches"] == lacks["matrix"] == lacks["drift"] == []
    assert "WebShop, PPO: local." in lacks["uniform"]
    assert "WebShop, catalog split at 0.5: PPO." in lacks["ladder"]


def test_the_ladder_keeps_the_order_of_the_file_and_starts_from_alike_worlds(groups: list[Group]) -> None:
    rungs = ladder(groups)
    assert [r["label"] for r in rungs[:7]] == ["alike worlds", *(rung[1] for rung in RUNGS)]
    buy4 = rungs[5]
    assert set(buy4["arms"]) == {"grpo", "ppo"}
    assert buy4["kind"] == "floor"
    assert rungs[1]["kind"] == "slack"
    assert buy4["limit"] == pytest.approx(0.22)
    assert [d["label"] for d in buy4["differences"]][:2] == ["PPO minus GRPO", "PPO minus GRPO, clients after local training"]


def test_published_settings_are_a_ladder_of_their_own() -> None:
    whole = full_results((0,))
    settings = {"world.variant.reference": True}
    arms = tuple(replace(arm, settings=settings) if arm.name.startswith("catalog") else arm for arm in whole.arms)
    groups = groups_of(replace(whole, arms=arms))
    assert [r["label"] for r in ladder(groups, "published")] == ["alike worlds", "catalog split at 0.5", "catalog split at 1"]
    assert not any("catalog" in r["label"] for r in ladder(groups))
    lines = {x.citation.variant: x.ours for x in beside(groups) if x.citation.algorithm == "grpo" and x.citation.family == "environment"}
    ours = lines["catalog_split"]
    assert ours is not None
    assert ours.text("name") == "catalog_split-1.0"


def test_controls_stand_beside_their_rung(groups: list[Group]) -> None:
    rung = ladder(groups)[5]
    assert {groups[e["group"]].text("name") for e in rung["extra"]} == {"buy4-central", "buy4-prox", "buy4-batch"}
    assert any(d["label"] == "FedProx, GRPO minus the rung itself" for d in rung["differences"])
    assert [r["extra"] for r in ladder(groups)[1:5]] == [[], [], [], []]


def test_splits_take_the_smallest_and_the_largest_severity(groups: list[Group]) -> None:
    found = splits(groups)
    assert found["preference"]["near"]["ppo"].text("name") == "preference-near-ppo"
    assert found["joint"]["extreme"]["grpo"].text("name") == "joint-extreme"


def test_a_counterpart_has_the_same_algorithm(groups: list[Group]) -> None:
    twin = counterpart(named(groups, "buy4-hint-ppo"), groups)
    assert twin is not None
    assert twin.text("name") == "buy4-ppo"
    assert counterpart(named(groups, "uniform"), groups) is None
    plain = counterpart(named(groups, "buy4-prox"), groups)
    assert plain is not None
    assert plain.text("name") == "buy4"


def test_a_twin_that_was_not_run_is_missing_and_the_hatch_still_shown() -> None:
    groups = without("buy4", "buy4-ppo")
    assert hidden_twin(named(groups, "buy4-hint"), groups) is None
    plan = plan_widgets(groups)
    assert plan.lacks["hatches"][0] == "button named, GRPO: its hidden twin buy4."
    assert [h["label"] for h in plan.widgets["hatches"]["hatches"]] == ["button named", "name shown", "never met"]
    assert all(not h["twin"] for h in plan.widgets["hatches"]["hatches"])


def test_bandits_by_what_the_agent_can_know(groups: list[Group]) -> None:
    spec = plan_widgets(groups).widgets["bandit"]
    assert spec["deltas"] == [0.0, 0.2, 0.5, 0.8, 1.0]
    kinds = {k["key"]: k["arms"] for k in spec["kinds"]}
    assert groups[kinds["memory"]["grpo"]["0.5"]].text("twist") == "memory"
    assert groups[kinds["revealed"]["ppo"]["1"]].text("reveal") == "hint"
    fewer = plan_widgets(without("bandit-0.5-silent", "bandit-0.5-silent-ppo"))
    assert "hidden, GRPO: δ = 0.5." in fewer.lacks["bandit"]


def test_missing_parts_are_named() -> None:
    everything = [g for g in groups_of(full_results((0,))) if g.text("family") == "bandit"]
    plan = plan_widgets(everything)
    assert set(plan.widgets) == {"bandit", "cost", "compare"}
    assert plan.lacks["uniform"] == ["WebShop: no arm of alike clients.", "ALFWorld: no arm of alike clients."]
    assert "preference: extreme." in plan.lacks["task"]
    assert plan.lacks["hatches"] == ["every escape hatch."]


def test_headlines_say_what_the_arms_say(groups: list[Group]) -> None:
    told = {h.title: h for h in headlines(groups)}
    assert len(told) == 6
    gap = told["Two clients: the worst one's gap"]
    assert gap.small.startswith("floor 0.50 at disagreement 1; with a cue 0.02")
    assert float(gap.big) >= 0.5
    lowest = told["Contradicting worlds: from alike to the lowest rung"]
    ends = [named(groups, name).values["mean_worlds"].mean for name in ("uniform", "hid2buy4")]
    assert lowest.big == " → ".join(f"{100 * v:.0f}%" for v in ends)
    assert lowest.small.startswith("hidden look-alikes and four buttons, GRPO; no shared policy can pass 11%")
    ppo = told["PPO minus GRPO on contradicting worlds"]
    assert ppo.small.startswith("over 6 rungs")
    assert headlines([]) == []


def test_published_numbers_stand_beside_the_arm_they_are_of(groups: list[Group]) -> None:
    lines = beside(groups)
    assert len(lines) == len(CITATIONS)
    by = {
        (x.citation.family, x.citation.variant, x.citation.algorithm, x.citation.world, x.citation.mode, x.citation.split): x for x in lines
    }
    fields = by["environment", "field_subset", "grpo", "webshop", "federated", ""]
    assert fields.ours is not None
    assert fields.ours.text("name") == "field_subset-1.0"
    published, ours = shares(fields)
    assert published == pytest.approx(15.6 / 57.7)
    assert ours == pytest.approx(fields.ours.values["mean_worlds"].mean / named(groups, "uniform").values["mean_worlds"].mean)
    home = by["uniform", "", "grpo", "alfworld", "centralized", ""]
    assert home.ours is named(groups, "alfworld-central")
    assert by["task", "hardness", "ppo", "webshop", "federated", "near"].ours is None
