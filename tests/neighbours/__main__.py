"""``make neighbours``: as many pairs as asked for, on all cores; goes on after a find, and exits 1 in the end."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from tests.neighbours.machine import Ran, run_tries

# Tries of a task, and the tasks after which a worker process is replaced.
_TRIES, _TASKS = 50, 20


def main() -> int:
    """Run tries and report what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--first", type=int, default=0, help="number of the first try")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    chosen = parser.parse_args()
    started, until = time.monotonic(), time.monotonic() + chosen.seconds
    pairs: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    tries, finds, said = 0, 0, 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, context, max_tasks_per_child=_TASKS) as pool:
        numbers, tasks = count(chosen.first, _TRIES), set[Future[Ran]]()
        while True:
            while (
                len(tasks) < chosen.workers and _compared(pairs) < chosen.pairs and time.monotonic() < until
            ):
                tasks.add(pool.submit(run_tries, (next(numbers), _TRIES, until)))
            if not tasks:
                break
            done, tasks = wait(tasks, return_when=FIRST_COMPLETED)
            for ran in (task.result() for task in done):
                pairs, fields = pairs + ran.pairs, fields + ran.fields
                tries, finds = tries + ran.tries, finds + len(ran.found)
                for text in ran.found.values():
                    print(f"FOUND after {_compared(pairs):,} pairs: {text}", flush=True)
            if _compared(pairs) // 1000 > said:
                said = _compared(pairs) // 1000
                print(f"{_compared(pairs):,} pairs, {time.monotonic() - started:,.0f} s", flush=True)
    shown = ", ".join(f"{number:,} {name}" for name, number in pairs.most_common())
    print(
        f"{_compared(pairs):,} pairs of {tries:,} jobs in {time.monotonic() - started:,.0f} s, "
        f"{finds or 'nothing'} found: {shown}"
    )
    print(f"{len(fields)} config fields drawn")
    return 1 if finds else 0


def _compared(pairs: Counter[str]) -> int:
    return pairs.total() - pairs["refused"]


if __name__ == "__main__":
    sys.exit(main())
