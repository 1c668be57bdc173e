"""python -m tests.fuzz [--count N] [--seconds S] [--seed K] [DOOR ...]: finds come with their seed."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from hushgram.errors import HushgramError
from tests.fuzz.doors import DOORS

SLOW = 1.0


def knock(door: str, count: int, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Tries a door so often, or so long; what went wrong."""
    finds: list[str] = []
    end = time.monotonic() + seconds
    done = 0
    folder = Path(tempfile.mkdtemp(prefix="hushgram-fuzz-"))
    try:
        while done < count and time.monotonic() < end and len(finds) < 5:
            draws = random.Random(f"{seed} {door} {done}")
            start = time.thread_time()
            try:
                DOORS[door](draws, folder)
            except HushgramError as problem:
                if "\n" in str(problem) and door != "config":  # which lists all problems of a config
                    finds.append(f"{door} {seed} {done}: a message of several lines: {problem}")
            except BaseException as problem:
                where = traceback.extract_tb(problem.__traceback__)[-1]
                told = f"{type(problem).__name__}: {str(problem)[:120]} ({where.filename}:{where.lineno})"
                finds.append(f"{door} {seed} {done}: {told}")
                if isinstance(problem, KeyboardInterrupt):
                    raise
            if time.thread_time() - start > SLOW:
                finds.append(f"{door} {seed} {done}: took more than a second")
            done += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done, finds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("doors", nargs="*", default=list(DOORS))
    given = parser.parse_args(arguments)
    bad = 0
    for door in given.doors:
        done, finds = knock(door, given.count, given.seconds, given.seed)
        print(f"{door:<16} {done:>9,} tries, {len(finds)} finds", flush=True)
        for find in finds:
            print(f"  {find}")
        bad += len(finds)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
