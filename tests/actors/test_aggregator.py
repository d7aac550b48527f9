"""The aggregator actor: what goes in and out by reference, and errors that keep their type across processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from actors.aggregator import AggregatorActor
from pipeline.errors import AggregationError
from pipeline.moments import Moments
from pipeline.services import UpdateMeta


def meta(client: str, **changes: Any) -> UpdateMeta:
    return UpdateMeta(
        **{
            "client": client,
            "round": 1,
            "base_version": "global-0-x",
            "n_tasks": 1,
            "n_episodes": 2,
            "n_tokens": 3,
            "metrics": {},
            **changes,
        }
    )


def array(value: float) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {"w": np.full((2, 3), value, np.float32)}


def moments(value: float) -> Moments:
    return Moments(step=int(value), exp_avg=array(value), exp_avg_sq=array(value * 10))


def test_a_round_without_ray() -> None:
    actor = AggregatorActor("full", "episodes", 16.0)
    actor.begin("global-0-x", 0, ["c000", "c001", "c002"], array(10.0))
    actor.add(meta("c001", n_episodes=3), array(5.0), moments(6))
    actor.skip("c002")
    actor.add(meta("c000", n_episodes=1), array(1.0), moments(2))
    state, (name, round, metrics) = actor.finish()
    np.testing.assert_allclose(state["w"], 14.0)
    assert (round, metrics["n_clients"]) == (1, 2.0)
    assert name.startswith("global-1-")
    mean = actor.mean_moments()
    assert mean is not None
    assert mean.step == 5
    np.testing.assert_allclose(mean.exp_avg_sq["w"], 50.0)


def test_without_moments_there_is_no_mean_of_them() -> None:
    actor = AggregatorActor("full", "uniform", 16.0)
    actor.begin("global-0-x", 0, ["c000"], array(10.0))
    actor.add(meta("c000"), array(5.0))
    actor.finish()
    assert actor.mean_moments() is None


@pytest.fixture
def ray() -> Iterator[Any]:
    import ray as module

    module.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield module
    module.shutdown()


@pytest.mark.slow
def test_a_round_on_ray_by_reference(ray: Any) -> None:
    actor = ray.remote(AggregatorActor).options(num_cpus=0.1).remote("full", "uniform", 16.0)
    start = ray.put(array(10.0))
    ray.get(actor.begin.remote("global-0-x", 0, ["c000", "c001"], start))
    ray.get(actor.add.remote(meta("c001"), ray.put(array(3.0))))
    with pytest.raises(AggregationError, match="client c000, round 1: w has shape"):
        ray.get(actor.add.remote(meta("c000"), ray.put({"w": np.zeros((3, 2), np.float32)})))
    ray.get(actor.add.remote(meta("c000"), ray.put(array(1.0))))
    state, head = actor.finish.options(num_returns=2).remote()
    name, round, _ = ray.get(head)
    # The state's reference goes on to the next round without being fetched.
    ray.get(actor.begin.remote(name, round, ["c000"], state))
    np.testing.assert_allclose(ray.get(state)["w"], 12.0)
