"""Playing games: the engine of a process, and plays, of which any number may go on at once.

Owns which games are in memory. Texts, admissible commands and rewards are byte for byte those of the unmodified engine (TextWorld's
``PddlEnv`` with ALFWorld's names); ``graph.py`` says how they come about. Not for use from several threads at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from envs.alfworld.deadline import Overdue, deadline
from envs.alfworld.errors import AlfWorldDataError, AlfWorldTimeout
from envs.alfworld.games import UNKNOWN_GOAL, Edit, Game
from envs.alfworld.grammar import Grammars
from envs.alfworld.graph import Graph, Situation
from envs.alfworld.library import Library, shared_library
from envs.alfworld.planner import plan_operators
from envs.alfworld.translate import translation

if TYPE_CHECKING:
    from envs.alfworld.games import AlfWorld

T = TypeVar("T")


@dataclass(frozen=True)
class EngineMemory:
    """What is in memory: games with their explored situations (over all engines of a world), and the process in bytes."""

    games: int
    situations: int
    graph_bytes: int
    resident_bytes: int


class Games:
    """The games in memory, the least recently used of which gives way; shared by the engines of a world."""

    def __init__(self, cache: Path, games: int, situations: int) -> None:
        if games < 1 or situations < 1:
            raise ValueError(f"expected room for at least one game and one situation, got {games} and {situations}")
        self.cache, self.grammars = cache, Grammars(cache)
        self._room, self._situations = games, situations
        self._graphs: OrderedDict[tuple[Hashable, str], Graph] = OrderedDict()

    def find(self, key: tuple[Hashable, str]) -> Graph | None:
        """The game in memory under ``key``."""
        found = self._graphs.get(key)
        if found is not None:
            self._graphs.move_to_end(key)
        return found

    def load(self, key: tuple[Hashable, str], game: Game, library: Library) -> Graph:
        """Load a game and keep it under ``key``. Raises ``AlfWorldDataError`` for one that cannot be played."""
        translated = translation(game.domain, game.problem, library, self.cache, game.id)
        grammar = self.grammars.get(game.grammar, game.task, translated.types, game.id)
        graph = Graph(translated, grammar, game.task, UNKNOWN_GOAL, game.id, library, self._situations)
        if len(self._graphs) >= self._room:
            self._graphs.popitem(last=False)
        self._graphs[key] = graph
        return graph

    def memory(self) -> EngineMemory:
        """What is in memory now."""
        graphs = list(self._graphs.values())
        try:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        except OSError:
            resident = 0
        return EngineMemory(len(graphs), sum(map(len, graphs)), sum(graph.size for graph in graphs), resident)


class Play:
    """One play of a game. ``observation`` is the last text; the play goes on after the game is won, as the unmodified engine's does."""

    __slots__ = ("_at", "_engine", "_graph", "game_id", "observation")

    def __init__(self, engine: Engine, graph: Graph, game_id: str) -> None:
        self._engine, self._graph, self.game_id = engine, graph, game_id
        self._at: Situation = graph.start
        self.observation = graph.intro

    @property
    def admissible(self) -> list[str]:
        """The commands that do something now, sorted."""
        return list(self._at.admissible)

    @property
    def won(self) -> bool:
        """Whether the goal holds now."""
        return self._at.won

    def step(self, command: str) -> tuple[str, int, bool, list[str]]:
        """``(observation, reward, won, admissible)`` after a command; the reward is 1 where the goal holds. Raises ``AlfWorldTimeout``
        where the game does not answer in time."""
        self.observation, self._at = self._engine.explore(self._graph, self._at, command, self.game_id)
        return self.observation, int(self._at.won), self._at.won, list(self._at.admissible)


class Engine:
    """Plays the games of a world, as they are or as ``variant`` edits them. ``limit_s`` bounds one load and one step.

    ``reset`` and ``step`` play one game after another; ``play`` gives plays that do not disturb each other.
    """

    def __init__(self, world: AlfWorld, variant: Edit | None, games: Games, limit_s: float | None = 60.0) -> None:
        self._world, self._variant, self._games, self._limit = world, variant, games, limit_s
        self._library = shared_library()
        self._play: Play | None = None

    def game(self, game_id: str) -> Game:
        """The game's text, edited by the variant. Raises ``AlfWorldDataError`` for an id that is not there."""
        game = self._world.game(game_id)
        return game if self._variant is None else self._variant.edit(game)

    def play(self, game_id: str) -> Play:
        """A play from the start. Raises ``AlfWorldDataError`` for an id that is not there or a game that cannot be played, and
        ``AlfWorldTimeout`` for one that does not load in time."""
        return Play(self, self._graph(game_id), game_id)

    def reset(self, game_id: str) -> tuple[str, list[str]]:
        """``(observation, admissible)`` at the start of a game. Raises as ``play`` does."""
        self._play = self.play(game_id)
        return self._play.observation, self._play.admissible

    def step(self, command: str) -> tuple[str, int, bool, list[str]]:
        """``(observation, reward, won, admissible)`` after a command. Raises ``ValueError`` before the first reset."""
        if self._play is None:
            raise ValueError("step before reset: reset the engine to a game first")
        return self._play.step(command)

    def plan(self, game_id: str, limit_s: float = 60.0) -> tuple[str, ...]:
        """Commands that win the game in this engine's form of it, by the planner in a child process; empty where there are none.

        Raises ``AlfWorldTimeout`` where none is found within ``limit_s`` seconds."""
        graph, game = self._graph(game_id), self.game(game_id)
        commands = []
        at = graph.start
        for name in plan_operators(game.domain, game.problem, limit_s, game_id) or ():
            command = graph.operator_command(at, name)
            if command is None:
                return ()
            commands.append(command)
            _, at = self.explore(graph, at, command, game_id)
        return tuple(commands) if at.won else ()

    def memory(self) -> EngineMemory:
        """What is in memory, over all engines of the world."""
        return self._games.memory()

    def explore(self, graph: Graph, at: Situation, command: str, game_id: str) -> tuple[str, Situation]:
        """What a command is answered with in a situation of a game, and the situation after it."""
        try:
            with deadline(self._limit):
                return graph.step(at, command)
        except Overdue:
            raise AlfWorldTimeout(f"no answer to {command!r} within {self._limit:g} s", game=game_id, hint="Leave the game out") from None

    def _graph(self, game_id: str) -> Graph:
        key = (None if self._variant is None else self._variant.key, game_id)
        found = self._games.find(key)
        if found is not None:
            return found
        game = self.game(game_id)
        if not game.solvable:
            raise AlfWorldDataError("this world makes it unsolvable", path=self._world.path, game=game_id, hint="Leave it out")
        try:
            with deadline(self._limit):
                return self._games.load(key, game, self._library)
        except AlfWorldDataError as error:
            if error.path is None:
                raise AlfWorldDataError(error.problem, path=self._world.path, game=game_id, hint=error.hint) from error
            raise
        except Overdue:
            self._library.forget()
            raise AlfWorldTimeout(f"not loaded within {self._limit:g} s", game=game_id, hint="Leave the game out") from None
