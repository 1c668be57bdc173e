"""Records of any accepted form as columns: Arrow tables and batches, beam.Row and NamedTuple, dicts, (user,
key) pairs.

Arrow data are taken column by column. Single records are collected into columns by `RowBuffer`, up to a
number of rows, so that all later work is on arrays. A record whose user or key is null, or has no canonical
bytes (a float, a list), is set aside and counted: data never decide whether a release fails. A column that is
not there is a mistake of the caller.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hushgram.errors import InputError
from hushgram.exact.identifiers import ACCEPTED, one_array, spelled
from hushgram.exact.weights import MOST_VALUE, NUMBERS, is_number, wrong_values
from hushgram.inputs.shaping import rows_per_record
from hushgram.sensitivity import ONE_RECORD, Sensitivity

__all__ = ["Columns", "Fields", "RowBuffer", "check_fields", "columns_of"]

#: Single records are collected into batches of this many.
ROWS_PER_BATCH = 1 << 16


class Fields(NamedTuple):
    """The columns that a job takes of its records: user (None for record-level privacy), key, and values, if any."""

    user: str | None
    key: str
    values: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(name for name in (self.user, self.key, *self.values) if name is not None)


class Columns(NamedTuple):
    """Users (None for record-level privacy), keys and values, without nulls; how many records were bad for what."""

    users: pa.Array | None
    keys: pa.Array
    reasons: dict[str, int]
    values: tuple[pa.Array, ...] = ()
    #: how many rows one record may have
    record: Sensitivity = ONE_RECORD

    @property
    def bad(self) -> int:
        return sum(self.reasons.values())

    def __len__(self) -> int:
        return len(self.keys)


def columns_of(batch: pa.RecordBatch | pa.Table, fields: Fields) -> Columns:
    """These columns of an Arrow batch or table."""
    keys = _identifiers(batch, fields.key)
    users = None if fields.user is None else _identifiers(batch, fields.user)
    values = tuple(_values(batch, name) for name in fields.values)
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
    """(reason, rows that are good) of what makes records bad."""
    for name, column in ((fields.key, keys), (fields.user, users)):
        if column is not None and column.null_count:
            yield f"{name} is null", pc.is_valid(column)
    for name, column in zip(fields.values, values, strict=True):
        yield from ((reason, pa.array(rows)) for reason, rows in wrong_values(column, name))


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise InputError(
            f"no column {name!r} in the records; the columns are {', '.join(batch.schema.names)}"
        )
    return one_array(batch.column(name))


def _values(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = _column(batch, name)
    if not is_number(column.type):
        raise InputError(f"column {name!r} is {column.type}; values must be {NUMBERS}")
    return column


def _identifiers(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = _column(batch, name)
    found = spelled(column)
    if found is None:
        raise InputError(
            f"column {name!r} is {column.type}; a user or key must be {ACCEPTED}: cast it to text first"
        )
    return found


def check_fields(kind: Any, fields: Fields) -> None:
    """Refuses records of a schema (beam.Row, NamedTuple) that has no such field: when the pipeline is built."""
    there = [field if isinstance(field, str) else field[0] for field in getattr(kind, "_fields", None) or ()]
    for name in fields.names:
        if there and name not in there:
            raise InputError(f"no field {name!r} in the records; the fields are {', '.join(there)}")


class RowBuffer:
    """Collects single records; `take` gives them as columns.

    A record without one of the fields is set aside; a first batch in which none has them is a mistake in a name.
    `known` says that the fields were seen before.
    """

    def __init__(self, fields: Fields, known: bool = False) -> None:
        self._wanted, self.known = fields, known
        self._other: list[str] = []  # the fields of a record that has not all of them
        self._clear()

    def _clear(self) -> None:
        self._users: list[bytes] = []
        self._keys: list[bytes] = []
        self._values: list[list[float]] = [[] for _ in self._wanted.values]
        self._bad: dict[str, int] = {}
        self._lost = 0

    def add(self, record: Any) -> bool:
        """Take one record; True when a batch is full."""
        given = self._fields(record)
        user = b"" if self._wanted.user is None else _canonical(given[0])
        key, numbers = _canonical(given[1]), [_number(value) for value in given[2:]]
        made = [key, user, *numbers]
        if None in made:
            at = made.index(None)
            name = (self._wanted.key, self._wanted.user, *self._wanted.values)[at]
            reason = f"{name} is {_word((given[1], given[0], *given[2:])[at])}"
            self._bad[reason] = self._bad.get(reason, 0) + 1
            self._lost += 1
        else:
            self._keys.append(key)  # type: ignore[arg-type]
            self._users.append(user)  # type: ignore[arg-type]
            for column, number in zip(self._values, numbers, strict=True):
                column.append(number)  # type: ignore[arg-type]
        return len(self._keys) + self._lost >= ROWS_PER_BATCH

    def take(self) -> Columns:
        """What came together since the last call."""
        if self._bad and not self.known:
            wanted = " and ".join(map(repr, self._wanted.names))
            raise InputError(
                f"no record has the fields {wanted}; a record has {', '.join(self._other) or 'none'}"
            )
        users = None if self._wanted.user is None else pa.array(self._users, pa.large_binary())
        values = tuple(pa.array(column, pa.float64()) for column in self._values)
        out = Columns(users, pa.array(self._keys, pa.large_binary()), self._bad, values)
        self._clear()
        return out

    def _fields(self, record: Any) -> Sequence[Any]:
        if isinstance(record, dict):
            return self._named(record)
        if hasattr(record, "_asdict"):
            return self._named(record._asdict())
        if hasattr(record, "as_dict"):
            return self._named(record.as_dict())
        self.known = True
        if isinstance(record, tuple) and len(record) == 2 + len(self._values):
            return record
        if self._wanted.user is None and not self._values:
            return None, record
        shape = "(user, key, value) tuples" if self._values else "(user, key) pairs"
        raise InputError(
            f"records must be Arrow batches, rows, dicts or {shape}, got {type(record).__name__}; map them first"
        )

    def _named(self, record: dict[str, Any]) -> Sequence[Any]:
        user, key, names = self._wanted
        if not self.known:
            self.known = set(self._wanted.names) <= record.keys()
            self._other = [str(name) for name in list(record)[:20]]
        return None if user is None else record.get(user), record.get(key), *map(record.get, names)


def _word(value: Any) -> str:
    """What a bad value is, without the value."""
    if value is None:
        return "null"
    return "not from 0 to 2^62" if isinstance(value, float | int) else type(value).__name__


def _number(value: Any) -> float | None:
    """A value that may be added up, or None."""
    if value is None:
        return 0.0  # a missing value adds nothing
    if isinstance(value, bool | str):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if 0 <= number < MOST_VALUE else None


def _canonical(value: Any) -> bytes | None:
    """Canonical bytes as in `hushgram.exact.keys`, or None where a value has none."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat().encode()
    item = getattr(value, "item", None)  # a numpy scalar
    return _canonical(item()) if item is not None and type(value).__module__ == "numpy" else None
