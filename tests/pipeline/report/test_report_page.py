from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline.report import write_report
from pipeline.report.data import read_report
from pipeline.report.page import render
from pipeline.runlog import RunLog
from tests.browser import Browser, browser, browser_process  # noqa: F401
from tests.pipeline.report.synthetic import evaluation, write_run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(write_run(tmp_path_factory.mktemp("run")))


def embedded(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    data: dict[str, object] = json.loads(found.group(1))
    return data


def test_the_page_is_small_whole_and_asks_for_nothing_outside(report: Path) -> None:
    text = report.read_text()
    assert len(text.encode()) < 300_000
    assert not re.search(r'(src|href)="(https?:)?//', text)
    assert "default-src 'none'" in text
    assert [p.name for p in report.parent.iterdir() if p.name.startswith(".")] == []


def test_headline_cost_and_configuration_are_on_the_page(report: Path) -> None:
    text = report.read_text()
    for part in (
        "25.0%",
        "82.7%",
        "[20.4, 30.2]",
        "+57.7 points",
        "300 tasks",
        "7,680",
        "46.5 MiB",
        "2,460,000",
        "python -m pipeline.run --run.name &#x27;demo shop",
    ):
        assert part in text, part
    for part in ("clients_per_round", "2.13.0", "episodes.html", "failures/round-0004-c005.txt"):
        assert part in text, part
    assert 'id="missing"' not in text


def test_texts_from_outside_stay_text(report: Path) -> None:
    text = report.read_text()
    assert "<img" not in text
    assert "&lt;img src=x" in text
    assert text.count("<script") == 2


def test_each_chart_has_its_table(report: Path) -> None:
    tables = embedded(report)["tables"]
    assert isinstance(tables, dict)
    assert set(re.findall(r'data-csv="([^"]+)"', report.read_text())) == set(tables)
    assert tables["success"]["rows"][0][:3] == ["held-out, sampled", 0, 0.25]
    assert len(tables["clients"]["rows"]) == 8


def test_many_clients_and_rounds_keep_the_page_small(tmp_path: Path) -> None:
    with RunLog(tmp_path / "metrics.jsonl") as log:
        log.write({"kind": "start", "config": {"federation": {"rounds": 500, "clients": 500}}})
        for r in range(501):
            log.write(evaluation(r, 100 + r % 150))
            for k in range(4):
                log.write({"kind": "client", "round": r, "client": f"c{(4 * r + k) % 500:03d}", "success": 0.5, "episodes": 8})
            log.write({"kind": "round", "round": r, "success": 0.5, "kl": 0.01, "phases": {"rollout": 1.0, "train": 2.0}})
    text = render(read_report(tmp_path))
    assert len(text.encode()) < 900_000
    assert "The first 200 of 500 clients" in text


def test_a_report_of_a_running_run_says_what_is_missing(tmp_path: Path) -> None:
    page = write_report(write_run(tmp_path, rounds=3, end=False, episodes=False))
    assert "3 of 15 rounds are done." in page.read_text()
    assert "episodes.html" not in page.read_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_it_fits_and_neither_complains_nor_loads(report: Path, browser: Browser, width: int) -> None:  # noqa: F811
    browser.open(report, width)
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.overflow() <= 0
    assert browser.js("return document.title") == "demo: report"
    shown = "narrow" if width == 390 else "wide"
    assert browser.js("return [...document.querySelectorAll('#success svg[role=img]')].filter(s => s.clientWidth).length") == 1
    assert browser.js(f"return document.querySelector('#success .{shown} svg').clientWidth") > 0.8 * min(width, 1040) - 80


def test_in_a_browser_points_tell_their_numbers_and_curves_can_be_hidden(report: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(report, 1280)
    browser.js("document.querySelector('.wide [data-series=sampled] .dot').focus()")
    assert browser.text("#tip") == "held-out, sampled, 0: 25.0% [20.4%, 30.2%]. 75 of 300 tasks"
    browser.click("[data-toggle=sampled]")
    assert browser.js("return getComputedStyle(document.querySelector('.wide [data-series=sampled]')).display") == "none"
    assert browser.js("return getComputedStyle(document.querySelector('.wide [data-series=greedy]')).display") != "none"


def test_in_a_browser_clients_sort_by_any_column(report: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(report, 1280)
    column = browser.js("return [...document.querySelectorAll('#clients th')].findIndex(h => h.textContent == 'Failed')")
    for _ in range(2):
        browser.click(f"#clients th:nth-child({column + 1}) button")
    assert browser.text("#clients tbody tr td") == "c005"
    cells = "return [...document.querySelectorAll('#clients ' + arguments[0])].map(c => c.innerText)"
    row = dict(zip(browser.js(cells, "th"), browser.js(cells, "tbody tr:first-child td"), strict=True))
    assert (row["Failed"], row["Visits"], row["Episodes"], row["Invalid"]) == ("1", "7", "896", "1.4%")


def test_in_a_browser_data_can_be_taken_as_csv(report: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(report, 1280)
    browser.js(
        "window.saved = []; const make = URL.createObjectURL; URL.createObjectURL = (blob) => {"
        " blob.text().then((t) => window.saved.push(t)); return make(blob); };"
        " HTMLAnchorElement.prototype.click = function () { window.name_of_file = this.download; };"
    )
    browser.click("#success [data-csv]")
    text = browser.driver.execute_async_script("const done = arguments[0]; setTimeout(() => done(window.saved[0]), 100);")
    lines = text.split("\r\n")
    assert lines[0] == "series,round,value,low,high"
    assert lines[1].startswith('"held-out, sampled",0,0.25,0.20')
    assert browser.js("return window.name_of_file") == "demo-success.csv"
