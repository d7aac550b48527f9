"""A run that never happened: records and episodes with the shape of real ones."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.runlog import RunLog
from pipeline.statistics import wilson

NASTY = '<img src=x onerror="document.title=1"></script><script>document.title="owned"</script>&amp; "quotes" \u2028 ünïcode \ud800'
ROUNDS = 15


def clock() -> Iterator[datetime.datetime]:
    now = datetime.datetime(2026, 11, 2, 12, 0, 0, tzinfo=datetime.UTC)
    while True:
        yield now
        now += datetime.timedelta(seconds=3)


def evaluation(round: int, successes: int, n: int = 300, mode: str = "sampled", **more: Any) -> dict[str, Any]:
    low, high = wilson(successes, n)
    return {
        "kind": "evaluation",
        "round": round,
        "version": f"global-{round}-ab12cd34",
        "world": "default",
        "mode": mode,
        "temperature": 0.0 if mode == "greedy" else 1.0,
        "n": n,
        "success": successes / n,
        "success_low": low,
        "success_high": high,
        "score": 0.4 + successes / n / 2,
        "turns": 5.1,
        "invalid": 0.04,
        "seconds": 1.9,
        "client": None,
        **more,
    }


def client(round: int, name: str, success: float) -> dict[str, Any]:
    return {
        "kind": "client",
        "round": round,
        "client": name,
        "epochs": 2,
        "episodes": 128,
        "tokens": 41_000 + 100 * round,
        "success": success,
        "score": 0.5 + success / 2,
        "turns": 5.0 - success,
        "invalid": 0.08 * (1 - success),
        "loss": 0.02 - 0.001 * round,
        "kl": 0.001 * round,
        "entropy": 1.2 - 0.05 * round,
        "clip_fraction": 0.02,
        "grad_norm": 0.8,
        "logprob_gap": 2e-5,
        "zero_variance": 0.2 + 0.02 * round,
        "padding_waste": 0.06,
        "rollout_seconds": 2.5,
        "train_seconds": 3.5,
        "attempts": 1,
    }


def round_record(number: int, failed: list[str]) -> dict[str, Any]:
    success = 0.25 + 0.6 * (1 - math.exp(-number / 5))
    clients = [f"c{(number * 3 + k) % 8:03d}" for k in range(4)]
    return {
        "kind": "round",
        "round": number,
        "version": f"global-{number}-ab12cd34",
        "clients": clients,
        "failed": [{"client": c, "error": f"EnvironmentFailure: step took 61 s, allowed 60 s: {NASTY}", "attempts": 2} for c in failed],
        "success": success,
        "score": 0.5 + success / 2,
        "episodes": 512,
        "tokens": 164_000,
        "seconds": 16.2,
        "phases": {"rollout": 10.0, "train": 14.0, "publish": 0.2, "aggregate": 0.3, "evaluate": 2.0, "checkpoint": 0.1},
        "residual_mean": 0.12,
        "update_norm": 0.3 / number,
        "drift_cosine": 0.5,
        "policy_divergence": 0.01 * number,
        "bytes_up": 4 * 812_000,
        "bytes_down": 4 * 812_000,
        "engine_tokens_per_s": 15_300.0,
    }


def records(rounds: int = ROUNDS, end: bool = True) -> list[dict[str, Any]]:
    """Everything a run of ``rounds`` of 15 rounds writes; round 4 loses a client."""
    config = Config().plain()
    written: list[dict[str, Any]] = [
        {
            "kind": "start",
            "name": "demo",
            "config": config,
            "plan": {"clients": 8, "episodes_per_round": 512},
            "versions": {"fedagent-ray": "0.1.0", "torch": "2.13.0", "vllm": "0.32.0"},
            "command": ["python", "-m", "pipeline.run", "--run.name", "demo shop"],
            "resumed_from": None,
        },
        evaluation(0, 75),
        evaluation(0, 90, mode="greedy"),
    ]
    for number in range(1, rounds + 1):
        failed = ["c005"] if number == 4 else []
        record = round_record(number, failed)
        written += [client(number, c, record["success"]) for c in record["clients"] if c not in failed]
        if number % 5 == 0:
            written.append(evaluation(number, int(300 * (0.24 + 0.62 * (1 - math.exp(-number / 5))))))
        if number == ROUNDS:
            written.append(evaluation(number, 261, mode="greedy"))
        written.append(record)
    if end:
        written.append({"kind": "end", "status": "finished", "seconds": 262.0, "report": "report.html"})
    return written


def write(folder: Path, *lines: dict[str, object]) -> Path:
    with RunLog(folder / "metrics.jsonl") as log:
        for record in lines:
            log.write(record)
    return folder


def write_run(folder: Path, rounds: int = ROUNDS, end: bool = True, episodes: bool = True) -> Path:
    """A run folder as a run of ``rounds`` leaves it."""
    ticks = clock()
    with RunLog(folder / "metrics.jsonl", lambda: next(ticks)) as log:
        for record in records(rounds, end):
            log.write(record)
    (folder / "config.resolved.json").write_text(json.dumps(Config().plain()))
    (folder / "failures").mkdir(exist_ok=True)
    (folder / "failures" / "round-0004-c005.txt").write_text("Traceback")
    if episodes:
        write_episodes(folder / "episodes" / "train-c001.jsonl", 12)
        write_episodes(folder / "episodes" / "heldout-global.jsonl", 8, client="heldout")
    return folder


def episode(number: int, client: str = "c001", **more: Any) -> dict[str, Any]:
    good = number % 3 == 0
    turns = [
        {
            "observation": f"WebShop [SEP] Instruction [SEP] find a red wig under 30 dollars ({number})",
            "prompt": "task: red wig\nnow: search page\naction:",
            "response": " search[red wig]",
            "action": "search[red wig]",
            "valid": True,
            "reward": 0.0,
            "logprob": -0.75,
            "n_prompt": 62,
            "n_response": 5,
        },
        {
            "observation": "Back to Search [SEP] Page 1 [SEP] B01 [SEP] " + (NASTY.replace("\ud800", "") if number == 1 else "a wig"),
            "prompt": "task: red wig\nnow: results\naction:",
            "response": " click[b01]",
            "action": "click[b01]",
            "valid": good,
            "reward": 10.0 if good else -0.1,
            "logprob": -0.2,
            "n_prompt": 71,
            "n_response": 4,
        },
    ]
    return {
        "schema": 1,
        "task_id": f"goal-{number}",
        "instruction": "Find me a red wig, synthetic, under 30.00 dollars" if number != 1 else NASTY.replace("\ud800", ""),
        "client": client,
        "round": 1 + number % 4,
        "epoch": 0,
        "variant": "default",
        "adapter": "global-0-ab12cd34",
        "success": good,
        "score": 1.0 if good else 0.25,
        "ret": 10.0 if good else -0.1,
        "stop": "done",
        "retries": 0,
        "turns": turns,
        "final_observation": "Thank you for shopping",
        **more,
    }


def write_episodes(path: Path, count: int, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(episode(i, **more)) + "\n" for i in range(count)))
    return path
