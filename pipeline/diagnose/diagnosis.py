"""``diagnose``: from clients' tasks and worlds to a diagnosis, without training. Owns the order of the measurements and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any

from envs.base import World
from pipeline.diagnose.conditions import Conditions, conditions
from pipeline.diagnose.divergence import Divergence, Estimate, compare, estimate
from pipeline.diagnose.mixture import TaskSide, task_side
from pipeline.diagnose.rankings import Ranking, rank, said_otherwise, shared_losses
from pipeline.diagnose.reading import Readings, read_worlds
from pipeline.diagnose.scripts import Sample, take_sample
from pipeline.diagnose.setup import ClientSetup, Home, Settings, Visit, find_homes, matched_tasks, sample_homes
from pipeline.diagnose.verdict import Evidence, Verdict, judge

SCHEMA = 1
SMALLEST_LOSS = 1e-9


@dataclass(frozen=True)
class HomeLine:
    """A world in the result: its name, its clients, how many of the matched tasks its oracle solves, and whether it draws."""

    name: str
    clients: Sequence[str]
    solved: int
    tried: int
    draws: bool


@dataclass(frozen=True)
class Diagnosis:
    """Everything measured and the verdict. Worlds are numbered by their place in ``homes``. ``gap_by_turn`` says at which turns of the
    best shared script ``gap`` arises, turns without a loss left out."""

    world: str
    clients: int
    worlds: int
    homes: Sequence[HomeLine]
    tasks: TaskSide
    pairs: Sequence[Divergence]
    rankings: Sequence[Ranking]
    weights: Sequence[float]
    gap: Estimate
    readings: Readings
    conditions: Conditions
    verdict: Verdict
    settings: Settings
    matched_tasks: int
    episodes: int
    notes: Sequence[str] = field(default=())
    gap_by_turn: Mapping[int, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        readings = {"chance": self.readings.chance, "by_turn": _plain(list(self.readings.by_turn))}
        own = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__ if name != "readings"}
        return {"schema": SCHEMA, **own, "readings": readings}


def diagnose(
    world: World,
    clients: Mapping[str, ClientSetup],
    settings: Settings | None = None,
    visits: Sequence[Visit] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> Diagnosis:
    """Measure a federation before it trains. ``visits`` are episodes of a given policy; ``tell`` hears what is going on.

    Raises ``ConfigError`` for clients without tasks or in unknown variants.
    """
    settings = settings or Settings()
    all_homes = find_homes(world, clients)
    homes = sample_homes(all_homes, settings.worlds, settings.seed)
    notes = []
    if len(homes) < len(all_homes):
        notes.append(f"{len(homes)} of {len(all_homes)} worlds were compared: the most populous and a draw from the rest")
    owned = {client: setup.tasks for client, setup in clients.items() if setup.tasks}
    if len(owned) < len(clients):
        notes.append(f"{len(clients) - len(owned)} clients own no tasks and are left out of the mixtures")
    tasks = matched_tasks(homes, clients, settings.tasks, settings.seed)
    given = {visit.task.id: visit.task for visit in visits}
    if given:
        # A policy is looked at where it was.
        tasks = (list(given.values()) + [task for task in tasks if task.id not in given])[: max(settings.tasks, len(tasks))]
    side = task_side(owned)
    tell(f"{len(homes)} worlds, {len(tasks)} matched tasks: playing")
    sample = take_sample(world, homes, tasks, settings, visits)
    places = [(i, j) for i in range(len(homes)) for j in range(i + 1, len(homes))]
    weights = _weights(homes, places)
    tell(f"{sample.episodes} episodes played: comparing")
    pairs = [compare(sample, i, j) for i, j in places]
    told = said_otherwise(world, sample)
    rankings = [rank(world, sample, i, j, told) for i, j in places]
    gap, gap_by_turn = _gap(sample)
    tell("reading")
    readings = read_worlds(world, sample, settings)
    tests = conditions(world, sample, pairs, weights, readings, gap.value)
    evidence = Evidence(world.name, side, len(homes), pairs, rankings, weights, readings, tests, gap.value, world.max_steps)
    unsolved = max((r.unsolved for r in rankings), default=0)
    if unsolved:
        notes.append(f"up to {unsolved} of {len(tasks)} tasks have no script that succeeds in one of two worlds; they rank nothing")
    if any(sample.draws):
        notes.append("worlds draw: distances and values are estimates over seeds")
    return Diagnosis(
        world=world.name,
        clients=len(clients),
        worlds=len(all_homes),
        homes=[_line(sample, place) for place in range(len(homes))],
        tasks=side,
        pairs=pairs,
        rankings=rankings,
        weights=weights,
        gap=gap,
        readings=readings,
        conditions=tests,
        verdict=judge(evidence),
        settings=settings,
        matched_tasks=len(tasks),
        episodes=sample.episodes,
        notes=notes,
        gap_by_turn=gap_by_turn,
    )


def _weights(homes: Sequence[Home], places: Sequence[tuple[int, int]]) -> list[float]:
    """Chance that two clients in different worlds are in these two."""
    masses = [len(homes[i].clients) * len(homes[j].clients) for i, j in places]
    return [mass / sum(masses) for mass in masses]


def _gap(sample: Sample) -> tuple[Estimate, dict[int, float]]:
    """What the best script for all clients loses to the best script of each world, over tasks that can be solved in every world; and its
    mean by turn."""
    total = sum(len(home.clients) for home in sample.homes)
    shares = {place: len(home.clients) / total for place, home in enumerate(sample.homes)}
    losses = []
    for task, scripts in enumerate(sample.scripts):
        if all(max(sample.value(home, task, number) for number in range(len(scripts))) > 0 for home in shares):
            losses.append(shared_losses(sample, task, shares))
    by_turn = {turn: sum(own[turn] for own in losses if turn < len(own)) / len(losses) for turn in range(max(map(len, losses), default=0))}
    return estimate([sum(own) for own in losses]), {turn: loss for turn, loss in by_turn.items() if abs(loss) > SMALLEST_LOSS}


def _line(sample: Sample, place: int) -> HomeLine:
    solved = tried = 0
    for task, scripts in enumerate(sample.scripts):
        tried += 1
        solved += any(place in script.owners and sample.value(place, task, number) > 0 for number, script in enumerate(scripts))
    home = sample.homes[place]
    return HomeLine(home.name, home.clients, solved, tried, sample.draws[place])


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
