"""Guess a number: binary search, of which the least number of guesses is known.

Owns tasks, replies and the fair player. The number stands nowhere in a task's text, so that the replies decide; variants turn them round,
withhold them, or word them otherwise. Knows nothing of prompts, models or clients.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from envs.base import Split, Task, TextEnv, World
from envs.reveal import mark
from envs.variants import DEFAULT, Family, Probe, Variant

SUCCESS_REWARD = 10.0

SIZES: dict[str, int] = {"short": 7, "middle": 15, "long": 31}
"""Numbers in the range, by category; 3, 4 and 5 guesses always suffice."""

Reply = Literal["hit", "low", "high", "none"]

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("answers", "dynamics", ("control", "inverted", "silent"), "replies to a wrong guess say the opposite, or nothing"),
        Family("wording", "rendering", ("control", "directions"), "replies say the same in other words"),
    )
}

_HINTS = {
    "answers:inverted": "Low means high here and high means low",
    "answers:silent": "Wrong guesses get no direction here",
    "wording:directions": "Replies say where to go",
}


class GuessEnv(TextEnv):
    """Say a number of the range; the reply tells whether the guess is right, too low or too high. The return of a hit is 10.

    The episode is truncated after ``max_steps`` guesses. An answer that is no number of the range is a guess wasted.
    """

    def __init__(self, world: GuessWorld, variant: Variant) -> None:
        self._world, self._variant = world, variant
        hint = "Replies are what they say" if variant.unperturbed else _HINTS.get(f"{variant.family}:{variant.member}", "")
        self._mark = mark(variant, FAMILIES, hint or "Replies are what they say")
        self._task: Task | None = None
        self._left = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``. Raises ``ValueError`` when there is none."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, Task) or "target" not in task.payload:
            raise ValueError('reset needs a guessing task: reset(options={"task": world.tasks("train")[0]})')
        self._task, self._left = task, self._world.max_steps
        return self._shown("", task), self._info(task)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Guess. Raises ``ValueError`` when the episode is over or was never started."""
        task = self._task
        if task is None:
            raise ValueError("the episode is over (or was never started): call reset first")
        self._left -= 1
        text = action.strip()
        numbers = _numbers(task)
        if text.isdecimal() and int(text) in numbers:
            reply = self._world.reply(task, int(text), self._variant)
            words = self._world.words(task, int(text), reply, self._variant)
        else:
            reply, words = "none", f"That is no number from {numbers.start} to {numbers.stop - 1}."
        hit = reply == "hit"
        over = hit or self._left == 0
        info = self._info(task, hit, over)
        if over:
            self._task = None
        return self._shown(f"{words} ", task, over), SUCCESS_REWARD * hit, hit, over and not hit, info

    def _shown(self, reply: str, task: Task, over: bool = False) -> str:
        numbers = _numbers(task)
        if over:
            text = f"{reply}The game is over."
        else:
            text = f"{reply}Guess a number from {numbers.start} to {numbers.stop - 1}. Guesses left: {self._left}."
        return f"{text}\n{self._mark}" if self._mark else text

    def _info(self, task: Task, hit: bool = False, over: bool = False) -> dict[str, Any]:
        return {"admissible": [] if over else [str(n) for n in _numbers(task)], "score": float(hit), "success": hit}


class GuessWorld(World):
    """Ranges of three lengths (the categories) from ten places on, and every number in them as the one to find: 530 tasks.

    Options: ``size`` of all ranges in place of the three lengths (2 to 31 numbers), ``places`` where ranges begin (1 to 10), ``copies`` of
    every task, so that a small game has enough of them; ``train`` and ``heldout`` tasks (of the 530 tasks 400 and 100, else four fifths and
    the rest), ``seed`` of their order, ``max_steps`` guesses (6: one more than the longest range needs; n guesses always suffice for
    2 ** n - 1 numbers). A variant's severity is the share of (task, guess) pairs whose reply it changes; the pairs at a lower severity are
    among those at a higher one. Raises ``ValueError`` for what is out of range, and for more tasks than there are.
    """

    name: ClassVar[str] = "guess"
    families: ClassVar[Mapping[str, Family]] = FAMILIES

    def __init__(
        self,
        train: int | None = None,
        heldout: int | None = None,
        seed: int = 0,
        max_steps: int | None = None,
        size: int | None = None,
        places: int = 10,
        copies: int = 1,
    ) -> None:
        most = max(SIZES.values())
        if size is not None and not 2 <= size <= most:
            raise ValueError(f"size is {size}; allowed: 2 to {most}")
        if not 1 <= places <= 10 or copies < 1:
            raise ValueError(f"places is {places} and copies {copies}; allowed: 1 to 10, and at least 1")
        sizes = SIZES if size is None else {next(name for name, most in SIZES.items() if size <= most): size}
        made = [
            Task(
                f"{category}-{first}-{first + place}" + (f"-{copy}" if copy else ""),
                f"Find the number that I think of. It is one of {first} to {first + numbers - 1}.",
                category,
                {"first": first, "size": numbers, "target": first + place},
            )
            for copy in range(copies)
            for category, numbers in sizes.items()
            for first in range(1, 10 * places, 10)
            for place in range(numbers)
        ]
        whole = (size, places, copies) == (None, 10, 1)
        heldout = (100 if whole else len(made) // 5) if heldout is None else heldout
        train = (400 if whole else len(made) - heldout) if train is None else train
        if train < 1 or heldout < 1:
            raise ValueError(f"heldout and train need to be at least 1, got {heldout} and {train}")
        self.max_steps = 6 if max_steps is None else max_steps
        if self.max_steps < 1:
            raise ValueError(f"max_steps is {max_steps}: at least 1 guess is needed")
        if train + heldout > len(made):
            raise ValueError(f"heldout is {heldout} and train {train}: there are {len(made)} tasks in all")
        # Categories by turns, so that they are equally frequent although the longer ranges hold more numbers.
        rng = random.Random(f"guess {seed}")
        piles = {category: [task for task in made if task.category == category] for category in sizes}
        for pile in piles.values():
            rng.shuffle(pile)
        order: list[Task] = []
        while any(piles.values()):
            order += [pile.pop() for pile in piles.values() if pile]
        self._tasks: dict[Split, list[Task]] = {"heldout": order[:heldout], "train": order[heldout : heldout + train]}

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks of a split."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(self._tasks)}")
        return self._tasks[split]

    def make(self, variant: str | Variant = DEFAULT) -> GuessEnv:
        """A fresh environment."""
        return GuessEnv(self, self.variant(variant))

    def reply(self, task: Task, guess: int, variant: Variant) -> Reply:
        """What the variant answers to a guess of the range."""
        target = int(task.payload["target"])
        if guess == target:
            return "hit"
        truth: Reply = "low" if guess < target else "high"
        if variant.family != "answers" or variant.member == "control" or not _changed(variant, task, guess):
            return truth
        return "none" if variant.member == "silent" else "high" if truth == "low" else "low"

    def words(self, task: Task, guess: int, reply: Reply, variant: Variant) -> str:
        """The reply as the variant words it."""
        if variant.family == "wording" and variant.member == "directions" and reply in ("low", "high") and _changed(variant, task, guess):
            return f"Go {'up' if reply == 'low' else 'down'} from {guess}."
        return f"{guess} is {({'hit': 'right', 'none': 'wrong'}).get(reply, f'too {reply}')}."

    @staticmethod
    def optimum(task: Task) -> int:
        """Guesses that always suffice in the unperturbed world, and without which no player always finds the number."""
        return int(task.payload["size"]).bit_length()

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """The guesses of a fair player who knows the variant and not the number: always the middle of what is left. Empty where that
        takes too many."""
        found, left = self.variant(variant), list(_numbers(task))
        guesses: list[str] = []
        while len(guesses) < self.max_steps:
            guess = left[(len(left) - 1) // 2]
            guesses.append(str(guess))
            reply = self.reply(task, guess, found)
            if reply == "hit":
                return guesses
            if reply == "none":
                left.remove(guess)
            else:
                turned = found.family == "answers" and found.member == "inverted" and _changed(found, task, guess)
                left = [n for n in left if (n > guess) == ((reply == "low") != turned) and n != guess]
        return []

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """Replies to fixed guesses on the first tasks."""
        env, replies = self.make(variant), []
        for task in self._tasks["heldout"][:12]:
            numbers = _numbers(task)
            for guess in (numbers.start, numbers[len(numbers) // 2], numbers.stop - 1):
                replies.append(env.reset(seed=0, options={"task": task})[0])
                replies.append(env.step(str(guess))[0])
        return Probe(replies=tuple(replies))


def _numbers(task: Task) -> range:
    first = int(task.payload["first"])
    return range(first, first + int(task.payload["size"]))


def _changed(variant: Variant, task: Task, guess: int) -> bool:
    """Whether the variant touches the reply to this guess; the lower the severity, the fewer, each a subset of the next."""
    if variant.severity in (0.0, 1.0):
        return variant.severity == 1.0
    digest = hashlib.sha256(f"{variant.stream}\x1f{variant.member}\x1f{task.id}\x1f{guess}".encode()).digest()
    return int.from_bytes(digest[:8], "little") / 2**64 < variant.severity
