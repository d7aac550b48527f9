"""Actions, navigation and the two renderings on a catalogue of six products."""

from __future__ import annotations

import json
import random
import string

import pytest

from envs.webshop import ShopEnv
from envs.webshop.env import parse_action
from envs.webshop.pages import options_json
from tests.envs.webshop.conftest import Opener, Writer, product

HEAD = ["back to search", "< prev", "description", "features", "reviews", "buy now"]


def tee_goal(env: ShopEnv) -> int:
    return next(place for place, goal in enumerate(env.shop.goals) if goal["asin"] == "B0EXAMPLE1")


@pytest.fixture
def env(open_shop: Opener) -> ShopEnv:
    env = open_shop().text_env()
    env.reset(session=tee_goal(env))
    return env


def parts(env: ShopEnv, action: str) -> list[str]:
    return env.step(action)[0].split(" [SEP] ")


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("search[red hat]", ("search", "red hat")),
        ("search[x] tail", ("search", "x")),
        ("search[a [b] c]", ("search[a ", "b] c")),
        ("search[a [b]", ("search[a ", "b")),
        ("think[x] search[y]", ("think[x] search", "y")),
        ("search[]", ("search[]", None)),
        ("search[a\nb]", ("search[a\nb]", None)),
        ("hello", ("hello", None)),
    ],
)
def test_action_syntax(action: str, expected: tuple[str, str | None]) -> None:
    assert parse_action(action) == expected


def test_index_page(env: ShopEnv) -> None:
    text = env.goal["instruction_text"]
    assert env.observation == f"WebShop [SEP] Instruction: [SEP] {text} [SEP] Search"
    assert env.available_actions() == {"has_search_bar": True, "clickables": ["search"]}


@pytest.mark.parametrize("action", ["hello", "click[buy now]", "click[search]", "Search[cotton]", "search[]", "search[", "CLICK[search]"])
def test_actions_that_do_nothing(env: ShopEnv, action: str) -> None:
    before = env.observation
    assert env.step(action) == (before, 0, False, None)
    assert not env.applies(action)


def test_results_page_and_paging(open_shop: Opener) -> None:
    env = open_shop(results_per_page=2).text_env()
    env.reset(session=tee_goal(env))
    text = env.goal["instruction_text"]
    # equal documents go by id; the tee says cotton twice, but in a longer text
    assert parts(env, "search[COTTON]") == [
        *("Instruction:", text, "Back to Search", "Page 1 (Total results: 3)", "Next >"),
        *("B0EXAMPLE2", "Cotton Socks", "$100.0", "B0EXAMPLE3", "Cotton Socks", "$100.0"),
    ]
    assert env.available_actions()["clickables"] == ["back to search", "next >", "b0example2", "b0example3"]
    assert parts(env, "click[next >]")[3:] == [
        "Page 2 (Total results: 3)",
        "< Prev",
        "Next >",
        "B0EXAMPLE1",
        "Acme Cotton Tee",
        "$9.99 to $14.5",
    ]
    assert parts(env, "click[Next >]")[3:] == ["Page 3 (Total results: 3)", "< Prev", "Next >"]
    assert parts(env, "click[< prev]")[3] == "Page 2 (Total results: 3)"


def test_search_is_possible_from_every_page(env: ShopEnv) -> None:
    env.step("search[cotton]")
    env.step("click[b0example1]")
    assert parts(env, "search[lamp]")[3] == "Page 1 (Total results: 1)"
    assert parts(env, "search[ ]")[3:] == ["Page 1 (Total results: 0)", "Next >"]


def test_operators(open_shop: Opener) -> None:
    shop = open_shop()
    env = shop.text_env()
    assert parts(env, "search[<c> fashion]")[5::3] == ["B0EXAMPLE1", "B0EXAMPLE4", "LK_LONGER_THAN_TEN"]
    assert shop.search("<c> fashion extra") == ["B0EXAMPLE1", "B0EXAMPLE4", "LK_LONGER_THAN_TEN"]
    assert shop.search("<q> tees") == ["B0EXAMPLE1", "B0EXAMPLE4", "LK_LONGER_THAN_TEN"]
    assert shop.search("<q> tees lamps") == []
    assert shop.search("<c> clothing") == []
    with pytest.raises(TypeError):
        env.step("search[<a> soft]")
    with pytest.raises(IndexError):
        env.step("search[<c>]")
    with pytest.raises(ValueError, match=r"[Ss]ample larger"):
        env.step("search[<r>]")


def test_random_results_follow_the_session_stream(open_shop: Opener, write_folder: Writer) -> None:
    folder = write_folder([*(product(f"B0{number:08}", f"Thing {number}") for number in range(60)), product("B0EXAMPLE5", "Lamp")])
    shop = open_shop(folder, seed=5, results_per_page=50)
    env = shop.text_env()
    rng = random.Random(5)
    rng.choices(string.ascii_lowercase, k=10)
    rng.uniform(0, 1)
    expected = [shop.catalogue.product(place).asin for place in rng.sample(range(61), 50)]
    assert parts(env, "search[<r>]")[5::3] == expected
    assert len(expected) == 50


def test_top_n(open_shop: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(open_shop(top_n=2).search("cotton")) == 2
    monkeypatch.setenv("WEBSHOP_SEARCH_RETURN_N", "1")
    assert len(open_shop().search("cotton")) == 1
    assert len(open_shop(profile="up", human_goals=True).search("cotton")) == 3


def test_item_page_options_and_purchase(env: ShopEnv) -> None:
    env.step("search[acme]")
    item = parts(env, "click[B0EXAMPLE1]")
    assert item[2:] == [
        *("Back to Search", "< Prev", "color", "navy | white", "pine forest green", "size", 'large "l"', "größe 5", "small"),
        *("Acme Cotton Tee", "Price: $9.99 to $14.5", "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"),
    ]
    assert env.available_actions()["clickables"] == [*HEAD, "navy | white", "pine forest green", 'large "l"', "größe 5", "small"]
    assert parts(env, "click[NAVY | white]") == item
    env.step("click[größe 5]")
    env.step("click[pine forest green]")
    page, reward, done, info = env.step("click[Buy Now]")
    assert (done, info) == (True, None)
    assert env.purchase is not None
    assert env.purchase["options"] == {"color": "pine forest green", "size": "größe 5"}
    assert list(env.purchase["options"]) == ["color", "size"]
    assert page.split(" [SEP] ") == [
        *(
            "Thank you for shopping with us!",
            "Your code:",
            "None",
            "(Paste it in your MTurk interface.)",
            "Purchased",
            "asin",
            "B0EXAMPLE1",
        ),
        *("options", '{"color": "pine forest green", "size": "gr\\u00f6\\u00dfe 5"}', "attrs", "None", "category", "None", "query", "None"),
        *(
            "product category",
            "None",
            "Target",
            "asin",
            "options",
            "attrs",
            "price upper",
            "instuction text",
            "category",
            "product category",
        ),
        *("query", "Goal", "None", "Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details", "None"),
    ]


def test_sub_pages_keep_options_and_previous_loses_them(env: ShopEnv) -> None:
    env.step("search[acme]")
    env.step("click[b0example1]")
    env.step("click[small]")
    assert parts(env, "click[description]")[2:] == ["Back to Search", "< Prev", "Soft tee."]
    assert env.available_actions()["clickables"] == ["back to search", "< prev"]
    env.step("click[< prev]")
    assert env._session.options == {"size": "small"}
    assert parts(env, "click[features]")[4:] == ["100% Cotton", "Machine wash"]
    env.step("click[< prev]")
    assert parts(env, "click[reviews]")[2:] == ["Back to Search", "< Prev"]
    env.step("click[< prev]")
    assert parts(env, "click[< prev]")[3] == "Page 1 (Total results: 1)"
    assert env._session.options == {}


def test_attributes_page(open_shop: Opener) -> None:
    env = open_shop().text_env(show_attrs=True)
    env.step("search[acme]")
    assert "Attributes" in parts(env, "click[b0example1]")
    assert parts(env, "click[attributes]")[4:] == ["machine wash", "slim fit", "fashion", "tees", "Clothing › Men › Tees"]


def test_blank_texts_and_markup(env: ShopEnv) -> None:
    env.step("search[wool]")
    item = parts(env, "click[b0example4]")
    assert "Wool Hat <b>&amp; Scarf" in item
    # a description of blanks with a line break is dropped, a blank bullet stays as one space
    assert parts(env, "click[description]")[2:] == ["Back to Search", "< Prev"]
    env.step("search[socks]")
    env.step("click[b0example2]")
    assert parts(env, "click[features]")[2:] == ["Back to Search", "< Prev", ""]
    assert parts(env, "click[< prev]")[-1] == "Buy Now"
    assert parts(env, "click[description]")[2:] == ["Back to Search", "< Prev"]


def test_equal_values_set_the_last_name_and_button_names_win(env: ShopEnv) -> None:
    env.step("search[lamp]")
    assert "shade" in parts(env, "click[b0example5]")
    assert env.available_actions()["clickables"] == [*HEAD, "red", "blue"]
    env.step("click[red]")
    assert env._session.options == {"base": "red"}
    # the option value "description" is taken for the button of that name
    assert parts(env, "click[description]")[2:] == ["Back to Search", "< Prev"]
    assert env._session.options == {"base": "red"}


def test_rich_text(open_shop: Opener) -> None:
    env = open_shop().text_env(mode="text_rich")
    index = env.reset(session=tee_goal(env))
    text = env.goal["instruction_text"]
    assert index == f"WebShop\nInstruction: \n{text}\n[button] Search [button_]\n"
    head = f"Instruction:\n{text}\n[button] Back to Search [button_]\n"
    tail = "Acme Cotton Tee\n$9.99 to $14.5\n"
    look = "\n[button] LK_LONGER_THAN_TEN [button_]\nLookalike Tee\n$12.0\n"
    page = f"{head}Page 1 (Total results: 2)\n[button] Next > [button_]\n"
    assert env.step("search[acme tee]")[0] == f"{page}\n[button] B0EXAMPLE1 [button_]\n{tail}{look}"
    env.step("click[b0example1]")
    env.step("click[small]")
    item = env.step("click[navy | white]")[0]
    options = (
        "color\n  [clicked button] navy | white [clicked button_]\n  [button] pine forest green [button_]\n"
        'size\n  [button] large "l" [button_]\n  [button] größe 5 [button_]\n  [clicked button] small [clicked button_]\n'
    )
    rest = "Acme Cotton Tee\nPrice: $9.99 to $14.5\nRating: N.A.\n" + "".join(
        f"[button] {name} [button_]\n" for name in ("Description", "Features", "Reviews", "Buy Now")
    )
    clicked = "You have clicked small.\nYou have clicked navy | white.\n"
    assert item == f"{clicked}{head}[button] < Prev [button_]\n{options}{rest}"
    # quoted and non-ASCII values are never shown as chosen
    for value in ("größe 5", 'large "l"'):
        assert f"[clicked button] {value}" not in env.step(f"click[{value}]")[0]
        assert env._session.options["size"] == value
    assert env.step("click[features]")[0].endswith("[button] < Prev [button_]\n 100% Cotton \n Machine wash \n")
    env.step("click[< prev]")
    assert env.step("click[< prev]")[0] == f"{page}\n[clicked button] B0EXAMPLE1 [clicked button_]\n{tail}{look}"
    env.step("click[back to search]")
    assert "[clicked button]" not in env.step("search[acme tee]")[0]


def test_an_option_quoted_in_the_query_shows_as_chosen(open_shop: Opener) -> None:
    env = open_shop().text_env(mode="text_rich")
    env.step('search[acme "small"]')
    assert env.step("click[b0example1]")[0].startswith("You have clicked small.\n")


def test_options_are_escaped_for_the_done_page() -> None:
    assert options_json({"b": "<&'>", "a": 'é"'}) == '{"a": "\\u00e9\\"", "b": "\\u003c\\u0026\\u0027\\u003e"}'
    assert json.loads(options_json({"a": "<"})) == {"a": "<"}


def test_history_in_the_state(open_shop: Opener) -> None:
    env = open_shop().text_env(num_prev_obs=2, num_prev_actions=1)
    first = env.reset(session=0)
    assert env.step("hello")[0] == f"{first} [SEP] hello [SEP] {first}"
    state = env.step("search[zzz]")[0]
    assert state == f"{first} [SEP] {first} [SEP] search[zzz] [SEP] {env.observation}"


def test_sessions(open_shop: Opener) -> None:
    shop = open_shop(seed=5)
    env = shop.text_env()
    rng = random.Random(5)

    def drawn() -> tuple[str, int]:
        return "".join(rng.choices(string.ascii_lowercase, k=10)), shop.goals.draw(rng)

    label, index = drawn()
    assert (env.session, env.goal) == (label, shop.goals[index])
    env.reset()
    again, index = drawn()
    assert (env.session, env.goal) == (again, shop.goals[index])
    env.reset(session=again)
    assert env.goal == shop.goals[index]
    env.reset(session=-1)
    assert (env.session, env.goal) == ("-1", shop.goals[-1])
    env.reset(session="fixed_7")
    goal = env.goal
    assert goal == shop.goals[shop.goals.draw(rng)]
    env.reset(session=3)
    env.reset(session="fixed_7")
    assert env.goal == goal
    env.reset(session="3")
    assert env.goal == shop.goals[3]
    with pytest.raises(IndexError):
        env.reset(session=len(shop.goals))
    assert shop.text_env(session_prefix="p_").reset(session=2) == shop.text_env().reset(session=2)
    assert env.reset(session=2, instruction_text="other") == shop.text_env().reset(session=2)
    assert env.instruction_text == "other"


def test_environments_of_a_shop_do_not_influence_each_other(open_shop: Opener) -> None:
    shop = open_shop()
    first, second = shop.text_env(), shop.text_env()
    for _ in range(5):
        first.reset()
    assert second.session == shop.text_env().session


def buy(env: ShopEnv) -> None:
    for action in ("search[lamp]", "click[b0example5]", "click[buy now]"):
        env.step(action)


def test_a_finished_fed_session_is_replaced_at_once(open_shop: Opener) -> None:
    shop = open_shop()
    env = shop.text_env()
    env.reset(session=2)
    before = env.session
    buy(env)
    assert env.session != before
    assert env.available_actions() == {"has_search_bar": True, "clickables": ["search"]}
    assert env.prev_actions == []


def test_a_finished_original_session_stays(open_shop: Opener) -> None:
    env = open_shop(profile="up", human_goals=True).text_env()
    env.reset(session=1)
    buy(env)
    assert env.session == "1"
    assert env.available_actions() == {"has_search_bar": False, "clickables": []}
    assert env.observation.startswith("Thank you for shopping")
    env.step("search[lamp]")
    env.step("click[b0example5]")
    assert env.step("click[buy now]")[2]


def test_unknown_modes_and_profiles(open_shop: Opener) -> None:
    with pytest.raises(ValueError, match="observation mode"):
        open_shop().text_env(mode="html")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="profile"):
        open_shop(profile="other")
    with pytest.raises(ValueError, match="results_per_page"):
        open_shop(results_per_page=0)
