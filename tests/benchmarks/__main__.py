"""``python -m tests.benchmarks [NAME ...]``: run the measurements quoted in README.md, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the named benches (default: all) and say which failed."""
    known = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown: {', '.join(unknown)} (known: {', '.join(known)})", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        print(f"\n== {name} ==", flush=True)
        if subprocess.run([sys.executable, "-m", f"tests.benchmarks.bench_{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
