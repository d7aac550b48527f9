"""What the measurements say in one word and one paragraph, and what to do about it. Owns thresholds and wording; measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.diagnose.conditions import Conditions
from pipeline.diagnose.divergence import Divergence
from pipeline.diagnose.mixture import TaskSide
from pipeline.diagnose.rankings import Ranking
from pipeline.diagnose.reading import Readings
from pipeline.theory.bandit import floor

Kind = Literal["alike", "off_path", "same_ranking", "revealed", "felt", "partial_conflict", "conflict"]

TITLES: dict[Kind, str] = {
    "alike": "The worlds are alike",
    "off_path": "They differ off the path",
    "same_ranking": "They differ, and one policy serves them all",
    "revealed": "They contradict each other, and it can be read",
    "felt": "The best actions differ, and acting tells which are right in time",
    "partial_conflict": "They contradict each other in part, and it can only be felt",
    "conflict": "They contradict each other, and it can only be felt",
}

SIGNATURES: dict[Kind, str] = {
    "alike": "Pattern A: the plateau of the uniform federation, up to the noise between runs.",
    "off_path": "Pattern B: a plateau near that of a single world; the way there may differ.",
    "same_ranking": "Pattern B: a plateau near that of a single world; the way there may differ. A gap that goes away with more episodes, "
    "or under a short PPO run, is optimisation.",
    "revealed": "Pattern B after a burn-in, until what tells the world is heeded.",
    "felt": "Pattern C: a stable gap and a burn-in that t* sets; without memory of past turns pattern D.",
    "partial_conflict": "Pattern C: a stable gap that grows in proportion to how far the worlds are apart.",
    "conflict": "Pattern D: a low plateau that oscillates and differs between seeds; each round favours the clients sampled last.",
}
"""The paper's patterns of training curves, by verdict."""

NO_DIFFERENCE = 0.01
"""Mean distance below which worlds that draw count as alike when the interval holds 0."""
ON_PATH = 0.02
AGREE = 0.95
LITTLE = 0.05
MUCH = 0.5
WORTH = 0.7
"""Finding out counts as an escape when it leaves at most this part of the blind loss."""


@dataclass(frozen=True)
class Verdict:
    """``conflict`` is the share of tasks and pairs of worlds in which the best actions contradict each other and cannot be told in time;
    ``expect`` says what training curves should look like; ``measured_gap`` is the mean loss of the best shared script, ``floor`` the
    bandit's B delta / 2 where its argument applies."""

    kind: Kind
    title: str
    paragraph: str
    expect: str
    advice: Sequence[str]
    conflict: float
    measured_gap: float
    floor: float | None


@dataclass(frozen=True)
class Evidence:
    """All that a verdict is drawn from. ``weights`` of the pairs: chance that two clients of different worlds are in these two."""

    world: str
    tasks: TaskSide
    homes: int
    pairs: Sequence[Divergence]
    rankings: Sequence[Ranking]
    weights: Sequence[float]
    readings: Readings
    conditions: Conditions
    gap: float
    horizon: int


def judge(evidence: Evidence) -> Verdict:
    """The verdict on a federation."""
    conflict = _mean(evidence, [_unread(evidence, ranking) for ranking in evidence.rankings])
    agree = _mean(evidence, [r.agree.value for r in evidence.rankings])
    apart = _mean(evidence, [r.apart for r in evidence.rankings])
    kind = _kind(evidence, agree, apart, conflict)
    bound = _floor(evidence) if kind in ("conflict", "partial_conflict") else None
    return Verdict(
        kind,
        TITLES[kind],
        " ".join([_what(evidence, kind, agree, apart, conflict, bound), _tasks(evidence)]),
        SIGNATURES[kind],
        _advice(evidence, kind),
        conflict,
        evidence.gap,
        bound,
    )


def _mean(evidence: Evidence, values: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(evidence.weights, values, strict=True))


def _unread(evidence: Evidence, ranking: Ranking) -> float:
    """Share of tasks in which two worlds contradict each other and an agent has not read which one it is in by then."""
    if not ranking.tasks:
        return 0.0
    return sum(count * (1 - evidence.readings.skill(turn)) for turn, count in ranking.forks.items()) / ranking.tasks


def _kind(evidence: Evidence, agree: float, apart: float, conflict: float) -> Kind:
    if evidence.homes < 2 or all(
        pair.largest == 0 or (pair.everywhere.low == 0 and pair.everywhere.value < NO_DIFFERENCE) for pair in evidence.pairs
    ):
        return "alike"
    if agree >= AGREE:
        return "off_path" if evidence.conditions.delta_eff <= ON_PATH else "same_ranking"
    if conflict <= LITTLE:
        if apart > LITTLE:
            return "revealed"
        return "felt" if _mean(evidence, [r.noticed for r in evidence.rankings]) > LITTLE else "same_ranking"
    if evidence.gap > LITTLE and evidence.conditions.learned_gap <= WORTH * evidence.gap:
        return "felt"
    return "conflict" if conflict >= MUCH else "partial_conflict"


def _floor(evidence: Evidence) -> float | None:
    """B delta / 2 for the pair with the largest one, where two worlds contradict each other on nearly all tasks by as much as they
    differ (the mirrored bandit); None elsewhere."""
    found = []
    for pair, ranking in zip(evidence.pairs, evidence.rankings, strict=True):
        bound = floor(pair.largest)
        mirrored = ranking.gap.low - LITTLE <= bound <= ranking.gap.high + LITTLE
        if mirrored and ranking.apart >= AGREE and _unread(evidence, ranking) >= AGREE * ranking.apart * (1 - LITTLE):
            found.append(bound)
    return max(found, default=None)


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _what(evidence: Evidence, kind: Kind, agree: float, apart: float, conflict: float, bound: float | None) -> str:
    if evidence.homes < 2:
        return "All clients live in one world."
    largest = max((pair.largest for pair in evidence.pairs), default=0.0)
    states = sum(pair.states for pair in evidence.pairs)
    n = max((pair.everywhere.n for pair in evidence.pairs), default=0)
    seen = f"{evidence.homes} worlds, {n} matched tasks, {states} compared states"
    if kind == "alike":
        most = max(pair.everywhere.high for pair in evidence.pairs)
        return (
            f"No difference between the clients' worlds was found ({seen}; with 95% confidence it touches less than {_percent(most)} of "
            "the tasks): a shared policy loses nothing to them."
        )
    delta = _mean(evidence, [pair.everywhere.value for pair in evidence.pairs])
    text = f"The same actions are answered differently at {_percent(delta)} of the states visited (delta {largest:.2f} at most; {seen}). "
    on_path = f"on the paths of the scripted oracles it is {_percent(evidence.conditions.delta_eff)}"
    if kind == "off_path":
        return text + f"But {on_path}, and on {_percent(agree)} of the tasks one script is best in both worlds: what differs is avoidable."
    if kind == "same_ranking":
        pages = _mean(evidence, [r.offered for r in evidence.rankings])
        reads = ""
        if pages > LITTLE:
            text += f"It cannot be avoided ({on_path}), but on {_percent(agree)} of the tasks one script is best in both worlds, and on "
            text += f"{_percent(pages)} the page itself offers what is right there: "
            reads = f" if it reads; one that ignores what it sees would lose {evidence.gap:.2f} of one success"
        else:
            text += f"It cannot be avoided ({on_path}), but on {_percent(agree)} of the tasks one script is best in both worlds: "
        return f"{text}one shared policy can be optimal everywhere{reads}."
    best = evidence.readings.best
    read = "nothing could be classified"
    if best is not None:
        read = (
            f"a classifier names the world with {_percent(best.accuracy.value)} accuracy at turn {best.turn} "
            f"(chance {_percent(evidence.readings.chance)}; {best.bits:.2f} bits)"
        )
    noticed = _mean(evidence, [r.noticed for r in evidence.rankings])
    if kind == "felt" and conflict <= LITTLE:
        shared = agree + _mean(evidence, [r.offered for r in evidence.rankings])
        return text + (
            f"On {_percent(shared)} of the tasks one script is best in both worlds or the page offers what is right there. On "
            f"{_percent(noticed)} the best actions contradict each other where both worlds offer both, but a wrong guess "
            "shows: what should come next is not on offer, and time is left for the other way. "
            f"A policy that ignores what it sees would lose {evidence.gap:.2f} of one success."
        )
    turned = _mean(evidence, [r.turned for r in evidence.rankings])
    how = f" (on {_percent(turned)} because the same reply means another thing)" if turned else ""
    text += f"On {_percent(apart)} of the tasks the best actions contradict each other where both worlds offer both{how}; {read}. "
    if kind == "revealed":
        return text + "The identity is there to be read before it matters: one policy that conditions on it can be optimal in every world."
    if kind == "felt":
        return text + (
            f"The best shared script loses {evidence.gap:.2f} of one success, but what an agent meets on its way tells: one that acts, "
            f"remembers and then knows its world would lose about {evidence.conditions.learned_gap:.2f}."
        )
    text += f"On {_percent(conflict)} an agent cannot know in time which is right. "
    if evidence.gap <= LITTLE and turned > LITTLE:
        text += "What that costs cannot be read off scripts, which do not listen to replies. "
        return text + "Where the worlds agree, a shared policy still serves."
    text += f"The best shared script loses {evidence.gap:.2f} of one success on average to each world's own. "
    if bound is not None:
        text += "This is the bandit of the lower bound: over two of these worlds no shared policy loses less than "
        text += f"B delta / 2 = {bound:.2f} on average, nor less than that in the worse of them, whatever the algorithm."
    elif kind == "conflict":
        text += "The bandit's floor B delta / 2 does not apply as it stands; that loss is what a policy blind to its world must bear."
    else:
        text += "Where the worlds agree, or a page tells, a shared policy still serves."
    return text


def _tasks(evidence: Evidence) -> str:
    side = evidence.tasks
    if side.clients < 2:
        return ""
    spread = side.by_category
    if side.differ:
        return (
            f"What the clients ask differs (chi-square of a client's category mix from that of all clients {spread.mean:.2f} on average, "
            f"{spread.worst:.2f} for {spread.client}; factor of the task bound {spread.factor:.2f}), but it stands in the prompt and can "
            "be read."
        )
    return "The clients' mixtures of categories do not differ by more than chance."


def _advice(evidence: Evidence, kind: Kind) -> list[str]:
    if kind == "alike":
        return ["Train one shared policy."]
    if kind == "off_path":
        return [
            "Train one shared policy.",
            "A policy that still explores meets what differs: expect slower starts, not a lower end; start from a warm model.",
        ]
    if kind == "same_ranking":
        return [
            "Train one shared policy; warm start it on pages in all their forms, so that it reads rather than remembers places.",
            "If it still falls behind, that is optimisation, not information: more episodes per update, or PPO as a short probe.",
            "Scripts know where things are: a world that only tells less looks harmless here. Compare an agent's success in each world.",
        ]
    if kind in ("revealed", "felt"):
        best = evidence.readings.best
        turn = best.turn if best is not None else 0
        keep = [f"Keep at least {turn} past turns in the prompt (rollout.history): the world shows by turn {turn}."] if turn else []
        if kind == "felt":
            return [
                "Train one shared policy, and leave it time: a longer window (rollout.history) and more turns (world.max_steps).",
                "Without memory of what it tried, the same federation is a conflict: compare a run with a short and a long window.",
                "Revealing the world in the observation (world.variant.reveal) saves the turns that finding out costs.",
            ]
        return [
            "Train one shared policy.",
            *keep,
            "A mark that the model was never taught to heed is learned slowly: allow more rounds, or reveal in words (reveal = hint).",
        ]
    return [
        "Reveal the world in the observation (world.variant.reveal = hint, or name with more rounds): it is what removes the floor.",
        "Else cluster the clients by world, or personalise (an adapter per client or cluster).",
        "PPO or a clip does not help against missing information; it can only steady the way there.",
        "Judge by the mean over the clients' worlds and by the worst one; one world's number is a lottery.",
    ]
