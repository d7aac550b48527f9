"""What README.md quotes of committed results is what they say."""

from __future__ import annotations

from pathlib import Path

from pipeline.reproduce.arms import RUNGS
from pipeline.reproduce.results import load_results
from pipeline.reproduce.statistics import by_seed, difference
from tests.benchmarks.bench_tale import RESULTS, markdown

README = Path(__file__).parents[1] / "README.md"


def test_the_tales_tables_are_those_of_the_committed_results() -> None:
    results = load_results(RESULTS)
    text = README.read_text(encoding="utf-8")
    for line in markdown(results).splitlines():
        assert line in text
    assert results.command in text
    assert not results.missing


def test_the_committed_results_tell_the_tale() -> None:
    """What the page and README conclude from them holds in the numbers: whoever commits other results sees what no longer does."""
    results = load_results(RESULTS)
    mean = {name: sum(found := by_seed(results.arms, name).values()) / len(found) for name in {arm.name for arm in results.arms}}
    assert {len(by_seed(results.arms, name)) for name in mean} == {3}
    assert abs(mean["uniform-long"] - mean["central-long"]) < 0.05
    for axis in ("preference", "coverage", "hardness", "joint"):
        assert mean[f"{axis}-extreme"] > mean[f"{axis}-near"] - 0.05
    ladder = [mean["uniform"], *(mean[rung.name] for rung in RUNGS)]
    assert ladder == sorted(ladder, reverse=True)
    assert ladder[-1] < ladder[0] / 3
    assert all(arm.floor is not None for arm in results.arms if arm.name in {rung.name for rung in RUNGS})
    revealed = difference(results.arms, "escape-hint", "buy4")
    assert revealed is not None
    assert revealed.low is not None
    assert revealed.low > 0.2
    for rung in RUNGS:
        if rung.ppo:
            gap = difference(results.arms, f"{rung.name}-ppo", rung.name)
            assert gap is not None
            assert gap.interval is not None
    assert RESULTS.with_suffix(".html").stat().st_size < 3_000_000
