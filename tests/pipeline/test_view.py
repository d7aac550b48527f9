from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from pipeline.view import write_view
from tests.browser import Browser, browser, browser_process  # noqa: F401
from tests.pipeline.report.synthetic import episode, write_episodes


def embedded(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return json.loads(found.group(1))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("episodes")
    files = [write_episodes(folder / "train-c001.jsonl", 6), write_episodes(folder / "train-c002.jsonl", 3, client="c002")]
    return write_view(files, folder / "episodes.html", title="demo")


def test_all_episodes_are_embedded_with_what_is_shown(page: Path) -> None:
    data = embedded(page)
    assert (data["title"], data["total"], len(data["episodes"])) == ("demo", 9, 9)
    first = data["episodes"][0]
    assert (first["file"], first["task_id"], first["turns"][1]["action"]) == ("train-c001", "goal-0", "click[b01]")


def test_a_limit_takes_an_even_selection(tmp_path: Path) -> None:
    files = [write_episodes(tmp_path / "a.jsonl", 50, client="a"), write_episodes(tmp_path / "b.jsonl", 50, client="b")]
    data = embedded(write_view(files, tmp_path / "out" / "e.html", limit=10))
    assert data["total"] == 100
    assert [e["client"] for e in data["episodes"]] == ["a"] * 5 + ["b"] * 5
    assert len({(e["client"], e["task_id"]) for e in data["episodes"]}) == 10


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = write_episodes(tmp_path / "a.jsonl", 2)
    path.write_text(path.read_text() + '{"schema": 1, "task')
    assert embedded(write_view([path], tmp_path / "e.html"))["total"] == 2


def test_numbers_without_a_json_form_are_left_out(tmp_path: Path) -> None:
    odd = episode(0)
    odd["turns"][0]["logprob"] = float("nan")
    (tmp_path / "a.jsonl").write_text(json.dumps(odd) + "\n")
    (only,) = embedded(write_view([tmp_path / "a.jsonl"], tmp_path / "e.html"))["episodes"]
    assert only["turns"][0]["logprob"] is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("oops\n", "a.jsonl, line 1: not JSON"),
        ('{"kind": "round"}\n', "a.jsonl, line 1: schema None"),
        ("", "save_episodes"),
    ],
)
def test_files_that_hold_no_episodes_say_so(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(DataError, match=complaint):
        write_view([tmp_path / "a.jsonl"], tmp_path / "e.html")
    assert not (tmp_path / "e.html").exists()


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such episode file"):
        write_view([tmp_path / "a.jsonl"], tmp_path / "e.html")


def test_no_text_can_leave_its_element(page: Path) -> None:
    text = page.read_text()
    assert "<img" not in text
    assert text.count("</script>") == 2


@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_every_episode_opens_without_complaint(page: Path, browser: Browser, width: int) -> None:  # noqa: F811
    browser.open(page, width)
    for index in range(9):
        browser.click(f"#list button[data-index='{index}']")
        assert browser.count("#episode .turn") == 3
        assert browser.overflow() <= 0
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.js("return document.title") == "demo: episodes"


def test_in_a_browser_markup_in_texts_is_shown_as_text(page: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(page, fragment="#1")
    assert browser.count("#episode img") == 0
    assert browser.text("#episode h2").startswith('<img src=x onerror="document.title=1"></script><script>')
    assert "</script>" in browser.text("#episode .turn:nth-of-type(4) pre")
    assert browser.count("script") == 2


def test_in_a_browser_a_turn_tells_action_validity_reward_and_probability(page: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(page, fragment="#1")
    turn = browser.text("#episode .turn.invalid")
    # -0.2 over 4 tokens: exp(-0.05) = 95 %.
    for part in ("click[b01]", "invalid action", "reward -0.1", "log-prob -0.20 (mean token 95%)", "71 + 4 tokens"):
        assert part in turn


def test_in_a_browser_filters_narrow_the_list(page: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(page)

    def choose(identifier: str, value: str) -> int:
        browser.js(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))",
            identifier,
            value,
        )
        return browser.count("#list button")

    assert choose("client", "c002") == 3
    assert choose("outcome", "yes") == 1
    assert "c002" in browser.text("#episode .chips")
    assert choose("client", "") == 3
    assert choose("outcome", "no") == 6
    assert choose("round", "2") == 3
    assert choose("text", "SCRIPT") == 2
    assert choose("text", "no such text") == 0
    assert browser.text("#list") == "No episode matches."


def test_in_a_browser_worlds_are_told_apart_where_there_are_several(tmp_path: Path, page: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(page)
    assert browser.js("return document.getElementById('worlds').offsetParent === null")
    assert browser.count("#list .world") == 0
    files = [
        write_episodes(tmp_path / "a.jsonl", 2, client="c001", variant="rank_wrapper:invert"),
        write_episodes(tmp_path / "b.jsonl", 3, client="c002", variant="rank_wrapper:shuffle@0.5+name"),
    ]
    browser.open(write_view(files, tmp_path / "e.html"), 390)
    assert browser.count("#list .world") == 5
    assert browser.overflow() <= 0
    browser.js(
        "const e = document.getElementById('world'); e.value = arguments[0]; e.dispatchEvent(new Event('input'))",
        "rank_wrapper:invert",
    )
    assert browser.count("#list button") == 2
    for part in ("client c001", "world rank_wrapper:invert"):
        assert part in browser.text("#episode .chips")
    assert browser.errors() == []


def test_in_a_browser_arrow_keys_walk_through_the_list(page: Path, browser: Browser) -> None:  # noqa: F811
    browser.open(page)
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        browser.js("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key)
    assert browser.js("return location.hash") == "#1"
    assert episode(1)["task_id"] in browser.text("#episode .task-text")
