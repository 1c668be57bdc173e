"""python -m tests.fuzz [--count N] [--seconds S] [--seed K] [DOOR ...]: finds come with their seed."""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from hushgram.errors import HushgramError
from tests.fuzz.doors import DOORS

#: What a try may take of a processor, in seconds.
SLOW = 1.0
#: Parameters of weighted selection search their noise and threshold by intervals, and readers check them so.
SLOWER = {"parameters": 5.0, "config": 5.0, "sketch": 5.0}
#: How far a try may raise the memory in use: what it reads has some kilobytes, at most some hundred.
MEMORY = 128 << 20
#: How much a try may ask for, used or not: beyond, the system refuses.
ADDRESSES = 512 << 20
_BATCH = 50


def knock(door: str, count: int, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Tries a door so often, or so long; what went wrong."""
    finds: list[str] = []
    done = 0
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="hushgram-fuzz-", dir=memory))
    try:
        _once(door, seed, -1, folder)  # what is loaded or made once
        end = time.monotonic() + seconds
        while done < count and time.monotonic() < end and len(finds) < 5:
            start, batch = _reset_peak(), min(_BATCH, count - done)
            with _few_addresses():  # counted anew for each batch: allocators keep what was given back
                for number in range(done, done + batch):
                    finds += _once(door, seed, number, folder)
            if _peak() - start > MEMORY:
                finds += _large(door, seed, range(done, done + batch), folder)
            done += batch
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return done, finds


def stay(door: str) -> None:
    """What the tests do: some seconds at a door (HUSHGRAM_FUZZ_SECONDS), with the same tries every time."""
    seconds = float(os.environ.get("HUSHGRAM_FUZZ_SECONDS", "1"))
    done, finds = knock(door, 10_000_000, seconds, seed=1)
    assert not finds, "\n".join(finds)
    assert done > 0


def _once(door: str, seed: int, number: int, folder: Path) -> list[str]:
    draws = random.Random(f"{seed} {door} {number}")
    found = []
    start = time.thread_time()
    try:
        DOORS[door](draws, folder)
    except HushgramError as problem:
        if "\n" in str(problem) and door != "config":  # which lists all problems of a config
            found.append(f"a message of several lines: {problem}")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        found.append(f"{type(problem).__name__}: {str(problem)[:120]} ({where.filename}:{where.lineno})")
    took = time.thread_time() - start
    if took > SLOWER.get(door, SLOW):
        found.append(f"took {took:.1f} s")
    return [f"{door} {seed} {number}: {told}" for told in found]


def _large(door: str, seed: int, numbers: range, folder: Path) -> Iterator[str]:
    """Which of a batch took the memory; none, if all of them together did."""
    for number in numbers:
        start = _reset_peak()
        _once(door, seed, number, folder)
        if _peak() - start > MEMORY:
            yield f"{door} {seed} {number}: took {_peak() - start >> 20} MiB"


def _reset_peak() -> int:
    """The memory in use, from which on the peak is taken anew. 0 where the system does not say."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 1 << 62
    return _peak()


def _peak() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


@contextlib.contextmanager
def _few_addresses() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESSES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("doors", nargs="*", default=list(DOORS))
    given = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    bad = 0
    for door in given.doors:
        begun = time.process_time()
        done, finds = knock(door, given.count, given.seconds, given.seed)
        rate = done / max(time.process_time() - begun, 1e-9)
        print(f"{door:<16} {done:>9,} tries, {len(finds)} finds ({rate:,.0f} a second)", flush=True)
        for find in finds:
            print(f"  {find}", flush=True)
        bad += len(finds)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
