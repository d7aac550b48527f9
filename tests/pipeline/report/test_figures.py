"""The figures show the numbers of the results, and say where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.report import figures
from pipeline.report.tale import source_of
from pipeline.report.tale.story import Story, tell
from tests.pipeline.report.tale_cases import full_results

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def story() -> Story:
    return tell([source_of(full_results())])


@pytest.fixture(scope="module")
def empty() -> Story:
    return tell([])


def points(figure: Any) -> list[tuple[float, float]]:
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in figure.axes[0].lines if line.get_marker() == "o"]


def rows(figure: Any) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_a_row_for_every_rung_with_its_arms_and_its_limit(story: Story) -> None:
    figure = figures.ladder(story)
    rungs = story.widgets["ladder"]["ladders"][0]["rungs"]
    assert rows(figure) == [rung["label"] for rung in rungs]
    arms = [story.groups[number] for rung in rungs for number in rung["arms"].values()]
    assert [x for x, _ in points(figure)] == pytest.approx([100 * arm.values["mean_worlds"].mean for arm in arms])
    limits = [100 * rung["limit"] for rung in rungs if rung["kind"] == "floor"]
    drawn = [path.vertices[0][0] for marks in figure.axes[0].collections for path in marks.get_paths()]
    assert drawn == pytest.approx(limits)


def test_both_algorithms_share_the_row_of_their_mode(story: Story) -> None:
    figure = figures.uniform(story)
    assert len(rows(figure)) == len(set(rows(figure))) < len(points(figure))


def test_splits_and_hatches_are_rows(story: Story) -> None:
    assert "preference, near-uniform" in rows(figures.tasks(story))
    assert rows(figures.hatches(story)).count("   hidden twin") == len(story.widgets["hatches"]["hatches"])


def test_a_curve_per_arm(story: Story) -> None:
    arms = [group for group in story.groups if group.text("family") == "uniform"][:3]
    lines = figures.curves(arms).axes[0].lines
    assert [line.get_label() for line in lines] == [arm.title for arm in arms]
    assert lines[0].get_ydata()[-1] == pytest.approx(100 * arms[0].values["mean_worlds"].mean, abs=0.01)
    assert figures.drift(arms).axes[0].lines


def test_the_exact_bandit_is_the_theory() -> None:
    one, other, worst, mean = figures.swap(0.5).axes[0].lines
    assert list(mean.get_ydata()) == pytest.approx([0.25] * 51)
    assert min(worst.get_ydata()) == pytest.approx(0.25)
    assert (one.get_ydata()[0], other.get_ydata()[0]) == pytest.approx((0.5, 0.0))


def test_the_matrix_marks_homes(story: Story) -> None:
    bold = [text.get_text() for text in figures.matrix(story, "buy4").axes[0].texts if text.get_weight() == "bold"]
    matrix = next(g for g in story.groups if g.text("name") == "buy4").plain()["matrices"][0]
    own = [matrix["rates"][row][matrix["worlds"].index(home)] for row, home in enumerate(matrix["homes"])]
    assert bold == [f"{100 * rate:.0f}" for rate in own]


@pytest.mark.parametrize("draw", [figures.uniform, figures.tasks, figures.ladder, figures.hatches])
def test_what_is_not_there_is_said(empty: Story, draw: Any) -> None:
    assert [text.get_text() for text in draw(empty).axes[0].texts] == ["not in these results"]


def test_sentences_carry_the_numbers(story: Story, empty: Story) -> None:
    line = next(line for line in story.headlines if line.widget == "uniform")
    assert line.big in figures.sentence(story, "uniform")
    assert figures.sentence(empty, "bandit").startswith("Not in these results:")
    assert figures.sentence(story, "matrix") == ""


def test_trained_stands_beside_the_best() -> None:
    axes = figures.severity([("none", 0.7, 0.75), ("all", 0.5, 0.5)]).axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([70, 50])
