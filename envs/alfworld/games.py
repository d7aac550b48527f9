"""ALFWorld games: what a game is, which there are, and where they lie.

Owns ids, splits and the text of games; three kinds of folder are read (``sources.py``). Knows nothing of how a game is played, except that
``AlfWorld.engine`` hands out the engines of this process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from envs.alfworld.engine import Engine, Games
    from envs.alfworld.errors import AlfWorldDataError

TASK_TYPES: tuple[str, ...] = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
"""The six kinds of task, in ALFWorld's own order."""

SITUATIONS = 20_000
"""Explored situations of one game that are kept in memory."""

UNKNOWN_GOAL = "UNKNOWN GOAL."
"""Stands for the task sentence in the grammar that comes with the ``alfworld`` package."""


@dataclass(frozen=True)
class GameInfo:
    """What is known of a game without reading its text. ``walkthrough`` is a plan that wins it, empty where none is stored."""

    id: str
    split: str
    task_type: str
    task: str
    scene: str | int
    walkthrough: tuple[str, ...] = ()
    solvable: bool = True
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Game:
    """A game and its text: a PDDL domain and problem, and a TextWorld grammar that holds the task sentence."""

    id: str
    split: str
    task_type: str
    task: str
    domain: str = field(repr=False)
    problem: str = field(repr=False)
    grammar: str = field(repr=False)
    walkthrough: tuple[str, ...] = ()
    scene: str | int = ""
    solvable: bool = True
    meta: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, info: GameInfo, domain: str, problem: str, grammar: str) -> Game:
        """The game that ``info`` describes; ``UNKNOWN GOAL.`` in the grammar becomes its task sentence."""
        return cls(
            info.id,
            info.split,
            info.task_type,
            info.task,
            domain,
            problem,
            grammar.replace(UNKNOWN_GOAL, info.task),
            info.walkthrough,
            info.scene,
            info.solvable,
            info.meta,
        )


class Edit(Protocol):
    """A change of a game's text that makes another world of it. ``key`` tells edits apart: equal keys, equal edits."""

    @property
    def key(self) -> Hashable:
        """Identity of the edit."""
        ...

    def edit(self, game: Game) -> Game:
        """The changed game; a pure function of ``game``."""
        ...


class Source(Protocol):
    """A place that games are read from. ``unsolvable`` are the ids of games that were left out, in the splits read so far; ``damaged``
    says of those whose text is not whole what is wrong."""

    unsolvable: set[str]
    damaged: dict[str, AlfWorldDataError]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that are there, sorted."""
        ...

    def infos(self, split: str) -> Mapping[str, GameInfo]:
        """Playable games of a split by id, sorted by id. Empty for a split that is not there."""
        ...

    def game(self, info: GameInfo) -> Game:
        """The text of a game."""
        ...


class AlfWorld:
    """The games of a folder, and the engines that play them.

    ``data_dir`` is an official ALFWorld folder (``json_2.1.1/<split>/<task>/<trial>/game.tw-pddl``, or the folder of splits itself), a
    folder with packed games (``*games.jsonl``, also ``.xz`` or ``.gz``; one game a line), or such a file. What is worked out of it is kept
    in ``cache_dir`` (default ``$FEDAGENT_CACHE``, else ``~/.cache/fedagent``), keyed by content. ``keep_games`` games stay in memory with
    their explored states (over all engines). Raises ``AlfWorldDataError`` for a folder without games.
    """

    def __init__(self, data_dir: Path | str, cache_dir: Path | str | None = None, *, keep_games: int = 64) -> None:
        from envs.alfworld.sources import cache_root, open_source

        self.path = Path(data_dir).expanduser()
        self.cache = cache_root(cache_dir)
        self._keep_games = keep_games
        self._source: Source = open_source(self.path, self.cache)
        self._games: Games | None = None
        self._engines: dict[Hashable, Engine] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits that are there."""
        return self._source.splits

    @property
    def unsolvable(self) -> int:
        """Games that were left out because they are marked as unsolvable, in the splits read so far."""
        return len(self._source.unsolvable)

    @property
    def damaged(self) -> Mapping[str, AlfWorldDataError]:
        """Why games cannot be played whose text is not whole, by id, in the splits read so far. Found at a quick look; others are refused
        when they are played."""
        return self._source.damaged

    def games(self, split: str, task_types: Iterable[str] | None = None) -> list[str]:
        """Ids of the playable games of a split, sorted; of some task types only, where given.

        Raises ``AlfWorldDataError`` for a split that is not there and ``ValueError`` for an unknown task type."""
        wanted = None if task_types is None else _known(task_types)
        return [info.id for info in self.infos(split) if wanted is None or info.task_type in wanted]

    def infos(self, split: str) -> Sequence[GameInfo]:
        """What is known of the playable games of a split, sorted by id. Raises ``AlfWorldDataError`` for a split that is not there."""
        if split not in self.splits:
            from envs.alfworld.errors import AlfWorldDataError

            raise AlfWorldDataError(f"no split {split!r} (there: {', '.join(self.splits)})", path=self.path)
        return list(self._source.infos(split).values())

    def info(self, game_id: str) -> GameInfo:
        """What is known of one game. Raises ``AlfWorldDataError`` for an id that is not there, naming the nearest one."""
        split = game_id.partition("/")[0]
        found = self._source.infos(split).get(game_id)
        if found is None:
            from envs.alfworld.sources import no_such_game

            raise no_such_game(self._source, self.path, game_id)
        return found

    def game(self, game_id: str) -> Game:
        """The text of one game. Raises ``AlfWorldDataError`` for an id that is not there or a damaged file."""
        return self._source.game(self.info(game_id))

    def engine(self, variant: Edit | None = None) -> Engine:
        """The engine of this process that plays the games as they are, or as ``variant`` edits them. Made once per edit and reused."""
        from envs.alfworld.engine import Engine, Games

        if self._games is None:
            self._games = Games(self.cache, self._keep_games, SITUATIONS)
        key = None if variant is None else variant.key
        found = self._engines.get(key)
        if found is None:
            found = self._engines[key] = Engine(self, variant, self._games)
        return found


def _known(task_types: Iterable[str]) -> set[str]:
    wanted = set(task_types)
    if unknown := sorted(wanted - set(TASK_TYPES)):
        raise ValueError(f"unknown task type {unknown[0]!r} (known: {', '.join(TASK_TYPES)})")
    return wanted
