"""The bandit: a few arms that pay or do not, and the smallest worlds in which clients can or cannot share one policy.

The lower-bound construction of the paper (theorem 4): in the world of one client one arm pays with probability (1 + delta) / 2 and the
others with (1 - delta) / 2, in the world of another client another arm is the good one, and nothing that can be read tells which world it
is. Three families stand beside it in which one policy serves all: they differ where no good policy goes, or in what pays but not in which
arm is best. What is best is known in closed form (``BanditWorld.values``). Knows nothing of prompts, models or clients.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from envs.base import Split, Task, TextEnv, World
from envs.reveal import mark
from envs.variants import DEFAULT, Family, Probe, Variant

SUCCESS_REWARD = 10.0
"""Return of an episode in which every play pays."""

ARMS: tuple[str, ...] = ("a", "b", "c", "d")
HALLS: tuple[str, ...] = ("red", "blue", "green", "white")
"""Categories of tasks: where the machine stands."""

PROBE_SEEDS = 24

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("conflict", "dynamics", ARMS, "another arm pays best", {"hint_error": 0.0}, default_members=2),
        Family("same_ranking", "dynamics", ("control", "lower"), "all arms pay less often, in the same order", {"factor": 0.6}),
        Family("off_path", "dynamics", ("control", "worse"), "the arms that are not best pay less often", {"factor": 0.2}),
        Family("payoffs", "dynamics", ("given",), "arms pay as the option says", {"values": "0.5,0.5"}),
    )
}


class BanditEnv(TextEnv):
    """One machine at a time: ``horizon`` plays, each of an arm that pays with the probability of the variant and the task.

    The reply to a play says whether it paid (``silent``: it does not); playing what is no arm pays nothing. The return is 10 when all plays
    pay, ``score`` the share of plays that paid, success more than half of them. What pays is drawn from a stream that ``reset(seed=...)``
    sets; at equal seeds the same draw decides in all variants.
    """

    def __init__(self, world: BanditWorld, variant: Variant) -> None:
        self._world, self._variant = world, variant
        self._rng = random.Random("plays")
        self._task: Task | None = None
        self._values: tuple[float, ...] = ()
        self._mark = ""
        self._plays = self._paid = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start on ``options["task"]``. Raises ``ValueError`` when there is none."""
        super().reset(seed=seed)
        task = (options or {}).get("task")
        if not isinstance(task, Task) or "machine" not in task.payload:
            raise ValueError('reset needs a bandit task: reset(options={"task": world.tasks("train")[0]})')
        if seed is not None:
            self._rng = random.Random(f"plays {seed}")
        self._task, self._plays, self._paid = task, 0, 0
        self._values = self._world.values(self._variant, task)
        self._mark = mark(self._variant, FAMILIES, self._hint(), "hall")
        return self._shown(""), self._info()

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Play an arm. Raises ``ValueError`` when the episode is over or was never started."""
        if self._task is None:
            raise ValueError("the episode is over (or was never started): call reset first")
        arm, draw = action.strip().lower(), self._rng.random()
        known = arm in self._world.arms
        paid = known and draw < self._values[self._world.arms.index(arm)]
        self._plays += 1
        self._paid += paid
        if not known:
            reply = "No such arm. "
        elif self._world.silent:
            reply = f"Arm {arm} played. "
        else:
            reply = f"Arm {arm} paid. " if paid else f"Arm {arm} did not pay. "
        over = self._plays == self._world.horizon
        info = self._info(over)
        if over:
            self._task = None
        return self._shown(reply, over), SUCCESS_REWARD * paid / self._world.horizon, over, False, info

    def _hint(self) -> str:
        """Names the best arm; another one with probability ``hint_error``, for the whole episode."""
        best = max(range(len(self._values)), key=self._values.__getitem__)
        if self._variant.reveal != "hint" or self._variant.family != "conflict":
            return f"Arm {self._world.arms[best]} pays best here"
        error = float(self._variant.option("hint_error", FAMILIES["conflict"]))
        if error and self._rng.random() < error:
            best = self._rng.choice([arm for arm in range(len(self._values)) if arm != best])
        return f"Arm {self._world.arms[best]} pays best here"

    def _shown(self, reply: str, over: bool = False) -> str:
        if over:
            text = f"{reply}The game is over."
        else:
            text = f"{reply}Play {self._plays + 1} of {self._world.horizon}. Arms: {', '.join(self._world.arms)}."
        return f"{text}\n{self._mark}" if self._mark else text

    def _info(self, over: bool = False) -> dict[str, Any]:
        return {
            "admissible": [] if over else list(self._world.arms),
            "score": self._paid / self._world.horizon if over else 0.0,
            "success": over and 2 * self._paid > self._world.horizon,
        }


class BanditWorld(World):
    """``train`` and ``heldout`` machines in four halls. Without a variant the first arm is the good one.

    Options: ``horizon`` plays per episode; ``arms`` of them (2 to 4); ``delta`` in [0, 1], the distance between the good arm and the
    others, or ``values``, the arms' own probabilities; ``silent`` replies say nothing of what paid; with ``contextual`` the good arm is
    another one in every hall, so that the task tells it; ``max_steps`` must leave room for the horizon. Variants go from these
    probabilities to their own in a straight line with their severity: for ``conflict`` the distance between two worlds is severity times
    delta. Raises ``ValueError`` for what is out of range.
    """

    name: ClassVar[str] = "bandit"
    families: ClassVar[Mapping[str, Family]] = FAMILIES

    def __init__(
        self,
        horizon: int = 1,
        arms: int = 2,
        delta: float = 0.5,
        values: Sequence[float] | None = None,
        silent: bool = False,
        contextual: bool = False,
        train: int = 400,
        heldout: int = 100,
        seed: int = 0,
        max_steps: int | None = None,
    ) -> None:
        if horizon < 1 or train < 1 or heldout < 1:
            raise ValueError(f"horizon, train and heldout need to be at least 1, got {horizon}, {train} and {heldout}")
        if not 0.0 <= delta <= 1.0:
            raise ValueError(f"delta is {delta:g}; allowed: 0 to 1")
        if max_steps is not None and max_steps < horizon:
            raise ValueError(f"max_steps is {max_steps}: an episode takes {horizon} plays")
        if values is None:
            values = [(1 + delta) / 2] + [(1 - delta) / 2] * (arms - 1)
        if not 2 <= len(values) <= len(ARMS):
            raise ValueError(f"arms is {len(values)}; allowed: 2 to {len(ARMS)}")
        self._base = _probabilities(values)
        self.horizon = self.max_steps = horizon
        self.arms = ARMS[: len(values)]
        self.silent, self.contextual = silent, contextual
        machines = list(range(train + heldout))
        random.Random(f"machines {seed}").shuffle(machines)
        self._tasks: dict[Split, list[Task]] = {
            "heldout": [self._task(number) for number in machines[:heldout]],
            "train": [self._task(number) for number in machines[heldout:]],
        }

    def _task(self, number: int) -> Task:
        hall = HALLS[number % len(HALLS)]
        text = f"Machine {number} stands in the {hall} hall. Play the arm that pays most often."
        return Task(f"machine-{number}", text, hall, {"machine": number})

    def tasks(self, split: Split) -> Sequence[Task]:
        """Machines of a split."""
        if split not in self._tasks:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(self._tasks)}")
        return self._tasks[split]

    def define(self, variants: Mapping[str, Variant]) -> None:
        """Give names to variants. Raises ``ValueError`` for one that is not offered, for instance of an arm that this world lacks."""
        for variant in variants.values():
            self.values(variant)
        super().define(variants)

    def make(self, variant: str | Variant = DEFAULT) -> BanditEnv:
        """A fresh environment."""
        found = self.variant(variant)
        self.values(found)
        return BanditEnv(self, found)

    def values(self, variant: str | Variant = DEFAULT, task: Task | None = None) -> tuple[float, ...]:
        """Probability that a play of each arm pays, on ``task`` where it matters. The best possible mean score is the largest.

        Raises ``ValueError`` for a variant of an arm that this world does not have.
        """
        found = self.variant(variant)
        base = self._base
        if not found.unperturbed:
            goal = self._perturbed(found)
            base = tuple((1 - found.severity) * b + found.severity * g for b, g in zip(base, goal, strict=True))
        if not self.contextual or task is None:
            return base
        turn = HALLS.index(task.category) % len(base)
        return base[-turn:] + base[:-turn]

    def _perturbed(self, variant: Variant) -> tuple[float, ...]:
        """The arms' probabilities at severity 1."""
        family, base = FAMILIES[variant.family], self._base
        best = max(range(len(base)), key=base.__getitem__)
        if family.name == "conflict":
            if variant.member not in self.arms:
                raise ValueError(f"member {variant.member!r} of variant 'conflict': this world has the arms {', '.join(self.arms)}")
            other = self.arms.index(variant.member)
            swapped = list(base)
            swapped[best], swapped[other] = base[other], base[best]
            return tuple(swapped)
        if variant.member == "control":
            return base
        if family.name == "payoffs":
            text = str(variant.option("values", family))
            try:
                values = _probabilities([float(part) for part in text.split(",")])
            except ValueError as error:
                raise ValueError(f"option values = {text!r} of variant 'payoffs': {error}") from None
            if len(values) != len(base):
                raise ValueError(f"option values = {text!r} of variant 'payoffs': this world has {len(base)} arms")
            return values
        factor = float(variant.option("factor", family))
        if not 0.0 <= factor <= 1.0:
            raise ValueError(f"option factor = {factor:g} of variant {family.name!r}; allowed: 0 to 1")
        return tuple(value if family.name == "off_path" and arm == best else factor * value for arm, value in enumerate(base))

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """The best arm at every play. Whether it pays is a matter of luck."""
        values = self.values(variant, task)
        return [self.arms[max(range(len(values)), key=values.__getitem__)]] * self.horizon

    def probe(self, variant: str | Variant = DEFAULT) -> Probe:
        """Replies of every arm at fixed seeds on the first machine, with what it paid where replies do not say."""
        env, task, replies = self.make(variant), self._tasks["heldout"][0], []
        for arm in self.arms:
            for seed in range(PROBE_SEEDS):
                replies.append(env.reset(seed=seed, options={"task": task})[0])
                reply, reward, *_ = env.step(arm)
                replies.append(f"{reply} [{reward:g}]" if self.silent else reply)
        return Probe(replies=tuple(replies))


def _probabilities(values: Sequence[float]) -> tuple[float, ...]:
    for value in values:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"an arm pays with probability {value:g}; allowed: 0 to 1")
    return tuple(float(value) for value in values)
