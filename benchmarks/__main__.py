"""`python -m benchmarks` (or `make bench`): every bar; `python -m benchmarks core svt`: some."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("core", "error", "inputs", "pipeline", "svt", "answers", "ledger", "engines")


def main(names: list[str]) -> int:
    """Run each in a process of its own, so that memory and caches of one do not help another."""
    missed = []
    for name in names or NAMES:
        print(f"\n=== benchmarks.{name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            missed.append(name)
    print(f"\nbars missed in: {', '.join(missed)}" if missed else "\nall bars reached")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
