"""The episode viewer: a page that shows what an agent saw and did, turn by turn.

Owns the choice of episodes and the page. Episodes hold prompts and observations: the page belongs on the client's side, like the
files it is made of. Texts are embedded as data and only ever become text nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import DataError
from pipeline.report.document import document

SCHEMA = 1
KEYS = ("task_id", "instruction", "client", "round", "epoch", "variant", "adapter", "success", "score", "ret", "stop", "retries")
TURN_KEYS = ("observation", "prompt", "response", "action", "valid", "reward", "logprob", "n_prompt", "n_response")


def write_view(files: Sequence[Path], out: Path, limit: int = 200, title: str = "") -> Path:
    """Write the page for at most ``limit`` episodes of ``files``, evenly spread over them in order; ``out``.

    Raises:
        DataError: a file is missing or damaged, or there is no episode in any.
    """
    total = sum(1 for _ in _lines(files))
    if total == 0:
        raise DataError(
            f"no episodes in {len(files)} file(s)"
            + (f", first {files[0]}" if files else "")
            + ": a run keeps them with --run.save_episodes sample or all"
        )
    shown = min(total, max(limit, 1))
    wanted = {i * total // shown for i in range(shown)}
    episodes = [_episode(*line) for i, line in enumerate(_lines(files)) if i in wanted]
    data = {"title": title, "total": total, "episodes": episodes}
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.new")
    aside.write_text(
        document(f"{title}: episodes" if title else "Episodes", BODY, ["page.css", "view.css"], ["view.js"], data), encoding="utf-8"
    )
    aside.replace(out)
    return out


def _lines(files: Sequence[Path]) -> Iterator[tuple[Path, int, str]]:
    """Every whole line with its file and number. A last line without an end is being written, or was cut: left out."""
    for path in files:
        try:
            with path.open(encoding="utf-8", errors="replace") as stream:
                for number, line in enumerate(stream, start=1):
                    if line.endswith("\n") and line.strip():
                        yield path, number, line
        except FileNotFoundError:
            raise DataError(f"there is no file {path}: give a run folder, or a file of episodes in it") from None


def _episode(path: Path, number: int, line: str) -> dict[str, Any]:
    """The keys that the page shows."""
    try:
        episode = json.loads(line, parse_constant=lambda _: None)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not JSON ({error}); delete that line") from None
    if not isinstance(episode, dict) or not isinstance(episode.get("turns"), list):
        raise DataError(f"{path}, line {number}: not an episode (an object with 'turns'); is this a file of episodes?")
    if isinstance(episode.get("schema"), int) and episode["schema"] > SCHEMA:
        raise DataError(f"{path}, line {number}: schema {episode['schema']}, this program reads up to {SCHEMA}: use a newer fedagent-ray")
    turns = [{k: turn.get(k) for k in TURN_KEYS} for turn in episode["turns"] if isinstance(turn, dict)]
    return {**{k: episode.get(k) for k in KEYS}, "file": path.stem, "turns": turns, "final_observation": episode.get("final_observation")}


BODY = """<main class="view">
<header><h1 id="title">Episodes</h1><p id="count"></p></header>
<form id="filters" aria-label="Filters">
<label>Client <select id="client"></select></label>
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
