"""A client-round on plain objects: names, seeds, accounting, what leaves, and what is dropped when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from envs.base import Task
from pipeline.client import ClientResult, ClientWork, Means, failure, train_client
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import EngineError, LearnerError
from pipeline.privacy_boundary import ALLOWED_METRICS
from pipeline.services import EpisodeLogTarget, Handle, Published, Trained

SECRET = "buy the red wig"


class Services:
    """Engine and learner: a state is a number, every update adds one. ``fail`` names the call that raises."""

    def __init__(self, fail: str = "", loss: float = 0.5) -> None:
        self.fail, self.loss = fail, loss
        self.live: set[str] = set()
        self.calls: list[tuple[Any, ...]] = []

    def call(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fail and len([c for c in self.calls if c[0] == call[0]]) == 2 and call[0] == self.fail:
            raise EngineError(f"{self.fail} broke")

    async def publish(self, name: str, state: Handle) -> None:
        self.call("publish", name, state)
        self.live.add(name)

    async def drop(self, name: str) -> None:
        self.call("drop", name)
        self.live.discard(name)

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        self.call("run", adapter)
        n = float(len(specs))
        scalars = {"episodes": n, "failed": 1.0, "tokens_prompt": 10 * n, "tokens_response": n, "success": n / 10, "observation": 1.0}
        return SECRET, scalars

    async def update(
        self,
        client: str,
        round: int,
        epoch: int,
        seed: int,
        start: Handle,
        episodes: Handle,
        optimizer: Handle | None,
        anchor: Handle | None,
    ) -> Trained:
        self.call("update", epoch, seed, start, optimizer, anchor)
        return Trained(start + 1, f"moments-{epoch}", f"hash{epoch}", {"loss": self.loss, "kl": float("nan"), "advantage_mean": 3.0})

    async def difference(self, before: Handle, after: Handle) -> Handle:
        self.call("difference", before, after)
        return after - before


def work(*sizes: int) -> ClientWork:
    tasks = [Task(f"t{i}", SECRET, "wigs") for i in range(max(sizes))]
    return ClientWork("c001", 3, tuple(tuple(EpisodeSpec("c001", task) for task in tasks[:n]) for n in sizes), seed=70)


def run(services: Services, *sizes: int, needs_anchor: bool = False, optimizer: Handle | None = None) -> ClientResult:
    return asyncio.run(
        train_client(
            work(*sizes),
            Published("global-2-x", 2, 100),
            services,
            services,
            Sampling(),
            optimizer=optimizer,
            needs_anchor=needs_anchor,
            log=lambda epoch: None,
            on_batch=lambda scalars: None,
        )
    )


def test_each_epoch_acts_with_what_the_epoch_before_learned() -> None:
    services = Services()
    result = run(services, 2, 2, 2, optimizer="kept")
    assert [c[1] for c in services.calls if c[0] == "run"] == ["global-2-x", "c001-3-1-hash0", "c001-3-2-hash1"]
    assert [c[1:] for c in services.calls if c[0] == "update"] == [
        (0, 70, 100, "kept", None),
        (1, 71, 101, "moments-0", None),
        (2, 72, 102, "moments-1", None),
    ]
    assert (result.delta, result.state, result.optimizer) == (3, 103, "moments-2")
    assert not services.live, "the adapters of a client do not outlive its round"
    assert "c001-3-3-hash2" not in [c[1] for c in services.calls if c[0] == "publish"], "the last epoch's adapter acts nowhere"


def test_the_anchor_is_the_rounds_start_in_every_epoch() -> None:
    services = Services()
    run(services, 2, 2, needs_anchor=True)
    assert [c[5] for c in services.calls if c[0] == "update"] == [100, 100]


@pytest.mark.parametrize("fail", ["run", "update", "publish"])
def test_adapters_are_dropped_whatever_fails(fail: str) -> None:
    services = Services(fail)
    with pytest.raises(EngineError, match=f"{fail} broke"):
        run(services, 2, 2, 2)
    assert not services.live


def test_counts_are_sums_and_rates_are_means_over_episodes() -> None:
    meta = run(Services(), 2, 6).meta
    assert (meta.n_tasks, meta.n_episodes, meta.n_tokens) == (6, 8, 88)
    assert meta.metrics["success"] == pytest.approx((2 * 0.2 + 6 * 0.6) / 8)
    assert (meta.metrics["episodes"], meta.metrics["tokens"], meta.metrics["epochs"]) == (8, 88, 2)
    assert meta.metrics["failed_episodes"] == 2
    assert (meta.client, meta.round, meta.base_version) == ("c001", 3, "global-2-x")


def test_only_allowed_numbers_leave() -> None:
    result = run(Services(), 2)
    assert set(result.meta.metrics) <= ALLOWED_METRICS
    assert "kl" not in result.meta.metrics, "what is not finite is left out"
    assert SECRET not in repr(result.meta) + repr(result.record)


def test_a_loss_that_is_not_finite_names_client_round_and_epoch() -> None:
    with pytest.raises(LearnerError, match="client c001, round 3, epoch 0: the loss is nan"):
        run(Services(loss=float("nan")), 2)


def test_the_first_error_is_kept_with_its_traceback() -> None:
    try:
        raise LearnerError("out of memory\nallocator says no")
    except LearnerError as error:
        first = error
    kept = failure("c001", 3, [first, EngineError("gone")])
    assert kept.error == "LearnerError: allocator says no"
    assert "test_the_first_error_is_kept_with_its_traceback" in kept.traceback
    assert (kept.client, kept.round, kept.attempts) == ("c001", 3, 2)


def test_means_leave_out_what_is_missing_or_not_finite() -> None:
    means = Means()
    means.add({"a": 1.0, "b": float("nan")}, 1)
    means.add({"a": 4.0, "b": 2.0}, 2)
    assert means.means() == {"a": 3.0, "b": 2.0}
