"""``make neighbours``: as many tries as asked for, on all cores; exits 1 at the first breach."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter

from tests.neighbours.machine import PAIRS, run_tries


def main() -> int:
    """Run tries and report what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    chosen = parser.parse_args()
    started, until = time.monotonic(), time.monotonic() + chosen.seconds
    step = 100  # tries of a task, each of several pairs
    tries = -(-chosen.pairs // PAIRS)
    tasks = [(chosen.first + at, min(step, tries - at), until) for at in range(0, tries, step)]
    ran: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    total = 0
    with multiprocessing.get_context("spawn").Pool(chosen.workers, maxtasksperchild=8) as pool:
        for found, fields, breach, done in pool.imap_unordered(run_tries, tasks):
            ran, seen, total = ran + found, seen + fields, total + done
            if breach is not None:
                print(f"breach after {total:,} pairs: {breach}")
                return 1
            if total % 10_000 < step * PAIRS:
                print(f"{total:,} pairs, {time.monotonic() - started:,.0f} s", flush=True)
    shown = ", ".join(f"{count:,} {name}" for name, count in ran.most_common())
    print(f"{total:,} pairs in {time.monotonic() - started:,.0f} s without a breach: {shown}")
    print(f"{len(seen)} config fields drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
