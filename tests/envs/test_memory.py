"""The notebook of an agent in rooms, on hand-written transcripts, and the prompt that shows it."""

from __future__ import annotations

import pytest

from envs.memory import Memory, recall
from envs.prompts import PromptSpec, parse, render

TASK = "put a hot apple in fridge."
INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a countertop 1, "
    f"a fridge 1, a microwave 1, and a stoveburner 1.\n\nYour task is to: {TASK}"
)
AT_COUNTER = "You arrive at countertop 1. On the countertop 1, you see a apple 2, a apple 1, and a knife 1."
NOTHING = "Nothing happens."


def after(*turns: tuple[str, str], task: str = TASK, intro: str = INTRO) -> Memory:
    """The memory after (action, answer) turns."""
    seen = [intro, *(answer for _, answer in turns)]
    return recall(task, [(seen[i], action) for i, (action, _) in enumerate(turns)], seen[-1])


def line(memory: Memory, name: str) -> str:
    found = [text.partition(": ")[2] for text in memory.lines() if text.startswith(f"{name}: ")]
    return found[0] if found else ""


def test_the_first_page_tells_the_room() -> None:
    memory = after()
    assert memory.lines() == [
        "Left: countertop 1, fridge 1, microwave 1, stoveburner 1",
        "Done: none",
        "Named: fridge 1",
        "Now: none",
        "Holding: none",
        "Here: none",
        "View: none",
    ]


def test_an_episode_by_hand() -> None:
    turns = [
        ("go to countertop 1", AT_COUNTER),
        ("take apple 2 from countertop 1", "You pick up the apple 2 from the countertop 1."),
        ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
        ("heat apple 2 with microwave 1", "You heat the apple 2 using the microwave 1."),
        ("go to fridge 1", "You arrive at fridge 1. The fridge 1 is closed."),
        ("open fridge 1", "You open the fridge 1. The fridge 1 is open. In it, you see nothing."),
    ]
    first = after(turns[0])
    assert (line(first, "View"), line(first, "Here"), line(first, "Done")) == ("apple 2, apple 1", "countertop 1", "countertop 1")
    held = after(*turns[:2])
    assert (line(held, "Holding"), line(held, "View")) == ("apple 2", "apple 1")
    away = after(*turns[:3])
    assert (line(away, "Seen"), line(away, "Here"), line(away, "View")) == ("apple 1 at countertop 1", "microwave 1 closed", "none")
    # A closed place has not been looked into.
    assert line(away, "Left") == "fridge 1, microwave 1, stoveburner 1"
    assert line(after(*turns[:4]), "Holding") == "apple 2 hot"
    assert line(after(*turns[:5]), "Here") == "fridge 1 closed (named)"
    opened = after(*turns)
    assert (line(opened, "Here"), line(opened, "Done")) == ("fridge 1 open (named)", "countertop 1, fridge 1")
    put = after(*turns, ("move apple 2 to fridge 1", "You move the apple 2 to the fridge 1."))
    assert (line(put, "Holding"), line(put, "Placed"), line(put, "View")) == ("none", "apple 2 hot at fridge 1", "none")


def test_what_is_done_comes_in_order_of_recency() -> None:
    memory = after(
        ("go to countertop 1", AT_COUNTER),
        ("go to stoveburner 1", "You arrive at stoveburner 1. On the stoveburner 1, you see nothing."),
        ("go to countertop 1", AT_COUNTER),
    )
    assert memory.done == ["stoveburner 1", "countertop 1"]
    assert memory.room == ["fridge 1", "microwave 1", "stoveburner 1", "countertop 1"]


def test_failures_are_kept_until_something_changes_for_them() -> None:
    tried = [
        ("take apple 1 from countertop 1", "You pick up the apple 1 from the countertop 1."),
        ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
        ("heat apple 1 with microwave 1", NOTHING),
    ]
    memory = after(*tried)
    assert line(memory, "Failed") == "heat apple 1 with microwave 1"
    assert line(memory, "Here") == "microwave 1 closed (failed)"
    assert line(memory, "Now") == "You arrive at microwave 1. The microwave 1 is closed."
    elsewhere = after(*tried, ("go to stoveburner 1", "You arrive at stoveburner 1. On the stoveburner 1, you see nothing."))
    assert (line(elsewhere, "Failed"), line(elsewhere, "Here")) == ("heat apple 1 with microwave 1", "stoveburner 1")
    # Opening the appliance is a reason to try again.
    again = after(*tried, ("open microwave 1", "You open the microwave 1. The microwave 1 is open. In it, you see nothing."))
    assert again.failed == []
    put = after(*tried, ("move apple 1 to microwave 1", "You move the apple 1 to the microwave 1."))
    assert put.failed == []


def test_only_the_last_three_failures_are_kept_each_once() -> None:
    memory = after(*[(f"go {word}", NOTHING) for word in ("a", "b", "c", "b", "d")])
    assert memory.failed == ["go c", "go b", "go d"]


def test_hot_and_cool_exclude_each_other_and_clean_stays() -> None:
    start = ("take apple 1 from countertop 1", "You pick up the apple 1 from the countertop 1.")
    clean = ("clean apple 1 with sinkbasin 1", "You clean the apple 1 using the sinkbasin 1.")
    hot = ("heat apple 1 with microwave 1", "You heat the apple 1 using the microwave 1.")
    cool = ("cool apple 1 with fridge 1", "You cool the apple 1 using the fridge 1.")
    assert line(after(start, clean, hot, cool), "Holding") == "apple 1 clean cool"
    assert line(after(start, cool, hot), "Holding") == "apple 1 hot"


def test_the_answer_says_what_was_done_and_the_command_where_it_does_not() -> None:
    start = ("take apple 1 from countertop 1", "You pick up the apple 1 from the countertop 1.")
    assert line(after(start, ("heat apple 1 with fridge 1", "You cool the apple 1 using the fridge 1.")), "Holding") == "apple 1 cool"
    assert line(after(start, ("heat apple 1 with microwave 1", "Done.")), "Holding") == "apple 1 hot"
    assert after(("take apple 1 from countertop 1", "Done.")).held == ["apple 1"]
    # Other words for the same command.
    assert after(("grab apple 1 from countertop 1", "You pick up the apple 1 from the countertop 1.")).held == ["apple 1"]


def test_two_things_can_be_held_where_that_is_possible() -> None:
    turns = [(f"take apple {n} from countertop 1", f"You pick up the apple {n} from the countertop 1.") for n in (1, 2)]
    memory = after(*turns, ("move apple 1 to fridge 1", "You move the apple 1 to the fridge 1."))
    assert memory.held == ["apple 2"]


def test_what_left_its_place_is_forgotten_there() -> None:
    memory = after(
        ("go to countertop 1", AT_COUNTER),
        ("go to stoveburner 1", "You arrive at stoveburner 1. On the stoveburner 1, you see nothing."),
        ("go to countertop 1", "You arrive at countertop 1. On the countertop 1, you see a apple 1."),
    )
    assert memory.noted == {"apple 1": "countertop 1"}


def test_an_arrival_that_shows_nothing_leaves_the_place_to_be_looked_into() -> None:
    memory = after(("go to countertop 1", "You arrive at countertop 1."))
    assert (memory.here, "countertop 1" in memory.left) == ("countertop 1", True)
    looked = after(
        ("go to countertop 1", "You arrive at countertop 1."), ("examine countertop 1", "On the countertop 1, you see a apple 1.")
    )
    assert (looked.noted, "countertop 1" in looked.left) == ({"apple 1": "countertop 1"}, False)


def test_things_inside_a_thing_are_not_taken_for_the_place() -> None:
    memory = after(("go to countertop 1", AT_COUNTER), ("examine knife 1", "This is a normal knife 1. In it, you see a apple 3."))
    assert set(memory.noted) == {"apple 1", "apple 2"}


def test_what_a_world_adds_to_its_pages_is_shown() -> None:
    assert line(after(intro=f"{INTRO}\nYou are in house 3."), "Now") == "You are in house 3."
    assert line(after(("go to countertop 1", f"{AT_COUNTER}\n~*")), "Now").endswith("~*")


def test_a_room_of_another_form_gives_an_empty_notebook() -> None:
    memory = recall("buy shoes", [("Search", "search[shoes]")], "B0 [SEP] Shoes")
    assert (memory.room, memory.noted, memory.here) == ([], {}, "")
    assert line(memory, "Now") == "B0 [SEP] Shoes"


# --- the prompt ----------------------------------------------------------------------------------------------------------------

SPEC = PromptSpec(template="memory", list_actions=False, world="alfworld")


def test_the_prompt_is_the_task_the_notebook_and_a_request() -> None:
    text = render(SPEC, TASK, [(INTRO, "go to countertop 1")], AT_COUNTER, ["look"])
    assert text.splitlines()[0] == TASK
    assert text.splitlines()[1:-1] == after(("go to countertop 1", AT_COUNTER)).lines()
    assert text.splitlines()[-1] == "Action:"
    assert "Can: " not in text
    listed = render(PromptSpec(template="memory", world="alfworld"), TASK, [], INTRO, ["go to fridge 1", "look"])
    assert "Can: go to fridge 1, look" in listed


@pytest.mark.parametrize(
    ("answer", "action", "valid"),
    [
        ("go to fridge 1", "go to fridge 1", True),
        ("  take apple 1  from countertop 1 ", "take apple 1 from countertop 1", True),
        ("look", "look", True),
        ("", "", False),
        ("go to [fridge]", "go to [fridge]", False),
        ("1 apple", "1 apple", False),
    ],
)
def test_the_whole_answer_is_the_command(answer: str, action: str, valid: bool) -> None:
    parsed = parse(SPEC, answer)
    assert (parsed.action, parsed.valid) == (action, valid)
