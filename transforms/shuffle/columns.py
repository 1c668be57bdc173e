"""Records of any accepted form as columns: Arrow tables and batches, beam.Row and NamedTuple, dicts, (user,
key) pairs.

Arrow data are taken column by column. Single records are collected into columns by `RowBuffer`, up to a
number of rows, so that all later work is on arrays. A record whose user or key is null, or has no canonical
bytes (a float, a list), is set aside and counted: data never decide whether a release fails. A column that is
not there is a mistake of the caller.
"""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from hushgram.errors import InputError
from hushgram.exact.identifiers import ACCEPTED, one_array, spelled

__all__ = ["Columns", "RowBuffer", "check_fields", "columns_of"]

#: Single records are collected into batches of this many.
ROWS_PER_BATCH = 1 << 16


class Columns(NamedTuple):
    """Users (None for record-level privacy) and keys, without nulls, and how many records were set aside for what."""

    users: pa.Array | None
    keys: pa.Array
    reasons: dict[str, int]

    @property
    def bad(self) -> int:
        return sum(self.reasons.values())

    def __len__(self) -> int:
        return len(self.keys)


def columns_of(batch: pa.RecordBatch | pa.Table, user: str | None, key: str) -> Columns:
    """The two columns of an Arrow batch or table."""
    keys = _column(batch, key)
    users = None if user is None else _column(batch, user)
    good, reasons = None, {}
    for name, column in ((key, keys), (user, users)):
        if column is not None and column.null_count:
            valid = pc.is_valid(column)
            both = valid if good is None else pc.and_(good, valid)
            reasons[f"{name} is null"] = (len(keys) if good is None else good.true_count) - both.true_count
            good = both
    if good is None:
        return Columns(users, keys, {})
    return Columns(None if users is None else users.filter(good), keys.filter(good), reasons)


def _column(batch: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise InputError(
            f"no column {name!r} in the records; the columns are {', '.join(batch.schema.names)}"
        )
    column = batch.column(name)
    found = spelled(one_array(column))
    if found is None:
        raise InputError(
            f"column {name!r} is {column.type}; a user or key must be {ACCEPTED}: cast it to text first"
        )
    return found


def check_fields(kind: Any, user: str | None, key: str) -> None:
    """Refuses records of a schema (beam.Row, NamedTuple) that has no such field: when the pipeline is built."""
    fields = [field if isinstance(field, str) else field[0] for field in getattr(kind, "_fields", None) or ()]
    for name in (user, key):
        if fields and name is not None and name not in fields:
            raise InputError(f"no field {name!r} in the records; the fields are {', '.join(fields)}")


class RowBuffer:
    """Collects single records; `take` gives them as columns.

    A record without one of the fields is set aside; a first batch in which none has them is a mistake in a name.
    `known` says that the fields were seen before.
    """

    def __init__(self, user: str | None, key: str, known: bool = False) -> None:
        self._user, self._key, self.known = user, key, known
        self._other: list[str] = []  # the fields of a record that has not all of them
        self._users: list[bytes] = []
        self._keys: list[bytes] = []
        self._bad: dict[str, int] = {}
        self._lost = 0

    def add(self, record: Any) -> bool:
        """Take one record; True when a batch is full."""
        given_user, given_key = self._fields(record)
        key = _canonical(given_key)
        user = b"" if self._user is None else _canonical(given_user)
        if user is None or key is None:
            name, value = (self._key, given_key) if key is None else (self._user, given_user)
            reason = f"{name} is {'null' if value is None else type(value).__name__}"
            self._bad[reason] = self._bad.get(reason, 0) + 1
            self._lost += 1
        else:
            self._keys.append(key)
            self._users.append(user)
        return len(self._keys) + self._lost >= ROWS_PER_BATCH

    def take(self) -> Columns:
        """What came together since the last call."""
        if self._bad and not self.known:
            wanted = " and ".join(repr(name) for name in (self._user, self._key) if name is not None)
            raise InputError(
                f"no record has the fields {wanted}; a record has {', '.join(self._other) or 'none'}"
            )
        users = None if self._user is None else pa.array(self._users, pa.large_binary())
        out = Columns(users, pa.array(self._keys, pa.large_binary()), self._bad)
        self._users, self._keys, self._bad, self._lost = [], [], {}, 0
        return out

    def _fields(self, record: Any) -> tuple[Any, Any]:
        if isinstance(record, dict):
            return self._named(record)
        if hasattr(record, "_asdict"):
            return self._named(record._asdict())
        if hasattr(record, "as_dict"):
            return self._named(record.as_dict())
        self.known = True
        if isinstance(record, tuple) and len(record) == 2:
            return record
        if self._user is None:
            return None, record
        raise InputError(
            f"records must be Arrow batches, rows, dicts or (user, key) pairs, got {type(record).__name__};"
            " map them first"
        )

    def _named(self, record: dict[str, Any]) -> tuple[Any, Any]:
        if not self.known:
            wanted = {name for name in (self._user, self._key) if name is not None}
            self.known = wanted <= record.keys()
            self._other = [str(name) for name in list(record)[:20]]
        return None if self._user is None else record.get(self._user), record.get(self._key)


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
