from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.document import asset
from pipeline.report.tale import write_tale
from pipeline.reproduce.results import Missing, Results
from tests.browser import Browser, browser, browser_process  # noqa: F401
from tests.pipeline.report.tale_cases import full_results

ROOT = Path(__file__).resolve().parents[3]
NASTY = '<img src=x onerror="document.title=1"></script><script>document.title="owned"</script>=1+1'
WIDGETS = ("uniform", "task", "ladder", "bandit", "hatches", "matrix", "drift", "cost", "compare")
PLOTS = (
    "uniform", "task", "task-differences", "ladder", "ladder-curve", "bandit", "hatches", "hatches-curve", "drift", "cost", "compare",
)  # fmt: skip


@pytest.fixture(scope="module")
def results() -> Results:
    return full_results()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, results: Results) -> Path:
    return write_tale(results, tmp_path_factory.mktemp("tale") / "tale.html")


class Tale:
    """The page in the browser, by its controls."""

    def __init__(self, window: Browser) -> None:
        self.window = window

    def pick(self, widget: str, label: str) -> None:
        """Choose a radio button by what it says."""
        script = (
            "const [w, l] = arguments; const b = [...document.querySelectorAll(`#${w} .seg label`)].find(x => x.innerText.trim() === l);"
        )
        assert self.window.js(
            script + "if (!b || b.querySelector('input').disabled) return false; b.querySelector('input').click(); return true",
            widget,
            label,
        ), label

    def slide(self, widget: str, position: int) -> None:
        """Move the widget's slider."""
        script = "const i = document.querySelector(`#${arguments[0]} input[type=range]`); i.value = arguments[1];"
        self.window.js(script + "i.dispatchEvent(new Event('input'))", widget, position)

    def select(self, widget: str, label: str) -> None:
        """Choose an entry of the first list that has it."""
        script = "const [w, l] = arguments; for (const s of document.querySelectorAll(`#${w} select`)) for (const o of s.options)"
        self.window.js(script + "if (o.text === l) { s.value = o.value; s.dispatchEvent(new Event('change')); return }", widget, label)

    def trace(self, plot: str, name: str) -> dict[str, Any] | None:
        """The last trace of that name in Plotly's own data."""
        script = "const t = document.getElementById('plot-' + arguments[0]).data"
        script += ".filter(t => t.name === arguments[1] && t.hoverinfo !== 'skip').at(-1);"
        found: dict[str, Any] | None = self.window.js(
            script + "return t ? {x: t.x, y: t.y, opacity: t.opacity ?? 1, size: t.marker?.size} : null", plot, name
        )
        return found

    def said(self, widget: str) -> str:
        """What the widget says below its plots."""
        return self.window.text(f"#{widget} .readout")

    def disabled(self, widget: str) -> list[str]:
        """Radio buttons that cannot be chosen."""
        script = "return [...document.querySelectorAll(`#${arguments[0]} .seg input:disabled`)].map(i => i.parentElement.innerText.trim())"
        return list(self.window.js(script, widget))


@pytest.fixture
def tale(page: Path, browser: Browser) -> Iterator[Tale]:  # noqa: F811
    browser.open(page, 1280)
    yield Tale(browser)
    assert browser.errors() == []
    assert browser.requests() == []


def mean(results: Results, name: str, value: Callable[[Any], float]) -> float:
    found = [value(arm) for arm in results.arms if arm.name == name]
    return sum(found) / len(found)


def test_the_page_of_sixty_arms_is_small_whole_and_asks_for_nothing_outside(page: Path, results: Results) -> None:
    text = page.read_text()
    assert len({arm.name for arm in results.arms}) >= 60
    assert len(results.arms) >= 180
    assert len(text.encode()) < 3_000_000
    assert "default-src 'none'" in text
    ours = text.replace(asset("vendor/plotly-basic.min.js"), "")
    assert len(ours) < len(text) - 1_000_000
    assert not re.search(r'(src|href)="(https?:)?//', ours)
    assert "Permission is hereby granted, free of charge" in text
    assert [p.name for p in page.parent.iterdir()] == ["tale.html"]


def test_every_widget_has_one_sentence_its_sources_and_its_data(page: Path) -> None:
    text = page.read_text()
    for name in WIDGETS:
        part = text.split(f'<section id="{name}" class="widget">', 1)[1].split("</section>", 1)[0]
        caption = re.search(r'<p class="caption">(.*?)</p>', part)
        assert caption
        assert 40 < len(caption.group(1)) < 330
        assert caption.group(1).count(". ") == 0
        assert "data-save" in part
        assert "seeds 0, 1, 2" in part
        assert "fedagent reproduce tale --seeds 3" in part


def test_texts_from_results_stay_text(tmp_path: Path) -> None:
    from dataclasses import replace

    from tests.pipeline.reproduce.synthetic import synthetic_results

    whole = synthetic_results((0,))
    arms = tuple(replace(arm, label=NASTY) if arm.name == "buy4" else arm for arm in whole.arms)
    text = write_tale(replace(whole, arms=arms, command=NASTY, machine=NASTY), tmp_path / "x.html").read_text()
    assert "<img" not in text.replace('"<img', "")
    assert text.count("</script>") == 2


def test_the_wheel_holds_what_the_page_is_made_of() -> None:
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["pipeline"]
    assets = [p for p in (ROOT / "pipeline" / "report" / "assets").rglob("*") if p.is_file()]
    assert any(p.name == "plotly-basic.min.js" for p in assets)
    for path in assets:
        inside = path.relative_to(ROOT / "pipeline").as_posix()
        assert any(fnmatch.fnmatch(inside, glob.replace("**/", "*")) for glob in globs), inside


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_draws_everything_and_neither_complains_nor_loads(page: Path, browser: Browser, width: int, scheme: str) -> None:  # noqa: F811
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        browser.open(page, width)
        assert browser.js("return document.title") == "The asymmetric tale, trained anew"
        assert browser.overflow() <= 0
        wide = browser.js(
            "return [...document.querySelectorAll('.plot')].map(p => [p.id, p.querySelector('.main-svg')?.clientWidth, p.clientWidth])"
        )
        assert {name for name, _, _ in wide} == {f"plot-{name}" for name in PLOTS}
        for name, drawn, room in wide:
            assert drawn is not None, name
            assert 250 < drawn <= room + 1, (name, drawn, room)
        assert browser.count("#plot-matrix td") >= 8
        ink = browser.js("return document.getElementById('plot-uniform')._fullLayout.font.color")
        assert ink == ("#1c1e21" if scheme == "light" else "#e8eaed")
        assert browser.errors() == []
        assert browser.requests() == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_every_control_has_a_name_and_can_be_reached_by_the_keyboard(tale: Tale) -> None:
    nameless = tale.window.js(
        "return [...document.querySelectorAll('main input, main select, main button')].filter(c => !(c.innerText.trim() || c.ariaLabel"
        " || c.labels?.[0]?.innerText.trim() || c.title)).map(c => c.outerHTML)"
    )
    assert nameless == []
    assert (
        tale.window.js("return [...document.querySelectorAll('main input, main select, main button')].filter(c => c.tabIndex < 0).length")
        == 0
    )
    from selenium.webdriver.common.keys import Keys

    before = tale.trace("uniform", "federated")
    radio = tale.window.driver.find_element("css selector", "#uniform .seg input[value=grpo]")
    radio.send_keys(Keys.ARROW_RIGHT)
    assert tale.trace("uniform", "federated") != before
    slider = tale.window.driver.find_element("css selector", "#uniform input[type=range]")
    slider.send_keys(Keys.ARROW_LEFT)
    assert tale.said("uniform").startswith("After round 14")
    assert slider.get_attribute("aria-valuetext") == "round 14 of 15"


def test_dragging_through_training_moves_curves_and_numbers(tale: Tale, results: Results) -> None:
    whole = tale.trace("uniform", "federated")
    assert whole is not None
    assert whole["x"] == [0, 5, 10, 15]
    end = mean(results, "uniform", lambda arm: arm.mean_worlds)
    assert whole["y"][-1] == pytest.approx(end, abs=1e-4)
    assert f"{100 * end:.1f}%" in tale.said("uniform")
    tale.slide("uniform", 7)
    part = tale.trace("uniform", "federated")
    assert part is not None
    assert part["x"] == [0, 5]
    middle = mean(results, "uniform", lambda arm: arm.curve[1].mean_worlds)
    assert tale.said("uniform").startswith("After round 7 (2,560 episodes):")
    assert f"{100 * middle:.1f}%" in tale.said("uniform")
    tale.window.click("#uniform button[aria-label='Round before']")
    assert tale.said("uniform").startswith("After round 6")
    tale.pick("uniform", "training episodes")
    trained = tale.trace("uniform", "federated")
    assert trained is not None
    assert trained["y"][-1] == pytest.approx(mean(results, "uniform", lambda arm: arm.curve[1].train), abs=1e-4)


def test_playing_runs_through_training_and_stops(tale: Tale) -> None:
    tale.window.click("#uniform .play")
    assert tale.said("uniform").startswith("After round 0")
    script = (
        "const done = arguments[0]; const look = () => document.querySelector('#uniform .readout').innerText.startsWith('After round 1 ')"
    )
    moved = tale.window.driver.execute_async_script(
        script + " ? done(true) : setTimeout(look, 20); look(); setTimeout(() => done(false), 3000)"
    )
    assert moved
    tale.window.click("#uniform .play")
    assert tale.window.js("return document.querySelector('#uniform .play').ariaLabel") == "Play training"


def test_worlds_and_algorithms_change_the_curves(tale: Tale, results: Results) -> None:
    shop = tale.trace("uniform", "federated")
    tale.pick("uniform", "PPO")
    ppo = tale.trace("uniform", "federated")
    tale.pick("uniform", "GRPO")
    tale.pick("uniform", "ALFWorld")
    home = tale.trace("uniform", "federated")
    assert shop is not None
    assert ppo is not None
    assert home is not None
    assert shop["y"] != ppo["y"] != home["y"] != shop["y"]
    assert ppo["y"][-1] == pytest.approx(mean(results, "uniform-ppo", lambda arm: arm.mean_worlds), abs=1e-4)
    assert "Published, ALFWorld" in tale.said("uniform")
    assert tale.trace("uniform", "centralized") is not None
    assert tale.disabled("uniform") == []


def test_the_split_switch_brings_the_other_curve_forward(tale: Tale) -> None:
    def seen() -> dict[str, float]:
        traces = tale.window.js("return document.getElementById('plot-task').data.map(t => [t.name ?? '', t.opacity ?? 1])")
        return {name: opacity for name, opacity in traces if name}

    assert seen() == {"near-uniform": 0.3, "extreme": 1}
    tale.pick("task", "near-uniform")
    assert seen() == {"near-uniform": 1, "extreme": 0.3}
    before = tale.trace("task", "near-uniform")
    tale.pick("task", "coverage")
    assert tale.trace("task", "near-uniform") != before
    assert "coverage, near-uniform" in tale.said("task")
    tale.pick("task", "PPO")
    assert "not measured" in tale.said("task")
    tale.pick("task", "preference")
    assert "not measured" not in tale.said("task")


def test_stepping_down_the_ladder(tale: Tale, results: Results) -> None:
    def title() -> str:
        return tale.window.text("#rung-title")

    def opacities() -> list[float]:
        return list(
            tale.window.js("return document.getElementById('plot-ladder').data.find(t => t.name.startsWith('GRPO')).marker.opacity")
        )

    tale.slide("ladder", 5)
    assert title() == "four buttons"
    assert opacities()[:7] == [1, 1, 1, 1, 1, 1, 0.25]
    assert "floor: worlds contradict each other" in tale.said("ladder")
    assert "22.0%" in tale.said("ladder")
    assert "FedProx" in tale.said("ladder")
    tale.window.click("#ladder button[aria-label='Harder rung']")
    assert title() == "hidden look-alikes and four buttons"
    limits = tale.window.js("return document.getElementById('plot-ladder').data.find(t => t.name.startsWith('out of reach')).base")
    assert [round(v, 2) for v in limits[1:7]] == [0.88, 0.66, 0.44, 0.44, 0.22, 0.11]
    assert limits[0] == 1
    hatched = tale.window.js("return document.getElementById('plot-ladder').data.find(t => t.name.startsWith('out of reach')).x")
    assert [round(v, 2) for v in hatched[:7]] == [0, 0, 0.34, 0.56, 0.56, 0.78, 0.89]
    tale.slide("ladder", 1)
    assert title() == "rows in other orders"
    assert "slack: one shared policy could serve all" in tale.said("ladder")
    grpo = tale.window.js("return document.getElementById('plot-ladder').data[1].x[5]")
    assert grpo == pytest.approx(mean(results, "buy4", lambda arm: arm.mean_worlds), abs=1e-4)
    tale.pick("ladder", "PPO")
    ppo = tale.window.js("return document.getElementById('plot-ladder').data[1].x[5]")
    assert ppo == pytest.approx(mean(results, "buy4-ppo", lambda arm: arm.mean_worlds), abs=1e-4)
    for label, key in (
        ("worst world", "worst_world"),
        ("unperturbed control world", "control"),
        ("after local training", "after_local"),
        ("each client alone in its world", "alone"),
    ):
        tale.pick("ladder", label)
        shown = tale.window.js("return document.getElementById('plot-ladder').data[1].x[5]")
        assert shown == pytest.approx(mean(results, "buy4-ppo", lambda arm, key=key: getattr(arm, key)), abs=1e-4)
    tale.pick("ladder", "ALFWorld")
    assert title() == "words swapped"


def test_the_bandit_by_disagreement_and_by_what_can_be_known(tale: Tale, results: Results) -> None:
    hidden = tale.trace("bandit", "hidden")
    assert hidden is not None
    assert hidden["x"] == [0, 0.2, 0.5, 0.8, 1]
    for x, y in zip(hidden["x"], hidden["y"], strict=True):
        assert y >= x / 2 - 1e-9
    assert hidden["size"] == [8, 8, 8, 8, 14]
    tale.slide("bandit", 2)
    moved = tale.trace("bandit", "hidden")
    assert moved is not None
    assert moved["size"] == [8, 8, 14, 8, 8]
    gap = mean(results, "bandit-0.5-silent", lambda arm: arm.worst_gap)
    assert f"{gap:.3f}" in tale.said("bandit")
    assert "0.25" in tale.said("bandit")
    tale.pick("bandit", "revealed by a cue")
    forward = tale.trace("bandit", "revealed by a cue")
    back = tale.trace("bandit", "hidden")
    assert forward is not None
    assert back is not None
    assert (forward["opacity"], back["opacity"]) == (1, 0.35)


def test_hatches_matrix_drift_cost_and_comparison_follow_their_controls(tale: Tale) -> None:
    tale.pick("hatches", "name shown")
    shown = tale.trace("hatches-curve", "with the hatch")
    tale.pick("hatches", "button named")
    assert tale.trace("hatches-curve", "with the hatch") != shown
    assert "Hidden twin: four buttons." in tale.said("hatches")

    cells = tale.window.text("#plot-matrix")
    tale.select("matrix", "four buttons, GRPO")
    tale.select("matrix", "seed 1")
    assert tale.window.text("#plot-matrix") != cells
    assert tale.window.count("#plot-matrix td.home") == 4
    assert "shared agent" in tale.window.text("#plot-matrix")

    cosine = tale.trace("drift", "GRPO")
    tale.pick("drift", "policy divergence")
    assert tale.trace("drift", "GRPO") != cosine
    tale.select("drift", "four buttons")
    grpo, ppo = tale.trace("drift", "GRPO"), tale.trace("drift", "PPO")
    assert grpo is not None
    assert ppo is not None
    assert grpo["y"][0] > ppo["y"][0]

    tale.pick("cost", "tokens")
    assert tale.window.js("return document.getElementById('plot-cost').data.length") == 1
    tale.pick("cost", "time by phase")
    assert tale.window.js("return document.getElementById('plot-cost').data.map(t => t.name)") == [
        "rollout",
        "training",
        "averaging",
        "evaluation",
        "other",
    ]
    tale.select("cost", "Escape hatches: per run of an arm")
    assert tale.window.js("return document.getElementById('plot-cost').data[0].y.length") == 6

    drawn = tale.window.js("return document.getElementById('plot-compare').data.length")
    tale.window.click("#compare .ticks input:not(:checked)")
    assert tale.window.js("return document.getElementById('plot-compare').data.length") > drawn


def test_all_arms_sort_by_any_column(tale: Tale) -> None:
    tale.window.click("#arms thead th:nth-child(4) button")
    column = tale.window.js(
        "return [...document.querySelectorAll('#arms tbody tr')].map(r => r.cells[3].dataset.v).filter(v => v).map(Number)"
    )
    assert len(column) >= 60
    assert column == sorted(column)


def test_the_data_of_every_plot_can_be_taken_as_csv(tale: Tale, results: Results) -> None:
    tale.window.js(
        "window.saved = []; const make = URL.createObjectURL; window.blobs = [];"
        " URL.createObjectURL = (b) => { window.blobs.push(b); return make(b); };"
        " HTMLAnchorElement.prototype.click = function () { window.saved.push(this.download); };"
        "document.querySelectorAll('[data-save], [data-csv]').forEach(b => b.click());"
    )
    script = "const done = arguments[0]; Promise.all(window.blobs.map(b => b.text())).then(done)"
    texts = tale.window.driver.execute_async_script(script)
    files = dict(zip(tale.window.js("return window.saved"), texts, strict=True))
    assert set(files) == {*(f"tale-{name}.csv" for name in WIDGETS), "tale-arms.csv", "tale-published.csv"}
    tables = {
        name.removeprefix("tale-").removesuffix(".csv"): [line.split(",") for line in text.split("\r\n") if line]
        for name, text in files.items()
    }
    for name, rows in tables.items():
        assert len(rows) > 5, name
    end = mean(results, "uniform", lambda arm: arm.mean_worlds)
    head = tables["uniform"][0]
    assert head == [
        "arm",
        "family",
        "variant",
        "severity",
        "algorithm",
        "mode",
        "seeds",
        "metric",
        "round",
        "episodes",
        "mean",
        "low",
        "high",
    ]
    last = next(r for r in tables["uniform"] if r[0] == "alike clients" and r[4] == "grpo" and r[7] == "mean_worlds" and r[8] == "15")
    assert float(last[10]) == pytest.approx(end, abs=1e-4)
    assert float(last[11]) < end < float(last[12])
    silent = next(r for r in tables["bandit"] if r[0] == '"bandit' and "silent" in r[2] and "delta 0.8" in r[1] and "grpo" in r)
    assert float(silent[-6]) == pytest.approx(mean(results, "bandit-0.8-silent", lambda arm: arm.worst_gap), abs=1e-4)
    assert float(silent[-1]) == 0.4
    tokens = tables["cost"][0].index("tokens_per_run")
    assert float(tables["cost"][1][tokens]) == pytest.approx(1.05e6)
    assert {"bootstrap_low", "limit", "metric"} <= set(tables["ladder"][0])


def test_missing_arms_leave_a_usable_page_that_names_them(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    whole = full_results((0,))
    wanted = {
        arm.name for arm in whole.arms if arm.algorithm == "ppo" or arm.family in ("alfworld", "bandit") or arm.name == "coverage-near"
    }
    gaps = [Missing(name, None, "not run yet") for name in sorted(wanted)]
    path = write_tale(full_results((0,), gaps), tmp_path / "part.html")
    browser.open(path, 390)
    tale = Tale(browser)
    assert browser.overflow() <= 0
    for widget in ("uniform", "task", "ladder", "hatches"):
        assert "PPO" in tale.disabled(widget), widget
    assert "ALFWorld" in tale.disabled("uniform")
    assert "These results hold nothing for it yet" in browser.text("#bandit-missing")
    assert "coverage: near-uniform." in browser.js("return document.querySelector('#task .lacks').textContent")
    tale.pick("task", "coverage")
    assert "not measured" in tale.said("task")
    tale.slide("ladder", 3)
    assert "four buttons" not in browser.text("#rung-title")
    assert "bandit-0-memory: not run yet" in browser.js("return document.querySelector('#missing').textContent")
    assert "one seed; whiskers: 95 % Wilson interval" in browser.text("#ladder .source")
    assert browser.errors() == []


def test_results_without_any_arm_are_a_page_that_says_so(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    nothing = full_results((), [Missing("uniform", 0, "not run yet")])
    path = write_tale(nothing, tmp_path / "none.html")
    browser.open(path, 390)
    assert "uniform, seed 0: not run yet" in browser.text("#missing")
    assert "There are no arms." in browser.text("#arms")
    assert browser.errors() == []
    data = json.loads(path.read_text().split('id="data">', 1)[1].split("</script>", 1)[0])
    assert data["groups"] == []
