"""The shop's variants, whose floors are known in closed form (what a policy that knows the content but not its world can reach)."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.webshop.generate import ensure_generated
from envs.webshop.world import WebShopWorld
from pipeline.diagnose import Diagnosis, Settings, diagnose
from tests.pipeline.diagnose.cases import clients_in

SETTINGS = Settings(tasks=12, deviations=6, walks=2)


@pytest.fixture(scope="module")
def shop() -> WebShopWorld:
    folder = ensure_generated(None, n=400, seed=0)
    return WebShopWorld(Path(folder), max_steps=8, heldout=400, results_per_page=4)


def diagnosed(shop: WebShopWorld, *variants: str) -> Diagnosis:
    return diagnose(shop, clients_in(shop, variants, n=2 * len(variants)), SETTINGS)


def test_another_button_completes_the_purchase(shop: WebShopWorld) -> None:
    found = diagnosed(shop, *(f"checkout:{control}" for control in ("buy_now", "description", "features", "reviews")))
    assert found.verdict.kind == "conflict"
    assert found.gap.value == pytest.approx(0.75)
    assert found.verdict.floor == pytest.approx(0.5)
    assert found.readings.best is not None
    assert found.readings.best.bits == 0.0
    # Pages before the purchase are the same: only the last action of a path is answered differently.
    assert 0 < found.conditions.delta_eff < 0.3


@pytest.mark.parametrize("reveal", ["name", "cue", "hint"])
def test_a_shop_that_reveals_its_button(shop: WebShopWorld, reveal: str) -> None:
    found = diagnosed(shop, f"checkout:buy_now+{reveal}", f"checkout:description+{reveal}")
    assert found.verdict.kind == "revealed"
    assert found.conditions.turn == 0
    assert found.verdict.conflict < 0.05


def test_controls_that_no_oracle_uses(shop: WebShopWorld) -> None:
    found = diagnosed(shop, "navigation:control", "navigation:next_back")
    assert found.verdict.kind == "off_path"
    assert found.pairs[0].everywhere.value > 0
    assert found.conditions.delta_eff == 0.0


def test_rows_in_another_order_are_readable(shop: WebShopWorld) -> None:
    found = diagnosed(shop, "rank_wrapper:control", "rank_wrapper:invert")
    ranking = found.rankings[0]
    assert found.verdict.conflict < 0.05
    assert found.verdict.kind in ("same_ranking", "felt")
    assert ranking.agree.value + ranking.offered + ranking.noticed > 0.95
    # One that holds to places loses half.
    assert found.gap.value > 0.3


def test_twins_that_show_only_on_their_own_page_can_be_told_by_trying(shop: WebShopWorld) -> None:
    recoverable = diagnosed(shop, "lookalike:recoverable_first", "lookalike:recoverable_last")
    assert recoverable.verdict.kind == "felt"
    assert recoverable.rankings[0].noticed > 0.9
    hidden = diagnosed(shop, "lookalike:hidden_first", "lookalike:hidden_last")
    assert hidden.verdict.kind == "conflict"
    assert hidden.gap.value == pytest.approx(0.5, abs=0.1)


def test_severity_zero_is_one_world(shop: WebShopWorld) -> None:
    found = diagnosed(shop, "rank_wrapper:invert@0", "checkout:reviews@0")
    assert (found.verdict.kind, found.worlds) == ("alike", 1)
