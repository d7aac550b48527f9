"""The schedule: published golden rounds, independence, passes over tasks without replacement, equal budgets in all modes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import Task
from pipeline.config import Config, FederationConfig
from pipeline.errors import ConfigError
from pipeline.partitioning import partition_tasks
from pipeline.schedule import POOLED, Schedule, client_names, draw_tasks, episode_seed, sample_clients


def tasks(n: int) -> list[Task]:
    return [Task(id=f"t{i}", instruction=f"do {i}", category="c") for i in range(n)]


def config(seed: int = 0, algorithm: dict[str, Any] | None = None, **federation: Any) -> Config:
    return Config.model_validate({"run": {"seed": seed}, "federation": federation, "algorithm": algorithm or {}})


def numbers(seed: int, round: int) -> tuple[int, ...]:
    federation = config(clients=100, clients_per_round=2, schedule="reference").federation
    return tuple(int(name[1:]) for name in sample_clients(federation, seed, round))


@pytest.mark.parametrize(
    ("seed", "first_five"),
    [
        (42, [(14, 81), (4, 36), (52, 66), (34, 53), (9, 51)]),
        (21, [(21, 53), (17, 31), (37, 99), (49, 91), (48, 98)]),
        (84, [(36, 93), (25, 89), (3, 99), (18, 94), (24, 50)]),
    ],
)
def test_reference_schedule_equals_the_published_one(seed: int, first_five: list[tuple[int, int]]) -> None:
    assert [numbers(seed, r) for r in range(1, 6)] == first_five


def test_reference_schedule_visits_as_many_clients_as_published() -> None:
    visits = Counter(c for r in range(1, 71) for c in numbers(42, r))
    assert (len(visits), max(visits.values())) == (75, 5)


def test_reference_schedules_of_neighbouring_seeds_are_shifted_copies_and_hashed_ones_are_not() -> None:
    assert numbers(42, 1) == numbers(21, 22)
    federation = config(clients=100, clients_per_round=2).federation
    rounds = range(1, 71)
    for other in (21, 84):
        same = sum(sample_clients(federation, 42, r) == sample_clients(federation, other, s) for r in rounds for s in rounds)
        assert same < 8, "two seeds share rounds far more often than chance (one in 4950 pairs) allows"


def test_hashed_schedule_is_fixed_forever() -> None:
    federation = config(clients=100, clients_per_round=4).federation
    text = repr([sample_clients(federation, 0, r) for r in range(1, 30)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "945a061dab48922f"


def test_hashed_schedule_is_fair() -> None:
    federation = config(clients=10, clients_per_round=3).federation
    counts = Counter(c for r in range(1, 1001) for c in sample_clients(federation, 7, r))
    assert set(counts) == set(client_names(federation))
    assert all(240 < n < 360 for n in counts.values())  # 300 +- 4 standard deviations of 14.5


def test_client_names_have_as_many_digits_as_needed() -> None:
    assert client_names(config(clients=8).federation)[0] == "c000"
    assert client_names(config(clients=1001).federation)[-1] == "c1000"
    assert client_names(config(clients=1001).federation)[0] == "c0000"


def test_all_clients_take_part_when_as_many_are_asked_for() -> None:
    assert sample_clients(config(clients=4, clients_per_round=4).federation, 3, 9) == ("c000", "c001", "c002", "c003")


def test_rounds_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="round 0"):
        sample_clients(config().federation, 0, 0)


def client_tasks(made: Sequence[Task], federation: FederationConfig, seed: int) -> dict[str, tuple[Task, ...]]:
    return partition_tasks(federation, client_names(federation), made, seed).by_client()


def test_clients_own_exactly_their_tasks_and_share_none_while_there_are_enough() -> None:
    owned = client_tasks(tasks(1000), config(clients=8, tasks_per_client=100).federation, 0)
    assert {len(part) for part in owned.values()} == {100}
    assert len({t.id for part in owned.values() for t in part}) == 800


def test_neighbours_overlap_when_there_are_too_few_tasks() -> None:
    owned = client_tasks(tasks(100), config(clients=8, tasks_per_client=20).federation, 0)
    assert {len(part) for part in owned.values()} == {20}
    assert len({t.id for part in owned.values() for t in part}) == 100


def test_partition_depends_on_the_seed_unless_the_published_order_is_asked_for() -> None:
    hashed = config(clients=8, tasks_per_client=10).federation
    assert client_tasks(tasks(100), hashed, 0) != client_tasks(tasks(100), hashed, 1)
    published = config(clients=8, tasks_per_client=10, schedule="reference").federation
    assert [t.id for t in client_tasks(tasks(100), published, 5)["c001"]] == [f"t{i}" for i in range(12, 22)]


def test_too_few_tasks_for_one_client_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"tasks_per_client = 100.*only 99"):
        client_tasks(tasks(99), config(tasks_per_client=100).federation, 0)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 23), n=st.integers(1, 23), seed=st.integers(0, 5))
def test_a_client_meets_every_task_once_before_any_again(size: int, n: int, seed: int) -> None:
    owned = tasks(size)
    if n > size:
        with pytest.raises(ValueError, match=f"{n} distinct tasks from {size}"):
            draw_tasks("c000", 0, owned, n, seed)
        return
    batches = [[t.id for t in draw_tasks("c000", draw, owned, n, seed)] for draw in range(12)]
    for batch in batches:
        assert len(set(batch)) == n
    drawn = [task for batch in batches for task in batch]
    for start in range(0, len(drawn) - size + 1, size):
        assert len(set(drawn[start : start + size])) == size


def test_passes_have_orders_of_their_own() -> None:
    owned = tasks(50)
    first, second = (tuple(t.id for t in draw_tasks("c000", draw, owned, 50, 0)) for draw in (0, 1))
    other = tuple(t.id for t in draw_tasks("c001", 0, owned, 50, 0))
    assert len({first, second, other}) == 3


def test_plan_is_a_pure_function_of_seed_and_round() -> None:
    made = config(seed=3, clients=10, clients_per_round=3, tasks_per_client=30)
    forward = Schedule(made, tasks(500))
    plans = [forward.plan(r) for r in range(1, 8)]
    assert Schedule(made, tasks(500)).plan(7) == plans[6]
    assert Schedule(made, tasks(500)).plan(2) == plans[1]
    assert Schedule(config(seed=4, clients=10, clients_per_round=3, tasks_per_client=30), tasks(500)).plan(2) != plans[1]


def test_plan_continues_a_client_where_its_last_visit_ended() -> None:
    made = config(clients=2, clients_per_round=1, tasks_per_client=20, local_epochs=2, algorithm={"tasks_per_epoch": 5, "group_size": 2})
    schedule = Schedule(made, tasks(100))
    seen: dict[str, list[str]] = {}
    for round in range(1, 30):
        for client in schedule.plan(round).clients:
            assert schedule.visits(client.client, round) * 10 == len(seen.setdefault(client.client, []))
            seen[client.client] += [task.id for epoch in client.tasks for task in epoch]
    for drawn in seen.values():
        assert len(set(drawn[:20])) == 20, "a task came again before the client had met all of them"


def test_plan_holds_a_group_of_episodes_per_task_with_seeds_of_their_own() -> None:
    made = config(algorithm={"tasks_per_epoch": 3, "group_size": 4})
    plan = Schedule(made, tasks(900)).plan(1)
    assert plan.n_episodes == 4 * 2 * 3 * 4
    for client in plan.clients:
        for epoch in client.epochs:
            assert [spec.group for spec in epoch] == [0] * 4 + [1] * 4 + [2] * 4
            assert {spec.client for spec in epoch} == {client.client}
            assert all(len({s.task.id for s in epoch if s.group == g}) == 1 for g in range(3))
    seeds = [spec.seed for client in plan.clients for epoch in client.epochs for spec in epoch]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_episode_seeds_depend_on_every_part() -> None:
    base = (0, 1, "c000", 0, 0, 0)
    changed = [
        (1, *base[1:]),
        (0, 2, *base[2:]),
        (0, 1, "c001", 0, 0, 0),
        (0, 1, "c000", 1, 0, 0),
        (0, 1, "c000", 0, 1, 0),
        (0, 1, "c000", 0, 0, 1),
    ]
    assert len({episode_seed(*parts) for parts in [base, *changed]}) == 7


@pytest.mark.parametrize(("mode", "client"), [("centralized", POOLED), ("local", "c003")])
def test_baselines_spend_as_many_episodes_with_one_client(mode: str, client: str) -> None:
    local = {"local_client": 3} if mode == "local" else {}
    federated = Schedule(config(clients=8, clients_per_round=3, local_epochs=2), tasks(1000))
    baseline = Schedule(config(clients=8, clients_per_round=3, local_epochs=2, mode=mode, **local), tasks(1000))
    plan = baseline.plan(5)
    assert plan.names == (client,)
    assert len(plan.clients[0].epochs) == 6
    assert plan.n_episodes == federated.plan(5).n_episodes
    assert baseline.summary().episodes == federated.summary().episodes


def test_baselines_train_on_the_tasks_of_the_federation() -> None:
    federated = Schedule(config(), tasks(1000))
    pooled = Schedule(config(mode="centralized"), tasks(1000))
    local = Schedule(config(mode="local", local_client=2), tasks(1000))
    assert {t.id for t in pooled.owned[POOLED]} == {t.id for part in federated.owned.values() for t in part}
    assert local.owned["c002"] == federated.owned["c002"]
    assert {spec.task.id for epoch in local.plan(1).clients[0].epochs for spec in epoch} <= {t.id for t in federated.owned["c002"]}


def test_summary_counts_what_the_plans_use() -> None:
    made = config(clients=12, clients_per_round=2, rounds=6, tasks_per_client=30, algorithm={"tasks_per_epoch": 7, "group_size": 2})
    schedule = Schedule(made, tasks(300))
    plans = [schedule.plan(r) for r in range(1, 7)]
    visits = Counter(name for plan in plans for name in plan.names)
    used = {spec.task.id for plan in plans for client in plan.clients for epoch in client.epochs for spec in epoch}
    summary = schedule.summary()
    assert (summary.visited, summary.visits_max, summary.tasks_used) == (len(visits), max(visits.values()), len(used))
    assert summary.episodes == sum(plan.n_episodes for plan in plans)
    assert summary.shared_owners > 0


def test_a_batch_larger_than_a_clients_tasks_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"tasks_per_epoch = 8: client c\d+ owns 5"):
        Schedule(config(tasks_per_client=5), tasks(100)).plan(1)
