"""The round loop on plain objects: order of events, failures, quorum, deadlines, and what leaves a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from envs.base import Task
from pipeline.client import ClientFailure, ClientWork
from pipeline.config import Config, EvaluationConfig, FederationConfig, LearnerConfig, RunConfig
from pipeline.episodes import EpisodeSpec, Sampling
from pipeline.errors import AggregationError, LearnerError, QuorumError
from pipeline.federation import Federation
from pipeline.selftest import Probe
from pipeline.services import EpisodeLogTarget, Handle, Published, Trained, UpdateMeta

SECRET = "buy the red wig"
SHARED = Probe(((1, 2), (3,)), ((4,), (5, 6)))
TASKS = [Task(f"t{i}", SECRET, "wigs") for i in range(4)]


class World:
    """All services in one object; a state is a number, training adds the client's number."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.live: set[str] = set()
        self.broken: dict[str, int] = {}
        self.slow: dict[str, float] = {}
        self.updates: list[UpdateMeta] = []
        self.sent: list[float] = []
        self.expected: list[str] = []
        self.optimizers: list[object] = []
        self.looked: list[Handle] = []
        self.policies: list[Handle | None] = []

    async def publish(self, name: str, state: Handle) -> None:
        assert name not in self.live
        self.live.add(name)
        self.events.append(f"publish {name}")

    async def drop(self, name: str) -> None:
        self.live.remove(name)

    async def run(
        self, specs: Sequence[EpisodeSpec], adapter: str, sampling: Sampling, log: EpisodeLogTarget | None
    ) -> tuple[Handle, Mapping[str, float]]:
        assert adapter in self.live, f"{adapter} is not published"
        client = specs[0].client
        self.events.append(f"run {client} {adapter}")
        await asyncio.sleep(self.slow.get(client, 0))
        n = len(specs)
        scalars = {
            "episodes": n,
            "tokens_prompt": 10.0 * n,
            "tokens_response": n,
            "success": 0.5,
            "score": 0.6,
            "turns": 2.0,
            "invalid": 0.0,
        }
        return [SECRET], scalars

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
        self.optimizers.append(optimizer)
        if self.broken.get(client, 0) > 0:
            self.broken[client] -= 1
            raise LearnerError(f"no gradient for {client} (attempts left {self.broken[client]})")
        scalars = {"loss": 1.0, "grad_norm": 2.0, "clip_fraction": int(client[1:]) / 10}
        return Trained(start + int(client[1:]), f"moments {client}", f"h{start}", scalars)

    async def difference(self, before: Handle, after: Handle) -> Handle:
        return after - before

    async def distributions(self, state: Handle, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> Handle:
        assert (prompts, responses) == (SHARED.prompts, SHARED.responses)
        self.looked.append(state)
        if self.broken.get("look", 0) > 0:
            self.broken["look"] -= 1
            raise LearnerError("the learner died")
        return f"policy {state}"

    async def begin(self, version: Published, clients: Sequence[str], policy: Handle | None = None) -> None:
        self.base, self.expected, self.sent = version, list(clients), []
        self.policies.append(policy)

    async def add(self, meta: UpdateMeta, delta: Handle, moments: Handle | None, policy: Handle | None = None) -> None:
        assert meta.base_version == self.base.name
        self.updates.append(meta)
        self.expected.remove(meta.client)
        self.sent.append(delta)
        self.policies.append(policy)
        self.moments = moments

    async def skip(self, client: str) -> None:
        self.expected.remove(client)

    async def finish(self) -> tuple[Published, Handle]:
        assert not self.expected
        round = self.base.round + 1
        return Published(f"global-{round}-x", round, self.base.state + sum(self.sent) / len(self.sent)), self.moments


class Notes:
    """A recorder that keeps everything."""

    def __init__(self) -> None:
        self.records: list[Mapping[str, object]] = []
        self.failures: list[ClientFailure] = []

    def record(self, record: Mapping[str, object]) -> None:
        self.records.append(record)

    def failed(self, failed: ClientFailure) -> None:
        self.failures.append(failed)

    def batch(self, scalars: Mapping[str, float]) -> None: ...

    def phase(self, text: str) -> None: ...

    def episode_log(self, kind: str, client: str, round: int, epoch: int) -> EpisodeLogTarget | None:
        return None


class Kept:
    """A store that remembers what was saved."""

    def __init__(self) -> None:
        self.versions: list[Published] = []
        self.optimizers: list[dict[str, Handle]] = []

    async def save(
        self, version: Published, record: Mapping[str, object], optimizers: Mapping[str, Handle], average: Handle | None
    ) -> None:
        self.versions.append(version)
        self.optimizers.append(dict(optimizers))


def work(client: str, round: int, epochs: int = 2) -> ClientWork:
    specs = tuple(EpisodeSpec(client, task) for task in TASKS)
    return ClientWork(client, round, (specs,) * epochs, seed=7)


def federation(world: World, config: Config | None = None, clients: Sequence[str] = ("c1", "c2", "c4")) -> tuple[Federation, Notes, Kept]:
    notes, kept = Notes(), Kept()
    config = config or make_config()
    return (
        Federation(
            config,
            lambda r: [work(c, r, config.federation.local_epochs) for c in clients],
            TASKS,
            world,
            world,
            world,
            notes,
            kept,
            in_flight=2,
        ),
        notes,
        kept,
    )


def make_config(rounds: int = 2, **federation_options: object) -> Config:
    options = {"clients": 5, "clients_per_round": 3, "rounds": rounds, "local_epochs": 2, "quorum": 0.6, **federation_options}
    return Config(
        run=RunConfig(seed=1),
        federation=FederationConfig.model_validate(options),
        evaluation=EvaluationConfig(every=1, tasks=4, greedy=False),
    )


def start(world: World) -> Published:
    world.live.add("global-0-x")
    return Published("global-0-x", 0, 0.0)


def test_the_mean_of_what_clients_learned_becomes_the_next_version() -> None:
    world = World()
    fed, notes, kept = federation(world)
    final = asyncio.run(fed.run(start(world)))
    # Each client adds its number in each of 2 epochs: mean(2, 4, 8) = 14/3 a round.
    assert final.state == pytest.approx(2 * 14 / 3)
    assert [v.round for v in kept.versions] == [1, 2]
    assert world.live == {"global-2-x"}
    kinds = [str(r["kind"]) for r in notes.records]
    assert kinds.count("evaluation") == 3
    assert kinds.count("client") == 6
    assert kinds.count("round") == 2


def test_second_epoch_runs_under_the_adapter_of_the_first() -> None:
    world = World()
    fed, _, _ = federation(world, clients=["c4"])
    asyncio.run(fed.run_round(start(world), 1))
    assert [e for e in world.events if e.startswith("run c4")] == ["run c4 global-0-x", "run c4 c4-1-1-h0.0"]


def test_a_failing_client_is_retried_once_then_recorded_with_its_first_traceback() -> None:
    world = World()
    world.broken = {"c1": 1, "c2": 9}
    fed, notes, _ = federation(world)
    version = asyncio.run(fed.run_round(start(world), 1))
    assert version.state == pytest.approx((2 + 8) / 2)
    (failed,) = notes.failures
    assert (failed.client, failed.attempts) == ("c2", 2)
    assert "attempts left 8" in failed.traceback
    assert "LearnerError" in failed.error
    attempts = {r["client"]: r["attempts"] for r in notes.records if r["kind"] == "client"}
    assert attempts == {"c1": 2, "c4": 1}
    (record,) = [r for r in notes.records if r["kind"] == "round"]
    assert record["failed"] == [{"client": "c2", "error": failed.error, "attempts": 2}]
    assert world.live == {version.name}, "adapters of failed attempts are dropped"


def test_too_few_reports_end_the_run_and_say_why() -> None:
    world = World()
    world.broken = {"c1": 9, "c2": 9}
    fed, _, kept = federation(world)
    with pytest.raises(QuorumError, match=r"1 of 3 clients reported.*c1.*no gradient"):
        asyncio.run(fed.run_round(start(world), 1))
    assert kept.versions == []


def test_a_client_past_its_deadline_costs_itself_not_the_round() -> None:
    world = World()
    world.slow = {"c2": 5.0}
    fed, notes, _ = federation(world, make_config(client_deadline_s=0.2))
    version = asyncio.run(fed.run_round(start(world), 1))
    assert version.state == pytest.approx((2 + 8) / 2)
    assert "waited 0.2 s for client c2 in round 1" in notes.failures[0].error


def test_an_update_that_does_not_fit_is_not_a_client_failure() -> None:
    world = World()

    async def refuse(meta: UpdateMeta, delta: Handle, moments: Handle | None, policy: Handle | None = None) -> None:
        raise AggregationError("client c1: key 'x' is missing")

    world.add = refuse  # type: ignore[method-assign]
    fed, _, _ = federation(world)
    with pytest.raises(AggregationError, match="key 'x'"):
        asyncio.run(fed.run_round(start(world), 1))


def test_nothing_of_tasks_or_episodes_reaches_aggregator_or_records() -> None:
    world = World()
    fed, notes, _ = federation(world)
    asyncio.run(fed.run(start(world)))
    outside = json.dumps([dict(m.__dict__) for m in world.updates], default=dict) + json.dumps(notes.records, default=str)
    assert SECRET not in outside
    assert "t0" not in outside
    assert world.updates[0].n_tasks == len(TASKS)


def test_policies_are_looked_at_at_the_start_and_after_each_clients_last_epoch() -> None:
    world = World()
    fed, _, _ = federation(world)
    fed.shared = SHARED
    asyncio.run(fed.run_round(start(world), 1))
    assert sorted(world.looked) == [0.0, 2.0, 4.0, 8.0]
    assert world.policies[0] == "policy 0.0"
    assert set(world.policies[1:]) == {"policy 2.0", "policy 4.0", "policy 8.0"}


def test_without_shared_prompts_no_policy_is_looked_at() -> None:
    world = World()
    fed, _, _ = federation(world)
    asyncio.run(fed.run_round(start(world), 1))
    assert world.looked == []
    assert set(world.policies) == {None}


def test_a_learner_that_dies_over_a_look_is_asked_again() -> None:
    world = World()
    world.broken = {"look": 1}
    fed, _, _ = federation(world)
    fed.shared = SHARED
    asyncio.run(fed.run_round(start(world), 1))
    assert world.looked[:2] == [0.0, 0.0]
    world = World()
    world.broken = {"look": 2}
    fed, _, _ = federation(world)
    fed.shared = SHARED
    with pytest.raises(LearnerError, match="the learner died"):
        asyncio.run(fed.run_round(start(world), 1))


def test_the_share_of_clipped_tokens_reaches_the_round() -> None:
    world = World()
    fed, notes, _ = federation(world)
    asyncio.run(fed.run_round(start(world), 1))
    (record,) = [r for r in notes.records if r["kind"] == "round"]
    assert record["clip_fraction"] == pytest.approx((0.1 + 0.2 + 0.4) / 3)


def test_optimizer_moments_follow_the_client_only_when_kept() -> None:
    for policy, expected in (("keep", "moments c4"), ("average", "moments c4"), ("reset", None)):
        world = World()
        config = make_config(local_epochs=1).model_copy(update={"learner": LearnerConfig.model_validate({"optimizer_state": policy})})
        fed, _, kept = federation(world, config, clients=["c4"])
        asyncio.run(fed.run(start(world)))
        assert world.optimizers == [None, expected]
        assert (kept.optimizers[-1] == {"c4": "moments c4"}) is (policy == "keep")


def test_clients_own_parameters_are_measured_on_as_many_tasks_as_asked() -> None:
    settings = EvaluationConfig(every=0, tasks=4, greedy=False, clients=True, client_tasks=2)
    fed, notes, _ = federation(World(), make_config(1).model_copy(update={"evaluation": settings}))
    asyncio.run(fed.run(start(fed.rollouts)))  # type: ignore[arg-type]
    measured = [(r["client"], r["n"]) for r in notes.records if r["kind"] == "evaluation"]
    assert measured == [(None, 4), (None, 4), ("c1", 2), ("c2", 2), ("c4", 2)]
