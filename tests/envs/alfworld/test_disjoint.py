"""Scene-disjoint clients, and the published constructor against what it was recorded to give on the 3553 public train games."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from envs.alfworld import AlfWorld
from envs.alfworld.disjoint import PUBLISHED_HOLDOUT, Place, env_disjoint, scene_disjoint

RECORDED_ORDER = {
    12: "train/pick_clean_then_place_in_recep-Ladle-None-DiningTable-4/trial_T20190909_165603_183022",
    13: "train/pick_two_obj_and_place-Pen-None-SideTable-326/trial_T20190908_050658_829567",
    16: "train/pick_and_place_simple-Book-None-Bed-306/trial_T20190907_125231_175582",
    23: "train/pick_cool_then_place_in_recep-Potato-None-GarbageCan-18/trial_T20190909_044319_709757",
    41: "train/pick_two_obj_and_place-Book-None-Desk-310/trial_T20190906_202411_309576",
    45: "train/pick_two_obj_and_place-CreditCard-None-Sofa-207/trial_T20190909_085924_009925",
    47: "train/pick_two_obj_and_place-Watch-None-CoffeeTable-217/trial_T20190909_065744_148073",
    49: "train/pick_cool_then_place_in_recep-Bread-None-CounterTop-25/trial_T20190906_203202_877300",
    54: "train/pick_and_place_simple-CellPhone-None-Bed-324/trial_T20190907_233803_611728",
    62: "train/pick_two_obj_and_place-AlarmClock-None-Desk-313/trial_T20190909_054541_175663",
}
"""Some places of the id list with which the goldens were recorded: of these, client 0 was recorded to have those below."""
RECORDED_CLIENT_0 = {0.0: {12, 16, 23, 45, 47, 49}, 1.0: {13, 41, 45, 47, 54, 62}}


@pytest.fixture(scope="session")
def train_ids(public: AlfWorld) -> list[str]:
    return public.games("train")


def some_ids(scenes: int, per_scene: int) -> list[str]:
    kinds = ("1", "201", "301", "401")
    numbers = [int(kinds[place % 4]) + place // 4 for place in range(scenes)]
    return [f"train/pick_and_place_simple-Mug-None-Shelf-{n}/trial_{k}" for n in numbers for k in range(per_scene)]


@pytest.mark.data("alfworld")
@pytest.mark.parametrize(("clients", "divergence"), [(100, 0.0), (100, 0.3), (100, 0.7), (100, 1.0), (8, 0.0), (8, 0.7), (8, 1.0)])
def test_env_disjoint_is_the_published_one(train_ids: list[str], partition_golden: Path, clients: int, divergence: float) -> None:
    recorded = json.loads(partition_golden.read_text())["results_alfworld_real_ids"]
    golden = recorded[f"alfworld/env_disjoint/clients={clients}/env_div={divergence}/fallback=skip"]
    owned = [set(positions) for positions in env_disjoint(train_ids, clients, divergence)]
    assert {len(positions) for positions in owned} == {golden["size"]["mean"]} == {golden["size"]["min"]}
    union = set().union(*owned)
    assert len(union) == golden["union_count"]
    overlaps = [len(a & b) / len(a | b) for a, b in combinations(owned, 2)]
    assert sum(overlaps) / len(overlaps) == pytest.approx(golden["avg_pairwise_jaccard"], abs=1e-6)
    assert max(overlaps) == pytest.approx(golden["max_pairwise_jaccard"], abs=1e-6)


@pytest.mark.data("alfworld")
@pytest.mark.parametrize("divergence", [0.0, 1.0])
def test_env_disjoint_chooses_the_recorded_games(train_ids: list[str], divergence: float) -> None:
    owned = {train_ids[position] for position in env_disjoint(train_ids, 100, divergence)[0]}
    assert {place for place, game_id in RECORDED_ORDER.items() if game_id in owned} == RECORDED_CLIENT_0[divergence]


@pytest.mark.data("alfworld")
def test_the_order_of_ids_does_not_matter_to_env_disjoint(train_ids: list[str]) -> None:
    there = {train_ids[position] for position in env_disjoint(train_ids, 3, 0.5)[2]}
    back = train_ids[::-1]
    assert {back[position] for position in env_disjoint(back, 3, 0.5)[2]} == there


@pytest.mark.data("alfworld")
def test_held_out_scenes_and_fallbacks(train_ids: list[str]) -> None:
    given = env_disjoint(train_ids, 4, 0.5, holdout=PUBLISHED_HOLDOUT)
    assert not {Place.of(train_ids[position]).scene for positions in given for position in positions} & set(PUBLISHED_HOLDOUT)
    assert sum(Place.of(game_id).scene in PUBLISHED_HOLDOUT for game_id in train_ids) == 264
    skip, trial, shared = (env_disjoint(train_ids, 4, 0.5, fallback)[0] for fallback in ("skip", "trial-only", "shared"))  # type: ignore[arg-type]
    assert len(skip) < len(trial) < len(shared)


def test_env_disjoint_by_hand() -> None:
    """Two specs, of which one lies in one scene only; of the other's four games each of two clients gets ceil(4 / 2 * 1.5) = 3."""
    ids = [f"train/a-X-None-Y-{scene}/t{trial}" for scene in (1, 2) for trial in (1, 2)] + ["train/b-X-None-Y-1/t1"]
    for given in env_disjoint(ids, 2, 0.5):
        assert len(given) == 3
        assert 4 not in given
    assert env_disjoint(ids, 2, 0.5, "shared")[1][-1] == 4


@pytest.mark.parametrize("clients", [1, 3, 4, 9, 20])
def test_clients_of_disjoint_scenes_share_none_and_leave_no_game(clients: int) -> None:
    ids = some_ids(20, 5)
    owned = scene_disjoint(ids, clients, seed=3)
    scenes = [{Place.of(ids[position]).scene for position in positions} for positions in owned]
    assert all(not a & b for a, b in combinations(scenes, 2))
    assert sorted(position for positions in owned for position in positions) == list(range(100))
    assert all(scenes)
    assert scene_disjoint(ids, clients, seed=3) == owned


def test_clients_have_every_room_kind_while_scenes_last_and_even_sizes() -> None:
    ids = some_ids(40, 3)
    for positions in scene_disjoint(ids, 5, seed=1):
        assert {int(Place.of(ids[position]).scene) // 100 for position in positions} == {0, 2, 3, 4}
        assert len(positions) == 24
    assert scene_disjoint(ids, 5, seed=1) != scene_disjoint(ids, 5, seed=2)


@pytest.mark.data("alfworld")
def test_public_games_are_dealt_evenly(train_ids: list[str]) -> None:
    sizes = [len(positions) for positions in scene_disjoint(train_ids, 20)]
    assert sum(sizes) == 3553
    assert min(sizes) > 0.85 * max(sizes)


def test_severity_is_the_share_of_scenes_that_belong_to_one_client() -> None:
    ids = some_ids(40, 30)

    def shared(severity: float) -> int:
        owners: dict[str, set[int]] = {}
        for client, positions in enumerate(scene_disjoint(ids, 4, seed=1, severity=severity)):
            for position in positions:
                owners.setdefault(Place.of(ids[position]).scene, set()).add(client)
        return sum(len(clients) > 1 for clients in owners.values())

    assert [shared(severity) for severity in (0.0, 0.25, 0.5, 1.0)] == [40, 30, 20, 0]
    assert [len(positions) for positions in scene_disjoint(ids, 4, severity=0.0)] == [300] * 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scene_disjoint(some_ids(3, 2), 4), "4 clients cannot have disjoint scenes: the 6 games lie in 3 scenes"),
        (lambda: scene_disjoint(some_ids(3, 2), 0), "at least 1"),
        (lambda: scene_disjoint(some_ids(3, 2), 2, severity=1.5), "0 to 1"),
        (lambda: scene_disjoint(["mug"], 1), "'mug'"),
        (lambda: env_disjoint(some_ids(3, 2), 2, -0.1), "0 to 1"),
        (lambda: env_disjoint(some_ids(3, 2), 0), "at least 1"),
        (lambda: env_disjoint(some_ids(3, 2), 2, 0.5, "all"), "trial-only"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
