"""The episode driver over a fake engine: order, concurrency, retries, deadlines, seeds, and what being event-driven saves."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

import pytest

from actors.driver import EpisodeDriver, EpisodeLoop, Job, turn_seed
from actors.engines.base import AdapterNames, EngineStats, Generation, check_room
from actors.environment import LocalPool, Operation, Outcome
from envs.prompts import ParsedAction
from pipeline.episodes import EpisodeSpec, Sampling, State
from pipeline.errors import EngineError
from tests.worlds import GuessWorld, guess_task

SAMPLING = Sampling(max_new_tokens=4)


class CountingPrompter:
    """Prompts hold the target and the number of past turns; a response is one token, the guess."""

    def encode(self, instruction: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> list[int]:
        return [int(instruction.split()[-1]), len(history)]

    def decode(self, response_ids: Sequence[int]) -> ParsedAction:
        return ParsedAction(str(response_ids[0]), True)

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


class FakeEngine:
    """One ``step`` is one token for each of the ``capacity`` oldest requests; ``answer`` gives guess and length of a response."""

    adapters_at_once = 2

    def __init__(
        self, answer: Callable[[Sequence[int]], tuple[int, int]] = lambda prompt: (prompt[0], 1), capacity: int = 64, max_context: int = 100
    ) -> None:
        self.answer, self.capacity, self.max_context = answer, capacity, max_context
        self.stats = EngineStats()
        self.names = AdapterNames()
        self.requests: dict[str, list[int]] = {}
        self.prompts: dict[str, tuple[Sequence[int], str, int]] = {}
        self.seeds: list[int] = []
        self.batches: list[set[str]] = []
        self.most = 0
        self.closed = False
        for name in ("a", "b", "c"):
            self.names.publish(name, {})

    @property
    def pending(self) -> int:
        return len(self.requests)

    def add(self, request_id: str, prompt_ids: Sequence[int], sampling: Sampling, adapter: str, seed: int) -> None:
        check_room(self, request_id, len(prompt_ids), sampling.max_new_tokens)
        self.names.start(adapter)
        guess, length = self.answer(prompt_ids)
        self.requests[request_id] = [guess, length]
        self.prompts[request_id] = (prompt_ids, adapter, seed)
        self.seeds.append(seed)

    def step(self) -> list[Generation]:
        self.stats.steps += 1
        batch = list(self.requests)[: self.capacity]
        self.most = max(self.most, len(self.requests))
        self.batches.append({self.prompts[r][1] for r in batch})
        done = []
        for request in batch:
            self.requests[request][1] -= 1
            if self.requests[request][1] == 0:
                done.append(Generation(request, (self.requests.pop(request)[0],), (-0.5,)))
                self.names.finish(self.prompts[request][1])
        return done

    def publish(self, name: str, state: State) -> None:
        self.names.publish(name, state)

    def drop(self, name: str) -> None:
        self.names.drop(name)

    def score(self, prompt_ids: Sequence[int], response_ids: Sequence[int], adapter: str) -> list[float]:
        return [-0.5] * len(response_ids)

    def close(self) -> None:
        self.closed = True


class ShufflingPool:
    """A pool that answers in random order and in random portions, as real processes do."""

    def __init__(self, slots: int, seed: int) -> None:
        self.slots = slots
        self._pool = LocalPool(GuessWorld(), slots)
        self._rng = random.Random(seed)
        self._queue: list[Operation] = []

    @property
    def pending(self) -> int:
        return len(self._queue)

    def submit(self, operations: Sequence[Operation]) -> None:
        self._queue.extend(operations)

    def poll(self, timeout: float) -> list[Outcome]:
        self._rng.shuffle(self._queue)
        n = self._rng.randint(1, max(1, len(self._queue)))
        self._pool.submit(self._queue[:n])
        del self._queue[:n]
        return self._pool.poll(0)

    def close(self) -> None:
        pass


def specs(targets: Sequence[int], **changes: object) -> list[EpisodeSpec]:
    return [EpisodeSpec("shop", guess_task(t), seed=100 + t, **changes) for t in targets]  # type: ignore[arg-type]


def run(loop: EpisodeLoop, *jobs: Job) -> list[Job]:
    for job in jobs:
        loop.submit(job)
    for _ in range(10_000):
        if not loop.busy:
            return list(jobs)
        loop.advance(0)
    raise AssertionError("the loop does not end")


def test_episodes_come_back_in_the_order_of_their_specs_with_ids_logprobs_and_rewards() -> None:
    # Right answer at the second turn: first guess is target - 1.
    engine = FakeEngine(lambda prompt: (prompt[0] - 1 if prompt[1] == 0 else prompt[0], 1 + prompt[0] % 3))
    loop = EpisodeLoop(engine, LocalPool(GuessWorld(), 8), CountingPrompter())
    (job,) = run(loop, Job(specs([7, 2, 5]), "a", SAMPLING))
    episodes = job.future.result()
    assert [e.task_id for e in episodes] == ["guess-7", "guess-2", "guess-5"]
    first = episodes[0]
    assert [(t.prompt_ids, t.response_ids, t.logprobs, t.action, t.reward) for t in first.turns] == [
        ((7, 0), (6,), (-0.5,), "6", 0.0),
        ((7, 1), (7,), (-0.5,), "7", 10.0),
    ]
    assert (first.stop, first.success, first.score, first.ret, first.adapter, first.retries) == ("done", True, 1.0, 10.0, "a", 0)
    assert first.observations == ("guess (default)", "low after 1", "yes after 2")


def test_step_limit_and_context_limit_end_episodes() -> None:
    loop = EpisodeLoop(FakeEngine(lambda prompt: (99, 1)), LocalPool(GuessWorld(max_steps=3), 4), CountingPrompter())
    (job,) = run(loop, Job(specs([1]), "a", SAMPLING))
    (episode,) = job.future.result()
    assert (episode.stop, len(episode.turns), episode.success) == ("steps", 3, False)

    loop = EpisodeLoop(FakeEngine(max_context=5), LocalPool(GuessWorld(), 4), CountingPrompter())
    (job,) = run(loop, Job(specs([1]), "a", SAMPLING))
    (episode,) = job.future.result()
    assert (episode.stop, episode.turns, episode.success) == ("length", (), False)


def test_variants_reach_the_environment() -> None:
    loop = EpisodeLoop(FakeEngine(), LocalPool(GuessWorld(), 1), CountingPrompter())
    (job,) = run(loop, Job([*specs([1]), *specs([2], variant="other"), *specs([3])], "a", SAMPLING))
    assert [e.observations[0] for e in job.future.result()] == ["guess (default)", "guess (other)", "guess (default)"]


def test_in_flight_episodes_never_exceed_slots_or_twice_the_capacity() -> None:
    engine = FakeEngine(capacity=64)
    run(EpisodeLoop(engine, LocalPool(GuessWorld(), 3), CountingPrompter()), Job(specs(list(range(10))), "a", SAMPLING))
    assert engine.most == 3
    engine = FakeEngine(capacity=2)
    run(EpisodeLoop(engine, LocalPool(GuessWorld(), 100), CountingPrompter()), Job(specs(list(range(10))), "a", SAMPLING))
    assert engine.most == 4


def test_jobs_with_different_adapters_share_a_batch_up_to_the_engines_number() -> None:
    engine = FakeEngine(lambda prompt: (prompt[0], 3))
    jobs = [Job(specs([1, 2]), name, SAMPLING) for name in ("a", "b", "c")]
    run(EpisodeLoop(engine, LocalPool(GuessWorld(), 64), CountingPrompter()), *jobs)
    assert {"a", "b"} in engine.batches
    assert max(len(batch) for batch in engine.batches) == 2
    assert all(e.adapter == job.adapter for job in jobs for e in job.future.result())


def lock_step_steps(lengths: Sequence[Sequence[int]], capacity: int) -> int:
    """Engine steps of the same episodes when every turn waits for the slowest response of the turn before."""
    steps = 0
    for start in range(0, len(lengths), capacity):
        group = lengths[start : start + capacity]
        steps += sum(max((e[t] for e in group if t < len(e)), default=0) for t in range(max(map(len, group))))
    return steps


def test_event_driven_needs_far_fewer_engine_steps_than_lock_step_on_skewed_lengths() -> None:
    rng = random.Random(0)
    lengths = [[rng.choice([1, 1, 1, 12]) for _ in range(rng.choice([1, 1, 2, 4]))] for _ in range(200)]

    def answer(prompt: Sequence[int]) -> tuple[int, int]:
        episode, turn = prompt
        return (episode if turn == len(lengths[episode]) - 1 else -1), lengths[episode][turn]

    engine = FakeEngine(answer, capacity=16)
    loop = EpisodeLoop(engine, LocalPool(GuessWorld(), 16), CountingPrompter())
    run(loop, Job(specs(list(range(200))), "a", SAMPLING))
    full_batches, longest_episode = sum(map(sum, lengths)) / 16, max(map(sum, lengths))
    assert engine.stats.steps < lock_step_steps(lengths, 16) / 1.5
    assert engine.stats.steps <= full_batches + longest_episode


def test_results_do_not_depend_on_the_order_in_which_environments_answer() -> None:
    def play(seed: int, slots: int) -> list[object]:
        engine = FakeEngine(lambda prompt: (prompt[0] - 2 + prompt[1], 1 + (prompt[0] + prompt[1]) % 4))
        loop = EpisodeLoop(engine, ShufflingPool(slots, seed), CountingPrompter())
        jobs = run(loop, Job(specs(list(range(20))), "a", SAMPLING), Job(specs(list(range(5))), "b", SAMPLING))
        return [job.future.result() for job in jobs] + [sorted(engine.seeds)]

    assert play(0, 32) == play(1, 32) == play(2, 3)


def test_turn_seeds_differ_between_turns_and_episodes_and_stay_fixed() -> None:
    assert turn_seed(7, 0) == turn_seed(7, 0)
    assert len({turn_seed(e, t) for e in range(50) for t in range(20)}) == 1000
    assert 0 <= turn_seed(2**63, 3) < 2**62


def test_a_failing_environment_costs_its_episode_retries_and_no_other(tmp_path: object) -> None:
    always = EpisodeSpec("shop", guess_task(3, trouble="raise"))
    once = EpisodeSpec("shop", guess_task(4, trouble="raise", flag=f"{tmp_path}/flag"))
    loop = EpisodeLoop(FakeEngine(), LocalPool(GuessWorld(), 8), CountingPrompter(), env_retries=2)
    (job,) = run(loop, Job([always, once, *specs([5])], "a", SAMPLING))
    failed, recovered, untouched = job.future.result()
    assert (failed.stop, failed.retries, failed.turns, failed.success) == ("failed", 2, (), False)
    assert "the page would not load" in failed.observations[0]
    assert (recovered.stop, recovered.retries, len(recovered.turns)) == ("done", 1, 1)
    assert (untouched.retries, untouched.success) == (0, True)


class LosingPool(LocalPool):
    """Loses the state of every slot once, at the given poll."""

    polls = 0

    def poll(self, timeout: float) -> list[Outcome]:
        self.polls += 1
        if self.polls == 2:
            lost = [Outcome(o.slot, o.ticket, status="lost", error="gone") for o in self._queue]
            self._queue = []
            return lost
        return super().poll(timeout)


def test_a_lost_slot_restarts_the_episode_without_counting_a_retry() -> None:
    loop = EpisodeLoop(FakeEngine(), LosingPool(GuessWorld(), 8), CountingPrompter(), env_retries=0)
    (job,) = run(loop, Job(specs([1, 2]), "a", SAMPLING))
    assert [(e.success, e.retries, len(e.turns)) for e in job.future.result()] == [(True, 0, 1)] * 2
    assert loop.lost == 2


def test_an_unknown_adapter_fails_its_job_only() -> None:
    loop = EpisodeLoop(FakeEngine(), LocalPool(GuessWorld(), 2), CountingPrompter())
    bad, good = run(loop, Job(specs([1, 2, 3]), "nobody", SAMPLING), Job(specs([4]), "a", SAMPLING))
    with pytest.raises(EngineError, match=r"'nobody' was never published; live adapters: a, b, c"):
        bad.future.result()
    assert good.future.result()[0].success


def test_a_deadline_ends_a_job_and_its_slots_come_back() -> None:
    now = [0.0]
    engine = FakeEngine(lambda prompt: (prompt[0], 5))
    loop = EpisodeLoop(engine, LocalPool(GuessWorld(), 2), CountingPrompter(), clock=lambda: now[0])
    late, next_ = Job(specs([1, 2, 3]), "a", SAMPLING, deadline=1.0), Job(specs([4, 5]), "a", SAMPLING)
    loop.submit(late)
    loop.advance(0)
    now[0] = 2.0
    run(loop, next_)
    with pytest.raises(EngineError, match="deadline with 0 of 3 episodes finished"):
        late.future.result()
    assert all(e.success for e in next_.future.result())
    assert loop.running == 0


def test_empty_job_is_done_at_once() -> None:
    loop = EpisodeLoop(FakeEngine(), LocalPool(GuessWorld(), 2), CountingPrompter())
    assert loop.submit(Job([], "a", SAMPLING)).result(timeout=0) == []
    assert not loop.busy


def test_driver_thread_serves_concurrent_jobs_and_calls() -> None:
    engine = FakeEngine()
    driver = EpisodeDriver(lambda: engine, LocalPool(GuessWorld(), 4), CountingPrompter())
    driver.ready.result(timeout=10)
    futures = [driver.submit(specs([i, i + 1]), name, SAMPLING) for i, name in enumerate("abc")]
    names = driver.call(lambda e: threading.current_thread().name)
    assert [e.success for f in futures for e in f.result(timeout=10)] == [True] * 6
    assert names.result(timeout=10) == "episode-driver"
    driver.close()
    assert engine.closed


def test_a_broken_engine_fails_running_and_later_jobs_with_the_cause() -> None:
    class Broken(FakeEngine):
        def step(self) -> list[Generation]:
            raise RuntimeError("device lost")

    driver = EpisodeDriver(Broken, LocalPool(GuessWorld(), 4), CountingPrompter())
    with pytest.raises(RuntimeError, match="device lost"):
        driver.submit(specs([1]), "a", SAMPLING).result(timeout=10)
    with pytest.raises(EngineError, match=r"stopped earlier \(RuntimeError\)"):
        driver.submit(specs([1]), "a", SAMPLING).result(timeout=10)
    driver.close()


def test_an_engine_that_cannot_start_says_so_to_everybody() -> None:
    def refuse() -> FakeEngine:
        raise EngineError("no such model")

    driver = EpisodeDriver(refuse, LocalPool(GuessWorld(), 4), CountingPrompter())
    with pytest.raises(EngineError, match="no such model"):
        driver.ready.result(timeout=10)
    with pytest.raises(EngineError, match="no such model"):
        driver.submit(specs([1]), "a", SAMPLING).result(timeout=10)
    driver.close()
