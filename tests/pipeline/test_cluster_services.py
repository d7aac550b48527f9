"""Routing of work to engines and learner groups, with fake actors: load, loading once, death and restart, leases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
from ray.exceptions import RayActorError

from actors.learner import LearnerGroup
from envs.base import Task
from pipeline.cluster import RayLearners, RayRollouts
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EngineError

SPECS = [EpisodeSpec("c001", Task(f"t{i}", "", "")) for i in range(4)]


class Method:
    """An actor's method: ``remote`` returns something to await."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Any:
        return asyncio.ensure_future(self._call(*arguments))


class RunMethod:
    """``run`` has two results: a handle that nobody awaits, and scalars."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    def options(self, num_returns: int) -> RunMethod:
        assert num_returns == 2
        return self

    def remote(self, *arguments: Any) -> tuple[Any, Any]:
        return "episodes", asyncio.ensure_future(self._call(*arguments))


class Engine:
    """An engine actor. ``deaths`` counts the runs that kill it; a killed engine has forgotten everything."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.events: list[str] = []
        self.live: set[str] = set()
        self.deaths = 0
        self.restarting = 0
        self.refuses = 0
        self.seconds = seconds
        self.publish, self.drop = Method(self._publish), Method(self._drop)
        self.healthy = Method(self._ready)
        self.ready, self.score, self.run = Method(self._ready), Method(self._score), RunMethod(self._run)

    async def _publish(self, name: str, state: Any) -> None:
        if self.refuses:
            self.refuses -= 1
            raise EngineError(f"refused {name}")
        await asyncio.sleep(0)
        self.events.append(f"publish {name} {state}")
        self.live.add(name)

    async def _drop(self, name: str) -> None:
        self.events.append(f"drop {name}")
        self.live.remove(name)

    async def _ready(self) -> bool:
        if self.restarting:
            self.restarting -= 1
            raise RayActorError()
        return True

    async def _score(self, prompts: Sequence[Any], responses: Sequence[Any], name: str) -> list[list[float]]:
        assert name in self.live
        return [[-1.0]]

    async def _run(self, specs: Sequence[EpisodeSpec], adapter: str, *rest: Any) -> dict[str, float]:
        if self.deaths:
            self.deaths -= 1
            self.live.clear()
            raise RayActorError()
        assert adapter in self.live, f"{adapter} is not loaded"
        await asyncio.sleep(self.seconds)
        self.events.append(f"run {adapter}")
        return {"episodes": float(len(specs))}


def rollouts(*engines: Engine, restart_s: float = 5.0) -> RayRollouts:
    return RayRollouts(cast(Any, engines), 60.0, restart_s)


async def use(served: RayRollouts, name: str, times: int = 1) -> None:
    await asyncio.gather(*(served.run(SPECS, name, Sampling(), None) for _ in range(times)))


def test_a_version_is_loaded_once_however_many_ask_for_it() -> None:
    engine = Engine()

    async def go() -> None:
        served = rollouts(engine)
        await served.publish("a", 1)
        await use(served, "a", 5)
        await served.drop("a")

    asyncio.run(go())
    assert engine.events == ["publish a 1", *["run a"] * 5, "drop a"]


def test_several_engines_load_a_version_where_it_is_needed() -> None:
    one, two = Engine(0.02), Engine(0.02)

    async def go() -> None:
        served = rollouts(one, two)
        await served.publish("a", 1)
        assert not one.live
        assert not two.live
        await use(served, "a")
        assert (one.live, two.live) == ({"a"}, set())
        await use(served, "a", 2)
        assert two.live == {"a"}, "the busy engine is passed over"
        await served.drop("a")

    asyncio.run(go())
    assert not one.live
    assert not two.live


def test_load_is_given_back_when_a_run_fails() -> None:
    one, two = Engine(), Engine()
    one.deaths = 1

    async def go() -> None:
        served = rollouts(one, two)
        await served.publish("a", 1)
        with pytest.raises(EngineError, match=r"rollout engine 0 died while it ran 4 episodes of 'a' and was restarted"):
            await use(served, "a")
        await use(served, "a")

    asyncio.run(go())
    assert one.events == ["publish a 1", "publish a 1", "run a"], "the restarted engine is idle again, and loads the version again"


def test_unknown_and_repeated_names_are_refused() -> None:
    async def go() -> None:
        served = rollouts(Engine())
        with pytest.raises(EngineError, match="adapter 'b' is not published"):
            await use(served, "b")
        await served.publish("a", 1)
        with pytest.raises(EngineError, match="names are never used twice"):
            await served.publish("a", 1)
        await served.drop("never seen")

    asyncio.run(go())


def test_an_engine_that_does_not_come_back_is_given_up() -> None:
    engine = Engine()
    engine.deaths, engine.restarting = 1, 10**6

    async def go() -> None:
        served = rollouts(engine, restart_s=0.0)
        await served.publish("a", 1)
        with pytest.raises(EngineError, match="did not come back within 0 s"):
            await use(served, "a")

    asyncio.run(go())


def test_dropping_from_a_dead_engine_is_no_error() -> None:
    engine = Engine()

    async def gone(name: str) -> None:
        raise RayActorError()

    async def go() -> None:
        served = rollouts(engine)
        await served.publish("a", 1)
        engine.drop = Method(gone)
        await served.drop("a")

    asyncio.run(go())


def test_every_engine_scores() -> None:
    async def go() -> list[list[list[float]]]:
        served = rollouts(Engine(), Engine())
        await served.publish("a", 1)
        return await served.score([[1]], [[2]], "a")

    assert asyncio.run(go()) == [[[-1.0]], [[-1.0]]]


def test_a_group_serves_one_client_at_a_time_and_comes_back_whatever_happens() -> None:
    async def go() -> None:
        learners = RayLearners(cast(Sequence[LearnerGroup], ["g0", "g1"]))
        order: list[tuple[int, object]] = []

        async def client(number: int) -> None:
            async with learners.lease() as group:
                order.append((number, group))
                await asyncio.sleep(0.01)
                if number == 0:
                    raise RuntimeError("client 0 failed")

        results = await asyncio.gather(*(client(n) for n in range(6)), return_exceptions=True)
        assert [n for n, _ in order] == list(range(6)), "first come, first served"
        assert {group for _, group in order[:2]} == {"g0", "g1"}
        assert sum(isinstance(r, RuntimeError) for r in results) == 1

    asyncio.run(go())


def test_cancelled_clients_leave_the_pool_whole() -> None:
    async def go() -> None:
        learners = RayLearners(cast(Sequence[LearnerGroup], ["g0"]))

        async def client(seconds: float) -> None:
            async with learners.lease():
                await asyncio.sleep(seconds)

        holding, waiting = asyncio.ensure_future(client(60)), asyncio.ensure_future(client(60))
        await asyncio.sleep(0.01)
        for task in (waiting, holding):
            task.cancel()
        await asyncio.gather(holding, waiting, return_exceptions=True)
        await asyncio.wait_for(client(0), 1)

    asyncio.run(go())
