"""A diagnosis in the terminal. Owns layout; every number comes from the diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.diagnose.diagnosis import Diagnosis
from pipeline.diagnose.divergence import Estimate

if TYPE_CHECKING:
    from rich.console import Console

PAIRS_SHOWN = 28
WIDE = 110
"""Columns of a terminal from which intervals fit into the table of pairs."""
LEGEND = (
    "Differ, On path: answers to the same actions that differ, at all states and on the oracles' paths. Same, Offered, Noticed, Clash: "
    "tasks in which one script is best in both worlds; the page offers what is right; a wrong guess shows in time; the best actions "
    "contradict each other. Loss: of the best shared script, in successes."
)

GUESSING = (
    "That the world can hardly be guessed does little harm here: a wrong guess shows (Noticed), or what is met on the way tells, while "
    "there is time for the other way."
)


def percent(share: float) -> str:
    """A share in whole percent; one decimal below 10 %."""
    return f"{100 * share:.0f}%" if share == 0 or share >= 0.1 else f"{100 * share:.1f}%"


def ranged(estimate: Estimate) -> str:
    """A share with its 95 % interval."""
    return f"{percent(estimate.value)} [{percent(estimate.low)}, {percent(estimate.high)}]"


def _value(estimate: Estimate) -> str:
    return percent(estimate.value)


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """The verdict, what to do, and the numbers behind it."""
    from rich.padding import Padding
    from rich.table import Table

    verdict = found.verdict
    console.print(f"[bold]{verdict.title}[/bold]  ({found.world}, {found.clients} clients, {found.worlds} worlds)")
    console.print(verdict.paragraph, markup=False)
    console.print(f"Expect: {verdict.expect}", markup=False)
    for line in verdict.advice:
        console.print(Padding(f"- {line}", (0, 0, 0, 2)), markup=False)
    console.print()

    worlds = Table("", "World", "Clients", "Oracle solves", title="Worlds", title_justify="left")
    for number, home in enumerate(found.homes, start=1):
        worlds.add_row(str(number), home.name, str(len(home.clients)), f"{home.solved} of {home.tried}")
    console.print(worlds)

    if found.pairs:
        pairs = Table(title="Between worlds", title_justify="left")
        for head in ("Worlds", "Differ", "On path", "tau", "Same", "Offered", "Noticed", "Clash", "Loss"):
            pairs.add_column(head, justify="left" if head == "Worlds" else "right")
        show = ranged if console.width >= WIDE else _value
        for pair, ranking in list(zip(found.pairs, found.rankings, strict=True))[:PAIRS_SHOWN]:
            pairs.add_row(
                f"{pair.first + 1} | {pair.second + 1}",
                show(pair.everywhere),
                show(pair.on_path),
                "-" if ranking.tau is None else f"{ranking.tau:.2f}",
                percent(ranking.agree.value),
                percent(ranking.offered),
                percent(ranking.noticed),
                percent(ranking.apart),
                f"{ranking.gap.value:.2f}",
            )
        console.print(pairs)
        console.print(LEGEND, style="dim")
        if len(found.pairs) > PAIRS_SHOWN:
            console.print(f"the first {PAIRS_SHOWN} of {len(found.pairs)} pairs; the JSON file has all")
        if any(pair.policy for pair in found.pairs):
            policy = [f"{p.first + 1} | {p.second + 1}: {ranged(p.policy)}" for p in found.pairs if p.policy is not None]
            console.print(f"On the given policy's path answers differ: {'; '.join(policy[:PAIRS_SHOWN])}", markup=False)

    if found.readings.by_turn:
        reading = Table(title=f"Guessing the world from what is seen (chance {percent(found.readings.chance)})", title_justify="left")
        for head in ("Turn", "Accuracy", "Bits", "Texts"):
            reading.add_column(head, justify="right")
        for turn in found.readings.by_turn:
            reading.add_row(str(turn.turn), ranged(turn.accuracy), f"{turn.bits:.2f}", str(turn.texts))
        console.print(reading)
        if verdict.kind == "felt":
            console.print(GUESSING, style="dim")

    facts = Table(show_header=False, title="Tests before deployment", title_justify="left")
    for name, value in test_facts(found):
        facts.add_row(name, value)
    console.print(facts)
    for note in found.notes:
        console.print(f"Note: {note}.", markup=False)


def test_facts(found: Diagnosis) -> list[tuple[str, str]]:
    """Names and values of the pre-deployment tests and of the task side."""
    tests, side = found.conditions, found.tasks
    facts = [("delta_eff, answers that differ on the oracles' paths", percent(tests.delta_eff))]
    if found.pairs:
        facts.insert(0, ("delta, the largest distance at a state", f"{max(pair.largest for pair in found.pairs):.2f}"))
    if tests.turn is not None and tests.error is not None and tests.kernel_error is not None:
        facts += [
            ("t*, turn by which the world is as readable as it gets", str(tests.turn)),
            ("eta_cls, error of the classifier then", percent(tests.error)),
            ("eta_ker, distance of answers that this error costs", f"{tests.kernel_error:.3f}"),
        ]
    if tests.recovered is not None and tests.loss_per_turn is not None and tests.slack is not None:
        facts += [
            ("recoverable after t* turns in another world's manner", ranged(tests.recovered)),
            ("c0, successes lost per such turn", f"{tests.loss_per_turn:.3f}"),
            ("slack for finding out (theorem 5, C3), successes, at most 1", f"{tests.slack:.2f}"),
        ]
    facts += [
        ("loss of the best shared script, successes", f"{found.gap.value:.2f} [{found.gap.low:.2f}, {found.gap.high:.2f}]"),
        ("of it by turn", ", ".join(f"turn {turn}: {loss:.2f}" for turn, loss in found.gap_by_turn.items() if loss >= 0.005) or "-"),
        ("loss of a policy that acts and learns its world, estimate", f"{tests.learned_gap:.2f}"),
        (
            "floor of any shared policy, B delta / 2 (theorem 4)",
            "does not apply" if found.verdict.floor is None else f"{found.verdict.floor:.2f}",
        ),
        (
            "chi-square of a client's category mix from that of all clients, mean and worst",
            f"{side.by_category.mean:.2f}, {side.by_category.worst:.2f} ({side.by_category.client})",
        ),
        ("sqrt(1 + chi-square) of the worst, by category and by task", f"{side.by_category.factor:.2f}, {side.by_task.factor:.2f}"),
        ("chance of such mixes from one source", "-" if side.p_value is None else f"{side.p_value:.2g}"),
    ]
    return facts
