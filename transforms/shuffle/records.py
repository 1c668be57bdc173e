"""Records of any accepted form as columns: Arrow tables and batches, beam.Row and NamedTuple, dicts, (user,
key) pairs.

Arrow data are taken column by column. Single records are collected into columns by `RowBuffer`, up to a
number of rows, so that all later work is on arrays. A record that has no user or key, or one without canonical
bytes (a float, a list), that lacks a field or has another shape, is rejected and counted under a reason that quotes
no value. Whether they are too many is decided once, over all records (`check_tallies`), never by a batch or bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushgram.contributions.keys import ACCEPTED, decoded, one_array, python_text, spelled
from hushgram.contributions.sums import MAX_VALUE, NUMBERS, is_number, wrong_values
from hushgram.errors import InputError
from hushgram.inputs import Check, RecordCounts
from hushgram.inputs.key_expressions import rows_per_record
from hushgram.processes import return_memory, reuse_memory
from hushgram.sensitivity import ONE_RECORD, Sensitivity
from hushgram.transforms.shuffle.combining import OrderedPool, Tally, in_global_window, operator_counter

__all__ = ["Columns", "Fields", "RowBuffer", "TakeBatches", "check_fields", "columns_of"]

#: Single records are collected into batches of this many.
ROWS_PER_BATCH = 1 << 16


class Fields(NamedTuple):
    """The columns that a job takes of its records: user (None for record-level privacy), key, and values, if any."""

    user: str | None
    key: str
    values: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return all columns."""
        return tuple(name for name in (self.user, self.key, *self.values) if name is not None)


class Columns(NamedTuple):
    """Users (None for record-level privacy), keys and values, without nulls; rejected records by reason."""

    users: pa.Array | None
    keys: pa.Array
    reasons: dict[str, int]
    values: tuple[pa.Array, ...] = ()
    #: how many rows one record may have
    record: Sensitivity = ONE_RECORD

    @property
    def rejected(self) -> int:
        return sum(self.reasons.values())

    def __len__(self) -> int:
        return len(self.keys)


def columns_of(batch: pa.RecordBatch | pa.Table, fields: Fields) -> Columns:
    """Return these columns of an Arrow batch or table; none of its records where it has no such column."""
    try:
        keys = _identifiers(batch, fields.key)
        users = None if fields.user is None else _identifiers(batch, fields.user)
        values = tuple(_values(batch, name) for name in fields.values)
    except _NoColumn as problem:
        none = pa.array([], pa.large_binary())
        no_values = tuple(pa.array([], pa.float64()) for _ in fields.values)
        return Columns(None if fields.user is None else none, none, {str(problem): batch.num_rows}, no_values)
    good, reasons = None, {}
    for reason, rows in _wrong(fields, keys, users, values):
        both = rows if good is None else pc.and_(good, rows)
        reasons[reason] = (len(keys) if good is None else good.true_count) - both.true_count
        good = both
    record = rows_per_record(batch.schema)
    if good is None:
        return Columns(users, keys, {}, values, record)
    kept = None if users is None else users.filter(good)
    return Columns(kept, keys.filter(good), reasons, tuple(column.filter(good) for column in values), record)


def _wrong(
    fields: Fields, keys: pa.Array, users: pa.Array | None, values: Sequence[pa.Array]
) -> Iterator[tuple[str, pa.Array]]:
    """Yield (reason, rows that are good) for each reason to reject records."""
    for name, column in ((fields.key, keys), (fields.user, users)):
        if column is not None and column.null_count:
            yield f"{name} is null", pc.is_valid(column)
    for name, column in zip(fields.values, values, strict=True):
        yield from ((reason, pa.array(rows)) for reason, rows in wrong_values(column, name))


class _NoColumn(Exception):
    """Why no record of a batch can be taken."""


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    found = batch.schema.names.count(name)
    if found != 1:
        raise _NoColumn(f"column {name!r} occurs {found} times" if found else f"no column {name!r}")
    return one_array(batch.column(name))


def _values(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = _column(batch, name)
    if pa.types.is_null(column.type):
        return column.cast(pa.float64())
    if not is_number(column.type):
        raise _NoColumn(f"column {name!r} is {column.type} and values must be {NUMBERS}")
    return decoded(column)


def _identifiers(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = _column(batch, name)
    found = spelled(column)
    if found is None:
        raise _NoColumn(f"column {name!r} is {column.type} and a user or key must be {ACCEPTED}")
    return found


def check_fields(kind: Any, fields: Fields) -> None:
    """Refuse records of a schema (beam.Row, NamedTuple) that has no such field: when the pipeline is built."""
    there = [field if isinstance(field, str) else field[0] for field in getattr(kind, "_fields", None) or ()]
    for name in fields.names:
        if there and name not in there:
            raise InputError(f"no field {name!r} in the records; the fields are {', '.join(there)}")


class RowBuffer:
    """Collects single records; `take` gives them as columns.

    The fields of a record are picked when it is added, values are spelled column by column when they are taken.
    """

    def __init__(self, fields: Fields) -> None:
        self._wanted = fields
        self._pick = _picker(fields.names)
        self._clear()

    def _clear(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._rejected: dict[str, int] = {}
        self._lost = 0

    def add(self, record: Any) -> bool:
        """Take one record; True when a batch is full."""
        try:
            self._rows.append(self._pick(record) if type(record) is dict else self._fields(record))
        except KeyError:
            self._reject(self._missing(record))
        except _Rejected as problem:
            self._reject(str(problem))
        return len(self._rows) + self._lost >= ROWS_PER_BATCH

    def take(self) -> Columns:
        """Return the records since the last call as columns."""
        names, user = self._wanted.names, self._wanted.user
        ids = len(names) - len(self._wanted.values)
        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[] for _ in names]
        taken = [_identifiers_at_once(column) for column in columns[:ids]] + [
            _numbers_at_once(column) for column in columns[ids:]
        ]
        if any(column is None for column in taken):
            taken = self._one_by_one(ids)
        out = Columns(None if user is None else taken[0], taken[ids - 1], self._rejected, tuple(taken[ids:]))
        self._clear()
        return out

    def _one_by_one(self, ids: int) -> list[pa.Array]:
        """Spell every value by itself, and reject the records that have one that cannot be spelled."""
        names = self._wanted.names
        kept: list[list[Any]] = [[] for _ in names]
        for row in self._rows:
            try:
                spelled_row = [
                    *(_canonical(value, name) for value, name in zip(row[:ids], names, strict=False)),
                    *map(_number, row[ids:], names[ids:]),
                ]
            except _Rejected as problem:
                self._reject(str(problem))
                continue
            for column, value in zip(kept, spelled_row, strict=True):
                column.append(value)
        kinds = [pa.large_binary()] * ids + [pa.float64()] * (len(names) - ids)
        return [pa.array(column, kind) for column, kind in zip(kept, kinds, strict=True)]

    def _reject(self, reason: str) -> None:
        self._rejected[reason] = self._rejected.get(reason, 0) + 1
        self._lost += 1

    def _fields(self, record: Any) -> tuple[Any, ...]:
        """Return user, if there is one, key and values of a record."""
        if isinstance(record, dict):
            return self._pick(record)
        if hasattr(record, "_asdict"):
            return self._pick(record._asdict())
        if hasattr(record, "as_dict"):
            return self._pick(record.as_dict())
        values = len(self._wanted.values)
        if isinstance(record, tuple) and len(record) == 2 + values:
            return record if self._wanted.user is not None else record[1:]
        if self._wanted.user is None and not values:
            return (record,)
        shape = "(user, key, value) tuple" if values else "(user, key) pair"
        found = f"tuple of {len(record)}" if isinstance(record, tuple) else type(record).__name__
        raise _Rejected(f"record is {found} in place of an Arrow batch, row, dict or {shape}")

    def _missing(self, record: Any) -> str:
        """Return why a record without all fields is rejected."""
        if not isinstance(record, dict):
            record = record._asdict() if hasattr(record, "_asdict") else record.as_dict()
        return next(f"no field {name!r} in the record" for name in self._wanted.names if name not in record)


def _picker(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that gives these fields of a dict; itemgetter gives a single one without its tuple."""
    if len(names) > 1:
        pick: Any = itemgetter(*names)
        return pick  # type: ignore[no-any-return]
    return lambda record: (record[names[0]],)


def _identifiers_at_once(values: list[Any]) -> pa.Array | None:
    """Return canonical bytes of a column of texts or of whole numbers; None where they must be spelled one by one."""
    kinds = set(map(type, values))
    try:
        if kinds <= {str, bytes}:
            return pa.array(values, pa.large_binary())
        if kinds == {int}:
            return pa.array(list(map(str, values)), pa.large_binary())
    except ValueError:  # half a surrogate pair; more digits than Python writes
        pass
    return None


def _numbers_at_once(values: list[Any]) -> pa.Array | None:
    """Return a column of numbers that can be summed; None where they must be checked one by one."""
    if not set(map(type, values)) <= {int, float}:
        return None
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:
        return None
    fits = (numbers >= 0) & (numbers < MAX_VALUE)
    return pa.array(numbers) if fits.all() else None


class _Rejected(Exception):
    """Why a record is rejected, without its values."""


def _number(value: Any, name: str) -> float:
    """Return a value that can be summed; raise where it cannot."""
    if value is None:
        return 0.0  # a missing value adds nothing
    try:
        number = None if isinstance(value, bool | str | bytes) else float(value)
    except Exception:  # it is no number, or its own code raises
        number = None
    if number is not None and 0 <= number < MAX_VALUE:
        return number
    raise _Rejected(
        f"{name} is {'not from 0 to 2^62' if isinstance(value, float | int) else type(value).__name__}"
    )


def _canonical(value: Any, name: str) -> bytes:
    """Return canonical bytes as in `hushgram.contributions.keys`."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if isinstance(value, bool):
            return b"true" if value else b"false"
        if isinstance(value, int):
            return str(value).encode()
    except ValueError:  # half a surrogate pair; more digits than Python writes
        raise _Rejected(f"{name} is {type(value).__name__} that cannot be written") from None
    if (text := python_text(value)) is not None:
        return text.encode()
    missing = value is None or type(value).__name__ == "NaTType"
    raise _Rejected(f"{name} is {'null' if missing else type(value).__name__}")


# --- batches of a good size -----------------------------------------------------------------------------------------

# Small batches are put together up to this many rows or bytes, and large tables are split into pieces of so many rows.
_MIN_ROWS, _MAX_ROWS, _MIN_BYTES = 1 << 17, 1 << 20, 64 << 20


class TakeBatches(beam.DoFn):
    """Collects records into columns; a subclass does `work` on some of them (in any thread) and `send`s the
    result.

    Records that cannot be counted are rejected, and counted as ``rejected`` with ``counters``. With a ``check`` each
    bundle sends its tally along (`send_tally`).
    """

    def __init__(
        self, fields: Fields, *, threads: int, check: Check | None = None, counters: bool = False
    ) -> None:
        self._fields, self._threads, self._check, self._counters = fields, threads, check, counters

    def work(self, columns: list[Columns]) -> Any:
        """Return something made from one or more batches of columns; called in any thread."""
        raise NotImplementedError

    def send(self, result: Any) -> Iterator[Any]:
        """Yield the elements of a result."""
        raise NotImplementedError

    def send_tally(self, tally: Tally) -> Any:
        """Return the element that a tally travels as."""
        return tally

    def setup(self) -> None:
        reuse_memory()
        self._rejected = operator_counter("rejected", self._counters)

    def start_bundle(self) -> None:
        self._rows = RowBuffer(self._fields)
        self._batches: list[Columns] = []
        self._count = self._size = 0
        self._tally = RecordCounts()
        self._pool = OrderedPool(self.work, self._threads)

    def process(self, record: Any) -> Iterator[Any] | None:
        if isinstance(record, (pa.RecordBatch, pa.Table)):
            return self._pieces(record)
        return self._accept(self._rows.take()) if self._rows.add(record) else None

    def _pieces(self, batch: pa.RecordBatch | pa.Table) -> Iterator[Any]:
        for start in range(0, batch.num_rows, _MAX_ROWS):
            yield from self._accept(columns_of(batch.slice(start, _MAX_ROWS), self._fields))

    def finish_bundle(self) -> Iterator[Any]:
        try:
            for element in self._last():
                yield in_global_window(element)
            if self._check is not None:
                yield in_global_window(self.send_tally(Tally(self._check, self._tally)))
        finally:
            self._pool.close()
            pa.default_memory_pool().release_unused()
            return_memory()

    def _last(self) -> Iterator[Any]:
        yield from self._accept(self._rows.take())
        if self._batches:
            yield from self._do()
        for result in self._pool.rest():
            yield from self.send(result)

    def _accept(self, columns: Columns) -> Iterator[Any]:
        self._tally.add(len(columns), columns.reasons)
        if columns.rejected:
            self._rejected.inc(columns.rejected)
        if len(columns):
            self._batches.append(columns)
            self._count += len(columns)
            self._size += sum(part.nbytes for part in (columns.users, columns.keys) if part is not None)
        if self._count >= _MIN_ROWS or self._size >= _MIN_BYTES:
            yield from self._do()

    def _do(self) -> Iterator[Any]:
        batches, self._batches = self._batches, []
        self._count = self._size = 0
        for result in self._pool.give(batches):
            yield from self.send(result)
