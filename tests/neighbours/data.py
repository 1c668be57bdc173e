"""Random hostile data, written twice: with one privacy unit and without it.

Records belong to few users with few keys, so that bounds bite and keys collide. Among them are ties, quotes, line ends,
other scripts, numbers at the ends of their types, missing and unreadable values, and lines that are no records.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
import math
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hushgram.contributions.keys import fingerprints

__all__ = [
    "CLOCKS", "COLLIDING", "COLUMNS", "TIMES", "Change", "Data", "Files", "Place", "World", "draw_data",
]  # fmt: skip

COLUMNS = ("user", "url", "text", "amount", "status", "smokes", "time")
_USERS = ("ann", "Ann", "bob", "b\u00f6b", "7", "", "o'neil", 'q"q', "z\u200bz", None)
_URLS = (
    "a", "b", "B", "c", "https://x.org/a?b=1", "https://x.org/a", "https://X.org/a/b#c", "//y/", "\u00e9", "e\u0301",
    "", " a", "a,b", 'a"b', "x" * 40, None,
)  # fmt: skip
_TEXTS = (
    "a b c",
    "a a a a",
    "b",
    "",
    "\u00e4 \u00df a-b_c",
    "one two three four five six seven eight nine ten",
    " ".join(f"w{i}" for i in range(40)),
    None,
)
_WHOLE = (0, 0, 1, 1, 2, 3, 7, 100, 2**31, 2**53 + 1, 2**62 - 200, 2**62 - 1, 2**62, 2**63 - 1, -1, None)
_REAL = (
    0.0,
    0.25,
    0.25,
    0.1,
    0.0625,
    1.0,
    3.5,
    1e-9,
    1e9,
    2.0**61,
    2.0**62,
    -0.0,
    -1.5,
    math.nan,
    math.inf,
    None,
)
# Written with a blank in files of text and as a timestamp in Parquet: as texts they are in another order.
_TIMES = ("2026-11-16 09:00:00", "2026-11-16 12:00:00", "2026-11-16 13:30:00", "2026-11-17 00:00:00", None)
_HARD = ([1, 1, 2, 3], [2**62 - 1, 2**62 - 200, -1, 3])
_STATUSES = (200, 200, 404, 500, -3, None)
# Lines that are no records, in files of text.
_TORN = (
    b"{",
    b'"',
    b"\xff\xfe",
    b'{"user": ',
    b",,,,,,,,,,",
    b'a,"b',
    b"null",
    b"[1]",
    b'""",',
    b"\x00",
    b"ann\tb",
)

#: the types of ``at``, a column of times that Parquet files have besides
CLOCKS = {"instant": pa.timestamp("us", tz="UTC"), "local": pa.timestamp("ms"), "day": pa.time64("us")}
TIMES = tuple(datetime.datetime(2026, 11, 16, hour) for hour in (0, 5, 12, 23))

Record = dict[str, Any]
#: of a record: number of the file, and of the record in it
Place = tuple[int, int]
#: other values of some records; None where a record is left out
Change = Mapping[Place, Record | None]
_SAME: Record = {}


def _colliding() -> tuple[str, ...]:
    """Keys that share the first ten bits of their fingerprint with "a": one cell of a small domain."""
    pool = [f"k{i}" for i in range(20_000)]
    shift = np.uint64(54)
    same = fingerprints(pool) >> shift == fingerprints(["a"])[0] >> shift
    return tuple(np.array(pool)[same][:3].tolist())


COLLIDING = _colliding()


@dataclass(frozen=True)
class Files:
    """How the records of each file are written; the last file may be of another format than the others."""

    formats: tuple[str, ...]
    delimiter: str
    folders: bool
    kind: str  # of numbers: whole, real or decimal
    group_rows: int
    preset: bool  # of logs: lines as W3C writes them, not by a pattern

    @property
    def format(self) -> str:
        """What a config may say is the format."""
        return self.formats[0] if len(set(self.formats)) == 1 else "auto"

    def has(self, format: str) -> bool:
        """Whether a file is of this format."""
        return format in self.formats

    @property
    def clock(self) -> str:
        """Which of `CLOCKS` the times of Parquet files have."""
        return random.Random(repr(self)).choice(sorted(CLOCKS))

    @property
    def input(self) -> dict[str, Any]:
        """What a config must say so that these files are read."""
        if self.has("csv"):
            return {"csv": {"delimiter": self.delimiter}}
        if self.format == "log":
            return {"preset": "w3c"} if self.preset else {"pattern": PATTERN}
        return {}


@dataclass(frozen=True)
class World:
    """What a config may name: files, key lists, sketches."""

    paths: dict[str, Any]
    sketches: tuple[str, ...]
    format: str
    #: what the input group must say so that these files are read
    input: dict[str, Any]
    clock: str


@dataclass(frozen=True)
class Data:
    """Records by file; a record is its fields, or the bytes of a line that is none."""

    files: Files
    records: tuple[tuple[Record | bytes, ...], ...]

    def changed(self, changes: Change) -> Data:
        """The same with other values in some records, and without those whose change is None."""
        files = tuple(
            tuple(
                record if change is _SAME else {**record, **change}
                for at, record in enumerate(file)
                if (change := changes.get((number, at), _SAME)) is not None
            )
            for number, file in enumerate(self.records)
        )
        return Data(self.files, files)

    def sorted_by(self, name: str) -> Data:
        """The same with the records of each file sorted by a column."""
        files = [sorted(file, key=lambda r: str(isinstance(r, dict) and r[name])) for file in self.records]
        return Data(self.files, tuple(map(tuple, files)))

    def shuffled(self, rng: random.Random) -> Data:
        """The same with the records of each file in another order; a line that is none may belong to the next."""
        files = [
            rng.sample(file, len(file)) if all(isinstance(record, dict) for record in file) else file
            for file in self.records
        ]
        return Data(self.files, tuple(map(tuple, files)))

    def write(self, folder: Path) -> None:
        """Write all files below ``folder``."""
        for number, file in enumerate(self.records):
            place = folder / f"dt=2026-11-{number + 1:02}" if self.files.folders else folder
            place.mkdir(parents=True, exist_ok=True)
            format = self.files.formats[number]
            _WRITERS[format](place / f"part-{number}.{format}", file, self.files)


def draw_data(rng: random.Random) -> Data:
    """Few users, few keys, several files."""
    formats = [rng.choice(("parquet", "parquet", "csv", "jsonl", "log"))] * rng.choice((1, 1, 2, 3))
    if (
        formats[0] != "log" and rng.random() < 0.3
    ):  # logs are read by options that choose the format of all files
        formats += [rng.choice([other for other in ("parquet", "csv", "jsonl") if other != formats[0]])]
    mixed = len(set(formats)) > 1
    files = Files(
        formats=tuple(formats),
        delimiter=rng.choice(",;\t") if "csv" in formats else ",",
        folders=rng.random() < 0.3,
        kind=rng.choice(("whole", "real", "decimal")),
        group_rows=rng.choice((1, 2, 5, 100)),
        preset=rng.random() < 0.4,
    )
    users = rng.sample(_USERS, rng.randint(2, 6))
    urls, texts = rng.sample(_URLS, rng.randint(2, 8)), rng.sample(_TEXTS, 3)
    if rng.random() < 0.35:
        urls = ["a", *COLLIDING]
    elif rng.random() < 0.2:  # which a dictionary holds once
        urls = ["a", "y" * 300]
    elif rng.random() < 0.5:  # lists, sketches and queries name it
        urls += ["a", "https://x.org/a"]
    amounts = rng.sample(_WHOLE if files.kind == "whole" else _REAL, 4)
    if rng.random() < 0.5:  # bounds are reached by small values too
        amounts = [0.25, 0.25, 1, 2] if files.kind != "whole" else rng.choice(_HARD)
    out = []
    for number, format in enumerate(formats):
        file: list[Record | bytes] = []
        sizes = (0, 1, 1, 1, 2) if mixed and number == len(formats) - 1 else (0, 2, 4, 8, 12, 20)
        for _ in range(rng.choice(sizes)):
            record = {
                "user": rng.choice(users),
                "url": rng.choice(urls),
                "text": rng.choice(texts),
                "amount": _amount(rng.choice(amounts), files.kind),
                "status": rng.choice(_STATUSES),
                "smokes": rng.choice((True, False, False, None)),
                "time": rng.choice(_TIMES),
            }
            torn = format not in ("parquet",) and rng.random() < 0.05
            file.append(rng.choice(_TORN) if torn else record)
        out.append(tuple(file))
    return Data(files, tuple(out))


def _amount(value: Any, kind: str) -> Any:
    if value is None or kind != "decimal":
        return value
    return (
        Decimal("0.25")
        if not math.isfinite(value) or abs(value) >= 1e9
        else Decimal(str(round(float(value), 4)))
    )


# --- formats ------------------------------------------------------------------------------------------------------


def _write_parquet(path: Path, records: tuple[Record | bytes, ...], files: Files) -> None:
    kinds = {"whole": pa.int64(), "real": pa.float64(), "decimal": pa.decimal128(18, 4)}
    types = (
        pa.string(),
        pa.string(),
        pa.string(),
        kinds[files.kind],
        pa.int64(),
        pa.bool_(),
        pa.timestamp("s"),
    )
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    rows = [{**record, "time": _moment(record["time"])} for record in records if isinstance(record, dict)]
    table = pa.Table.from_pylist(rows, schema)
    table = table.append_column("at", _times(rows, CLOCKS[files.clock]))
    pq.write_table(table, path, row_group_size=files.group_rows)


def _moment(text: str | None) -> datetime.datetime | None:
    return None if text is None else datetime.datetime.fromisoformat(text)


def _times(records: list[Record], clock: pa.DataType) -> pa.Array:
    """A time of each record, by who did what: no other values are drawn for it."""
    choices = [one.time() if pa.types.is_time(clock) else one for one in TIMES]
    names = [repr([record[name] for name in ("user", "url", "text")]) for record in records]
    return pa.array(
        [(*choices, None)[zlib.crc32(name.encode()) % (1 + len(choices))] for name in names], clock
    )


def _write_csv(path: Path, records: tuple[Record | bytes, ...], files: Files) -> None:
    with path.open("wb") as out:
        if records:  # a program may write the header with its first record
            out.write(files.delimiter.join(COLUMNS).encode() + b"\n")
        for record in records:
            out.write(record if isinstance(record, bytes) else _csv_line(record, files.delimiter))
            out.write(b"\n")


def _csv_line(record: Record, delimiter: str) -> bytes:
    text = io.StringIO()
    values = ["" if record[name] is None else _text(record[name]) for name in COLUMNS]
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(values)
    return text.getvalue().encode()


def _text(value: Any) -> str:
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value)
        if isinstance(value, float)
        else str(value)
    )


def _write_jsonl(path: Path, records: tuple[Record | bytes, ...], files: Files) -> None:
    with path.open("wb") as out:
        for record in records:
            line = record if isinstance(record, bytes) else json.dumps(record, default=float).encode()
            out.write(line + b"\n")


#: every value between brackets; a value with a bracket in it is no record
PATTERN = "^" + " ".join(rf"\[(?P<{name}>[^\[\]]*)\]" for name in COLUMNS) + "$"


def _write_log(path: Path, records: tuple[Record | bytes, ...], files: Files) -> None:
    with path.open("wb") as out:
        if files.preset:
            out.write(b"#Fields: " + " ".join(COLUMNS).encode() + b"\n")
        for record in records:
            line = record if isinstance(record, bytes) else _log_line(record, files.preset)
            out.write(line + b"\n")


def _log_line(record: Record, preset: bool) -> bytes:
    if preset:
        return " ".join(
            "-" if record[name] in (None, "") else _text(record[name]).replace(" ", "+") for name in COLUMNS
        ).encode()
    return " ".join(f"[{'' if record[name] is None else _text(record[name])}]" for name in COLUMNS).encode()


_WRITERS = {"parquet": _write_parquet, "csv": _write_csv, "jsonl": _write_jsonl, "log": _write_log}
