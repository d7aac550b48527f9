"""Work that is cut short, hangs or fails half-way: nobody else pays for it, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.driver import EpisodeDriver, EpisodeLoop, Job
from actors.environment import LocalPool
from actors.learner import LearnerGroup
from actors.placement import worker_environment
from pipeline.client import failure
from pipeline.config import Config
from pipeline.errors import EngineError, QuorumError
from pipeline.runlog import read_history
from tests.actors.test_driver import SAMPLING, CountingPrompter, FakeEngine, GuessWorld, specs
from tests.actors.test_driver import run as run_loop
from tests.pipeline.test_cluster_services import Engine, Method, rollouts, use
from tests.pipeline.test_federation import SECRET, World, federation, make_config, start
from tests.pipeline.test_recorder import Parts


def test_an_adapter_name_is_free_again_when_publishing_was_cut_short() -> None:
    world, real, stuck = World(), World.publish, [True]

    async def publish(name: str, state: Any) -> None:
        await real(world, name, state)
        if name.startswith("c4") and stuck:
            stuck.clear()
            await asyncio.sleep(5)

    world.publish = publish  # type: ignore[method-assign]
    fed, _, _ = federation(world, make_config(client_deadline_s=0.2), clients=["c4"])
    assert asyncio.run(fed.run_round(start(world), 1)).state == 8


def test_an_engine_that_hangs_even_in_the_clean_up_does_not_hang_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.services.CLEANUP_S", 0.2)
    world, real_run, real_drop = World(), World.run, World.drop

    async def run(specs: Any, adapter: str, sampling: Any, log: Any) -> Any:
        if adapter.startswith("c4"):
            await asyncio.sleep(3600)
        return await real_run(world, specs, adapter, sampling, log)

    async def drop(name: str) -> None:
        if name.startswith("c4"):
            await asyncio.sleep(3600)
        await real_drop(world, name)

    world.run, world.drop = run, drop  # type: ignore[method-assign]
    fed, _, _ = federation(world, make_config(client_deadline_s=0.2, client_retries=0, quorum=0.1), clients=["c1", "c4"])

    async def bounded() -> None:
        await asyncio.wait_for(fed.run_round(start(world), 1), 5)

    asyncio.run(bounded())


def test_a_self_test_that_was_cut_short_is_done_with_the_next_update() -> None:
    world, calls = World(), []

    async def check(state: Any) -> None:
        calls.append(state)
        if len(calls) == 1:
            raise EngineError("the engine died")

    fed, _, _ = federation(world)
    fed.after_update = check
    asyncio.run(fed.run_round(start(world), 1))
    assert len(calls) == 2


def test_a_quorum_of_55_percent_of_100_is_55() -> None:
    fed, _, _ = federation(World(), make_config(clients=100, clients_per_round=100, quorum=0.55))
    failed = [failure("c", 1, [ValueError("x")])]
    fed.require_quorum(1, 55, failed, 100)
    with pytest.raises(QuorumError):
        fed.require_quorum(1, 54, failed, 100)


def test_what_foreign_exceptions_say_stays_on_the_client_side() -> None:
    world = World()

    async def update(*_: Any) -> Any:
        raise ValueError(f"cannot encode {SECRET!r}")

    world.update = update  # type: ignore[method-assign]
    fed, notes, _ = federation(world, make_config(quorum=0.1), clients=["c1", "c4"])
    with pytest.raises(QuorumError) as error:
        asyncio.run(fed.run_round(start(world), 1))
    assert SECRET not in str(error.value)
    assert all(SECRET not in f.error and SECRET in f.traceback for f in notes.failures)


def test_a_refused_publish_is_tried_again() -> None:
    engine = Engine()
    engine.refuses = 1

    async def scenario() -> None:
        service = rollouts(Engine(), engine)
        service._load[0] = 99
        await service.publish("a", 1)
        with pytest.raises(EngineError):
            await use(service, "a")
        await use(service, "a")

    asyncio.run(scenario())


def test_an_adapter_dropped_while_it_loads_is_gone_afterwards() -> None:
    engine = Engine()
    real = engine._publish

    async def slow(name: str, state: Any) -> None:
        await asyncio.sleep(0.05)
        await real(name, state)

    engine.publish = Method(slow)

    async def scenario() -> None:
        service = rollouts(engine)
        publishing = asyncio.ensure_future(service.publish("a", 1))
        await asyncio.sleep(0.01)
        publishing.cancel()
        await service.drop("a")

    asyncio.run(scenario())
    assert not engine.live


def test_an_engine_that_failed_beyond_repair_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, alive, failures = Engine(), [True], [1]
    real = engine._run

    async def healthy() -> bool:
        return bool(alive)

    async def run(specs: Any, adapter: str, *rest: Any) -> Any:
        if failures:
            failures.clear()
            alive.clear()
            raise RuntimeError("out of memory")
        return await real(specs, adapter, *rest)

    def kill(actor: Any, no_restart: bool = True) -> None:
        assert not no_restart
        alive.append(True)
        engine.live.clear()

    engine.healthy, engine.run._call = Method(healthy), run  # type: ignore[attr-defined]
    monkeypatch.setattr("ray.kill", kill)

    async def scenario() -> None:
        service = rollouts(engine)
        await service.publish("a", 1)
        with pytest.raises(RuntimeError):
            await use(service, "a")
        await use(service, "a")

    asyncio.run(scenario())


def test_a_cancelled_call_does_not_end_the_driver() -> None:
    class Pool:
        slots, pending = 1, 0

        def submit(self, operations: Any) -> None: ...

        def poll(self, timeout: float) -> list[Any]:
            return []

        def close(self) -> None: ...

    class Idle:
        max_context, capacity, adapters_at_once, pending = 10, 1, 1, 0

        def close(self) -> None: ...

    gate = threading.Event()
    driver = EpisodeDriver(Idle, Pool(), None)  # type: ignore[arg-type]
    driver.ready.result(5)
    driver.call(lambda engine: gate.wait(5))
    driver.call(lambda engine: 1).cancel()
    gate.set()
    assert driver.call(lambda engine: 7).result(5) == 7
    driver.close()


def test_a_cancelled_job_starts_no_more_episodes() -> None:
    engine = FakeEngine(lambda prompt: (prompt[0], 5))
    loop = EpisodeLoop(engine, LocalPool(GuessWorld(), 2), CountingPrompter())
    gone, following = Job(specs([1, 2, 3, 6, 7]), "a", SAMPLING), Job(specs([4, 5]), "a", SAMPLING)
    loop.submit(gone)
    loop.advance(0)
    gone.future.cancel()
    run_loop(loop, following)
    assert all(e.success for e in following.future.result())
    assert len(engine.prompts) == 4
    assert loop.running == 0


def test_a_learner_restart_that_was_cut_short_is_shared_with_the_next_client() -> None:
    group = LearnerGroup(SimpleNamespace(learner=SimpleNamespace(workers=1)))  # type: ignore[arg-type]
    starts = []

    def begin() -> None:
        starts.append(1)
        time.sleep(0.3)
        group._actors = [object()]

    group.start, group.stop = begin, lambda: setattr(group, "_broken", False)  # type: ignore[method-assign]

    async def scenario() -> None:
        first = asyncio.ensure_future(group._ensure())
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await group._ensure()

    asyncio.run(scenario())
    assert len(starts) == 1


def test_a_round_saved_but_not_logged_is_logged_on_resume(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    record = {"kind": "round", "round": 2, "clients": [], "failed": [], "episodes": 1}
    parts.log.write({"kind": "start", "resumed_from": 2})
    parts.recorder.resume(record)
    parts.recorder.resume(record)
    assert [r["round"] for r in read_history(tmp_path).rounds] == [2]
    assert len(parts.tracker.records) == 1


def test_a_run_that_begins_anew_has_one_first_evaluation(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    evaluation = {"kind": "evaluation", "round": 0}
    for record in (evaluation, {"kind": "start", "resumed_from": 0}, evaluation):
        parts.log.write(record)
    assert len(read_history(tmp_path).evaluations) == 1


def test_variables_of_a_submitted_job_are_not_named_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEBSHOP_DATA", "/x")
    assert worker_environment(Config())["WEBSHOP_DATA"] == "/x"
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"WEBSHOP_DATA": "/x"}}}')
    assert "WEBSHOP_DATA" not in worker_environment(Config())
