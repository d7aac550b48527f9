"""ALFWorld's text games on their real engine: household tasks in rooms, played through TextWorld's planning-domain interface."""

from __future__ import annotations

from envs.alfworld.errors import AlfWorldDataError, AlfWorldTimeout
from envs.alfworld.games import TASK_TYPES, AlfWorld, Game, GameInfo

__all__ = ["TASK_TYPES", "AlfWorld", "AlfWorldDataError", "AlfWorldTimeout", "Game", "GameInfo"]
