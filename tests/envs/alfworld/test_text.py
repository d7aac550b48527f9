"""Queries over facts, names of things and derivation of texts, on worked examples."""

from __future__ import annotations

import pytest

from envs.alfworld.facts import Condition, Facts, Placeholder, Query
from envs.alfworld.text import shown_names

KINDS = {"a": "object", "b": "object", "c": "object", "s": "receptacle", "t": "receptacle", "l": "location"}
OBJECT, OTHER, PLACE, SPOT = (("o", "object"), ("p", "object"), ("r", "receptacle"), ("l", "location"))


def query(*conditions: tuple[str, Placeholder, Placeholder]) -> Query:
    return tuple(Condition(name, (one, two), ((one[1], two[1]),)) for name, one, two in conditions)


@pytest.fixture
def facts() -> Facts:
    rows = [("in", ("c", "s")), ("in", ("a", "s")), ("in", ("b", "t")), ("at", ("s", "l")), ("at", ("t", "l")), ("like", ("a", "a"))]
    return Facts([*rows, ("like", ("a", "b"))], KINDS)


def test_answers_come_in_the_order_of_arguments(facts: Facts) -> None:
    assert facts.all(query(("in", OBJECT, PLACE)), {}) == [{OBJECT: "a", PLACE: "s"}, {OBJECT: "b", PLACE: "t"}, {OBJECT: "c", PLACE: "s"}]
    assert facts.all(query(("in", OBJECT, PLACE)), {PLACE: "s"}) == [{OBJECT: "a", PLACE: "s"}, {OBJECT: "c", PLACE: "s"}]
    joined = facts.all(query(("at", PLACE, SPOT), ("in", OBJECT, PLACE)), {})
    assert [answer[OBJECT] for answer in joined] == ["a", "c", "b"]


def test_two_placeholders_never_stand_for_one_thing(facts: Facts) -> None:
    assert facts.all(query(("like", OBJECT, OTHER)), {}) == [{OBJECT: "a", OTHER: "b"}]
    assert facts.all(query(("like", OBJECT, OBJECT)), {}) == [{OBJECT: "a"}]
    assert not facts.any(query(("like", OBJECT, OTHER)), {OTHER: "a"})


def test_toggling_a_fact_changes_the_answers(facts: Facts) -> None:
    wanted = query(("in", OBJECT, PLACE))
    assert facts.any(wanted, {OBJECT: "b"})
    facts.toggle(("in", ("b", "t")))
    assert not facts.any(wanted, {OBJECT: "b"})
    facts.toggle(("in", ("b", "s")))
    assert [answer[OBJECT] for answer in facts.all(wanted, {PLACE: "s"})] == ["a", "b", "c"]
    assert not facts.any(query(("not_in", OBJECT, PLACE)), {})
    facts.toggle(("not_in", ("b", "t")))
    assert facts.all(query(("not_in", OBJECT, PLACE)), {}) == [{OBJECT: "b", PLACE: "t"}]


def test_numbers_run_downward_over_the_sorted_ids() -> None:
    ids = ["cabinet_bar_2", "cabinet_bar_1", "sink_bar_1_bar_sinkbasin", "loc_1", "pan", "cabinet_bar_10", "loc_bar_1_bar_2"]
    assert shown_names(ids) == {
        "cabinet_bar_1": "cabinet 3",
        "cabinet_bar_10": "cabinet 2",
        "cabinet_bar_2": "cabinet 1",
        "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "loc_1": "loc_1 ",
        "loc_bar_1_bar_2": "loc 1",
        "pan": "pan ",
    }
