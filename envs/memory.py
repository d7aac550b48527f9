"""What an agent that lives in rooms remembers: read from its own commands and the answers to them, never from the engine.

Owns the reading of ALFWorld's sentences into a short memory, and the few lines that show it. It holds what a player needs who keeps a
notebook: the room, where it has been, what it carries, where things named in the task were last seen, and which commands had no effect.
Pure text: knows nothing of worlds, tokens or models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NOTHING = "Nothing happens."
"""The answer to a command that cannot be carried out."""

REMEMBERED_FAILURES = 3

_ITEM = re.compile(r"[a-z]+ [0-9]+")
_WORD = re.compile(r"[a-z]+")
_ROOM = re.compile(r"you see (.*?)\.", re.DOTALL)
_ARRIVED = re.compile(r"You arrive at ([a-z]+ [0-9]+)")
_SEEN = re.compile(r"(?:[Oo]n the [a-z]+ [0-9]+|[Ii]n it), you see ([^.]*)\.")
_CLOSED = re.compile(r"The ([a-z]+ [0-9]+) is closed\.")
_OPEN = re.compile(r"The ([a-z]+ [0-9]+) is open\.")
_TREATED = re.compile(r"You (?P<verb>heat|cool|clean) the (?P<thing>[a-z]+ [0-9]+)")
_GO = re.compile(r"go to ([a-z]+ [0-9]+)")
_MOVED = re.compile(r"(?P<verb>[a-z]+) (?P<thing>[a-z]+ [0-9]+) (?P<how>from|to|with) (?P<place>[a-z]+ [0-9]+)")
_DOOR = re.compile(r"You (?P<verb>open|close) (?:the )?(?P<place>[a-z]+ [0-9]+)")

MARKS = {"heat": "hot", "cool": "cool", "clean": "clean"}
"""What a treatment makes of a thing."""


@dataclass
class Memory:
    """The notebook. ``words`` are those of the task; ``left`` are the places whose contents were never seen, in the order of the room,
    ``done`` the others in order of recency; ``noted`` tells where things of a kind that the task names were seen last; ``marks`` what was
    done to a thing; ``failed`` the last different commands without effect since something was taken, put or treated; ``closed`` whether
    the present place is closed (None: it cannot be, or nobody said)."""

    words: frozenset[str] = frozenset()
    left: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    noted: dict[str, str] = field(default_factory=dict)
    marks: dict[str, list[str]] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    here: str = ""
    closed: bool | None = None
    failed: list[str] = field(default_factory=list)
    view: str = ""

    @property
    def room(self) -> list[str]:
        """All places known."""
        return [*self.left, *self.done]

    def lines(self) -> list[str]:
        """The notebook as lines of a prompt. Noted things are told by where they are: here, at a place of a kind that the task names, or
        elsewhere."""
        named = [place for place in self.room if _kind(place) in self.words]
        placed = {thing: place for thing, place in self.noted.items() if place in named}
        view = [thing for thing, place in self.noted.items() if place == self.here and place not in named]
        elsewhere = {thing: place for thing, place in self.noted.items() if place != self.here and place not in named}
        state = "" if self.closed is None else " closed" if self.closed else " open"
        state += " (named)" if self.here in named else ""
        state += " (failed)" if any(failure.endswith(self.here) for failure in self.failed) else ""
        lists = {
            "Named": ", ".join(named),
            "Placed": self._list(placed),
            "Seen": self._list(elsewhere),
            "Failed": ", ".join(self.failed),
        }
        return [
            f"Left: {', '.join(self.left) or 'none'}",
            f"Done: {', '.join(self.done) or 'none'}",
            *(f"{name}: {text}" for name, text in lists.items() if text),
            f"Now: {self.view}",
            f"Holding: {', '.join(map(self._marked, self.held)) or 'none'}",
            f"Here: {self.here}{state}" if self.here else "Here: none",
            f"View: {', '.join(map(self._marked, view)) or 'none'}",
        ]

    def _marked(self, thing: str) -> str:
        return " ".join([thing, *self.marks.get(thing, [])])

    def _list(self, things: Mapping[str, str]) -> str:
        return ", ".join(f"{self._marked(thing)} at {place}" for thing, place in things.items())


def recall(task: str, history: Sequence[tuple[str, str]], observation: str) -> Memory:
    """The memory after ``history`` of (observation, action), oldest first, when ``observation`` is what is seen now.

    Reads the task sentence for the kinds of things worth noting. Sentences of another form leave the memory as it is.
    """
    seen = [*(text for text, _ in history), observation]
    room = _ROOM.search(seen[0])
    memory = Memory(frozenset(_WORD.findall(task.lower())), _ITEM.findall(room[1]) if room else [])
    for (_, action), answer in zip(history, seen[1:], strict=True):
        _note(memory, action.strip(), answer.strip())
    if not memory.view:
        # What a world adds to its first page, such as its name, stands after the task.
        memory.view = seen[0].partition(task)[2].strip() or "none"
    return memory


def _note(memory: Memory, action: str, answer: str) -> None:
    if answer.startswith(NOTHING):
        memory.failed = [*(failure for failure in memory.failed if failure != action), action][-REMEMBERED_FAILURES:]
        return
    memory.view = answer
    _do(memory, action, answer)
    _look(memory, answer)


def _do(memory: Memory, action: str, answer: str) -> None:
    """What a command that had an effect did to places and things."""
    if arrived := _ARRIVED.match(answer) or _GO.fullmatch(action):
        memory.here, memory.closed = arrived[1], None
        if memory.here in memory.done:
            memory.done = [*(place for place in memory.done if place != memory.here), memory.here]
    moved = _MOVED.fullmatch(action)
    # What was done to a thing is told by the answer; where that says nothing, by the command.
    treated = _TREATED.match(answer) or (moved if moved and moved["how"] == "with" and moved["verb"] in MARKS else None)
    if treated:
        mark, thing = MARKS[treated["verb"]], treated["thing"]
        kept = [other for other in memory.marks.get(thing, []) if other != mark and not {other, mark} <= {"hot", "cool"}]
        memory.marks[thing] = [*kept, mark]
        memory.failed = []
    elif moved and moved["how"] == "from":
        memory.held, memory.failed = [*memory.held, moved["thing"]], []
        memory.noted.pop(moved["thing"], None)
    elif moved and moved["how"] == "to":
        memory.held, memory.failed = [thing for thing in memory.held if thing != moved["thing"]], []
        if _kind(moved["thing"]) in memory.words:
            memory.noted[moved["thing"]] = moved["place"]
    door = _DOOR.match(answer) or _DOOR.match(f"You {action}")
    if door and door["place"] == memory.here:
        memory.closed = door["verb"] == "close"
        memory.failed = [failure for failure in memory.failed if not failure.endswith(memory.here)]


def _look(memory: Memory, answer: str) -> None:
    """What is to be seen at the present place."""
    place = memory.here
    if not place:
        return
    if (closed := _CLOSED.search(answer)) and closed[1] == place:
        memory.closed = True
    if (opened := _OPEN.search(answer)) and opened[1] == place:
        memory.closed = False
    listed = _SEEN.search(answer)
    if listed is None or answer.startswith("This is"):
        return
    if place in memory.left:
        memory.left.remove(place)
    if place not in memory.done:
        memory.done.append(place)
    things = [thing for thing in _ITEM.findall(listed[1]) if _kind(thing) in memory.words]
    for gone in [thing for thing, where in memory.noted.items() if where == place and thing not in things]:
        del memory.noted[gone]
    for thing in things:
        memory.noted[thing] = place


def _kind(thing: str) -> str:
    return thing.partition(" ")[0]
