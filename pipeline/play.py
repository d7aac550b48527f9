"""``fedagent play``: a person acts in a world, alone or in two variants of it at once.

Owns the choice of world, variant and task, and the conversation. What pages look like is ``pipeline.play_screen``'s; what a client's
world and tasks are is told by a ``Setup`` of the caller, because a federation's configuration decides it. Starts no Ray and no model.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from envs.base import SPLITS, Task, TextEnv, World
from envs.prompts import applicable
from envs.variants import DEFAULT, REVEALS, Variant
from pipeline.errors import ConfigError, DataError
from pipeline.play_screen import Screen, Shown

Read = Callable[[], str | None]
"""The next line that the person types; None at the end of the input."""


@dataclass(frozen=True)
class Clients:
    """What a federation's configuration says of its clients: their world, and each one's variant and train tasks."""

    world: World
    variants: Mapping[str, str | Variant]
    tasks: Mapping[str, Sequence[Task]]


Setup = Callable[[argparse.Namespace], Clients]
"""Builds ``Clients`` from the parsed arguments (``config``, ``overrides``)."""

HELP = """Type the number of an action, or an action itself (in a shop: or words to search for).
  back, b    take the last action back
  next, n    the next task
  again, a   this task from the start
  solve, s   the scripted solution
  look, l    the page again
  quit, q    end
What the world itself offers comes first (look in a house); after an exclamation mark anything is sent as an action: !look"""

_WORDS = {
    **{word: word for word in ("back", "next", "again", "solve", "look", "quit", "help")},
    **{"b": "back", "n": "next", "a": "again", "s": "solve", "l": "look", "q": "quit", "h": "help", "?": "help", "exit": "quit"},
}


def add_play_parser(commands: Any) -> argparse.ArgumentParser:
    """Add ``play`` to the subparsers of ``fedagent``; its ``command`` plays in the terminal and knows no clients."""
    parser: argparse.ArgumentParser = commands.add_parser("play", help="act in a world yourself, or in two variants of it side by side")
    parser.add_argument("world", nargs="?", help="webshop, alfworld, bandit or guess (with --client: the configuration's)")
    parser.add_argument(
        "--variant", metavar="TEXT", help="family[:member][@severity][+reveal], for instance rank_wrapper:invert@0.5 (default: unperturbed)"
    )
    parser.add_argument("--side-by-side", nargs=2, metavar=("A", "B"), help="two variants (or clients) that get the same actions")
    parser.add_argument("--reveal", choices=REVEALS, help="what observations tell of the variant")
    parser.add_argument("--task", default="0", metavar="ID|N", help="task by id, or by its place in the split (default: %(default)s)")
    parser.add_argument("--split", choices=SPLITS, help="tasks to choose from (default: heldout; with --client the client's train tasks)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder of the world (default: generated data)")
    parser.add_argument("--client", metavar="NAME", help="play in the world of this client, on its tasks")
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration of the federation that --client belongs to")
    parser.set_defaults(command=run_play, overrides=[])
    return parser


def run_play(args: argparse.Namespace, setup: Setup | None = None) -> int:
    """Play in the terminal with the parsed arguments; 0. ``setup`` is called where a client or a configuration is asked for.

    Raises ``ConfigError`` for a world, variant, client or task that there is not, with the nearest one.
    """
    from rich.console import Console

    console = Console(highlight=False)
    try:
        play(choose(args, setup), Screen(console), terminal_reader(console))
    except KeyboardInterrupt:
        console.print()
    return 0


@dataclass(frozen=True)
class Choice:
    """What is played: one or two named variants of a world, and the tasks with the first one's place among them."""

    world: World
    variants: tuple[tuple[str, Variant], ...]
    tasks: Sequence[Task]
    first: int = 0
    note: str = ""


def choose(args: argparse.Namespace, setup: Setup | None = None) -> Choice:
    """The world, variants and task that the arguments name. Raises ``ConfigError`` as ``run_play`` does."""
    if args.variant is not None and (args.side_by_side or args.client):
        raise ConfigError("--variant cannot matter with --side-by-side or --client, which name their own variants; leave it out")
    clients: Clients | None = None
    if args.client or args.config or any(not word.startswith("--run.plugins=") for word in args.overrides):
        if setup is None:
            raise ConfigError("--client and --config need a federation's configuration, which this command was not given; use --variant")
        clients = setup(args)
        if args.world is not None and args.world != clients.world.name:
            raise ConfigError(f"world {args.world!r}: the configuration's world is {clients.world.name!r}; leave the name out")
    world = clients.world if clients else _world(args.world, args.data)
    names = list(args.side_by_side or [args.client or args.variant or DEFAULT])
    option = "--side-by-side" if args.side_by_side else "--variant"
    variants = tuple(
        (name, _variant(world, name, clients, args.reveal, str(place), args.client is not None and not args.side_by_side, option))
        for place, name in enumerate(names, start=1)
    )
    if clients and args.client and args.split is None:
        tasks: Sequence[Task] = clients.tasks[_known(args.client, list(clients.tasks), "--client")]
    else:
        tasks = world.tasks(args.split or "heldout")
    note = "No --config was given: this is a client of the default configuration." if args.client and args.config is None else ""
    return Choice(world, variants, tasks, _place(args.task, tasks), note)


def _world(name: str | None, data: Path | None) -> World:
    from envs.base import world_names
    from pipeline.config import WorldConfig
    from pipeline.worlds import build_world, world_spec

    if name is None:
        raise ConfigError(f"name a world to play in: {', '.join(world_names())}")
    return build_world(world_spec(WorldConfig(name=name, data=data)))


def _variant(world: World, name: str, clients: Clients | None, reveal: Any, label: str, client: bool, option: str) -> Variant:
    """The variant of a client, or the one that ``name`` writes; ``option`` is where it was named."""
    if clients and (client or name in clients.variants):
        named: str | Variant = clients.variants[_known(name, list(clients.variants), "--client")]
    else:
        named = name
    try:
        variant = world.variant(named)
        if reveal is not None:
            variant = replace(variant, reveal=reveal)
        # A variant of a federation has its label; the name that one chosen here reveals is its place.
        return world.variant(variant if variant.label else replace(variant, label=label))
    except ValueError as error:
        there = f"; nor is it a client ({len(clients.variants)}, the first is {next(iter(clients.variants))!r})" if clients else ""
        raise ConfigError(f"{option} {name}: {error}{there}") from error


def _known(name: str, names: Sequence[str], option: str) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ConfigError(f"{option} {name}: no such client (there are {len(names)}, the first is {names[0]!r}){hint}")


def _place(text: str, tasks: Sequence[Task]) -> int:
    ids = [task.id for task in tasks]
    if text in ids:
        return ids.index(text)
    if text.isdecimal():
        if int(text) < len(tasks):
            return int(text)
        raise ConfigError(f"--task {text}: there are {len(tasks)} tasks; allowed 0 to {len(tasks) - 1}, or an id")
    near = difflib.get_close_matches(text, ids, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else f"; allowed: 0 to {len(ids) - 1}, or an id such as {ids[0]!r}" if ids else ""
    raise ConfigError(f"--task {text}: no such task{hint}")


def terminal_reader(console: Any) -> Read:
    """Lines from the terminal with a prompt (and line editing where there is a keyboard), or from a pipe, echoed."""
    import contextlib

    if sys.stdin is None or sys.stdin.closed:
        # A command started without standard input, as a service is: the same as an empty one.
        return lambda: None
    keyboard = sys.stdin.isatty()
    if keyboard:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401

    def read() -> str | None:
        try:
            line = input("> ")
        except EOFError:
            return None
        except UnicodeDecodeError as error:
            raise DataError(f"standard input is no text (byte {error.object[error.start]:#04x}); pipe UTF-8 lines into it") from error
        if not keyboard:
            console.print(line, markup=False)
        return line

    return read


@dataclass
class Seat:
    """One variant under way. ``over`` says why its episode ended; an ended one takes no further action."""

    name: str
    env: TextEnv
    observation: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    reward: float = 0.0
    steps: int = 0
    over: str = ""

    def start(self, task: Task) -> None:
        """The task from its beginning."""
        self.observation, self.info = self.env.reset(seed=0, options={"task": task})
        self.reward, self.steps, self.over = 0.0, 0, ""

    def act(self, action: str, limit: int) -> None:
        """Do an action, unless the episode is over."""
        if self.over:
            return
        self.observation, reward, terminated, truncated, self.info = self.env.step(action)
        self.reward += float(reward)
        self.steps += 1
        if terminated:
            self.over = "the episode is complete"
        elif truncated or self.steps >= limit:
            self.over = f"the limit of {limit} steps is reached"


class Game:
    """A task in one or two variants, the actions taken so far, and what is on offer now."""

    def __init__(self, choice: Choice) -> None:
        self._choice, self._at = choice, choice.first
        self.seats = [Seat(name, choice.world.make(variant)) for name, variant in choice.variants]
        self.taken: list[str] = []
        self.start()

    @property
    def task(self) -> Task:
        """The present task."""
        return self._choice.tasks[self._at]

    @property
    def number(self) -> str:
        """Place and id of the present task."""
        return f"{self._at} ({self.task.id})"

    @property
    def over(self) -> bool:
        """Whether no variant goes on."""
        return all(seat.over for seat in self.seats)

    @property
    def actions(self) -> list[str]:
        """Actions on offer in any variant that goes on, each once."""
        return list(dict.fromkeys(action for seat in self.seats if not seat.over for action in seat.info.get("admissible", ())))

    @property
    def only(self) -> dict[str, str]:
        """Of two variants that both go on, which one alone offers an action."""
        going = [seat for seat in self.seats if not seat.over]
        if len(going) < 2:
            return {}
        offered = [set(seat.info.get("admissible", ())) for seat in going]
        places = ("left", "right") if going[0].name == going[1].name else (going[0].name, going[1].name)
        return {action: places[0] if action in offered[0] else places[1] for action in offered[0] ^ offered[1]}

    def start(self) -> None:
        """The present task from its beginning."""
        self.taken = []
        for seat in self.seats:
            seat.start(self.task)

    def next(self) -> None:
        """The task after this one."""
        self._at = (self._at + 1) % len(self._choice.tasks)
        self.start()

    def act(self, action: str) -> None:
        """Do the same action everywhere."""
        self.taken.append(action)
        for seat in self.seats:
            seat.act(action, self._choice.world.max_steps)

    def back(self) -> bool:
        """Take the last action back: the task is started anew and the others are repeated. Whether there was one."""
        if not self.taken:
            return False
        kept = self.taken[:-1]
        self.start()
        for action in kept:
            self.act(action)
        return True

    def solution(self) -> dict[str, list[str]]:
        """The scripted solution in each variant; empty where there is none."""
        return {name: self._choice.world.oracle(self.task, variant) for name, variant in self._choice.variants}


def meant_action(text: str, actions: Sequence[str], world: str) -> tuple[str, str]:
    """The action that a person means, or an empty text and why there is none.

    A number counts the actions on offer, unless those are numbers themselves; in a shop with a search bar, words that are no action are
    searched for; after an exclamation mark anything goes.
    """
    if text.startswith("!") and text[1:].strip():
        return text[1:].strip(), ""
    shop = world == "webshop"
    if text in actions:
        return text, ""
    searching = shop and any(action.startswith("search[") for action in actions)
    if text.isdecimal() and not all(action.isdecimal() for action in actions):
        place = int(text)
        if not 1 <= place <= len(actions):
            return "", f"There is no action {place}: the numbers go from 1 to {len(actions)}."
        if shop and actions[place - 1].startswith("search["):
            return "", "Type what to search for."
        return actions[place - 1], ""
    if shop:
        link = "back to search" if text.lower() == "search" and "click[search]" not in actions else text.lower()
        if f"click[{link}]" in actions:
            return f"click[{link}]", ""
    if shop and not text.startswith(("search[", "click[")):
        return (f"search[{text}]", "") if searching else ("", "This page has no search bar: click a link, or go back to the search.")
    if not actions or (applicable(text, actions) if shop else text in actions):
        return text, ""
    near = difflib.get_close_matches(text, actions, n=1)
    return "", f"{text!r} is not on offer here{f'; did you mean {near[0]!r}?' if near else ''} (!{text} sends it all the same)"


def play(choice: Choice, screen: Screen, read: Read) -> None:
    """Talk until the person quits, or the input ends."""
    game, world = Game(choice), choice.world.name
    _show_task(game, screen, world)
    if choice.note:
        screen.say(choice.note, "yellow")
    screen.say(f"Type help for what can be typed; {choice.world.max_steps} turns at most.", "dim")
    _show(game, screen)
    while (line := read()) is not None:
        text = line.strip()
        # What the world offers comes before what this program offers under the same name.
        word = _WORDS.get(text.lower())
        if word not in ("help", "quit") and text.lower() in game.actions:
            word = None
        if word == "quit":
            return
        if word is not None:
            changed = _command(word, game, screen, world)
        elif game.over and text:
            screen.say("This task is over: type next, again, back or quit.")
            changed = False
        else:
            changed = bool(text) and _try(text, game, screen, world)
        if changed:
            _show(game, screen)


def _show_task(game: Game, screen: Screen, world: str) -> None:
    screen.heading(world, [seat.name for seat in game.seats], game.task.instruction, game.number)


def _show(game: Game, screen: Screen) -> None:
    screen.pages([Shown(seat.name, seat.observation, seat.over) for seat in game.seats])
    if game.over:
        for seat in game.seats:
            screen.result(seat.name, seat.info, seat.reward, seat.steps, seat.over)
        screen.say("next, again, back or quit?", "dim")
    else:
        screen.actions(game.actions, game.only)


def _try(text: str, game: Game, screen: Screen, world: str) -> bool:
    """Act as the text says; whether that was possible."""
    action, problem = meant_action(text, game.actions, world)
    if problem:
        screen.say(problem, "yellow")
        return False
    screen.say(f"{len(game.taken) + 1}. {action}", "bold")
    game.act(action)
    return True


def _command(word: str, game: Game, screen: Screen, world: str) -> bool:
    """Do what a word asks for; whether the page is to be shown again."""
    if word == "help":
        screen.say(HELP)
    elif word == "solve":
        for name, actions in game.solution().items():
            screen.say(f"{name}: {' > '.join(actions) if actions else 'no solution is known within the step limit'}", "green")
    elif word == "back":
        if game.back():
            return True
        screen.say("Nothing has been done yet.", "yellow")
    elif word == "look":
        return True
    elif word == "next":
        game.next()
        _show_task(game, screen, world)
        return True
    elif word == "again":
        game.start()
        _show_task(game, screen, world)
        return True
    return False
