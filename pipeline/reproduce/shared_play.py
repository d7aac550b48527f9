"""The most that one policy can do in several worlds at once: the scripted oracles, bound to act alike wherever worlds look alike.

The policy knows its task, reads what it is shown and remembers everything; it just is the same for all. So where two worlds have shown the
same so far, it does the same in both; where they show different things, it may go on differently. What it can do is what the oracles of the
worlds would do, begun anew at any point, and the ways back to where such a script can be begun. Among these behaviours the best is found by
trying all. A learner has fewer means than that (a short memory, say), never more knowledge.

Knows worlds and tasks, nothing of training. Meant for worlds that draw nothing; where pages are drawn, it is the value of one draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from envs.base import Task, TextEnv, World

MOST_CHANGES = 3
"""How often a policy may change its plan within an episode: after a surprise, or because its plan cannot go on."""
WAYS_BACK = 2
"""Moves of no script that may be made in a row to get to where a script goes on."""
RETREATS = ("click[< prev]", "click[back to search]", "click[next >]")
"""Moves that only lead elsewhere, where a world offers them."""


@dataclass(frozen=True)
class SharedPlay:
    """Shares of successes over ``tasks`` tasks, mean over the worlds by weight: of the best ``shared`` policy, of the best ``blind`` one (a
    fixed list of actions, which reads nothing), and of each world's ``own`` oracle."""

    shared: float
    blind: float
    own: float
    tasks: int


@dataclass(frozen=True)
class _Seen:
    """What a world showed along a list of actions: all so far, what is on offer now, whether it is over, and whether it went well."""

    shown: tuple[str, ...]
    offered: frozenset[str]
    searchable: bool
    over: bool
    success: bool


@dataclass
class _Table:
    """One task in all worlds. Answers are kept: the search comes by the same histories again and again."""

    make: Sequence[Callable[[], TextEnv]]
    task: Task
    steps: int
    known: dict[tuple[int, tuple[str, ...]], _Seen] = field(default_factory=dict)

    def play(self, world: int, actions: tuple[str, ...]) -> _Seen:
        """What ``world`` shows along ``actions``, which stop where the episode does."""
        found = self.known.get((world, actions))
        if found is None:
            found = self.known[world, actions] = self._play(world, actions)
        return found

    def _play(self, world: int, actions: tuple[str, ...]) -> _Seen:
        # Anew and without a seed, as oracles plan: where pages are drawn, the draws of a fresh environment are the same every time.
        env = self.make[world]()
        observation, info = env.reset(options={"task": self.task})
        shown, over = [observation], False
        for action in actions:
            observation, _, terminated, truncated, info = env.step(action)
            shown.append(observation)
            over = terminated or truncated
            if over:
                break
        offered = frozenset(str(action).lower() for action in info["admissible"])
        # The page after the end of an episode is read by nobody.
        seen = tuple(shown[:-1]) if over else tuple(shown)
        return _Seen(seen, offered, any("<" in action for action in offered), over, bool(info["success"]) and over)


def shared_play(world: World, variants: Mapping[str, float], tasks: Sequence[Task]) -> SharedPlay:
    """What can be done in ``variants`` (names of the world's variants with their weights) on ``tasks``. ``ValueError`` without either."""
    if not variants or not tasks:
        raise ValueError("shared play needs at least one world and one task")
    make = [partial(world.make, name) for name in variants]
    total = sum(variants.values())
    weights = [weight / total for weight in variants.values()]
    shared = blind = own = 0.0
    for task in tasks:
        table = _Table(make, task, world.max_steps)
        oracles = [tuple(world.oracle(task, name)) for name in variants]
        scripts = list(dict.fromkeys(script for script in oracles if script))
        if not scripts:
            continue
        wins = [[table.play(w, script).success for w in range(len(make))] for script in scripts]
        blind += max(sum(weight for weight, won in zip(weights, row, strict=True) if won) for row in wins)
        own += sum(weight for w, weight in enumerate(weights) if oracles[w] and table.play(w, oracles[w]).success)
        alike: dict[tuple[str, ...], set[int]] = {}
        for w in range(len(make)):
            alike.setdefault(table.play(w, ()).shown, set()).add(w)
        shared += sum(_best(table, scripts, weights, frozenset(group), (), MOST_CHANGES) for group in alike.values())
    n = len(tasks)
    return SharedPlay(shared / n, blind / n, own / n, n)


def _best(
    table: _Table, scripts: Sequence[tuple[str, ...]], weights: Sequence[float], worlds: frozenset[int], done: tuple[str, ...], changes: int
) -> float:
    """The most weight of ``worlds``, which cannot be told apart after ``done``, in which the task can still be solved."""
    most = sum(weights[w] for w in worlds)
    best = 0.0
    for plan in _plans(table, scripts, min(worlds), done):
        best = max(best, _carry_out(table, scripts, weights, worlds, done, plan, changes))
        if best >= most - 1e-12:
            break
    return best


def _plans(table: _Table, scripts: Sequence[tuple[str, ...]], world: int, done: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """What may be done next: each script from the first action of it that is on offer now, or after a way back."""
    found: dict[tuple[str, ...], None] = {}
    ways: list[tuple[str, ...]] = [()]
    for length in range(WAYS_BACK + 1):
        further = []
        for way in ways:
            seen = table.play(world, done + way)
            if seen.over:
                continue
            for script in scripts:
                start = next((place for place, action in enumerate(script) if _offers(seen, action)), None)
                if start is not None:
                    found.setdefault(way + script[start:])
            if length < WAYS_BACK and done:
                further += [(*way, move) for move in RETREATS if move in seen.offered]
        ways = further
    room = table.steps - len(done)
    yield from (plan for plan in found if 0 < len(plan) <= room)


def _offers(seen: _Seen, action: str) -> bool:
    action = action.lower()
    return action in seen.offered or (seen.searchable and action.startswith("search["))


def _carry_out(
    table: _Table,
    scripts: Sequence[tuple[str, ...]],
    weights: Sequence[float],
    worlds: frozenset[int],
    done: tuple[str, ...],
    plan: tuple[str, ...],
    changes: int,
) -> float:
    """The weight won by following ``plan`` until worlds part or it ends; those that part go on by themselves."""
    for turn in range(1, len(plan) + 1):
        actions = done + plan[:turn]
        groups: dict[tuple[str, ...], set[int]] = {}
        won = 0.0
        for w in worlds:
            seen = table.play(w, actions)
            if seen.over:
                won += weights[w] * seen.success
            else:
                groups.setdefault(seen.shown, set()).add(w)
        if not groups:
            return won
        if len(groups) > 1 or won or sum(map(len, groups.values())) < len(worlds):
            # Each part now knows more; following the old plan on is one of its choices.
            return won + sum(_go_on(table, scripts, weights, frozenset(group), actions, plan[turn:], changes) for group in groups.values())
        if turn < len(plan) and not _offers(table.play(min(worlds), actions), plan[turn]):
            return _go_on(table, scripts, weights, worlds, actions, (), changes)
    return 0.0


def _go_on(
    table: _Table,
    scripts: Sequence[tuple[str, ...]],
    weights: Sequence[float],
    worlds: frozenset[int],
    done: tuple[str, ...],
    rest: tuple[str, ...],
    changes: int,
) -> float:
    same = _carry_out(table, scripts, weights, worlds, done, rest, changes) if rest else 0.0
    if changes == 0 or same >= sum(weights[w] for w in worlds) - 1e-12:
        return same
    return max(same, _best(table, scripts, weights, worlds, done, changes - 1))
