"""WebShop engine: start-up, steps per second on one core, and searching a catalogue of 100,000 generated products.

Run: ``python tests/benchmarks/bench_webshop.py [--products 100000] [--seconds 5]``. Prints one line per number; asserts nothing.
The public catalogue is used where it is found (``WEBSHOP_DATA`` or ``../shared/data/webshop``), else a generated one of 1000 products.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from envs.webshop import WebShop  # noqa: E402
from envs.webshop.generate import write  # noqa: E402
from envs.webshop.world import WebShopWorld  # noqa: E402

_START = """
import time
begin = time.perf_counter()
from envs.webshop import WebShop
WebShop({folder!r}, cache_dir={cache!r})
print(time.perf_counter() - begin)
"""


def line(name: str, value: str) -> None:
    """One result."""
    print(f"{name:62} {value}", flush=True)


def memory() -> dict[str, float]:
    """Resident and private memory of this process in MiB."""
    rows = dict(row.split(":", 1) for row in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return {"resident": int(rows["Rss"].split()[0]) / 1024, "private": int(rows["Private_Dirty"].split()[0]) / 1024}


def start_up(folder: Path, cache: Path) -> float:
    """Seconds from a fresh interpreter's first import to a ready shop."""
    code = _START.format(folder=str(folder), cache=str(cache))
    return float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def walk(folder: Path, cache: Path, seconds: float, seed: int) -> tuple[float, float]:
    """Steps per second of a random walk (random words searched, random clicks) and of the scripted buyer, one process."""
    world = WebShopWorld(folder, cache_dir=cache)
    tasks, rng = world.tasks("train"), random.Random(seed)
    words = sorted({word for task in tasks[:400] for word in task.instruction.split()})
    env = world.make()
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        _, info = env.reset(options={"task": rng.choice(tasks)})
        over = False
        while not over:
            target = rng.choice(info["admissible"])
            action = f"search[{' '.join(rng.choices(words, k=4))}]" if target in ("click[search]", "search[<your query>]") else target
            _, _, terminated, truncated, info = env.step(action)
            over, steps = terminated or truncated, steps + 1
    random_rate = steps / (time.perf_counter() - begin)
    scripts = [(task, world.oracle(task)) for task in rng.sample(tasks, 300)]
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds / 2:
        for task, actions in scripts:
            env.reset(options={"task": task})
            for action in actions:
                env.step(action)
            steps += len(actions)
    return random_rate, steps / (time.perf_counter() - begin)


def large(products: int, cache: Path, folder: Path) -> None:
    """Build, open and search a large generated catalogue."""
    begin = time.perf_counter()
    write(folder, products, 0)
    line(f"{products:,} products: write the files", f"{time.perf_counter() - begin:.1f} s")
    line(f"{products:,} products: first start (read, index, goals)", f"{start_up(folder, cache):.1f} s")
    line(f"{products:,} products: start from the cache (index, goals)", f"{start_up(folder, cache):.2f} s")
    shop = WebShop(folder, cache_dir=cache)
    size = sum(file.stat().st_size for file in shop.catalogue.folder.iterdir())
    line(f"{products:,} products: cache on disk, goals", f"{size / 2**20:.0f} MiB, {len(shop.goals):,}")
    rng = random.Random(1)
    queries = []
    for place in rng.sample(range(len(shop.goals)), 300):
        goal = shop.goals[place]
        queries += [goal["instruction_text"], goal["name"], goal["query"]]
    for clock, name in ((time.perf_counter, "elapsed"), (time.process_time, "CPU")):
        times = []
        for query in queries:
            begin = clock()
            shop.catalogue.ranked(query, 50)
            times.append(1000 * (clock() - begin))
        times.sort()
        line(
            f"{products:,} products: query {name}, median / 99 % / worst of {len(times)}",
            f"{statistics.median(times):.1f} / {times[int(0.99 * len(times))]:.1f} / {times[-1]:.1f} ms",
        )
    before = memory()
    envs = [shop.text_env() for _ in range(200)]
    after = memory()
    line(
        f"{products:,} products: 200 more environments add", f"{after['resident'] - before['resident']:.1f} MiB ({len(envs)} environments)"
    )
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        other = pool.apply(second_process, (str(folder), str(cache)))
    line(f"{products:,} products: a second process adds", f"{other:.0f} MiB of its own (goal table and caches; the catalogue is mapped)")


def second_process(folder: str, cache: str) -> float:
    """Private memory in MiB that a shop and a hundred searches cost in a process of its own."""
    before = memory()["private"]
    shop = WebShop(folder, cache_dir=cache)
    for place in range(100):
        shop.search(shop.goals[place]["name"])
    return memory()["private"] - before


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--products", type=int, default=100_000, help="size of the large generated catalogue; 0 leaves it out")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of the random walk")
    options = parser.parse_args()
    folder = Path(os.environ.get("WEBSHOP_DATA") or ROOT.parent / "shared" / "data" / "webshop")
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        if not folder.is_dir():
            folder = write(scratch / "small", 1000, 0)
        line("catalogue", "public 1000 products" if folder.parent != scratch else "1000 generated products")
        colds = [start_up(folder, scratch / f"cold{place}") for place in range(3)]
        line("first start: import, read, index, goals (median of 3)", f"{statistics.median(colds):.2f} s")
        warms = [start_up(folder, scratch / "cold0") for _ in range(5)]
        line("start from the cache: import, open, goals (median of 5)", f"{statistics.median(warms):.2f} s")
        walked, scripted = walk(folder, scratch / "cold0", options.seconds, 0)
        line("steps per second and core, random walk (new query each)", f"{walked:,.0f}")
        line("steps per second and core, scripted buyer", f"{scripted:,.0f}")
        if options.products:
            large(options.products, scratch / "large", scratch / "generated")
    line("peak memory of this process", f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
