"""Partitions: seconds to deal 6410 tasks out to 300 clients, with the account of the outcome and with the page.

Run: ``python -m tests.benchmarks.bench_partition [--clients 300] [--tasks 6410] [--repeat 3]``. Prints one line per partition and asserts
nothing. Tasks are synthetic: five categories, 28 % easy. The best of the repetitions is shown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from envs.base import Task
from envs.partition import Labels, PartitionSpec, build_partition
from envs.partition.report import partition_report
from pipeline.report.partition_page import partition_page

T = TypeVar("T")

SHARES = (0.4, 0.25, 0.15, 0.12, 0.08)
SPECS = {
    "uniform": PartitionSpec(100),
    "preference 0.99": PartitionSpec(100, preference=0.99),
    "coverage 0.5": PartitionSpec(100, coverage=0.5),
    "hardness 0.5": PartitionSpec(100, hardness=0.5),
    "preference x coverage x hardness": PartitionSpec(100, preference=0.5, coverage=0.5, hardness=0.5),
    "coverage as published (mean 500)": PartitionSpec(100, coverage=0.5, reference=True),
}


def timed(work: Callable[[], T], repeat: int) -> tuple[float, T]:
    """The shortest time of ``repeat`` calls, in seconds, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeat):
        began = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - began)
    assert result is not None
    return best, result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--tasks", type=int, default=6410)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    categories = rng.choice(len(SHARES), options.tasks, p=SHARES).tolist()
    tasks = [Task(f"t{i}", "", f"category {category}") for i, category in enumerate(categories)]
    labels = Labels({task.id: float(easy) for task, easy in zip(tasks, rng.random(options.tasks) < 0.28, strict=True)})
    print(f"{options.clients} clients over {options.tasks} tasks, seconds")
    print(f"{'partition':34} {'deal out':>9} {'measure and check':>18} {'page':>6} {'all':>6}")
    for name, spec in SPECS.items():
        dealt, partition = timed(lambda spec=spec: build_partition(tasks, options.clients, spec, labels=labels), options.repeat)
        checked, report = timed(lambda partition=partition: partition_report(partition), options.repeat)
        written, _ = timed(lambda report=report: partition_page(report, "bench"), options.repeat)
        print(f"{name:34} {dealt:9.2f} {checked:18.2f} {written:6.2f} {dealt + checked + written:6.2f}")


if __name__ == "__main__":
    main()
