"""The page of a reproduction: the argument as widgets that can be switched and dragged, one file that needs no network.

``groups`` puts seeds together, ``widgets`` says which arms fill which switch, ``story`` what the page says, ``page`` writes it, ``runs``
turns run folders into arms. Reads results files; the intervals are ``pipeline.reproduce.statistics``'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.report.tale.page import render
from pipeline.report.tale.runs import read_runs
from pipeline.report.tale.story import Source, tell
from pipeline.reproduce.results import Results, load_results, merge


def source_of(results: Results) -> Source:
    """The arms of a results file, and what made them."""
    return Source(
        arms=[arm.plain() for arm in results.arms],
        command=results.command,
        machine=results.machine,
        date=results.date[:10],
        versions=results.versions,
        missing=[gap.text for gap in results.missing],
    )


def render_tale(results: Results) -> str:
    """The page as text."""
    return render(tell([source_of(results)]))


def write_tale(results: Results, path: Path) -> Path:
    """Write the page to ``path``, aside first and then renamed; the path."""
    return write_page(render_tale(results), path)


def page_of(files: Sequence[Path], runs: Sequence[Path], path: Path) -> Path:
    """Write the page of results files, merged, and of runs beside them. Raises ``DataError`` for what cannot be read or merged."""
    sources = [source_of(merge(*(load_results(file) for file in files)))] if files else []
    name = path.stem if files else "runs"
    return write_page(render(tell([*sources, *read_runs(runs)], name)), path)


def write_page(text: str, path: Path) -> Path:
    """Write a page so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
    return path


__all__ = ["page_of", "render_tale", "source_of", "write_page", "write_tale"]
