"""The error of the ALFWorld world: a game, file or package that cannot be used. It names the file, the record and what to do."""

from __future__ import annotations

from pathlib import Path


class AlfWorldDataError(ValueError):
    """An ALFWorld folder, file or game is missing, damaged or cannot be played.

    ``path`` is the file (or folder), ``record`` the line of a packed file counted from 1 and ``game`` the game's id, where known.
    """

    def __init__(
        self, problem: str, *, path: Path | str | None = None, record: int | None = None, game: str | None = None, hint: str = ""
    ) -> None:
        self.problem = problem
        self.path = None if path is None else Path(path)
        self.record = record
        self.game = game
        self.hint = hint
        where = "" if path is None else f"{path}: "
        if record is not None:
            where += f"line {record}" + (f" (game {game}): " if game is not None else ": ")
        elif game is not None:
            where += f"game {game}: "
        super().__init__(f"{where}{problem}" + (f". {hint}" if hint else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.problem, self.path, self.record, self.game, self.hint)


def _rebuild(problem: str, path: Path | None, record: int | None, game: str | None, hint: str) -> AlfWorldDataError:
    return AlfWorldDataError(problem, path=path, record=record, game=game, hint=hint)


class AlfWorldTimeout(AlfWorldDataError):
    """A game did not answer, or was not planned, within its time limit; it can be skipped."""
