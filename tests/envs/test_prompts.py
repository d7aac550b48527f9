"""The prompt windows and the action parser."""

from __future__ import annotations

import pytest

from envs.prompts import ParsedAction, PromptSpec, applicable, parse, render, shown_page

TASK = "Find me organic tea with size: small, and price lower than 40.00 dollars"
INDEX = f"WebShop [SEP] Instruction: [SEP] {TASK} [SEP] Search"
HEAD = f"Instruction: [SEP] {TASK} [SEP] Back to Search"
RESULTS = f"{HEAD} [SEP] Page 1 (Total results: 2) [SEP] Next > [SEP] B0ZUSGONIL [SEP] Acme Tea [SEP] $15.0"
ITEM = f"{HEAD} [SEP] < Prev [SEP] size [SEP] small [SEP] large [SEP] Acme Tea [SEP] Price: $15.0 [SEP] Buy Now"

SHORT = PromptSpec(template="short", list_actions=False)
TAGS = PromptSpec()


def test_short_first_turn_is_the_documented_form() -> None:
    assert render(SHORT, TASK, [], INDEX, ["search[<your query>]"]) == f"{TASK}\nLast: none\nPage: Search\nAction: "


def test_short_shows_the_last_two_actions_and_the_page_after_the_task() -> None:
    history = [(INDEX, "search[organic tea]"), (RESULTS, "click[b0zusgonil]"), (ITEM, "click[small]")]
    expected = (
        f"{TASK}\nLast: click[b0zusgonil]\nLast: click[small]\n"
        "Page: Back to Search [SEP] < Prev [SEP] size [SEP] small [SEP] large [SEP] Acme Tea [SEP] Price: $15.0 [SEP] Buy Now\nAction: "
    )
    assert render(SHORT, TASK, history, ITEM, []) == expected
    assert expected.replace("Last: click[b0zusgonil]\n", "") == render(PromptSpec("short", 1, False), TASK, history, ITEM, [])


@pytest.mark.parametrize(
    ("seen", "action", "shown"),
    [
        (RESULTS, "click[b0zusgonil]", "click[b0zusgonil]"),
        (RESULTS, "click[B0ZUSGONIL]", "click[B0ZUSGONIL]"),
        (RESULTS, "click[next >]", "click[next >]"),
        (RESULTS, "click[< prev]", "invalid"),
        (RESULTS, "click[$15.0]", "invalid"),
        (RESULTS, "click[page 1 (total results: 2)]", "invalid"),
        (INDEX, "click[search]", "invalid"),
        (INDEX, "search[tea]", "search[tea]"),
        (ITEM, "search[tea]", "search[tea]"),
        (ITEM, "click[price: $15.0]", "invalid"),
        (ITEM, "click[red]", "invalid"),
        (ITEM, "buy now", "invalid"),
    ],
)
def test_short_shows_an_action_without_effect_as_invalid(seen: str, action: str, shown: str) -> None:
    assert f"\nLast: {shown}\nPage:" in render(SHORT, TASK, [(seen, action)], ITEM, [])


def test_short_can_list_actions() -> None:
    text = render(PromptSpec("short", 2, True), TASK, [], INDEX, ["search[<your query>]", "click[search]"])
    assert text.endswith("\nCan: search[<your query>] click[search]\nAction: ")


@pytest.mark.parametrize(
    ("answer", "action", "valid"),
    [
        ("click[red]", "click[red]", True),
        (" click[red] \n", "click[red]", True),
        ("click[red", "click[red]", True),
        ("search[organic tea]", "search[organic tea]", True),
        ("search[a [b] c]", "search[a [b] c]", False),
        ("click[]", "click[]", False),
        ("click[ ]", "click[ ]", False),
        ("buy now", "buy now", False),
        ("Click[red]", "Click[red]", False),
        ("click[red] please", "click[red] please", False),
        ("please click[red]", "please click[red]", False),
        ("", "", False),
    ],
)
def test_short_parse(answer: str, action: str, valid: bool) -> None:
    assert parse(SHORT, answer) == ParsedAction(action, valid)


def test_tags_first_turn_names_task_page_and_actions() -> None:
    text = render(TAGS, TASK, [], INDEX, ["search[<your query>]", "click[search]"])
    assert f"Your shopping task: {TASK}\n" in text
    assert "This is step 1. You see: 'Search'\n" in text
    assert "\n[\n'search[<your query>]',\n'click[search]',\n]\n" in text
    assert "Observation" not in text
    assert all(tag in text for tag in ("<think>", "</think>", "<action>", "</action>"))


def test_tags_history_has_absolute_step_numbers() -> None:
    history = [(INDEX, "search[tea]"), (RESULTS, "click[b0zusgonil]"), (ITEM, "click[small]")]
    text = render(TAGS, TASK, history, ITEM, [])
    assert "You have taken 3 steps so far. The last 2" in text
    assert "Action 1:" not in text
    assert ", Action 2: 'click[b0zusgonil]']" in text
    assert text.index("Observation 2: 'Back to Search' [SEP] 'Page 1") < text.index("Observation 3: 'Back to Search' [SEP] '< Prev'")
    assert "This is step 4." in text


def test_a_prompt_over_the_limit_drops_its_history_and_nothing_else() -> None:
    history = [(INDEX, "search[tea]")]
    whole = render(TAGS, TASK, history, RESULTS, [])
    assert "Observation 1" in whole
    assert render(PromptSpec(max_chars=len(whole)), TASK, history, RESULTS, []) == whole
    cut = render(PromptSpec(max_chars=len(whole) - 1), TASK, history, RESULTS, [])
    assert "Observation 1" not in cut
    assert TASK in cut
    assert "'Acme Tea'" in cut


def test_history_zero_shows_no_past() -> None:
    assert "Observation 1" not in render(PromptSpec(history=0), TASK, [(INDEX, "search[tea]")], RESULTS, [])
    assert "Last: none" in render(PromptSpec("short", 0, False), TASK, [(INDEX, "search[tea]")], RESULTS, [])


def test_pages_without_the_task_are_shown_whole() -> None:
    after = RESULTS.split(f"{TASK} [SEP] ")[1]
    assert shown_page(TASK, after) == shown_page(TASK, RESULTS)
    for spec in (SHORT, TAGS):
        assert render(spec, TASK, [(after, "click[red]")], after, []) == render(spec, TASK, [(RESULTS, "click[red]")], RESULTS, [])


def test_pages_that_come_quoted_are_not_quoted_again() -> None:
    quoted = "'Back to Search' [SEP] 'it's'"
    assert f"You see: {quoted}\n" in render(TAGS, TASK, [], quoted, [])


def test_other_worlds_have_their_own_words_and_plain_observations() -> None:
    text = render(PromptSpec(world="elsewhere"), "put a mug on the desk", [], "You are in a room.", ["look", "go to desk 1"])
    assert "text world" in text
    assert "You see: You are in a room.\n" in text
    assert "WebShop" not in text


@pytest.mark.parametrize(
    ("answer", "action", "valid"),
    [
        ("<think>x</think><action>Click[Red]</action>", "click[red]", True),
        ("<think>x</think> <action> search[Tea] </action> <action>click[b]</action>", "search[tea]", True),
        ("<THINK>x</THINK><action>click[red]</action>", "click[red]", False),
        ("<think>x</think><ACTION>click[red]</ACTION>", "click[red]", True),
        ("<action>click[red]</action>", "click[red]", False),
        ("<think>x<action>click[red]</action>", "click[red]", False),
        ("<think>茶</think><action>click[red]</action>", "click[red]", False),
        ("<think>é ü</think><action>click[red]</action>", "click[red]", True),
        ("I shall now Click[Buy Now] at once, thanks", "k[buy now] at once, thanks"[-20:], False),
        ("<think>x</think><action>click[red]", "/think><action>click[red]"[-20:], False),
        ("short", "short", False),
    ],
)
def test_tags_parse(answer: str, action: str, valid: bool) -> None:
    assert parse(TAGS, answer) == ParsedAction(action, valid)


def test_the_tail_that_stands_in_for_an_action_depends_on_the_world() -> None:
    answer = "0123456789" * 5
    assert len(parse(TAGS, answer).action) == 20
    assert len(parse(PromptSpec(world="alfworld"), answer).action) == 30


def test_applicable_needs_an_offered_action_or_a_search() -> None:
    offered = ["click[search]", "click[red]", "click[buy now]"]
    assert applicable("search[tea]", [])
    assert not applicable("search[]", [])
    assert applicable("click[Red]", offered)
    assert not applicable("click[blue]", offered)
    assert not applicable("click[search]", offered)
    assert not applicable("red", offered)


def test_plain_shows_the_task_and_the_turns_as_they_are() -> None:
    spec = PromptSpec(template="plain", history=2, list_actions=False, world="bandit")
    history = [("Play 1 of 4.\nhall 2", "a"), ("Arm a paid. Play 2 of 4.\nhall 2", "b")]
    shown = "Play well.\nPlay 1 of 4.\nhall 2\n> a\nArm a paid. Play 2 of 4.\nhall 2\n> b\nPlay 3 of 4.\nhall 2\nAction:"
    assert render(spec, "Play well.", history, "Play 3 of 4.\nhall 2", ["a", "b"]) == shown
    assert "> a" not in render(PromptSpec("plain", 1), "Play well.", history, "Play 3 of 4.", ["a", "b"])
    assert render(PromptSpec("plain", 0), "Play.", history, "Go.", ["a", "b"]) == "Play.\nGo.\nCan: a, b\nAction:"


@pytest.mark.parametrize(("text", "expected"), [(" A ", ("a", True)), ("12", ("12", True)), ("", ("", False)), ("a!", ("a!", False))])
def test_plain_answers_are_words_and_numbers(text: str, expected: tuple[str, bool]) -> None:
    assert parse(PromptSpec(template="plain"), text) == ParsedAction(*expected)
