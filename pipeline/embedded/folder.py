"""What the builds of all embedded models share: turns as token ids, the finished folder, and the progress display.

Owns the folder's contents and its manifest's common part. Knows nothing of worlds.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pipeline.embedded import MANIFEST, files_key
from pipeline.embedded.warmstart import Row

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is."""


class PromptAndResponse(Protocol):
    """Anything with the two texts of a turn."""

    @property
    def prompt(self) -> str:
        """What is read."""
        ...

    @property
    def response(self) -> str:
        """What is to be written."""
        ...


def encode(tokenizer: Any, turns: Sequence[PromptAndResponse], say: Progress, end: tuple[int, ...] = ()) -> list[Row]:
    """Turns as token ids; ``end`` is put after every response."""
    rows: list[Row] = []
    for start in range(0, len(turns), 4096):
        part = turns[start : start + 4096]
        prompts = tokenizer([turn.prompt for turn in part], add_special_tokens=False)["input_ids"]
        responses = tokenizer([turn.response for turn in part], add_special_tokens=False)["input_ids"]
        rows += [Row(tuple(p), (*r, *end)) for p, r in zip(prompts, responses, strict=True)]
        say("encoding", len(rows), len(turns))
    return rows


def write_folder(out: Path, model: Any, tokenizer: Any, max_new_tokens: int, described: Mapping[str, Any]) -> None:
    """Save aside, describe, and move into place; a folder that is there is replaced. ``described`` stands in the manifest between the key
    and the hashes of the files."""
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        model.generation_config.update(do_sample=True, temperature=1.0, max_new_tokens=max_new_tokens)
        model.save_pretrained(str(aside))
        tokenizer.save_pretrained(str(aside))
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(aside.iterdir())}
        manifest = {"key": files_key(files), **described, "files": files}
        (aside / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        for path in aside.iterdir():
            path.chmod(0o644)
        aside.chmod(0o755)
        if out.exists():
            shutil.rmtree(out)
        aside.rename(out)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def rich_progress() -> Iterator[Progress]:
    """A terminal progress display, one bar per step."""
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:>15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns) as bars:
        known: dict[str, TaskID] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in known:
                known[step] = bars.add_task(step, total=total)
            bars.update(known[step], completed=done)

        yield show
