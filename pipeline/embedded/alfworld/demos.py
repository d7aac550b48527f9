"""Demonstrated turns for the warm start, recorded on ALFWorld's engine in generated games that are used for nothing else.

Owns which games are shown and how: one episode of the clumsy housekeeper per game, since different games teach more than more episodes.
Some games are shown in worlds where another appliance works, so that a failed try is answered by another one and not by the same again.
Objects are renamed in the token ids (a kind for a kind, a number for a number, throughout a turn), which makes many games of one and leaves
reading as the only way to know what to take. Knows nothing of models.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from envs import prompts
from envs.alfworld import AlfWorld
from envs.alfworld.expert import read_task
from envs.alfworld.placement import placement
from envs.alfworld.variants import dynamics
from envs.memory import recall
from envs.prompts import PromptSpec
from envs.variants import Variant
from pipeline.embedded.alfworld.housekeeper import Decision, Skill, clumsy_action
from pipeline.embedded.warmstart import Row

SPEC = PromptSpec(template="memory", list_actions=False, world="alfworld")
"""The prompt that the embedded ALFWorld model is trained on and run with."""

MOST_OF_A_KIND = 3
LAMP = "desklamp"


OTHER_WORLDS: Mapping[str, str] = {
    "pick_heat_then_place_in_recep": "appliance:heat_at_stove",
    "pick_cool_then_place_in_recep": "appliance:cool_at_sink",
}
"""By task type, the world with another appliance that is shown in a share of its games."""


@dataclass(frozen=True)
class Turn:
    """A prompt's text, the text of the response to it, and which decision it shows."""

    prompt: str
    response: str
    decision: Decision

    @property
    def rare(self) -> bool:
        """Whether things are known that are not in view: some were delivered, or seen elsewhere by somebody with empty hands."""
        return "\nPlaced:" in self.prompt or ("\nSeen:" in self.prompt and "\nHolding: none" in self.prompt)


def place_kinds() -> list[str]:
    """Kinds of places, as they are written."""
    table = placement()
    return sorted({name.lower() for name in (*table.holds, *(r for room in table.rooms.values() for r in room.receptacles))})


def object_kinds() -> list[str]:
    """Kinds of things, as they are written."""
    table = placement()
    held = (name for names in table.holds.values() for name in names)
    placed = (name for room in table.rooms.values() for name in room.placed)
    return sorted({name.lower() for name in (*table.copies, *held, *placed, LAMP)})


def things() -> Mapping[str, int]:
    """Kinds of things and places, and up to which number each has a token of its own."""
    return dict.fromkeys([*place_kinds(), *object_kinds()], MOST_OF_A_KIND)


@dataclass(frozen=True)
class Amounts:
    """``elsewhere`` is the share of a task type's games shown in its other world; ``rare`` turns are used that often."""

    max_steps: int = 24
    elsewhere: float = 0.3
    rare: int = 3


def record(world: AlfWorld, games: Sequence[str], skill: Skill, amounts: Amounts, seed: int, count: Callable[[int], None]) -> list[Turn]:
    """One episode per game. Calls ``count(1)`` after each."""
    turns: list[Turn] = []
    for game in games:
        rng = random.Random(f"demonstration-{seed}-{game}")
        info = world.info(game)
        other = OTHER_WORLDS.get(info.task_type) if rng.random() < amounts.elsewhere else None
        play, task = world.engine(dynamics(Variant.parse(other)) if other else None).play(game), info.task
        wish, history = read_task(task), list[tuple[str, str]]()
        for _ in range(amounts.max_steps):
            seen = play.observation
            decision, action = clumsy_action(wish, recall(task, history, seen), play.admissible, skill, rng)
            turn = Turn(prompts.render(SPEC, task, history, seen, play.admissible), action, decision)
            turns += [turn] * (amounts.rare if turn.rare else 1)
            history.append((seen, action))
            if play.step(action)[2]:
                break
        count(1)
    return turns


def renamed(rows: Sequence[Row], tokenizer: Any, share: float, passes: int, seed: int) -> Iterator[Row]:
    """All rows ``passes`` times, each pass shuffled; in ``share`` of them kinds of objects and numbers of a kind are exchanged, at random.

    Lamps and places keep their names: what can be done with them depends on their kind.
    """
    vocabulary = tokenizer.get_vocab()
    kinds = [name for name in object_kinds() if name != LAMP and name not in place_kinds()]
    numbers = range(1, MOST_OF_A_KIND + 1)
    ids = np.array([[vocabulary[name], *(vocabulary[f"{name} {number}"] for number in numbers)] for name in kinds])
    rng = np.random.default_rng(seed)
    for _ in range(passes):
        for index in rng.permutation(len(rows)):
            row = rows[index]
            if rng.random() >= share:
                yield row
                continue
            other = np.arange(len(vocabulary))
            columns = [0, *(1 + rng.permutation(MOST_OF_A_KIND))]
            other[ids] = ids[rng.permutation(len(kinds))][:, columns]
            yield Row(tuple(other[list(row.prompt)].tolist()), tuple(other[list(row.response)].tolist()))
