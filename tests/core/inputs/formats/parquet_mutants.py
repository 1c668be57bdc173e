"""Damaged Parquet files, planned and read: `python -m tests.core.inputs.formats.parquet_mutants FIRST STOP`.

Mutant i is a function of i: a few bytes of the footer changed, for odd i of the whole file. Prints a line
for each that is answered with anything but records or an InputError of one line, and before each mutant its
number to standard error, so that after a crash the last one is the culprit. The suite runs some; all of the 5,000
that the guarantee of "no crash" was checked with take about 15 seconds.
"""

from __future__ import annotations

import random
import resource
import struct
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from hushgram.errors import InputError
from hushgram.inputs import InputFile, Source, plan_inputs, read_item

ROWS = 3000


def whole_file() -> bytes:
    table = pa.table(
        {
            "user": pa.array(range(ROWS)),
            "key": pa.array([f"/{i % 50}" for i in range(ROWS)]).dictionary_encode(),
            "n": pa.array([i / 3 for i in range(ROWS)]),
            "s": pa.array([{"a": i} for i in range(ROWS)]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def mutant(data: bytes, number: int) -> bytes:
    rng = random.Random(number)
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    start = 4 if number % 2 else footer
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at = rng.randrange(start, len(data) - 4)
        kind = rng.randrange(4)
        if kind == 0:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            changed[at] = rng.choice([0, 0xFF, 0x7F, 0x80])
        else:
            length = min(rng.randrange(1, 9), len(data) - at)
            changed[at : at + length] = rng.randbytes(length)
    return bytes(changed)


def outcome(data: bytes) -> str:
    source = Source(ids=("user", "key"), columns=("n",), item_bytes=1)
    try:
        plan = plan_inputs([InputFile("a.parquet", len(data))], source, lambda _: pa.BufferReader(data))
        for item in plan.items:
            for _ in read_item(item, plan, lambda _: pa.BufferReader(data)):
                pass
    except InputError as problem:
        return "refused" if "\n" not in str(problem) else f"several lines: {problem}"
    except BaseException as problem:
        return f"{type(problem).__name__}: {problem}"
    return "read"


def main(first: int, stop: int) -> None:
    limit = 8 << 30  # a damaged size must not be believed: more than this is a failure
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    data = whole_file()
    seen: dict[str, int] = {}
    for number in range(first, stop):
        print(number, file=sys.stderr)
        told = outcome(mutant(data, number))
        if told not in ("read", "refused"):
            print(number, told)
        seen[told[:8]] = seen.get(told[:8], 0) + 1
    print("done", seen)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
