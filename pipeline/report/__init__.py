"""The report of a run: one self-contained page, ``report.html``, that needs no network.

``data`` decides what it says, ``chart`` draws, ``page`` writes HTML.
"""

from __future__ import annotations

from pathlib import Path

from pipeline.report.data import read_report
from pipeline.report.page import render

EPISODES_PAGE = "episodes.html"
EPISODES_SHOWN = 200


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` into the run folder, and ``episodes.html`` beside it where episodes were kept; the report's path.

    Works while the run goes on. Raises ``DataError`` when the folder has no records, saying what to do.
    """
    data = read_report(run_dir)
    files = sorted((run_dir / "episodes").glob("*.jsonl"))
    episodes = None
    if files:
        from pipeline.view import write_view

        write_view(files, run_dir / EPISODES_PAGE, limit=EPISODES_SHOWN, title=data.name)
        episodes = EPISODES_PAGE
    path = run_dir / "report.html"
    aside = run_dir / ".report.html.new"
    aside.write_text(render(data, episodes), encoding="utf-8")
    aside.replace(path)
    return path


__all__ = ["EPISODES_PAGE", "write_report"]
