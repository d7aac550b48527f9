"""Rollout speeds, side by side in one run: LoRA against the bare model (P4), event-driven against lock-step episodes (P6), publishing (P8).

Run ``python -m tests.benchmarks.bench_rollout [--rounds N] [--model FOLDER]``. Ratios are medians over rounds; every race runs its
contenders in turn within a round, so that a busy machine slows all of them. Engines live in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from envs.base import Split, Task, TextEnv, World
from envs.prompts import ParsedAction
from envs.variants import DEFAULT, Variant

PROMPT, NEW, REQUESTS, SLOTS = 70, 6, 256, 32
"""Prompt and new tokens per turn, turns per batch, episodes in flight in the race of drivers."""


def serve(connection: Connection, model: str, mode: str, slots: int, rank: int) -> None:
    """One engine in its own process: ``bare`` (whole weights), ``grouped`` or ``stock`` LoRA. Answers (adapters, seed) with seconds."""
    from actors.engines.base import EngineSpec
    from actors.engines.vllm_engine import VllmEngine
    from pipeline.config.model import LoraConfig
    from pipeline.models import get_state, load_model
    from tests.tiny_model import random_adapter

    lora = None if mode == "bare" else LoraConfig(rank=rank)
    spec = EngineSpec("vllm", Path(model), lora=lora, adapter_slots=slots, max_context=512, max_num_seqs=256, kv_cache_gb=1.0)
    engine = VllmEngine(spec, group_lora=mode == "grouped")
    if lora is None:
        engine.publish("a0", get_state(load_model(Path(model))))
    else:
        for i in range(slots):
            engine.publish(f"a{i}", random_adapter(Path(model), lora, i))
    connection.send("ready")
    for task in iter(connection.recv, None):
        connection.send(publish_time(engine, model, lora, task[1]) if task[0] == "publish" else batch_time(engine, *task))
    engine.close()


def batch_time(engine: Any, adapters: int, seed: int) -> float:
    """Seconds for one batch of fresh prompts spread over ``adapters``, in the order in which episodes mix: at random."""
    from pipeline.episodes import Sampling

    rng = np.random.default_rng(seed)
    vocabulary = 250
    prompts = rng.integers(3, vocabulary, (REQUESTS, PROMPT)).tolist()
    order = rng.permutation(REQUESTS) % adapters
    sampling = Sampling(1.0, 1.0, NEW)
    started = time.perf_counter()
    for i, prompt in enumerate(prompts):
        engine.add(f"{seed}-{i}", prompt, sampling, f"a{order[i]}", i)
    while engine.pending:
        engine.step()
    return time.perf_counter() - started


def publish_time(engine: Any, model: str, lora: Any, seed: int) -> float:
    """Seconds from a state in memory to the first token under its name."""
    from pipeline.episodes import Sampling
    from tests.tiny_model import random_adapter

    state = random_adapter(Path(model), lora, 1000 + seed)
    started = time.perf_counter()
    engine.publish(f"new-{seed}", state)
    engine.add(f"new-{seed}", [5, 6, 7], Sampling(1.0, 1.0, 1), f"new-{seed}", 0)
    while engine.pending:
        engine.step()
    seconds = time.perf_counter() - started
    engine.drop(f"new-{seed}")
    return seconds


class Server:
    """An engine process."""

    def __init__(self, model: str, mode: str, slots: int, rank: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, model, mode, slots, rank), daemon=True)
        self._process.start()
        assert self._connection.recv() == "ready"

    def ask(self, *task: Any) -> float:
        """Seconds of a task."""
        self._connection.send(task)
        return float(self._connection.recv())

    def close(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join(30)
        self._process.kill()


def race_lora(model: str, rounds: int, rank: int) -> dict[str, Any]:
    """Seconds per batch for bare, grouped with 1, 4, 16 adapters, and stock with 1 and 16."""
    servers = {mode: Server(model, mode, 1 if mode == "bare" else 16, rank) for mode in ("bare", "grouped", "stock")}
    contenders = [("bare", 1), ("grouped", 1), ("grouped", 4), ("grouped", 16), ("stock", 1), ("stock", 16)]
    times: dict[str, list[float]] = {f"{mode} {n}": [] for mode, n in contenders}
    for turn in range(-1, rounds):
        # Another order every round: whoever follows a slow contender finds a colder machine.
        for mode, n in random.Random(turn).sample(contenders, len(contenders)):
            seconds = servers[mode].ask(n, 100 + turn)
            if turn >= 0:
                times[f"{mode} {n}"].append(seconds)
    publish = [servers["grouped"].ask("publish", i) for i in range(rounds + 1)][1:]
    for server in servers.values():
        server.close()
    return {
        "turns_per_second": {name: round(REQUESTS / statistics.median(t)) for name, t in times.items()},
        "ratio_to_bare": {
            name: round(statistics.median(a / b for a, b in zip(t, times["bare 1"], strict=True)), 3) for name, t in times.items()
        },
        "publish_to_first_token_s": round(statistics.median(publish), 4),
    }


def race_driver(model: str, rounds: int, rank: int) -> dict[str, Any]:
    """Event-driven episodes against the same episodes turn by turn in lock step, over one engine, with skewed episode lengths."""
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    process = context.Process(target=drive, args=(other, model, rounds, rank), daemon=True)
    process.start()
    result: dict[str, Any] = mine.recv()
    process.join(30)
    process.kill()
    return result


def drive(connection: Connection, model: str, rounds: int, rank: int) -> None:
    """The process of ``race_driver``."""
    from actors.driver import EpisodeLoop, Job
    from actors.engines.base import EngineSpec
    from actors.engines.vllm_engine import VllmEngine
    from actors.environment import LocalPool
    from pipeline.config.model import LoraConfig
    from pipeline.episodes import EpisodeSpec, Sampling
    from tests.tiny_model import random_adapter

    lora, sampling = LoraConfig(rank=rank), Sampling(1.0, 1.0, NEW)
    engine = VllmEngine(EngineSpec("vllm", Path(model), lora=lora, adapter_slots=4, max_context=512, max_num_seqs=SLOTS, kv_cache_gb=1.0))
    engine.publish("a0", random_adapter(Path(model), lora, 0))
    times: dict[str, list[float]] = {"event-driven": [], "lock-step": []}
    for turn in range(-1, rounds):
        specs = [EpisodeSpec("c", task, seed=turn * 1000 + i) for i, task in enumerate(planned_tasks(turn))]
        for name in times:
            prompter = RandomPrompter()
            started = time.perf_counter()
            if name == "event-driven":
                loop = EpisodeLoop(engine, LocalPool(PlannedWorld(), SLOTS), prompter)
                loop.submit(Job(specs, "a0", sampling))
                while loop.busy:
                    loop.advance(0)
            else:
                lock_step(engine, prompter, specs, sampling, f"{turn}")
            if turn >= 0:
                times[name].append(time.perf_counter() - started)
    ratio = statistics.median(a / b for a, b in zip(times["lock-step"], times["event-driven"], strict=True))
    connection.send({**{k: round(statistics.median(v), 3) for k, v in times.items()}, "speed_up": round(ratio, 2)})
    engine.close()


def planned_tasks(seed: int) -> list[Task]:
    """256 tasks with the number of turns that each takes: most are short, one in ten runs to the step limit."""
    lengths = np.random.default_rng(100 + seed).choice([1, 2, 3, 4, 15], 256, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    return [Task(f"t{i}", "x", "planned", {"turns": int(n)}) for i, n in enumerate(lengths)]


class PlannedEnv(TextEnv):
    """Ends after the number of turns that its task says, whatever is done."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start counting."""
        assert options is not None
        self._left = int(options["task"].payload["turns"])
        return "go", {"admissible": []}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """One turn less."""
        self._left -= 1
        return "go", 0.0, self._left == 0, False, {"admissible": []}


class PlannedWorld(World):
    """Tasks with planned numbers of turns."""

    name = "planned"
    max_steps = 15

    def tasks(self, split: Split) -> Sequence[Task]:
        """Those of one seed."""
        return planned_tasks(0)

    def make(self, variant: str | Variant = DEFAULT) -> TextEnv:
        """A counter."""
        return PlannedEnv()

    def oracle(self, task: Task, variant: str | Variant = DEFAULT) -> list[str]:
        """Anything."""
        return ["x"] * int(task.payload["turns"])


class RandomPrompter:
    """Prompts of random ids; reads nothing."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def encode(self, instruction: str, history: Sequence[tuple[str, str]], observation: str, admissible: Sequence[str]) -> list[int]:
        """Fresh ids."""
        ids: list[int] = self._rng.integers(3, 250, PROMPT).tolist()
        return ids

    def decode(self, response_ids: Sequence[int]) -> ParsedAction:
        """Any action."""
        return ParsedAction("x", True)

    def text(self, ids: Sequence[int]) -> str:
        """Unused."""
        return ""


def lock_step(engine: Any, prompter: RandomPrompter, specs: Sequence[Any], sampling: Any, mark: str) -> None:
    """The usual vector environment: groups of ``SLOTS`` episodes, every turn waits for the slowest response, and a group for its last."""
    for start in range(0, len(specs), SLOTS):
        envs = {i: PlannedEnv() for i in range(start, min(start + SLOTS, len(specs)))}
        for i, env in envs.items():
            env.reset(options={"task": specs[i].task})
        turn = 0
        while envs:
            for i in envs:
                engine.add(f"{mark}-{i}-{turn}", prompter.encode("", (), "", ()), sampling, "a0", i)
            while engine.pending:
                engine.step()
            envs = {i: env for i, env in envs.items() if not env.step("x")[2]}
            turn += 1


def main() -> None:
    """Run the races and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--model", help="model folder; default: a random two-layer model 64 wide")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.model is None:
            from tests.tiny_model import make_tiny_model

            options.model = str(make_tiny_model(Path(folder) / "tiny"))
        result = {
            "lora": race_lora(options.model, options.rounds, options.rank),
            "driver": race_driver(options.model, options.rounds, options.rank),
        }
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
