"""What README.md quotes of committed results is what they say."""

from __future__ import annotations

from pathlib import Path

from pipeline.reproduce.results import load_results
from tests.benchmarks.bench_tale import RESULTS, markdown

README = Path(__file__).parents[1] / "README.md"


def test_the_tales_tables_are_those_of_the_committed_results() -> None:
    results = load_results(RESULTS)
    text = README.read_text(encoding="utf-8")
    for line in markdown(results).splitlines():
        assert line in text
    assert results.command in text
    assert not results.missing
