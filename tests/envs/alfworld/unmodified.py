"""The unmodified engine, as ALFWorld runs it, with the surface of ours: what every text is compared with."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from envs.alfworld import Game


class Unmodified:
    """TextWorld's ``PddlEnv`` with ALFWorld's names. Make one per process: each leaks megabytes."""

    def __init__(self) -> None:
        import textworld
        from textworld.envs.pddl import PddlEnv

        # Importing ALFWorld sets the variable in which a user names public data.
        named = os.environ.get("ALFWORLD_DATA")
        try:
            os.environ.setdefault("ALFWORLD_DATA", tempfile.mkdtemp(prefix="alfworld-"))
            from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        finally:
            if named is None:
                del os.environ["ALFWORLD_DATA"]

        self._env = AlfredInfos(AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True))))

    def load(self, game: Game) -> None:
        data = {"pddl_domain": game.domain, "pddl_problem": game.problem, "grammar": game.grammar, "walkthrough": ["look"]}
        self._env.load(data)

    def reset(self, game: Game | None = None) -> tuple[str, list[str]]:
        if game is not None:
            self.load(game)
        state = self._env.reset()
        return state.feedback, state.admissible_commands

    def step(self, command: str) -> tuple[str, int, bool, list[str]]:
        state, reward, _ = self._env.step(command)
        return state.feedback, reward, state.won, state.admissible_commands


def replaced(game: Game, *pairs: tuple[str, str]) -> dict[str, Any]:
    """Fields of a game's text after replacements, each of which must find something."""
    fields = {"domain": game.domain, "problem": game.problem, "grammar": game.grammar}
    for old, new in pairs:
        assert any(old in text for text in fields.values()), old
        fields = {name: text.replace(old, new) for name, text in fields.items()}
    return fields
