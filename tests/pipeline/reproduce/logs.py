"""Run logs by a small rule, and a stand-in for ``run_trial`` that writes one: enough to follow a trial from its records to its row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.heterogeneity import set_up
from pipeline.runlog import RunLog
from pipeline.statistics import wilson


def evaluation(round: int, rate: float, world: str = "default", client: str | None = None, n: int = 200, **more: Any) -> dict[str, Any]:
    low, high = wilson(round_count(rate, n), n)
    return {
        "kind": "evaluation",
        "round": round,
        "world": world,
        "client": client,
        "mode": "sampled",
        "n": n,
        "success": rate,
        "success_low": low,
        "success_high": high,
        "score": rate / 2,
        "seconds": 0.5,
        **more,
    }


def round_count(rate: float, n: int) -> int:
    return int(rate * n + 0.5)


def trained(round: int, success: float, **more: Any) -> dict[str, Any]:
    phases = {"aggregate": 0.1, "publish": 0.2, "evaluate": 1.0, "checkpoint": 0.3, "rollout": 6.0, "train": 18.0}
    return {
        "kind": "round",
        "round": round,
        "episodes": 512,
        "tokens": 1000,
        "success": success,
        "score": success / 2,
        "seconds": 10.0,
        "phases": phases,
        "bytes_up": 30,
        "bytes_down": 10,
        "drift_cosine": 0.5,
        "drift_norm": 0.8,
        "drift_ratio": 0.9,
        "policy_divergence": 0.05,
        "policy_shift": 0.02,
        "clip_fraction": 0.01,
        **more,
    }


def write_log(path: Path, homes: Mapping[str, str], rates: Mapping[int, Mapping[str, float]], rounds: int) -> None:
    """``rates`` of the shared agent by round and world; training success grows to 0.6."""
    with RunLog(path) as log:
        log.write({"kind": "start", "plan": {"worlds_per_client": dict(homes)}, "resumed_from": None})
        for round in range(rounds + 1):
            for world, rate in rates.get(round, {}).items():
                log.write(evaluation(round, rate, world))
            if round:
                log.write(trained(round, 0.6 * round / rounds))
        log.write({"kind": "end", "status": "finished", "seconds": 1.0})


@dataclass(frozen=True)
class Ended:
    status: str = "finished"


@dataclass
class StandIn:
    """``run_trial`` without training: rates fall with the number of worlds. ``fail`` may raise before anything is written."""

    calls: list[tuple[str, int, bool]]
    fail: Callable[[Config, Path], None] = lambda config, folder: None
    status: str = "finished"

    def __call__(
        self, config: Config, folder: Path, *, on_record: Callable[[Mapping[str, Any]], None], kept: object, resume: bool
    ) -> Ended:
        self.calls.append((config.run.name, config.run.seed, (folder / "metrics.jsonl").exists()))
        self.fail(config, folder)
        homes = set_up(config).assignment.names
        worlds = dict.fromkeys(homes.values())
        last = config.federation.rounds
        level = 0.8 / len(worlds) + 0.01 * config.run.seed
        rates = {0: {w: 0.2 for w in ("default", *worlds)}, last: {w: level for w in ("default", *worlds)}}
        write_log(folder / "metrics.jsonl", homes, rates, last)
        on_record(trained(last, 0.5))
        return Ended(self.status)
