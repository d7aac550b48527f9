"""A scripted player that sees only the text: it searches a room receptacle by receptacle, and does what the task asks.

Owns that player and its reading of observations. Knows nothing of problems, engines or models. Used to make demonstrations, and as proof
that a game can be won by search alone. It goes round the room in the order of the intro's list, cyclic from where it stands, so what it
does next follows from what an agent has in its prompt.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NOTHING = "Nothing happens."
"""The engine's answer to what cannot be done."""

USUAL: Mapping[str, tuple[str, ...]] = {"clean": ("sinkbasin",), "heat": ("microwave",), "cool": ("fridge",)}
"""Where things are treated in the unperturbed world."""
UNSURE: Mapping[str, tuple[str, ...]] = {"clean": ("sinkbasin",), "heat": ("microwave", "stoveburner"), "cool": ("fridge", "sinkbasin")}
"""Where a player tries who knows that worlds differ."""

_TASKS = (
    re.compile(r"put (?P<how>a clean|a hot|a cool|two|a|some) (?P<o>\w+) (?:in|on) (?P<r>\w+)"),
    re.compile(r"(?P<how>clean|heat|cool) some (?P<o>\w+) and put it in (?P<r>\w+)"),
    re.compile(r"find (?P<how>two) (?P<o>\w+) and put them in (?P<r>\w+)"),
    re.compile(r"(?P<how>look) at (?P<o>\w+) under the (?P<r>\w+)"),
    re.compile(r"(?P<how>examine) the (?P<o>\w+) with the (?P<r>\w+)"),
)
CONTAINERS = ("cabinet", "drawer", "fridge", "microwave", "safe")
"""What can usually be opened."""

_OTHER_WORD = {"heat": "cool", "cool": "heat"}
_TREATMENTS = {"a clean": "clean", "a hot": "heat", "a cool": "cool", "clean": "clean", "heat": "heat", "cool": "cool"}
_TASK = re.compile(r"Your task is to: (.*)")
_LIST = re.compile(r"you see (.*?)\.")
_SEEN = re.compile(r"(?:On|In) (?:the [a-z]+ \d+|it), you see (.*?)\.")
_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")
_ITEM = re.compile(r"[a-z]+ \d+")
_TREATED = re.compile(r"You (heat|cool|clean) the ")


@dataclass(frozen=True)
class Wish:
    """A task sentence, read. ``place`` is a receptacle type or a lamp; ``count`` objects are wanted."""

    thing: str
    place: str
    treatment: str | None = None
    count: int = 1
    look: bool = False


def read_task(sentence: str) -> Wish:
    """What a task sentence asks for. Raises ``ValueError`` for one of another form."""
    for pattern in _TASKS:
        if found := pattern.match(sentence.strip()):
            how = found["how"]
            return Wish(found["o"], found["r"], _TREATMENTS.get(how), 2 if how == "two" else 1, how in ("look", "examine"))
    raise ValueError(f"cannot read the task {sentence!r}")


@dataclass
class _View:
    """What was read so far. ``contents`` of a receptacle is None while it is closed or was not seen."""

    room: list[str]
    contents: dict[str, list[str] | None] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    openable: set[str] = field(default_factory=set)
    here: str = ""
    held: str = ""
    treated: bool = False
    visits: int = 0
    tried: set[str] = field(default_factory=set)
    """Containers that could not be opened."""


@dataclass(frozen=True)
class _Try:
    """A way to treat a thing."""

    word: str
    place: str
    opened: bool = False

    def command(self, thing: str) -> str:
        return f"{self.word} {thing} with {self.place}"


class SearchingExpert:
    """One player for one episode at a time: ``reset`` with the first observation, then ``act`` for a command and ``observe`` for what it
    led to. Commands that somebody else chose may be observed as well.

    ``appliances`` says where it tries to clean, heat and cool, in that order; with ``rng`` the order is drawn anew each episode. Where none
    works, it opens them and tries again, and then says ``cool`` for ``heat`` and the other way round.
    """

    def __init__(self, appliances: Mapping[str, Sequence[str]] = USUAL, rng: random.Random | None = None) -> None:
        self._appliances, self._rng = appliances, rng
        self._wish = Wish("", "")
        self._view = _View([])
        self._tries: list[_Try] = []
        self._delivered: list[str] = []
        self._refused: set[tuple[str, str]] = set()

    def reset(self, observation: str) -> None:
        """Start on the first observation of an episode. Raises ``ValueError`` where it holds no task or no room."""
        task, room = _TASK.search(observation), _LIST.search(observation)
        if task is None or room is None:
            raise ValueError("the first observation names no task or no room")
        self._wish = read_task(task[1])
        self._view = _View(_ITEM.findall(room[1]))
        self._delivered, self._refused = [], set()
        kinds = list(self._appliances.get(self._wish.treatment or "", ()))
        if self._rng is not None:
            self._rng.shuffle(kinds)
        places = [name for kind in kinds for name in self._view.room if _kind(name) == kind]
        word = self._wish.treatment or ""
        self._tries = [_Try(word, name) for name in places] + [_Try(word, name, opened=True) for name in places]
        if word in _OTHER_WORD:
            self._tries += [_Try(_OTHER_WORD[word], name) for name in places]

    def observe(self, command: str, observation: str) -> None:
        """Note what a command led to."""
        view = self._view
        words = command.split()
        if observation.startswith(NOTHING):
            if command.startswith("move "):
                self._refused.add((view.held, view.here))
            if command.startswith("open "):
                view.tried.add(command.removeprefix("open "))
            if self._tries and command == self._tries[0].command(view.held):
                self._tries.pop(0)
            return
        if command.startswith("go to "):
            view.here, view.visits = command.removeprefix("go to "), view.visits + 1
        elif command.startswith("take "):
            thing, place = _split(command.removeprefix("take "), " from ")
            view.held, view.treated = thing, False
            _discard(view.contents.get(place), thing)
        elif command.startswith("move "):
            thing, place = _split(command.removeprefix("move "), " to ")
            view.held = ""
            if view.contents.get(place) is not None:
                (view.contents[place] or []).append(thing)
            if _kind(thing) == self._wish.thing and _kind(place) == self._wish.place and (view.treated or not self._wish.treatment):
                self._delivered.append(place)
        elif words and words[0] in USUAL:
            told = _TREATED.match(observation)
            done = told[1] if told else words[0]
            if done == self._wish.treatment:
                view.treated = True
            elif done != "clean":
                view.treated = False
        elif command.startswith(("open ", "close ")):
            place = command.partition(" ")[2]
            view.openable.add(place)
            if words[0] == "close":
                view.closed.add(place)
                view.contents[place] = None
            else:
                view.closed.discard(place)
        self._read(observation)

    def act(self) -> str:
        """The next command."""
        view, wish = self._view, self._wish
        if view.held and _kind(view.held) != wish.thing:
            return self._put_down()
        if not view.held:
            return self._search()
        if wish.look:
            return self._find_lamp()
        if wish.treatment and not view.treated and self._tries:
            return self._treat()
        return self._deliver()

    def _read(self, observation: str) -> None:
        view = self._view
        for name in _CLOSED.findall(observation):
            view.closed.add(name)
            view.openable.add(name)
            view.contents[name] = None
        seen = _SEEN.search(observation)
        if seen is not None and view.here and not observation.startswith("This is"):
            view.contents[view.here] = _ITEM.findall(seen[1])
            view.closed.discard(view.here)

    def _search(self) -> str:
        """Take a wanted thing in view, open what is closed, else go on."""
        view = self._view
        if view.here and not self._skipped(view.here):
            for thing in view.contents.get(view.here) or ():
                if _kind(thing) == self._wish.thing:
                    return f"take {thing} from {view.here}"
            if look := self._look_inside(view.here):
                return look
        return self._go_on()

    def _look_inside(self, place: str) -> str:
        """A command that shows what is in ``place``; empty when that is known."""
        view = self._view
        if place in view.closed:
            return f"open {place}"
        if view.contents.get(place) is not None:
            return ""
        # Arriving told nothing: opening shows as much as examining where it can be done.
        return f"open {place}" if self._untried(place) else f"examine {place}"

    def _untried(self, place: str) -> bool:
        """Whether ``place`` is something that usually can be opened, and nobody has found otherwise."""
        return _kind(place) in CONTAINERS and place not in self._view.tried

    def _skipped(self, place: str) -> bool:
        """Whether to pass by: things of a delivery are not to be taken again, nor looked for at the goal in the first two rounds."""
        if place in self._delivered:
            return True
        return _kind(place) == self._wish.place and not self._wish.look and self._view.visits <= 2 * len(self._view.room)

    def _go_on(self) -> str:
        room = self._view.room
        at = room.index(self._view.here) if self._view.here in room else -1
        for step in range(1, len(room) + 1):
            place = room[(at + step) % len(room)]
            if place != self._view.here and not self._skipped(place):
                return f"go to {place}"
        return f"go to {room[(at + 1) % len(room)]}"

    def _put_down(self) -> str:
        view = self._view
        if view.here and (view.held, view.here) not in self._refused:
            return f"open {view.here}" if view.here in view.closed else f"move {view.held} to {view.here}"
        room = view.room
        at = room.index(view.here) if view.here in room else -1
        return f"go to {room[(at + 1) % len(room)]}"

    def _treat(self) -> str:
        now = self._tries[0]
        if self._view.here != now.place:
            return f"go to {now.place}"
        if now.opened and now.place in self._view.closed:
            return f"open {now.place}"
        return now.command(self._view.held)

    def _deliver(self) -> str:
        view = self._view
        places = self._delivered[:1] if self._wish.count > 1 and self._delivered else [p for p in view.room if _kind(p) == self._wish.place]
        places = [place for place in places if (view.held, place) not in self._refused] or view.room
        place = view.here if view.here in places else places[0]
        if view.here != place:
            return f"go to {place}"
        shut = place in view.closed or (view.contents.get(place) is None and self._untried(place))
        return f"open {place}" if shut else f"move {view.held} to {place}"

    def _find_lamp(self) -> str:
        view = self._view
        for place, things in view.contents.items():
            for thing in things or ():
                if _kind(thing) == self._wish.place:
                    return f"use {thing}" if place == view.here else f"go to {place}"
        if view.here and (look := self._look_inside(view.here)):
            return look
        return self._go_on()


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]


def _split(text: str, by: str) -> tuple[str, str]:
    first, _, second = text.partition(by)
    return first, second


def _discard(things: list[str] | None, thing: str) -> None:
    if things and thing in things:
        things.remove(thing)
