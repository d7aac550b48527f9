"""The results file: what is written can be read, what is wrong is named, and two files become one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import DataError
from pipeline.reproduce.results import Missing, Results, load_results, merge, parse_results, save_results
from tests.pipeline.reproduce.synthetic import synthetic_arm, synthetic_results


def test_round_trip(tmp_path: Path) -> None:
    results = synthetic_results((0, 1))
    path = save_results(results, tmp_path / "deep" / "tale.json")
    assert load_results(path) == results
    assert [p.name for p in path.parent.iterdir()] == ["tale.json"]
    assert path.stat().st_size < 300_000


def arm_of(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = value["arms"][0]
    return found


WRONG: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda v: v.update(schema=2), "has schema 2, this program reads schema 1: use a newer"),
    (lambda v: v.update(schema=0), "has schema 0, this program reads schema 1: run `fedagent reproduce` again"),
    (lambda v: v.pop("schema"), "has no schema version"),
    (lambda v: v.pop("machine"), "machine: field required"),
    (lambda v: v.update(host="x"), "host = 'x': unexpected keyword argument"),
    (lambda v: arm_of(v).pop("control"), "arm 'uniform', seed 0: control: field required"),
    (lambda v: arm_of(v).update(control=1.2), "arm 'uniform', seed 0: control = 1.2: input should be less than or equal to 1"),
    (lambda v: arm_of(v).update(mean_worlds=float("nan")), "mean_worlds"),
    (lambda v: arm_of(v).update(seed=-1), "seed = -1"),
    (lambda v: arm_of(v).update(rounds=1.5), "rounds = 1.5"),
    (lambda v: arm_of(v).update(kind="hard"), "kind = 'hard': input should be 'floor', 'slack' or 'none'"),
    (lambda v: arm_of(v)["curve"][1].update(train=-0.1), "curve.1.train = -0.1"),
    (lambda v: arm_of(v)["curve"].reverse(), "curve: rounds must rise"),
    (lambda v: v["arms"].append(arm_of(v)), "arm 'uniform', seed 0: is there twice"),
    (lambda v: v.update(complete=False), "complete = False, but 0 arms are missing"),
    (lambda v: v["arms"].append({**arm_of(v), "seed": 7, "key": "other"}), "seeds 0 and 7 were run with different settings"),
]


@pytest.mark.parametrize(("spoil", "told"), WRONG, ids=[told[:30] for _, told in WRONG])
def test_what_is_wrong_is_named(spoil: Callable[[dict[str, Any]], object], told: str) -> None:
    value = json.loads(json.dumps(synthetic_results((0,)).plain()))
    parse_results(value)
    spoil(value)
    with pytest.raises(DataError, match=r"tale\.json") as caught:
        parse_results(value, "tale.json")
    assert told in str(caught.value)


def test_matrix_must_have_its_shape() -> None:
    value = json.loads(json.dumps(synthetic_results((0,)).plain()))
    matrix = next(arm["matrix"] for arm in value["arms"] if arm["matrix"])
    matrix["rates"][0].pop()
    with pytest.raises(DataError, match="rates must be 4 rows of 4"):
        parse_results(value)


@pytest.mark.parametrize("text", ["", "[]", "{", '"x"'])
def test_damaged_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tale.json"
    path.write_text(text)
    with pytest.raises(DataError, match="not a results file"):
        load_results(path)
    with pytest.raises(DataError, match="there is no results file"):
        load_results(tmp_path / "other.json")


def test_merge_unites_seeds_and_forgets_what_was_missing() -> None:
    gap = Missing("buy4", 1, "failed: engine")
    kept = Missing("order4", 0, "not run")
    both = merge(synthetic_results((0,), (kept,)), synthetic_results((1,), (gap,)), synthetic_results((1,)))
    assert both.missing == (kept,)
    assert not both.complete
    assert {arm.seed for arm in both.arms} == {0, 1}
    assert parse_results(json.loads(json.dumps(both.plain()))) == both
    assert merge(synthetic_results((0,)), synthetic_results((0,))) == synthetic_results((0,))


def test_merge_refuses_conflicts() -> None:
    base = synthetic_results((0,))
    other: Results = replace(base, arms=(replace(base.arms[0], mean_worlds=0.5), *base.arms[1:]))
    with pytest.raises(DataError, match=r"arm 'uniform', seed 0: two results hold different numbers"):
        merge(base, other)
    with pytest.raises(DataError, match="schema 1 and 2 cannot be merged"):
        merge(base, replace(base, schema=2))
    changed = replace(base, arms=(replace(synthetic_arm("uniform", 5), label="alike clients", key="other"),))
    with pytest.raises(DataError, match="seeds 0 and 5 were run with different settings"):
        merge(base, changed)
    with pytest.raises(DataError, match="nothing to merge"):
        merge()
