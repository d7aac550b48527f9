"""The paper's tests before deployment and the slack of theorem 5: t*, eta_cls, eta_ker, and what is left after finding out.

Measured on scripts: a kernel counts as known once the world is, so eta_ker is what mistaking one world for another costs in distance of
answers, and a world is recoverable if its oracle still succeeds after another world's oracle has acted for t* turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.base import World
from pipeline.diagnose.divergence import Divergence, Estimate, estimate
from pipeline.diagnose.reading import Readings
from pipeline.diagnose.scripts import Sample, first_seed, mean, play
from pipeline.theory.bounds import recovery_bound

PROBED_TASKS = 12
SEEDS_PROBED = 8


@dataclass(frozen=True)
class Conditions:
    """``delta_eff`` mean distance on the oracles' paths; ``turn`` t*; ``error`` eta_cls; ``kernel_error`` eta_ker; ``recovered`` the
    oracles' value after t* turns of another world's oracle, as a share of their value from the start, ``loss_per_turn`` c0 of it (in
    successes); ``slack`` the bound of theorem 5, at most 1 success; ``learned_gap`` an estimate of what a policy loses that
    acts, reads and then knows its world, never more than the blind gap."""

    delta_eff: float
    turn: int | None
    error: float | None
    kernel_error: float | None
    recovered: Estimate | None
    loss_per_turn: float | None
    slack: float | None
    learned_gap: float


def conditions(
    world: World, sample: Sample, pairs: Sequence[Divergence], weights: Sequence[float], readings: Readings, gap: float
) -> Conditions:
    """Put the tests together. ``weights`` of the pairs add up to 1; ``gap`` is what the best shared script loses, in successes."""
    delta_eff = sum(w * pair.on_path.value for w, pair in zip(weights, pairs, strict=True))
    best = readings.best
    if best is None:
        return Conditions(delta_eff, None, None, None, None, None, None, gap)
    error = 1 - best.accuracy.value
    apart = {frozenset((pair.first, pair.second)): pair.everywhere.value for pair in pairs}
    kernel = mean(
        [
            sum(share * apart.get(frozenset((home, guess)), 0.0) for guess, share in enumerate(row) if guess != home)
            for home, row in enumerate(best.confusion)
        ]
    )
    recovered, loss = _recovered(world, sample, best.turn)
    if best.turn == 0 and world.max_steps > 1:
        # What is lost per turn cannot be seen at turn 0.
        loss = _recovered(world, sample, 1)[1]
    # One success per episode: R H = 1, and ``loss`` is c0 R.
    horizon = world.max_steps
    slack = min(1.0, recovery_bound(best.turn, error, kernel, loss * horizon, 1 / horizon, horizon))
    return Conditions(delta_eff, best.turn, error, kernel, recovered, loss, slack, _learned(readings, gap, loss))


def _learned(readings: Readings, gap: float, loss: float) -> float:
    """The least, over turns t, of what it costs to act as the world that was read so far for t turns, and from then on as the one read by
    t: a turn in a wrong world's manner costs ``loss``, keeping to a wrong world what a blind policy then loses, less what ``loss`` took
    already. The blind ``gap`` where nothing is read."""
    at_stake = gap / (1 - readings.chance)
    costs, paid = [gap], 0.0
    for reading in readings.by_turn:
        wrong = 1 - readings.accuracy(reading.turn)
        costs.append(paid + wrong * max(0.0, at_stake - loss * reading.turn))
        paid += wrong * loss
    return min(costs)


def _recovered(world: World, sample: Sample, turn: int) -> tuple[Estimate, float]:
    """Value after ``turn`` actions of another world's oracle as a share of the value from the start, and successes lost per turn."""
    shares: list[float] = []
    losses: list[float] = []
    if turn == 0:
        return Estimate(1.0, 1.0, 1.0, len(sample.tasks)), 0.0
    homes = range(len(sample.homes))
    envs = [world.make(home.mute) for home in sample.homes]
    for task, scripts in list(enumerate(sample.scripts))[:PROBED_TASKS]:
        plans = {home: script.actions for script in scripts if script.kind == "oracle" for home in script.owners}
        kept: list[float] = []
        for home in homes:
            others = [plan for other, plan in plans.items() if other != home]
            if home not in plans or not others:
                continue
            seeds = range(first_seed(task), first_seed(task) + (SEEDS_PROBED if sample.draws[home] else 1))
            own, after = (
                mean([play(envs[home], sample.tasks[task], actions, seed).ret for seed in seeds]) / sample.success_pays
                for actions in (plans[home], (*others[task % len(others)][:turn], *plans[home]))
            )
            if own > 0:
                kept.append(min(1.0, after / own))
                losses.append(max(0.0, own - after))
        if kept:
            shares.append(mean(kept))
    return estimate(shares), mean(losses) / turn if losses else 0.0
