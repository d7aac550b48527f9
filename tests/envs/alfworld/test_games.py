"""Folders, splits, ids, records that are wrong, and the folder checker."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import lzma
import shutil
from pathlib import Path

import pytest

from envs.alfworld import AlfWorld, AlfWorldDataError, sources
from envs.alfworld.check import PUBLISHED, check_folder
from tests.envs.alfworld import rooms

COLD = "pick_cool_then_place_in_recep"


@pytest.mark.data("alfworld")
def test_public_splits_are_exact_and_sorted(alfworld_data: Path, alfworld_cache: Path) -> None:
    world = AlfWorld(alfworld_data, alfworld_cache)
    for split, number in PUBLISHED.items():
        ids = world.games(split)
        assert len(ids) == number == len(set(ids))
        assert ids == sorted(ids)
        assert all(game_id.startswith(f"{split}/") and game_id.count("/") == 2 for game_id in ids)
    assert [len(world.games("valid_unseen", [kind])) for kind in ("look_at_obj_in_light", COLD)] == [18, 21]
    assert len(world.games("valid_unseen", ["look_at_obj_in_light", COLD])) == 39
    assert {info.scene for info in world.infos("valid_unseen")} == {10, 219, 308, 424}


@pytest.mark.data("alfworld")
def test_official_files_and_packed_ones_hold_the_same_games(alfworld_data: Path, alfworld_cache: Path) -> None:
    packed, official = AlfWorld(alfworld_data, alfworld_cache), AlfWorld(alfworld_data / "raw", alfworld_cache)
    ids = [game_id for split in official.splits for game_id in official.games(split)]
    assert len(ids) == 24
    for game_id in ids:
        ours, theirs = packed.game(game_id), official.game(game_id)
        assert packed.info(game_id) == official.info(game_id)
        assert ours.problem == theirs.problem
        assert f"Your task is to: {ours.task}" in ours.grammar
        assert f"Your task is to: {ours.task}" in theirs.grammar


def test_a_packed_file_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = rooms.write(tmp_path / "games", rooms.record("b", more="kept"), rooms.record("a", solvable=False))
    first = AlfWorld(folder, tmp_path / "cache")
    assert first.games("train") == ["train/kitchen/b"]
    assert first.info("train/kitchen/b").meta == {"more": "kept"}
    with pytest.raises(AlfWorldDataError, match=r"game train/kitchen/a: it is marked as unsolvable\. Choose another"):
        first.game("train/kitchen/a")
    monkeypatch.setattr(sources, "packed_records", lambda _: pytest.fail("read again"))
    again = AlfWorld(folder / "games.jsonl", tmp_path / "cache")
    game = again.game("train/kitchen/b")
    assert (game.problem, game.walkthrough) == (rooms.problem(), rooms.PLAN)
    assert game == first.game("train/kitchen/b")


def test_own_domain_and_grammar_of_a_record_are_used(tmp_path: Path) -> None:
    folder = rooms.write(tmp_path, rooms.record(pddl_domain="(domain)", grammar="Your task is to: UNKNOWN GOAL."))
    game = AlfWorld(folder, tmp_path / "cache").game("train/kitchen/a")
    assert (game.domain, game.grammar) == ("(domain)", "Your task is to: put a hot apple in countertop.")


def test_an_official_folder_leaves_out_what_alfworlds_loader_does(tmp_path: Path) -> None:
    def put(trial: str, **changes: object) -> None:
        file = tmp_path / "json_2.1.1" / trial / "game.tw-pddl"
        file.parent.mkdir(parents=True)
        grammar = '{"rhs": "Your task is to: put a mug in shelf."}'
        file.write_text(json.dumps({"pddl_domain": "d", "pddl_problem": "p", "grammar": grammar, "solvable": True, **changes}))

    put("train/pick_and_place_simple-Mug-None-Shelf-7/trial_T2", walkthrough=["look"])
    put("train/pick_and_place_simple-Mug-None-Shelf-7/trial_T1")
    put("train/pick_and_place_simple-MugSliced-None-Shelf-7/trial_T1")
    put("train/pick_and_place_with_movable_recep-Mug-Pot-Shelf-7/trial_T1")
    put("train/pick_and_place_simple-Mug-None-Shelf-8/trial_T1", solvable=False)
    world = AlfWorld(tmp_path, tmp_path / "cache")
    assert world.games("train") == [f"train/pick_and_place_simple-Mug-None-Shelf-7/trial_T{number}" for number in (1, 2)]
    with pytest.raises(AlfWorldDataError, match="marked as unsolvable"):
        world.info("train/pick_and_place_simple-Mug-None-Shelf-8/trial_T1")
    info = AlfWorld(tmp_path / "json_2.1.1", tmp_path / "cache").infos("train")[1]
    assert (info.task, info.scene, info.walkthrough, info.task_type) == ("put a mug in shelf.", 7, ("look",), "pick_and_place_simple")
    damaged = tmp_path / "json_2.1.1" / info.id / "game.tw-pddl"
    damaged.write_text('{"pddl_domain": "d"')
    with pytest.raises(AlfWorldDataError, match=rf"{damaged}: cannot be read: .*Fetch"):
        AlfWorld(tmp_path, tmp_path / "cache").games("train")


def test_ids_splits_and_task_types_that_are_not_there(tmp_path: Path) -> None:
    world = AlfWorld(rooms.write(tmp_path), tmp_path / "cache")
    with pytest.raises(AlfWorldDataError, match="no split 'test' \\(there: train\\)"):
        world.games("test")
    with pytest.raises(AlfWorldDataError, match="no game 'train/kitchn/a'; did you mean 'train/kitchen/a'"):
        world.game("train/kitchn/a")
    with pytest.raises(AlfWorldDataError, match="an id is <split>/<task>/<trial>, with split one of train"):
        world.info("a")
    with pytest.raises(ValueError, match="unknown task type 'pick'"):
        world.games("train", ["pick"])
    assert world.games("train", [COLD]) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task_type": "pick"}, "line 2 \\(game train/kitchen/b\\): task_type 'pick' is none of"),
        ({"task": ""}, "line 2 \\(game train/kitchen/b\\): 'task' is no text"),
        ({"pddl_problem": None}, "line 2 \\(game train/kitchen/b\\): 'pddl_problem' is missing"),
        ({"grammar": 3}, "line 2 \\(game train/kitchen/b\\): 'grammar' is missing or no text"),
        ({"walkthrough": "look"}, "line 2 \\(game train/kitchen/b\\): 'walkthrough' is no list"),
        ({"split": "valid"}, "line 2 \\(game train/kitchen/b\\): the id does not start with its split 'valid'"),
        ({"scene": None}, "line 2 \\(game train/kitchen/b\\): 'scene'"),
        ({"id": "train/kitchen/a"}, "line 2 \\(game train/kitchen/a\\): repeats line 1"),
        ({"id": 7}, "line 2: 'id' is no text"),
    ],
)
def test_wrong_records_are_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    folder = rooms.write(tmp_path / "games", rooms.record("a"), {**rooms.record("b"), **changes})
    with pytest.raises(AlfWorldDataError, match=message):
        AlfWorld(folder, tmp_path / "cache")
    report = check_folder(folder, tmp_path / "cache")
    assert not report.ok
    with pytest.raises(AlfWorldDataError, match=r"train/kitchen|line 2"):
        report.raise_first()


def test_damaged_files_and_wrong_folders_are_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(AlfWorldDataError, match=r"nowhere: no such folder\. Name the folder"):
        AlfWorld(tmp_path / "nowhere", cache)
    (tmp_path / "empty").mkdir()
    with pytest.raises(AlfWorldDataError, match=r"empty: no games: neither json_2.1.1/<split>/ nor \*games.jsonl"):
        AlfWorld(tmp_path / "empty", cache)
    folder = rooms.write(tmp_path / "garbled")
    (folder / "games.jsonl").write_text(json.dumps(rooms.record()) + "\n{oops\n")
    with pytest.raises(AlfWorldDataError, match=r"games\.jsonl: line 2: no JSON"):
        AlfWorld(folder, cache)
    (folder / "games.jsonl").write_text("\n")
    with pytest.raises(AlfWorldDataError, match=r"games\.jsonl: holds no game"):
        AlfWorld(folder, cache)
    data = lzma.compress((json.dumps(rooms.record()) * 40).encode())
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "games.jsonl.xz").write_bytes(data[: len(data) // 2])
    with pytest.raises(AlfWorldDataError, match=r"games\.jsonl\.xz: damaged after line 0"):
        AlfWorld(tmp_path / "cut", cache)
    shutil.copy(folder / "games.jsonl", tmp_path / "cut" / "more_games.jsonl")
    with pytest.raises(AlfWorldDataError, match=r"cut: holds 2 packed files \(games.jsonl.xz, more_games.jsonl\)"):
        AlfWorld(tmp_path / "cut", cache)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = AlfWorld(rooms.write(tmp_path), tmp_path / "cache")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(AlfWorldDataError, match=r'alfworld, .* is not installed\. .*pip install "fedagent-ray\[alfworld\]"'):
        world.game("train/kitchen/a")


def test_the_checker_plays_stored_plans(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    good = check_folder(rooms.write(tmp_path / "good", rooms.record("a"), rooms.record("b", walkthrough=[])), alfworld_cache)
    assert good.ok
    assert good.counts == {"games, train": 2, "plans played": 1, "without a stored plan": 1}
    assert any("no plan is stored" in text and "line 2" in text for text in good.warnings)
    assert good.lines()[0] == f"{tmp_path / 'good'}: packed games, ok"
    lost = check_folder(rooms.write(tmp_path / "lost", rooms.record(walkthrough=rooms.PLAN[:-1])), alfworld_cache)
    assert lost.problems[0].startswith(f"{tmp_path / 'lost'}: game train/kitchen/a: its stored plan does not win it")
    cut = check_folder(rooms.write(tmp_path / "cut", rooms.record(pddl_problem=rooms.problem()[:-9])), alfworld_cache)
    assert "its PDDL problem is cut short" in cut.problems[0]
    assert "line 1" in cut.problems[0]


def test_the_checker_finds_generated_games_that_were_changed(tmp_path: Path, alfworld_cache: Path, engine_packages: None) -> None:
    folder = rooms.write(tmp_path)
    digest = hashlib.sha256((folder / "games.jsonl").read_bytes()).hexdigest()
    (folder / "generated.json").write_text(json.dumps({"sha256": digest}))
    assert check_folder(folder, alfworld_cache).ok
    (folder / "games.jsonl").write_text(json.dumps(rooms.record(scene="another")))
    assert "games.jsonl: changed since it was generated" in check_folder(folder, alfworld_cache).problems[0]


def test_errors_survive_pickling() -> None:
    import pickle

    error = AlfWorldDataError("wrong", path="there", record=3, game="g", hint="Mend it")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.record, again.game) == ("there: line 3 (game g): wrong. Mend it", 3, "g")


@pytest.mark.data("alfworld")
def test_a_game_that_is_cut_short_is_found_when_its_folder_is_read(tmp_path: Path, alfworld_data: Path) -> None:
    cut = rooms.problem()[:-30]
    packed = AlfWorld(rooms.write(tmp_path / "packed", rooms.record("a"), rooms.record("b", pddl_problem=cut)), tmp_path / "cache")
    assert list(packed.damaged) == ["train/kitchen/b"]
    assert str(packed.damaged["train/kitchen/b"]).endswith(
        "games.jsonl: line 2 (game train/kitchen/b): its PDDL problem is cut short. Fetch or unpack the games again"
    )
    folder = tmp_path / "official"
    shutil.copytree(alfworld_data / "raw" / "valid_seen", folder / "valid_seen")
    file = sorted(folder.rglob("game.tw-pddl"))[0]
    game = json.loads(file.read_text())
    file.chmod(0o644)
    file.write_text(json.dumps({**game, "pddl_domain": game["pddl_domain"][:900]}))
    for _ in range(2):  # the second time from the cache
        official = AlfWorld(folder, tmp_path / "cache")
        assert len(official.games("valid_seen")) == 6
        assert [str(error) for error in official.damaged.values()] == [
            f"{file}: its PDDL domain is cut short. Fetch or unpack the games again"
        ]


@pytest.mark.data("alfworld")
def test_no_public_game_looks_cut_short(alfworld_data: Path, alfworld_cache: Path) -> None:
    world = AlfWorld(alfworld_data, alfworld_cache)
    assert all(world.infos(split) for split in world.splits)
    assert not world.damaged
