"""The source, its files and work items, the chunks that a worker hands on, and lists of keys in files.

Everything here is plain data that pickles: the driver makes it, workers on other machines use it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.inputs.conditions import Condition, kinds_together
from hushgram.inputs.key_expressions import KeyExpression, parse_key_expression

__all__ = [
    "REJECTED_SCHEMA", "Chunk", "InputFile", "InputPlan", "Opener", "Places", "Rejects", "Source", "WorkItem",
    "open_local", "overlapping", "read_key_list", "read_text_keys",
]  # fmt: skip

T = TypeVar("T")
#: opens a path for reading bytes, with seek where the file system has it
Opener = Callable[[str], Any]
#: where each row of a batch begins in its file (in Parquet: its row), or how to find out
Places = NDArray[np.int64] | Callable[[], NDArray[np.int64]]

# Text is parsed in blocks of this size: large enough that a call costs nothing, small enough for any worker.
BLOCK_BYTES = 16 << 20
# An item is what one worker does at a stretch; smaller ones balance better, larger ones cost less to plan. For
# Parquet, which is small before it is decoded, a quarter of it.
ITEM_BYTES = 64 << 20
# A longer line is not a record; it is rejected without being held in memory.
MAX_LINE_BYTES = 64 << 20
# Records are handed on in batches of up to so many bytes, or one record: as they are when dictionaries are decoded and
# records have given all their keys.
BATCH_BYTES = 64 << 20
# A record that gives several keys is rejected where these, each with a copy of its other columns and KEY_BYTES for what
# is kept about a key, need more than this.
MAX_KEYS_BYTES, KEY_BYTES = 64 << 20, 32
# Rejected records carry their first bytes only, and an item shows at most this many of them.
MAX_REJECTED_BYTES, MAX_REJECTED_SHOWN = 2000, 1000
# A list is held in memory, by every worker too; a longer one is a key space rather than a list of known keys.
_MAX_LIST_BYTES = 1 << 30

#: rejected records. Exact and private: for the operator alone.
REJECTED_SCHEMA = pa.schema(
    [("path", pa.string()), ("at", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)


@dataclass(frozen=True)
class Source:
    """Which columns, from which kind of file.

    `ids` are identifiers (user, key): text, bytes or whole numbers, never null; a record without one is
    rejected. Each is a column or a key expression (`hushgram.inputs.key_expressions`); only the last may give several
    keys per record.
    `columns` are read as they are, nulls included; those of them in `values` are numbers to be added up, and a record
    with a number that cannot be is rejected (a null adds nothing). Records for which `where` is not true are left out
    before anything else is asked of them; in files of text its columns are of the kind that it compares them with.

    `secrets` are those of `columns` whose values must decide nothing: whether a record is read, how others are read, or
    whether reading fails. A value that cannot be read is null, and its record stays.
    """

    ids: tuple[str, ...]
    columns: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    format: str = "auto"
    options: tuple[Any, ...] = ()  # options of formats, such as CsvOptions(delimiter=";")
    where: Condition | None = None
    types: tuple[tuple[str, pa.DataType], ...] = ()  # of columns of text files, where their use tells
    keep_rejected: bool = False
    #: without users: how many keys of one record count, and how often one of them
    record: tuple[int, int] | None = None
    secrets: tuple[str, ...] = ()
    folders: bool = True  # whether folders such as dt=2026-11-15 give columns (`hushgram.inputs.plan`)
    given: tuple[str, ...] = ()  # columns that are not looked for in a file, since its folders give them
    block_bytes: int = BLOCK_BYTES
    item_bytes: int = ITEM_BYTES

    def __post_init__(self) -> None:
        if not self.names:
            raise ParameterError("Source: ids and columns are both empty; name at least one column to read")
        if any(
            key_expression.several and name != self.ids[-1]
            for name, key_expression in self.key_expressions.items()
        ):
            raise ParameterError("Source: only a key may have a step that gives several for one record")
        deciding = (*self.texts, *self.values, *(() if self.where is None else self.where.columns))
        if (column := overlapping(deciding, self.secrets)) is not None:
            raise ParameterError(
                f"Source: column {column!r} is secret, and must not decide which records are read"
            )
        if self.block_bytes < 1 or self.item_bytes < 1:
            raise ParameterError("Source: block_bytes and item_bytes must be at least 1")

    @cached_property
    def key_expressions(self) -> dict[str, KeyExpression]:
        """The identifiers that are made from columns."""
        found = {name: parse_key_expression(name) for name in self.ids}
        return {name: key_expression for name, key_expression in found.items() if key_expression is not None}

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that identifiers are, or are made of: read as text, bytes or whole numbers."""
        made = (
            self.key_expressions[name].columns if name in self.key_expressions else (name,)
            for name in self.ids
        )
        return tuple(dict.fromkeys(column for columns in made for column in columns))

    @property
    def names(self) -> tuple[str, ...]:
        """All columns to read: those of identifiers first, each once."""
        tested = () if self.where is None else self.where.columns
        every = dict.fromkeys((*self.texts, *self.columns, *tested))
        return tuple(name for name in every if name not in self.given)

    @property
    def kinds(self) -> dict[str, pa.DataType]:
        """Types that columns of text files are to have, as far as their use tells; identifiers are text."""
        used = kinds_together((dict(self.types), {} if self.where is None else self.where.kinds))
        return {name: kind for name, kind in used.items() if name not in self.texts}

    def option(self, kind: type[T]) -> T:
        """Return the options of a format, as given or by default."""
        return next((given for given in self.options if isinstance(given, kind)), None) or kind()


def overlapping(names: Iterable[str], secrets: Iterable[str]) -> str | None:
    """Return the first of `names` that is secret, holds a secret field, or is a field of a secret (request.url)."""
    held = [f"{secret}." for secret in secrets]
    return next(
        (name for name in names if any(f"{name}.".startswith(h) or h.startswith(f"{name}.") for h in held)),
        None,
    )


@dataclass(frozen=True)
class InputFile:
    """A file as the file system lists it; `changed` is its time of change in seconds where an object store tells."""

    path: str
    size: int
    changed: float | None = field(default=None, compare=False)


@dataclass(frozen=True)
class WorkItem:
    """A part of a file that can be read by itself: a byte range of lines, or row groups of Parquet."""

    path: str
    format: str
    compression: str | None
    start: int
    stop: int
    size: int  # its share of the bytes of all files, for progress
    groups: tuple[int, ...] = ()
    header: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()  # fields that JSON writes as whole numbers, as far as the first lines tell
    folders: tuple[tuple[str, str | None], ...] = ()  # columns that the folders above the file give
    types: tuple[tuple[str, pa.DataType], ...] = ()  # in which the file is read, where not that of plan.raw
    whole: bool = True  # whether it is read in one piece

    def parts(self, size: int) -> list[WorkItem]:
        """Return the item in parts of about ``size`` bytes that can be read by themselves; itself where it has none."""
        if self.whole:
            return [self]
        starts = range(self.start, self.stop, size)
        ends = (min(start + size, self.stop) for start in starts)
        return [
            replace(self, start=start, stop=end, size=end - start)
            for start, end in zip(starts, ends, strict=True)
        ]


@dataclass(frozen=True)
class InputPlan:
    """All work items, checked. `rows` is exact where Parquet tells it: for the operator, never published."""

    source: Source
    schema: pa.Schema  # of the records that come out; `values` keep the type of their file
    raw: pa.Schema  # of the columns that are read
    items: tuple[WorkItem, ...]
    files: tuple[InputFile, ...]
    formats: tuple[str, ...]
    rows: int | None = None
    constants: tuple[tuple[pa.Field, str | None], ...] = ()  # beside `raw`: columns that folders give

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def empty(self) -> pa.RecordBatch:
        """A batch without rows."""
        return pa.RecordBatch.from_pylist([], self.schema)


class Rejects:
    """Collect the records rejected while an item is read: counts for each reason, and the records if wanted."""

    def __init__(self, path: str, keep: bool) -> None:
        self.path = path
        self.keep = keep
        self.shown = 0
        self.counts: dict[str, int] = {}
        self.examples: dict[str, int] = {}  # where the first record of each reason begins
        self._rows: list[tuple[int, str, bytes]] = []

    def room(self, reason: str) -> int:
        """Return how many more records of this reason to show: if none are kept, the first as an example."""
        first = int(reason not in self.examples)
        return max(MAX_REJECTED_SHOWN - self.shown, first) if self.keep else first

    def add(self, reason: str, at: int, record: bytes | str = b"", count: int = 1) -> None:
        """Count one record (or `count` alike); `at` is its byte (in Parquet: row)."""
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.examples.setdefault(reason, at)
        if self.keep and count == 1 and self.shown < MAX_REJECTED_SHOWN:
            self.shown += 1
            raw = record.encode("utf-8", "surrogateescape") if isinstance(record, str) else record
            self._rows.append((at, reason, raw[:MAX_REJECTED_BYTES]))

    def add_rows(
        self, reason: str, rows: NDArray[np.intp], places: Places, record: Callable[[int], bytes | str]
    ) -> None:
        """Count rows of a batch; `places` and `record` are asked about those that are shown only."""
        shown = rows[: self.room(reason)]
        if len(shown):
            starts = places() if callable(places) else places
            for row in shown:
                self.add(reason, int(starts[row]), record(int(row)) if self.keep else b"")
        if len(rows) > len(shown):
            self.add(reason, -1, count=len(rows) - len(shown))

    def merge(self, other: Rejects) -> None:
        """Take over what `other` collected on trial."""
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            self.examples.setdefault(reason, other.examples[reason])
        room = max(0, MAX_REJECTED_SHOWN - self.shown)
        self._rows += other._rows[:room]
        self.shown += min(room, len(other._rows))

    def take(self) -> tuple[dict[str, int], pa.RecordBatch | None, dict[str, int]]:
        """Return what came together since the last call: counts, records, and the first place of each reason."""
        counts, rows = self.counts, self._rows
        self.counts, self._rows = {}, []
        places = {reason: self.examples[reason] for reason in counts}
        if not rows:
            return counts, None, places
        at, reasons, records = zip(*rows, strict=True)
        arrays = [
            pa.array([self.path] * len(rows)), pa.array(at, pa.int64()), pa.array(reasons),
            pa.array(records, pa.binary()),
        ]  # fmt: skip
        return counts, pa.RecordBatch.from_arrays(arrays, schema=REJECTED_SCHEMA), places


@dataclass(frozen=True)
class Chunk:
    """A batch of good records, and what was rejected beside it."""

    batch: pa.RecordBatch
    size: int  # bytes of input behind it, for progress
    rejected: dict[str, int] = field(default_factory=dict)
    rejected_records: pa.RecordBatch | None = None
    places: dict[str, int] = field(default_factory=dict)  # where the first of each reason in the item begins


def open_local(path: str) -> pa.NativeFile:
    """Open a file of this machine."""
    try:
        return pa.OSFile(path, "rb")
    except OSError as problem:
        reason = os.strerror(problem.errno) if problem.errno else first_line(problem)
        raise InputError(f"{path}: cannot be opened: {reason}") from None


def first_line(problem: BaseException) -> str:
    """Return an error of pyarrow or the system in one line."""
    lines = str(problem).strip().splitlines()
    return (lines[0] if lines else type(problem).__name__)[:200]


def no_memory(path: str) -> InputError:
    """Return the error for a file that takes too much memory; how much was asked for may follow from its records."""
    return InputError(
        f"{path}: needs more memory than there is; give each worker more, or write smaller records"
    )


def read_key_list(
    path: str, field: str, opener: Opener = open_local, *, repeated: bool = False
) -> list[bytes]:
    """Return the keys of a file, in its order.

    A line ends with LF or CRLF; a byte-order mark at the beginning and empty lines are ignored; everything else of
    a line is the key, blanks included. Keys are bytes: text in UTF-8 where it is text.

    Args:
        path: the file; ``-`` is standard input.
        field: the config field or option that names the file, for messages.
        opener: opens a path for reading bytes.
        repeated: whether a key may be listed twice.
    """
    where = f"{field} {path}"
    content = _content(path, where, opener)
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(f"{where}: is UTF-16 text; convert it to UTF-8")
    lines = [line.removesuffix(b"\r") for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    keys = [line for line in lines if line]
    if not keys:
        raise InputError(f"{where}: has no keys; write one key per line")
    if not repeated and len(set(keys)) != len(keys):
        seen: set[bytes] = set()
        twice = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise InputError(
            f"{where}: lists {twice.decode('utf-8', 'replace')[:80]!r} twice; list each key once"
        )
    return keys


def read_text_keys(path: str, field: str, opener: Opener = open_local) -> list[str]:
    """Return the keys of a file where they must be text."""
    keys = read_key_list(path, field, opener)
    try:
        return [key.decode("utf-8") for key in keys]
    except UnicodeDecodeError:
        raise InputError(f"{field} {path}: is not UTF-8 text; convert it to UTF-8") from None


def _content(path: str, where: str, opener: Opener) -> bytes:
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else opener(path) as file:
            content = _up_to(_MAX_LIST_BYTES + 1, file)
    except InputError as problem:
        raise InputError(f"{where}: {str(problem).removeprefix(f'{path}: ')}") from None
    except (OSError, pa.ArrowException) as problem:
        raise InputError(f"{where}: cannot be read: {first_line(problem)}") from None
    if len(content) > _MAX_LIST_BYTES:
        raise InputError(f"{where}: is larger than 1 GiB; release a sketch of all keys instead of a list")
    return content


def _up_to(most: int, file: Any) -> bytes:
    """Return the content of a file up to `most` bytes, read in pieces: one read would allocate all of them."""
    content = bytearray()
    while len(content) < most and (piece := file.read(min(most - len(content), 1 << 20))):
        content += piece
    return bytes(content)
