"""A generated folder of games in the packed form, each played through the engine with the plan that is stored with it.

Owns which games there are (sizes, splits, seeds), the proof that they can be won, and where they are cached. Scenes and problems are
``scenes.py``'s, plans ``oracle.py``'s.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.alfworld import oracle, problem, scenes
from envs.alfworld.games import TASK_TYPES, AlfWorld, Game
from envs.alfworld.oracle import plans
from envs.alfworld.placement import ROOMS, placement
from envs.alfworld.problem import CLEAN, COOL, HEAT, SIMPLE, goal_of, read_facts
from envs.alfworld.scenes import FIRST_SCENE, MOST_SCENES, SIZES, SUITS, Size, feasible, make_record, make_scene
from envs.alfworld.sources import base_text, cache_root

GENERATOR_VERSION = 1
"""Raised whenever equal settings would give other games without a change of the modules below."""

GAMES_FILE = "games.jsonl"
MANIFEST_FILE = "generated.json"

EMBEDDED_TASKS: tuple[str, ...] = (SIMPLE, CLEAN, HEAT, COOL)
"""Task types of the embedded default: those that a kitchen offers and that are won in about ten commands."""

_PLANS_TRIED = 8


@dataclass(frozen=True)
class Settings:
    """What to generate.

    ``games`` for training, in ``scenes`` rooms of each kind; ``seen`` more games in the same rooms and ``unseen`` in other rooms, of which
    there are ``unseen_scenes`` of each kind. Task types and rooms take turns. ``size`` is ``small`` (5-9 receptacles, 8 types of objects)
    or ``full`` (ALFWorld's own numbers). Raises ``ValueError`` for settings that leave nothing to generate.
    """

    games: int = 1000
    seen: int = 128
    unseen: int = 128
    size: Size = "small"
    rooms: tuple[str, ...] = ("kitchen",)
    task_types: tuple[str, ...] = EMBEDDED_TASKS
    scenes: int = 27
    unseen_scenes: int = 9
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size = {self.size!r}: choose one of {', '.join(SIZES)}")
        for name, given, known in (("rooms", self.rooms, ROOMS), ("task_types", self.task_types, TASK_TYPES)):
            wrong = [item for item in given if item not in known]
            if wrong or not given or len(set(given)) < len(given):
                raise ValueError(f"{name} = {list(given)}: name each once, of {', '.join(known)}")
        for task_type in self.task_types:
            if not any(room in SUITS[task_type] for room in self.rooms):
                raise ValueError(f"task type {task_type} needs one of the rooms {', '.join(SUITS[task_type])}, not {', '.join(self.rooms)}")
        if self.games < 1 or self.seen < 0 or self.unseen < 0 or self.seen + self.unseen < 1:
            raise ValueError(f"games = {self.games}, seen = {self.seen}, unseen = {self.unseen}: at least one train and one held-out game")
        if not (1 <= self.scenes and 1 <= self.unseen_scenes and self.scenes + self.unseen_scenes <= MOST_SCENES):
            raise ValueError(
                f"scenes = {self.scenes}, unseen_scenes = {self.unseen_scenes}: at least 1 each, {MOST_SCENES} together at most"
            )

    @property
    def key(self) -> str:
        """Twelve hex digits that change with the settings, the placement table and the code that makes games."""
        code = "".join(inspect.getsource(module) for module in (scenes, oracle, problem))
        label = json.dumps([GENERATOR_VERSION, placement().digest, asdict(self), hashlib.sha256(code.encode()).hexdigest()])
        return hashlib.sha256(label.encode()).hexdigest()[:12]


class GenerationError(ValueError):
    """A generated game could not be won by any of its plans: a defect of the generator, named with its game."""


def records(settings: Settings) -> list[dict[str, Any]]:
    """The games without proof or walkthrough, ordered by split and number; the same on every machine.

    A game depends on its split, task type, scene, size, seed and number alone, so a set for fewer task types or games repeats those of a
    larger one.
    """
    made = []
    for split, number in (("train", settings.games), ("valid_seen", settings.seen), ("valid_unseen", settings.unseen)):
        for index in range(number):
            task_type = settings.task_types[index % len(settings.task_types)]
            lap = index // len(settings.task_types)
            rooms = [room for room in settings.rooms if room in SUITS[task_type]]
            room, place = rooms[lap % len(rooms)], lap // len(rooms)
            made.append(_record(task_type, room, place, split, settings))
    return made


def ensure_generated(cache_dir: Path | str | None = None, settings: Settings | None = None) -> Path:
    """The folder with the games of ``settings`` under the cache, written on first use (about 45 ms a small game).

    Safe to call from many processes at once: each writes aside and renames, the first one wins. A damaged file is written anew.
    Raises ``GenerationError`` for a game that cannot be won.
    """
    settings = settings or Settings()
    target = cache_root(cache_dir) / f"generated-{settings.size}-{settings.games}-{settings.seed}-{settings.key}"
    if _intact(target):
        return target
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        write(aside, settings, cache_dir)
        aside.chmod(0o755)
        _publish(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def write(out_dir: Path | str, settings: Settings, cache_dir: Path | str | None = None) -> Path:
    """Write the games of ``settings`` into ``out_dir`` (made if absent) and return it. Files are byte-identical per settings.

    Raises ``GenerationError`` for a game that cannot be won.
    """
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    made = records(settings)
    domain, grammar = base_text("alfred.pddl"), base_text("alfred.twl2")
    choices = {}
    for record in made:
        game = Game(record["id"], record["split"], record["task_type"], record["task"], domain, record["pddl_problem"], grammar)
        choices[game.id] = [plan for plan, _ in zip(plans(read_facts(game.problem), goal_of(game)), range(_PLANS_TRIED), strict=False)]
        record["walkthrough"] = choices[game.id][0] if choices[game.id] else []
    raw = "".join(json.dumps(record, sort_keys=True) + "\n" for record in made).encode("ascii")
    (out / GAMES_FILE).write_bytes(raw)
    replaced = prove(AlfWorld(out, cache_dir), choices)
    if replaced:
        for record in made:
            record["walkthrough"] = replaced.get(record["id"], record["walkthrough"])
        raw = "".join(json.dumps(record, sort_keys=True) + "\n" for record in made).encode("ascii")
        (out / GAMES_FILE).write_bytes(raw)
    manifest = {"generator": GENERATOR_VERSION, "settings": asdict(settings), "sha256": hashlib.sha256(raw).hexdigest(), "games": len(made)}
    (out / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    return out


def prove(world: AlfWorld, choices: dict[str, list[list[str]]]) -> dict[str, list[str]]:
    """Play every game with its plans until one wins it at its last command and not before; those that needed another than the first.

    Raises ``GenerationError`` for a game that none wins, or that is won too early."""
    engine = world.engine()
    replaced = {}
    for game_id, candidates in choices.items():
        for place, plan in enumerate(candidates):
            if wins(engine, game_id, plan):
                if place:
                    replaced[game_id] = plan
                break
        else:
            raise GenerationError(f"game {game_id} was not won by any of {len(candidates)} plans: please report it with this id")
    return replaced


def wins(engine: Any, game_id: str, plan: Sequence[str]) -> bool:
    """Whether the plan wins the game with its last command and no earlier one; every command has to be admissible."""
    play = engine.play(game_id)
    for place, command in enumerate(plan):
        if play.won or command not in play.admissible:
            return False
        _, _, won, _ = play.step(command)
        if won != (place == len(plan) - 1):
            return False
    return bool(plan)


def _record(task_type: str, room: str, place: int, split: str, settings: Settings) -> dict[str, Any]:
    """Game number ``place`` of a task type and room kind: scenes take turns, skipping those in which the task cannot be set."""
    first = FIRST_SCENE[room] + 1 + (settings.scenes if split == "valid_unseen" else 0)
    numbers = range(first, first + (settings.unseen_scenes if split == "valid_unseen" else settings.scenes))
    usable = [scene for scene in (make_scene(n, settings.size, settings.seed) for n in numbers) if feasible(task_type, scene)]
    if not usable:
        raise ValueError(f"{task_type} cannot be set in any {room} of scenes {numbers.start}-{numbers.stop - 1}: allow more scenes")
    scene = usable[place % len(usable)]
    return make_record(task_type, scene, place // len(usable), settings.seed, split)


def _publish(aside: Path, target: Path) -> None:
    """Rename ``aside`` to ``target``, unless another process has put an intact folder there meanwhile."""
    for _ in range(3):
        try:
            aside.rename(target)
            return
        except OSError:
            if _intact(target):
                return
            shutil.rmtree(target, ignore_errors=True)
    raise OSError(f"cannot place the generated games at {target}: remove that folder and try again")


def _intact(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
        return bool(hashlib.sha256((folder / GAMES_FILE).read_bytes()).hexdigest() == manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
