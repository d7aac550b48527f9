"""ALFWorld engine against the unmodified one: load time and steps per second on the same games and commands, memory of a process.

Run: ``python -m tests.benchmarks.bench_alfworld [--games 12] [--steps 40] [--episodes 300]``. Prints one line per number; asserts only that
both engines say the same. The public games are used where they are found (``ALFWORLD_DATA`` or ``../shared/data/alfworld``), else
generated ones.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from envs.alfworld import AlfWorld
from tests.conftest import data_place
from tests.envs.alfworld.unmodified import Unmodified


def line(name: str, value: str) -> None:
    """One result."""
    print(f"{name:66} {value}", flush=True)


def spread(values: list[float], unit: str = "ms", digits: int = 1) -> str:
    """Median, least and most."""
    return f"{statistics.median(values):,.{digits}f} {unit} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def games(scratch: Path, number: int) -> tuple[Path, list[str]]:
    """A folder of games and some ids of it."""
    folder = public = data_place("alfworld")
    if not folder.is_dir():
        from envs.alfworld.generate import ensure_generated

        folder = ensure_generated(scratch)
    world = AlfWorld(folder, scratch / "cache")
    split = "valid_unseen" if "valid_unseen" in world.splits else world.splits[0]
    ids = world.games(split)
    line("games", f"{number} of {len(ids)} in {split} of {'the public set' if folder == public else 'a generated set'}")
    return folder, random.Random(0).sample(ids, number)


def compare(folder: Path, ids: list[str], cache: Path, steps: int) -> None:
    """Times of both engines, game by game."""
    unmodified = Unmodified()
    times: dict[str, list[float]] = {
        name: [] for name in ("theirs load", "theirs step", "cold", "cached", "first", "again", "ratio", "again ratio")
    }
    AlfWorld(folder, cache).engine().reset(ids[0])  # grammar and libraries; the first game is then cached, so its cold time is left out
    for place, game_id in enumerate(ids):
        game = AlfWorld(folder, cache).game(game_id)
        begin = time.perf_counter()
        unmodified.load(game)
        theirs = unmodified.reset()
        times["theirs load"].append(1000 * (time.perf_counter() - begin))
        begin = time.perf_counter()
        assert AlfWorld(folder, cache).engine().reset(game_id) == theirs
        if place:
            times["cold"].append(1000 * (time.perf_counter() - begin))
        world = AlfWorld(folder, cache)
        world.info(game_id)
        engine = world.engine()
        begin = time.perf_counter()
        _, admissible = engine.reset(game_id)
        times["cached"].append(1000 * (time.perf_counter() - begin))
        rng, commands, spent, answers = random.Random(game_id), [], 0.0, []
        for _ in range(steps):
            commands.append(rng.choice(admissible))
            begin = time.perf_counter()
            answers.append(engine.step(commands[-1]))
            spent += time.perf_counter() - begin
            admissible = answers[-1][3]
        times["first"].append(1000 * spent / steps)
        engine.reset(game_id)
        begin = time.perf_counter()
        for command in commands:
            engine.step(command)
        times["again"].append(1000 * (time.perf_counter() - begin) / steps)
        begin = time.perf_counter()
        said = [unmodified.step(command) for command in commands]
        times["theirs step"].append(1000 * (time.perf_counter() - begin) / steps)
        assert said == answers
        times["ratio"].append(times["theirs step"][-1] / times["first"][-1])
        times["again ratio"].append(times["theirs step"][-1] / times["again"][-1])
    line("unmodified: load and reset", spread(times["theirs load"]))
    line("ours: load and reset, never seen before", spread(times["cold"]))
    line("ours: load and reset, translated before", spread(times["cached"]))
    line("unmodified: step, random commands", spread(times["theirs step"], digits=2))
    line("ours: step, random commands, first walk", spread(times["first"], digits=3))
    line("ours: step, the same walk again", spread(times["again"], digits=4))
    line(
        "steps per second, unmodified / ours first walk / again",
        " / ".join(f"{1000 / statistics.median(times[n]):,.0f}" for n in ("theirs step", "first", "again")),
    )
    line("times as fast, first walk (median over games)", spread(times["ratio"], "x", 0))
    line("times as fast, the same walk again (median over games)", spread(times["again ratio"], "x", 0))


def endurance(folder: Path, ids: list[str], cache: Path, episodes: int) -> None:
    """Steps per second with loads, and memory, over episodes of 50 random steps with room for fewer games than are played."""
    world = AlfWorld(folder, cache, keep_games=max(1, len(ids) // 2))
    engine, rng = world.engine(), random.Random(1)
    before, begin = engine.memory().resident_bytes, time.perf_counter()
    early = before
    for episode in range(episodes):
        _, admissible = engine.reset(rng.choice(ids))
        for _ in range(50):
            admissible = engine.step(rng.choice(admissible))[3]
        if episode == episodes // 4:
            early = engine.memory().resident_bytes
    spent, memory = time.perf_counter() - begin, engine.memory()
    line(f"{episodes} episodes of 50 random steps, loads included, one process", f"{50 * episodes / spent:,.0f} steps/s")
    line("graphs kept", f"{memory.games} games, {memory.situations} situations, {memory.graph_bytes / 2**20:.1f} MiB")
    line("process memory after a quarter / after all episodes", f"{early / 2**20:.0f} / {memory.resident_bytes / 2**20:.0f} MiB")


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40, help="random steps per game")
    parser.add_argument("--episodes", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        folder, ids = games(scratch, options.games)
        compare(folder, ids, scratch / "cache", options.steps)
        endurance(folder, ids, scratch / "cache", options.episodes)


if __name__ == "__main__":
    main()
