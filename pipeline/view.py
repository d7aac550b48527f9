"""The episode viewer: a page that shows what an agent saw and did, turn by turn.

Owns the choice of episodes and the page. Episodes hold prompts and observations: the page belongs on the client's side, like the
files it is made of. Texts are embedded as data and only ever become text nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.episode_log import read_episodes
from pipeline.errors import DataError
from pipeline.report.document import document
from pipeline.runlog import jsonable


def write_view(files: Sequence[Path], out: Path, limit: int = 200, title: str = "") -> Path:
    """Write the page for at most ``limit`` episodes of ``files``, evenly spread over them in order; ``out``.

    Raises:
        DataError: a file is missing or damaged, or there is no episode in any.
    """
    total = sum(_count(path) for path in files)
    if total == 0:
        first = f", first {files[0]}" if files else ""
        raise DataError(f"no episodes in {len(files)} file(s){first}: a run keeps them with --run.save_episodes sample or all")
    shown = min(total, max(limit, 1))
    wanted = {i * total // shown for i in range(shown)}
    episodes = [jsonable(episode) for i, episode in enumerate(_read(files)) if i in wanted]
    page = document(
        title=f"{title}: episodes" if title else "Episodes",
        body=BODY,
        styles=["page.css", "view.css"],
        scripts=["view.js"],
        data={"title": title, "total": total, "episodes": episodes},
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.new")
    aside.write_text(page, encoding="utf-8")
    aside.replace(out)
    return out


def _count(path: Path) -> int:
    """Whole lines: a last one without an end is being written."""
    if not path.is_file():
        raise DataError(f"{path}: no such episode file; give a run folder, or a file of episodes in it")
    with path.open("rb") as stream:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))


def _read(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for path in files:
        for episode in read_episodes(path):
            yield {**episode, "file": path.stem}


BODY = """<main class="view">
<header><h1 id="title">Episodes</h1><p id="count"></p></header>
<form id="filters" aria-label="Filters">
<label>Client <select id="client"></select></label>
<label id="worlds">World <select id="world"></select></label>
<label>Round <select id="round"></select></label>
<label>Outcome <select id="outcome">
<option value="">all</option><option value="yes">success</option><option value="no">no success</option>
</select></label>
<label>Contains <input id="text" type="search" placeholder="text of the episode"></label>
</form>
<div class="panes">
<nav id="list" aria-label="Episodes"></nav>
<article id="episode" aria-live="polite"></article>
</div>
<noscript><p class="empty">This page needs JavaScript to show its episodes; it loads nothing from outside.</p></noscript>
</main>"""
