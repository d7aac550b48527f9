"""Aggregation of many whole-weight updates, side by side with the plain numpy forms and, where it is importable, with Flower.

Run: ``python -m tests.benchmarks.bench_aggregation [--clients 50] [--parameters 10000000] [--repeats 5]``. Prints one line per number;
asserts nothing. All forms see the same arrays in one run, in turn, and the medians are compared. Ours is the whole round: checks of
every update, norms, the mean, the new state and its content hash. Flower's is ``aggregate_arrayrecords`` on records made beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable

import numpy as np

from pipeline.aggregation import make_aggregator
from pipeline.episodes import ClientUpdate, FloatArray, GlobalState
from pipeline.models import state_hash

Arrays = list[FloatArray]
ROWS = 1000


def line(name: str, value: str) -> None:
    """One result."""
    print(f"{name:62} {value}", flush=True)


def ours(start: FloatArray, updates: Iterable[FloatArray], weights: list[int], rule: str = "full") -> FloatArray:
    """A round of the aggregator."""
    aggregator = make_aggregator(rule, "episodes")
    clients = [f"c{i:03d}" for i in range(len(weights))]
    aggregator.begin(GlobalState("start", 0, {"w": start}), clients)
    for client, delta, weight in zip(clients, updates, weights, strict=True):
        aggregator.add(ClientUpdate(client, 1, "start", {"w": delta}, 1, weight, 1, {}))
    return aggregator.finish().state["w"]


def plain(updates: Arrays, weights: list[int]) -> FloatArray:
    """``total += x * w``."""
    share = [np.float32(w / sum(weights)) for w in weights]
    total = updates[0] * share[0]
    for x, w in zip(updates[1:], share[1:], strict=True):
        total += x * w
    return total


def stacked(updates: Arrays, weights: list[int]) -> FloatArray:
    """All products first, then their sum, as Flower's ``aggregate`` does."""
    products = [x * np.float32(w) for x, w in zip(updates, weights, strict=True)]
    total = products[0]
    for x in products[1:]:
        total = total + x
    return total / np.float32(sum(weights))


def flower(updates: Arrays, weights: list[int]) -> Callable[[], FloatArray] | None:
    """Flower's ``aggregate_arrayrecords`` on records that are made here, or None where Flower is not installed."""
    try:
        from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
        from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
    except ImportError:
        return None
    records = [
        RecordDict({"arrays": ArrayRecord({"w": Array(x)}), "metrics": MetricRecord({"n": w})})
        for x, w in zip(updates, weights, strict=True)
    ]
    return lambda: aggregate_arrayrecords(records, "n")["w"].numpy()


def timed(forms: dict[str, Callable[[], FloatArray]], repeats: int) -> dict[str, float]:
    """Median milliseconds of each form; the forms take turns, so that a busy machine slows all of them."""
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(repeats):
        for name, form in forms.items():
            begin = time.perf_counter()
            form()
            taken[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in taken.items()}


def race(clients: int, parameters: int, repeats: int) -> None:
    """Times and errors against the float64 mean."""
    rng = np.random.default_rng(0)
    updates = [rng.standard_normal((parameters // ROWS, ROWS), dtype=np.float32) for _ in range(clients)]
    weights = [int(w) for w in rng.integers(1, 100, clients)]
    start = np.zeros_like(updates[0])
    forms: dict[str, Callable[[], FloatArray]] = {
        "ours": lambda: ours(start, updates, weights),
        "numpy, total += x * w": lambda: plain(updates, weights),
        "numpy, products then sum": lambda: stacked(updates, weights),
    }
    rival = flower(updates, weights)
    if rival is not None:
        forms["Flower, aggregate_arrayrecords"] = rival
    exact = np.zeros_like(updates[0], dtype=np.float64)
    for x, w in zip(updates, weights, strict=True):
        exact += x.astype(np.float64) * w
    exact /= sum(weights)
    errors = {name: float(np.abs(form() - exact).max()) for name, form in forms.items()}
    medians = timed(forms, repeats)
    for name, median in medians.items():
        line(
            f"{clients} x {parameters:,} float32: {name}",
            f"{median:7.0f} ms  {median / medians['ours']:5.2f}x ours  max error {errors[name]:.1e}",
        )
    named = timed({"hash": lambda: np.float32(len(state_hash({"w": start})))}, repeats)["hash"]  # type: ignore[return-value]
    line("  of ours, naming the new state by its content", f"{named:7.0f} ms")


def memory(parameters: int) -> None:
    """Peak memory above the start, for few and for many clients, when each update is there only while it is added."""
    start = np.zeros((parameters // ROWS, ROWS), np.float32)
    for clients in (10, 100):
        tracemalloc.start()
        ours(start, (start + np.float32(1) for _ in range(clients)), [1] * clients)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        line(f"peak memory, {clients} clients of {start.nbytes / 2**20:.0f} MiB each", f"{peak:7.0f} MiB")


def adapters(clients: int, repeats: int) -> None:
    """A round of the LoRA rules: 28 layers of 7 matrices between 1536 and 8960 wide would be a 1.5 B model; here a quarter of it."""
    rng = np.random.default_rng(0)
    rank, shapes = 16, [(1536, 1536), (256, 1536), (256, 1536), (1536, 1536), (8960, 1536), (8960, 1536), (1536, 8960)]
    state: dict[str, FloatArray] = {}
    for layer in range(7):
        for place, (out, inside) in enumerate(shapes):
            module = f"base_model.model.layers.{layer}.{place}"
            state[f"{module}.lora_A.weight"] = rng.standard_normal((rank, inside), dtype=np.float32)
            state[f"{module}.lora_B.weight"] = rng.standard_normal((out, rank), dtype=np.float32)
    deltas = [{name: 0.01 * rng.standard_normal(v.shape, dtype=np.float32) for name, v in state.items()} for _ in range(clients)]
    size = sum(v.size for v in state.values())

    def round_of(rule: str) -> FloatArray:
        aggregator = make_aggregator(rule)
        names = [f"c{i:03d}" for i in range(clients)]
        aggregator.begin(GlobalState("start", 0, state), names)
        for client, delta in zip(names, deltas, strict=True):
            aggregator.add(ClientUpdate(client, 1, "start", delta, 1, 1, 1, {}))
        return next(iter(aggregator.finish().state.values()))

    rules: tuple[str, ...] = ("factors", "product")
    for rule, median in timed({rule: lambda rule=rule: round_of(rule) for rule in rules}, repeats).items():  # type: ignore[misc]
        line(f"{clients} adapters of {size:,} (rank {rank}, 49 matrices): {rule}", f"{median:7.0f} ms")


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--parameters", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    race(options.clients, options.parameters, options.repeats)
    memory(options.parameters)
    adapters(4, 3)


if __name__ == "__main__":
    main()
