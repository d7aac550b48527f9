"""ALFWorld as a world of tasks: its splits, the environment an agent acts in, variants of the house, and scripted solutions.

Knows nothing of prompts, models or clients. All environments of a process share its engines; each has a play of its own in them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from envs.alfworld.engine import Play
from envs.alfworld.expert import NOTHING
from envs.alfworld.games import TASK_TYPES, AlfWorld, GameInfo
from envs.alfworld.generate import EMBEDDED_TASKS, Settings, ensure_generated
from envs.alfworld.oracle import plans
from envs.alfworld.probes import probe_scripts, replies
from envs.alfworld.problem import goal_of, read_facts
from envs.alfworld.scenes import Size
from envs.alfworld.variants import FAMILIES, Dynamics, dynamics, hint
from envs.base import Split, Task, TextEnv, World
from envs.reveal import mark
from envs.variants import DEFAULT, Family, Probe, Variant, unknown

HeldoutSplit = Literal["both", "seen", "unseen"]

SUCCESS_REWARD = 10.0
HELP = "help"
"""Always admissible and of no use: left out of ``info["admissible"]``."""

_HELDOUT: Mapping[HeldoutSplit, tuple[str, ...]] = {
    "both": ("valid_seen", "valid_unseen"),
    "seen": ("valid_seen",),
    "unseen": ("valid_unseen",),
}
_REAL_STEPS, _SMALL_STEPS = 50, 24
_KEEP_REAL, _KEEP_SMALL = 64, 512
_PLANS_TRIED = 8
_PROBED_SMALL, _PROBED_REAL = 8, 4


class AlfWorldTextEnv(TextEnv):
    """One episode at a time in a house.

    The observation is the engine's text, with the variant's mark as a last line of its own where it reveals itself. Besides ``admissible``
    (without ``help``), ``score`` and ``success``, ``info`` has ``task_text`` and ``applied`` (whether the command did something). The
    reward is 10 when the task is done, else 0; the episode is truncated after ``max_steps`` commands.
    """

    def __init__(self, world: AlfWorld, edit: Dynamics | None, max_steps: int, sign: str = "") -> None:
        self._world, self._edit, self._max_steps, self._sign = world, edit, max_steps, sign
        self._play: Play | None = None
        self._task_text = ""
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``. Raises ``ValueError`` when there is none, and ``AlfWorldDataError`` for one that is not there."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, Task) or "game" not in task.payload:
            raise ValueError('reset needs an ALFWorld task: reset(options={"task": world.tasks("train")[0]})')
        self._play = self._world.engine(self._edit).play(str(task.payload["game"]))
        self._task_text, self._steps = task.instruction, 0
        return self._shown(self._play.observation), self._info(self._play.admissible, applied=True)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one command. Raises ``ValueError`` when the episode is over or was never started."""
        play = self._play
        if play is None:
            raise ValueError("the episode is over (or was never started): call reset first")
        self._steps += 1
        observation, _, won, admissible = play.step(action)
        truncated = not won and self._steps >= self._max_steps
        info = self._info([] if won else admissible, observation != NOTHING, won)
        if won or truncated:
            self._play = None
        return self._shown(observation), SUCCESS_REWARD if won else 0.0, won, truncated, info

    def _shown(self, observation: str) -> str:
        return f"{observation}\n{self._sign}" if self._sign else observation

    def _info(self, admissible: Sequence[str], applied: bool, won: bool = False) -> dict[str, Any]:
        return {
            "admissible": [command for command in admissible if command != HELP],
            "score": float(won),
            "success": won,
            "applied": applied,
            "task_text": self._task_text,
        }


class AlfWorldWorld(World):
    """The games of a data folder, or generated ones.

    Options: ``data_dir`` (an official ALFWorld folder, or one with packed games; None generates) and ``max_steps`` (default 50 with a data
    folder and for rooms of full size, 24 for small rooms). ``task_types`` keeps some; ``heldout_split`` says which validation split is held
    out (``both``, ``seen`` or ``unseen``); of the held-out tasks ``heldout`` are offered, of the others ``train_use`` (all by default).
    Tasks come in an order drawn from their ids, so that any stretch of them mixes task types and scenes.

    Without a data folder: ``games`` for training and ``heldout`` (256) generated games, half of them in the rooms of training and half in
    others (or all in those of ``heldout_split``), ``rooms`` (kinds), ``size`` and ``seed`` as in ``generate.Settings``; ``task_types``
    defaults to those of the embedded model. Raises ``ValueError`` for options that leave a split empty or ask for more held-out games than
    there are, and ``AlfWorldDataError`` for a game whose text is cut short.
    """

    name: ClassVar[str] = "alfworld"
    families: ClassVar[Mapping[str, Family]] = FAMILIES

    def __init__(
        self,
        data_dir: Path | str | None = None,
        max_steps: int | None = None,
        task_types: Sequence[str] | None = None,
        heldout_split: HeldoutSplit = "both",
        heldout: int | None = None,
        train_use: int | None = None,
        games: int = 1000,
        rooms: Sequence[str] = ("kitchen",),
        size: Size = "small",
        seed: int = 0,
        keep_games: int | None = None,
        cache_dir: Path | str | None = None,
    ) -> None:
        if heldout_split not in get_args(HeldoutSplit):
            raise ValueError(f"heldout_split = {heldout_split!r}: choose one of {', '.join(get_args(HeldoutSplit))}")
        if task_types is not None and (wrong := [name for name in task_types if name not in TASK_TYPES]):
            raise ValueError(f"task_types = {wrong[0]!r}: {unknown(wrong[0], TASK_TYPES)}")
        small = data_dir is None and size == "small"
        if data_dir is None:
            number = 256 if heldout is None else heldout
            seen = {"both": number // 2, "seen": number, "unseen": 0}[heldout_split]
            chosen = EMBEDDED_TASKS if task_types is None else tuple(task_types)
            settings = Settings(games, seen, number - seen, size, tuple(rooms), chosen, seed=seed)
            data_dir = ensure_generated(cache_dir, settings)
        self._probed = _PROBED_SMALL if small else _PROBED_REAL
        self.max_steps = max_steps or (_SMALL_STEPS if small else _REAL_STEPS)
        self.alfworld = AlfWorld(data_dir, cache_dir, keep_games=keep_games or (_KEEP_SMALL if small else _KEEP_REAL))
        self._solved: dict[tuple[object, str], list[str]] = {}
        self._scripts: list[tuple[str, list[str]]] = []
        self._tasks: dict[Split, list[Task]] = {
            "train": self._of(("train",), task_types)[:train_use],
            "heldout": self._of(_HELDOUT[heldout_split], task_types)[:heldout],
        }
        empty = [split for split, tasks in self._tasks.items() if not tasks]
        if empty:
            lost = self.alfworld.unsolvable
            kinds, there = ", ".join(task_types or TASK_TYPES), ", ".join(self.alfworld.splits) or "none"
            marked = f"; {lost} games are marked as unsolvable" if lost else ""
            raise ValueError(
                f"split {empty[0]!r} of {self.alfworld.path} would have no task (splits with games: {there}; task types: {kinds}{marked})"
            )
        damaged = [task.id for tasks in self._tasks.values() for task in tasks if task.id in self.alfworld.damaged]
        if damaged:
            raise self.alfworld.damaged[damaged[0]]
        found = len(self._tasks["heldout"])
        if heldout is not None and found < heldout:
            raise ValueError(
                f"heldout = {heldout}: {self.alfworld.path} has {found} games to hold out (heldout_split = {heldout_split}); "
                f"allowed: 1 to {found}, or leave it out for all"
            )

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks whose ids are those of the games, in an order drawn from the ids."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(self._tasks)}")
        return self._tasks[split]

    def make(self, variant: str | Variant = DEFAULT) -> AlfWorldTextEnv:
        """A fresh environment on the engines of this process."""
        meant = self.variant(variant)
        return AlfWorldTextEnv(self.alfworld, dynamics(meant), self.max_steps, sign(meant))

    def describe(self, variant: str | Variant = DEFAULT) -> str:
        """What its hint says, whether it is revealed or not."""
        return hint(self.variant(variant))

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """Commands that solve the task in that form of the world: the stored plan, or one made from knowing the room and the variant's
        rules and proved by playing it; empty where that is not possible within ``max_steps``."""
        edit = dynamics(self.variant(variant))
        game_id = str(task.payload["game"])
        key = (None if edit is None else edit.key, game_id)
        if key not in self._solved:
            self._solved[key] = self._solve(game_id, edit)
        return list(self._solved[key])

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """Answers along fixed scripts in a few games, which touch everything that variants change; without the mark of ``reveal``."""
        if not self._scripts:
            self._scripts = probe_scripts(self.alfworld, [task.id for task in self._tasks["train"]], self._probed)
        return Probe(replies=replies(self.alfworld.engine(dynamics(self.variant(variant))), self._scripts))

    def overlap(self) -> Mapping[str, int]:
        """What held-out and train tasks share: ``heldout_tasks`` and ``train_tasks`` in all, ``scenes`` that occur in both, and
        ``tasks_in_train_scenes`` of the held-out ones."""
        scenes = {task.payload["scene"] for task in self._tasks["train"]}
        heldout = [task.payload["scene"] for task in self._tasks["heldout"]]
        return {
            "heldout_tasks": len(heldout),
            "train_tasks": len(self._tasks["train"]),
            "scenes": len(scenes & set(heldout)),
            "tasks_in_train_scenes": sum(scene in scenes for scene in heldout),
        }

    def _of(self, splits: Sequence[str], task_types: Sequence[str] | None) -> list[Task]:
        there = [split for split in splits if split in self.alfworld.splits]
        infos = [info for split in there for info in self.alfworld.infos(split) if task_types is None or info.task_type in task_types]
        return [_task(info) for info in sorted(infos, key=lambda info: hashlib.sha256(info.id.encode()).digest())]

    def _solve(self, game_id: str, edit: Dynamics | None) -> list[str]:
        info = self.alfworld.info(game_id)
        if edit is None and 0 < len(info.walkthrough) <= self.max_steps:
            return list(info.walkthrough)
        engine = self.alfworld.engine(edit)
        game = self.alfworld.game(game_id)
        given = game if edit is None else edit.edit(game)
        candidates = [list(game.walkthrough)] if given is game and game.walkthrough else []
        rules = None if edit is None else edit.rules(game)
        candidates += islice(plans(read_facts(given.problem), goal_of(game), rules), _PLANS_TRIED)
        for plan in candidates:
            if len(plan) <= self.max_steps and _solves(engine.play(game_id), plan):
                return plan
        return []


def sign(variant: Variant) -> str:
    """The line with which observations give the variant away; empty where it does not reveal itself."""
    text = mark(variant, FAMILIES, hint(variant), place="You are in house")
    return f"{text}." if variant.reveal == "name" else text


def _task(info: GameInfo) -> Task:
    return Task(info.id, info.task, info.task_type, {"game": info.id, "scene": info.scene})


def _solves(play: Play, plan: Sequence[str]) -> bool:
    for place, command in enumerate(plan):
        if play.step(command)[2]:
            return place == len(plan) - 1
    return False
