"""Environment workers and pools: outcomes instead of crashes, isolation of slots, restart of dead and hung processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.driver import EpisodeLoop, Job
from actors.environment import EnvironmentPool, EnvironmentWorker, LocalPool, Outcome, Reset, Step, start_workers
from envs.base import WorldSpec, register_world
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EnvironmentFailure
from tests.actors.test_driver import CountingPrompter, FakeEngine
from tests.worlds import GuessWorld, guess_task

WORLD = WorldSpec("guess-test", {"max_steps": 4})
register_world("guess-test", "tests.worlds:GuessWorld")


def test_reset_and_steps_give_outcomes_in_the_order_of_the_operations() -> None:
    worker = EnvironmentWorker(GuessWorld(), 2)
    outcomes = worker.step_many([Reset(1, 10, guess_task(3), "default", 0), Reset(0, 11, guess_task(4), "other", 0), Step(1, 12, "3")])
    assert [(o.slot, o.ticket, o.status, o.observation) for o in outcomes] == [
        (1, 10, "ok", "guess (default)"),
        (0, 11, "ok", "guess (other)"),
        (1, 12, "ok", "yes after 1"),
    ]
    assert (outcomes[2].terminated, outcomes[2].reward, outcomes[2].score, outcomes[2].success) == (True, 10.0, 1.0, True)
    assert outcomes[0].admissible == ("a number",)


def test_a_step_without_a_running_episode_is_lost_not_an_error() -> None:
    worker = EnvironmentWorker(GuessWorld(), 1)
    (outcome,) = worker.step_many([Step(0, 1, "3")])
    assert (outcome.status, outcome.ticket) == ("lost", 1)
    worker.step_many([Reset(0, 2, guess_task(3), "default", 0), Step(0, 3, "3")])
    (after_the_end,) = worker.step_many([Step(0, 4, "3")])
    assert after_the_end.status == "lost"


def test_an_exception_is_the_outcome_of_its_slot_alone_and_the_slot_works_again() -> None:
    worker = EnvironmentWorker(GuessWorld(), 2)
    worker.step_many([Reset(0, 0, guess_task(3, trouble="raise"), "default", 0), Reset(1, 1, guess_task(5), "default", 0)])
    bad, good = worker.step_many([Step(0, 2, "3"), Step(1, 3, "5")])
    assert (bad.status, bad.error, good.status, good.success) == ("failed", "RuntimeError: the page would not load", "ok", True)
    again = worker.step_many([Reset(0, 4, guess_task(6), "default", 0), Step(0, 5, "6")])
    assert again[1].success


def test_an_unknown_variant_fails_its_slot_with_the_worlds_message() -> None:
    (outcome,) = EnvironmentWorker(GuessWorld(), 1).step_many([Reset(0, 0, guess_task(3), "nowhere", 0)])
    expected = "ValueError: variant 'nowhere' of world 'guess-test': unknown (known: default, other); did you mean 'other'?"
    assert (outcome.status, outcome.error) == ("failed", expected)


def test_the_worlds_step_limit_truncates_even_if_the_environment_forgets() -> None:
    world = GuessWorld(max_steps=2)
    worker = EnvironmentWorker(world, 1)
    worker.step_many([Reset(0, 0, guess_task(9), "default", 0)])
    world.make = lambda variant="default": pytest.fail("made a second environment")  # type: ignore[assignment, misc]
    worker._slots[0].env._max_steps = 99  # type: ignore[union-attr]
    first, second = worker.step_many([Step(0, 1, "1"), Step(0, 2, "2")])
    assert (first.truncated, second.truncated, second.terminated) == (False, True, False)


def test_environments_are_made_once_per_slot_and_variant() -> None:
    made: list[str] = []
    world = GuessWorld()
    make = world.make
    world.make = lambda variant="default": (made.append(variant), make(variant))[1]  # type: ignore[assignment, misc]
    worker = EnvironmentWorker(world, 2)
    for variant in ("default", "default", "other", "other", "default"):
        worker.step_many([Reset(0, 0, guess_task(1), variant, 0)])
    assert made == ["default", "other", "default"]


def test_local_pool_keeps_tickets() -> None:
    pool = LocalPool(GuessWorld(), 2)
    pool.submit([Reset(0, 7, guess_task(1), "default", 0)])
    assert pool.pending == 1
    assert [o.ticket for o in pool.poll(0)] == [7]
    assert pool.poll(0) == []


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    import ray

    root = str(Path(__file__).resolve().parents[2])
    environment = {
        "env_vars": {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        "worker_process_setup_hook": "tests.actors.test_environment.register",
    }
    ray.init(address="local", num_cpus=2, include_dashboard=False, runtime_env=environment, log_to_driver=False)
    yield
    ray.shutdown()


def register() -> None:
    """What every worker process of the tests does first: make the toy world known."""
    register_world("guess-test", "tests.worlds:GuessWorld")


def collect(pool: EnvironmentPool, count: int, limit_s: float = 60) -> list[Outcome]:
    outcomes: list[Outcome] = []
    until = time.monotonic() + limit_s
    while len(outcomes) < count:
        assert time.monotonic() < until, f"only {len(outcomes)} of {count} outcomes after {limit_s} s"
        outcomes += pool.poll(0.2)
    return sorted(outcomes, key=lambda o: o.ticket)


def make_pool(workers: int, slots: int, deadline_s: float = 30.0) -> EnvironmentPool:
    return EnvironmentPool(start_workers(WORLD, workers, slots, cpus=0.1), slots, deadline_s)


@pytest.mark.slow
def test_pool_maps_slots_to_workers_and_back(ray_cluster: None) -> None:
    pool = make_pool(2, 2)
    pool.submit([Reset(slot, slot, guess_task(slot), "default", 0) for slot in range(4)])
    assert [(o.slot, o.observation) for o in collect(pool, 4)] == [(slot, "guess (default)") for slot in range(4)]
    pool.submit([Step(slot, 10 + slot, str(slot)) for slot in range(4)])
    assert [(o.slot, o.success) for o in collect(pool, 4)] == [(slot, True) for slot in range(4)]
    assert pool.pending == 0
    pool.close()


@pytest.mark.slow
@pytest.mark.parametrize(("trouble", "deadline_s"), [("die", 30.0), ("hang", 4.0)])
def test_a_worker_that_dies_or_hangs_is_restarted_and_only_its_own_episodes_notice(
    ray_cluster: None, trouble: str, deadline_s: float
) -> None:
    pool = make_pool(2, 2, deadline_s)
    tasks = [guess_task(0, trouble=trouble), guess_task(1), guess_task(2), guess_task(3)]
    pool.submit([Reset(slot, slot, task, "default", 0) for slot, task in enumerate(tasks)])
    collect(pool, 4)
    pool.submit([Step(0, 10, "0"), Step(2, 12, "9")])
    died, other = collect(pool, 2)
    assert (died.status, other.status) == ("failed", "ok"), (died.error, other.error)
    assert "environment worker 0" in died.error
    pool.submit([Step(1, 21, "1"), Step(2, 22, "2")])
    neighbour, other = collect(pool, 2)
    assert (neighbour.status, other.status, other.success) == ("lost", "ok", True)
    pool.submit([Reset(1, 31, guess_task(1), "default", 0)])
    assert collect(pool, 1)[0].status == "ok"
    assert pool.restarts == 1
    pool.close()


@pytest.mark.slow
def test_loading_a_world_is_not_measured_against_the_deadline_of_a_step(ray_cluster: None) -> None:
    pool = EnvironmentPool(start_workers(WorldSpec("guess-test", {"load_s": 3.0}), 1, 1, cpus=0.1), 1, deadline_s=1.0)
    pool.submit([Reset(0, 1, guess_task(1), "default", 0)])
    assert [(o.status, o.ticket) for o in collect(pool, 1)] == [("ok", 1)]
    assert pool.restarts == 0
    pool.close()


@pytest.mark.slow
def test_a_world_that_cannot_be_built_is_an_error_with_its_cause(ray_cluster: None) -> None:
    pool = EnvironmentPool(start_workers(WorldSpec("guess-test", {"colour": "red"}), 1, 1, cpus=0.1), 1, deadline_s=5.0)
    pool.submit([Reset(0, 1, guess_task(1), "default", 0)])
    with pytest.raises(EnvironmentFailure, match=r"worker 0 cannot build its world: TypeError: .*colour"):
        collect(pool, 1)


@pytest.mark.slow
def test_a_world_that_never_loads_is_an_error_after_the_start_timeout(ray_cluster: None) -> None:
    actors = start_workers(WorldSpec("guess-test", {"load_s": 600.0}), 1, 1, cpus=0.1)
    pool = EnvironmentPool(actors, 1, deadline_s=5.0, start_timeout_s=2.0)
    pool.submit([Reset(0, 1, guess_task(1), "default", 0)])
    with pytest.raises(EnvironmentFailure, match="worker 0 did not load its world within 2 s"):
        collect(pool, 1)
    pool.close()


@pytest.mark.slow
def test_episodes_survive_a_worker_killed_midway_and_one_task_that_always_hangs(ray_cluster: None, tmp_path: Path) -> None:
    specs = [EpisodeSpec("shop", guess_task(t)) for t in range(6)]
    specs[2] = EpisodeSpec("shop", guess_task(2, trouble="die", flag=str(tmp_path / "flag")))
    specs[4] = EpisodeSpec("shop", guess_task(4, trouble="hang"))
    pool = make_pool(1, 6, deadline_s=4.0)
    loop = EpisodeLoop(FakeEngine(), pool, CountingPrompter(), env_retries=2)
    job = Job(specs, "a", Sampling(max_new_tokens=4))
    loop.submit(job)
    until = time.monotonic() + 120
    while loop.busy:
        assert time.monotonic() < until
        loop.advance(0.2)
    episodes = job.future.result()
    assert [e.stop for e in episodes] == ["done", "done", "done", "done", "failed", "done"]
    assert "no answer within 4 s" in episodes[4].observations[0]
    assert episodes[4].retries == 2
    pool.close()
