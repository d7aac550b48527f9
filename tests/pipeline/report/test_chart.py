from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from pipeline.report.chart import Bar, Chart, Point, Series, axis, line_chart, number, round_ticks, spark, stacked_columns


def drawn(chart: Chart, width: int = 400, height: int = 200) -> ElementTree.Element:
    return ElementTree.fromstring(line_chart(chart, width, height))


def test_points_land_where_the_axis_says() -> None:
    # 400 x 200 with margins 46 left, 12 right, 10 top, 34 bottom: x 0..10 spans 46..388, y 0..1 spans 166..10.
    series = Series("s", "a", [Point(0, 0.0), Point(5, 0.5), Point(10, 1.0)])
    circles = drawn(Chart("c", "t", [series], percent=True)).findall(".//circle")
    assert [(c.get("cx"), c.get("cy")) for c in circles] == [("46.0", "166.0"), ("217.0", "88.0"), ("388.0", "10.0")]
    assert [c.get("data-tip") for c in circles] == ["a, 0: 0.0%", "a, 5: 50.0%", "a, 10: 100.0%"]


def test_bands_and_whiskers_follow_the_intervals() -> None:
    points = [Point(0, 0.5, 0.4, 0.6, "3 of 6"), Point(1, 0.5, 0.25, 0.75)]
    band = drawn(Chart("c", "t", [Series("s", "a", points, style="band")], percent=True))
    assert band.find(".//polygon").get("points") == "46.0,72.4 388.0,49.0 388.0,127.0 46.0,103.6"  # type: ignore[union-attr]
    assert band.find(".//circle").get("data-tip") == "a, 0: 50.0% [40.0%, 60.0%]. 3 of 6"  # type: ignore[union-attr]
    whiskers = drawn(Chart("c", "t", [Series("s", "a", points, style="bars")], percent=True)).findall(".//line[@class='whisker']")
    assert [(w.get("y1"), w.get("y2")) for w in whiskers] == [("103.6", "72.4"), ("127.0", "49.0")]


def test_a_single_point_and_a_constant_are_drawn() -> None:
    assert len(drawn(Chart("c", "t", [Series("s", "a", [Point(3, 0.02)])])).findall(".//circle")) == 1
    assert "nan" not in line_chart(Chart("c", "t", [Series("s", "a", [Point(1, -2.0), Point(2, -2.0)])]), 300, 130)


def test_long_series_stay_small_and_keep_their_last_point() -> None:
    series = Series("s", "a", [Point(i, i / 1000) for i in range(1001)])
    circles = drawn(Chart("c", "t", [series], percent=True)).findall(".//circle")
    assert len(circles) <= 152
    assert circles[-1].get("data-tip") == "a, 1000: 100.0%"


def test_texts_are_escaped() -> None:
    svg = line_chart(Chart("c", '"><script>', [Series('"k', "<b>", [Point(0, 1.0, note="&")])]), 300, 100)
    assert "<script>" not in svg
    assert "<b>" not in svg
    ElementTree.fromstring(svg)


def test_columns_stack_to_their_sum() -> None:
    svg = stacked_columns([Bar("1", [1.0, 3.0]), Bar("2", [0.0, 2.0])], ["rollout", "train"], [0, 1], 400, 204, "time")
    rects = ElementTree.fromstring(svg).findall(".//rect")
    # 160 units for 4 seconds.
    assert [float(r.get("height", 0)) for r in rects] == [40.0, 120.0, 80.0]
    assert float(rects[1].get("y", 0)) + 120.0 == float(rects[0].get("y", 0))
    assert rects[1].get("data-tip") == "round 1: train 3.0 s"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 1.0], [0, 0.25, 0.5, 0.75, 1.0]),
        ([0.4, 0.9], [0, 0.25, 0.5, 0.75, 1.0]),
        ([0.02], [0, 0.01, 0.02, 0.03]),
        ([0.0], [0, 0.25, 0.5, 0.75, 1]),
    ],
)
def test_axis_has_round_ticks_that_span_the_values(values: list[float], expected: list[float]) -> None:
    assert axis(values, 4) == pytest.approx(expected)


def test_axis_spans_negative_and_close_values() -> None:
    for values in ([-3.0, -1.0], [100.0, 101.0], [1e-6, 3e-6], [-2.0, -2.0], [7, 7], [0.02, 0.02 + 1e-17], [-1e-20, 1e-20], [0.0, 1e-15]):
        ticks = axis(values, 4)
        assert ticks[0] <= min(values) <= max(values) <= ticks[-1]
        assert 2 <= len(ticks) <= 8
        assert len(set(ticks)) == len(ticks)


def test_round_ticks_are_whole_and_few() -> None:
    assert round_ticks(0, 15, 4) == [0, 5, 10, 15]
    assert round_ticks(1, 3, 8) == [1, 2, 3]
    assert len(round_ticks(0, 500, 6)) <= 6


def test_number_is_short() -> None:
    assert [number(v) for v in (3.0, 0.0123456, 2e-5, 15300.0)] == ["3", "0.0123", "2e-05", "15300"]


def test_spark_of_one_value_and_of_none() -> None:
    assert re.search(r'cx="3.0" cy="3.0"|cx="3" cy="3.0"', spark([1.0]))
    assert spark([]) == ""
