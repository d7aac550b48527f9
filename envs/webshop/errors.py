"""The one error of the WebShop world: data that cannot be read as a catalogue. It names the file, the record and what to do."""

from __future__ import annotations

from pathlib import Path


class WebShopDataError(ValueError):
    """A WebShop data folder or record is missing, damaged or inconsistent.

    ``path`` is the file (or folder), ``record`` the index of the product in the file and ``asin`` its id, where known.
    """

    def __init__(
        self, problem: str, *, path: Path | str | None = None, record: int | None = None, asin: str | None = None, hint: str = ""
    ) -> None:
        self.problem = problem
        self.path = None if path is None else Path(path)
        self.record = record
        self.asin = asin
        self.hint = hint
        where = "" if path is None else f"{path}: "
        if record is not None:
            where += f"record {record}" + (f" (asin {asin}): " if asin is not None else ": ")
        elif asin is not None:
            where += f"asin {asin}: "
        super().__init__(f"{where}{problem}" + (f". {hint}" if hint else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.problem, self.path, self.record, self.asin, self.hint)


def _rebuild(problem: str, path: Path | None, record: int | None, asin: str | None, hint: str) -> WebShopDataError:
    return WebShopDataError(problem, path=path, record=record, asin=asin, hint=hint)
