"""``fedagent report``: which page a list of run folders and results files asks for, and where it goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import ConfigError, DataError
from pipeline.runlog import FILE_NAME

COMPARISON = "comparison.html"


def report(paths: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page for ``paths`` and return its path.

    One run folder: the run's own report, in the folder. One results file: the tale, beside it. Several runs and results: results merged,
    runs beside them, as ``comparison.html`` beside the first. Raises ``DataError`` for what is neither or cannot be read, ``ConfigError``
    for an ``out`` that would overwrite something else.
    """
    runs = [path for path in paths if is_run(path)]
    files = [path for path in paths if path not in runs]
    if len(paths) != len({path.resolve() for path in paths}):
        raise ConfigError(f"{next(p for p in paths if [q.resolve() for q in paths].count(p.resolve()) > 1)}: is named twice")
    if len(runs) == 1 and not files:
        if out is not None:
            raise ConfigError(f"--out {out} cannot matter for one run, whose report lies in its folder; leave it out")
        from pipeline.report import write_report

        return write_report(runs[0])
    target = out or (files[0].with_suffix(".html") if len(paths) == 1 else paths[0].parent / COMPARISON)
    _check_target(target)
    from pipeline.report.tale import page_of

    return page_of(files, runs, target)


def is_run(path: Path) -> bool:
    """Whether ``path`` is a run folder; False for a file. Raises ``DataError`` where it is neither a run folder nor a file."""
    if path.is_dir():
        if not (path / FILE_NAME).is_file():
            raise DataError(f"{path}: not a run folder (no {FILE_NAME} in it)")
        return True
    if not path.exists():
        raise DataError(f"{path}: not a run folder and not a results file: there is nothing of that name")
    if path.suffix != ".json":
        raise DataError(f"{path}: not a run folder and not a results file (.json, as `fedagent reproduce` writes it)")
    return False


def _check_target(out: Path) -> None:
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: the name of a page ends in .html")
    if out.is_dir():
        raise ConfigError(f"--out {out}: is a folder, a page is needed")
