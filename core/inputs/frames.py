"""Columns of frames by name, or made by key expressions: Arrow, pandas, polars and DuckDB, whole or in batches.

Only Arrow is imported. What has its rows elsewhere (an Arrow reader, a polars LazyFrame, a DuckDB relation) is asked
for the named columns alone and read batch by batch, once.

    for rows in Frame.of("release", frame, None, "user", "url | host").records():
        rows.users, rows.keys, rows.values, rows.record
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from hushgram.contributions.keys import array_of, decoded, one_array, plain_type, to_id
from hushgram.contributions.sums import NUMBERS, is_number
from hushgram.errors import InputError, ParameterError
from hushgram.inputs.columns import identifier_type, keep_good, no_column
from hushgram.inputs.key_expressions import (
    SHAPED,
    list_expression,
    parse_key_expression,
    rows_per_record,
    with_rows_per_record,
)
from hushgram.inputs.source import InputPlan, Rejects, Source
from hushgram.sensitivity import ONE_RECORD, Sensitivity

__all__ = ["UNSTATED", "Frame", "Records", "columns_by_name", "is_frame"]

# The largest share of records of which a key expression may make no key, as in a config by default.
_MAX_REJECTED = Fraction(1, 20)
_BATCH_ROWS = 1 << 17
# How a DuckDB relation is asked for a reader, in newer and older versions.
_READERS = ("to_arrow_reader", "fetch_arrow_reader", "fetch_record_batch")


class _Unstated:
    """The type of `UNSTATED`; errors show its name."""

    def __repr__(self) -> str:
        return "unstated"


#: an argument that was not given, where None is a statement: there is no such column
UNSTATED: Final[Any] = _Unstated()


class Records(NamedTuple):
    """Columns of a batch of records. Exact and private."""

    users: Any
    keys: Any
    values: tuple[Any, ...] = ()
    #: how many rows one record may have
    record: Sensitivity = ONE_RECORD


def is_frame(data: object) -> bool:
    """Return whether `data` has columns with names, rather than being a column itself."""
    return isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader) or hasattr(
        type(data), "columns"
    )


@dataclass(frozen=True)
class Frame:
    """A frame and the columns that a release takes of it; made by `Frame.of`.

    Attributes:
        function: the caller's name, for messages.
        data: the frame.
        user: the column of users or an expression; None where a record is the privacy unit.
        key: the column of keys, or a key expression.
        values: the columns of values.
    """

    function: str
    data: Any
    user: str | None
    key: str
    values: tuple[str, ...]

    @classmethod
    def of(
        cls, function: str, data: Any, stray: object, user: Any, key: Any, values: Iterable[Any] = ()
    ) -> Frame:
        """Return the frame, its columns checked; ``stray`` is an argument that must not be given beside a frame."""
        _check_frame(function, data, stray, ("user", "key"))
        names = _names(data)
        made = cls(
            function,
            data,
            _stated(function, "user", user, names),
            str(_stated(function, "key", key, names)),
            tuple(str(_stated(function, "values", each, names)) for each in values),
        )
        made._source(None)  # which refuses several users per record
        return made

    @property
    def key_expression(self) -> str:
        """Return the expression that makes the keys; empty where a column holds them."""
        return self.key if self.key in self._source(None).key_expressions else ""

    @property
    def several(self) -> bool:
        """Return whether a record may give more than one key."""
        made = self._source(None).key_expressions.get(self.key)
        return made is not None and made.several

    def records(self, record: tuple[int, int] | None = None) -> Iterator[Records]:
        """Yield the records in batches, at least one; a frame in memory is one batch.

        Where a column is made by an expression, records are accepted as those of files are: one of which no
        identifier can be made is left out. If more than a twentieth is, an `InputError` says so.

        Args:
            record: without users, how many keys of one record count, and how often one of them.
        """
        source = self._source(record)
        rejects, rows = Rejects(self.function, keep=False), 0
        for part in _batches(self.data, source.names):
            if not source.key_expressions:
                users = None if self.user is None else part[self.user]
                yield Records(users, part[self.key], tuple(part[name] for name in self.values))
                continue
            for batch in _accepted(part, source, rejects):
                rows += batch.num_rows
                users = None if self.user is None else batch.column(self.user)
                values = tuple(batch.column(name) for name in self.values)
                yield Records(users, batch.column(self.key), values, rows_per_record(batch.schema))
        rejected = sum(rejects.counts.values())
        if rejected > _MAX_REJECTED * (rows + rejected):
            reason = max(rejects.counts, key=lambda each: (rejects.counts[each], each))
            raise InputError(
                f"{self.function}: {reason}; more than a twentieth of the records would be left out for this and other"
                " reasons; correct the expression, or filter the frame first"
            )

    def _source(self, record: tuple[int, int] | None) -> Source:
        ids = tuple(dict.fromkeys(name for name in (self.user, self.key) if name is not None))
        return Source(ids=ids, columns=self.values, values=self.values, record=record)


def columns_by_name(function: str, frame: Any, stray: object, **names: Any) -> list[Any]:
    """Return one whole column of a frame per name.

    Args:
        function: the caller's name, for messages.
        frame: an Arrow, pandas, polars or DuckDB frame.
        stray: an argument that must not be given beside a frame.
        names: the arguments of `function` as the caller wrote them.
    """
    _check_frame(function, frame, stray, tuple(names))
    there = _names(frame)
    columns = [str(_stated(function, role, name, there)) for role, name in names.items()]
    parts = list(_batches(frame, columns))
    if len(parts) == 1:
        return [parts[0][name] for name in columns]
    return [
        pa.chunked_array([one_array(array_of(part[name], role)) for part in parts])
        for role, name in zip(names, columns, strict=True)
    ]


def _check_frame(function: str, frame: Any, stray: object, roles: tuple[str, ...]) -> None:
    if not is_frame(frame):
        raise ParameterError(
            f"{function}: {'= and '.join(roles)}= name columns of a frame (Arrow, pandas, polars, DuckDB),"
            f" got {type(frame).__name__}; give columns as such, one after the other, or a frame"
        )
    if stray is not None:
        wanted = ", ".join(f"{role}=..." for role in roles)
        raise ParameterError(f"{function}: after a frame, state everything by name: {wanted}, params=...")


def _stated(function: str, role: str, name: Any, there: list[Any]) -> str | None:
    """Return the name of a column, or the text of an expression over columns, that are there."""
    if name is None and role == "user":
        return None
    if name is UNSTATED or name is None:
        hint = ", or user=None to protect single records in place of users" if role == "user" else ""
        raise ParameterError(f'{function}: state the column of the {role}, {role}="..."{hint}')
    if role in ("user", "key") and isinstance(name, list | tuple):
        try:
            name = list_expression(list(name))
        except ParameterError as problem:
            raise ParameterError(f"{function}: {role} {problem}") from None
    if not isinstance(name, str):
        raise ParameterError(f"{function}: {role} must be the name of a column, got {type(name).__name__}")
    made = parse_key_expression(name) if role in ("user", "key") else None
    for column in (name,) if made is None else made.columns:
        if column not in there:
            raise InputError(f"{role}: {no_column(column, [str(each) for each in there])}")
        if there.count(column) > 1:
            raise InputError(f"{role}: column {column!r} occurs {there.count(column)} times; rename one")
    return name


def _names(frame: Any) -> list[Any]:
    if isinstance(frame, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return list(frame.schema.names)
    return list(frame.collect_schema().names() if hasattr(frame, "collect_schema") else frame.columns)


def _batches(frame: Any, names: Iterable[str]) -> Iterator[Any]:
    """Yield frames in memory that have these columns, at least one."""
    wanted = list(dict.fromkeys(names))
    if hasattr(frame, "collect"):  # polars
        lazy = frame.select(wanted)
        yield lazy.head(0).collect()
        if hasattr(lazy, "collect_batches"):
            yield from lazy.collect_batches()
        else:
            yield lazy.collect()
        return
    reader = frame if isinstance(frame, pa.RecordBatchReader) else None
    if method := next((name for name in _READERS if hasattr(frame, name)), None):  # DuckDB
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
        reader = getattr(frame.select(quoted), method)(_BATCH_ROWS)
    if reader is None:
        yield frame
        return
    yield pa.Table.from_batches([], reader.schema)
    yield from reader


def _accepted(part: Any, source: Source, rejects: Rejects) -> Iterator[pa.RecordBatch]:
    """Yield the accepted records of a batch with their identifiers made, as `keep_good` does for files."""
    arrays, kinds = [], []
    for name in source.names:
        column = one_array(array_of(part[name], name))
        kind = plain_type(column.type)
        if name in source.texts:
            kind = identifier_type(name, kind, "frame", source)
            column = to_id(column, kind)
        else:
            column, kind = decoded(column), pa.float64() if pa.types.is_null(kind) else kind
            if not is_number(kind):
                raise InputError(f"values must be {NUMBERS}, got {kind}")
            column = column.cast(kind)
        arrays.append(column)
        kinds.append((name, kind))
    raw = pa.schema(kinds)
    out = {
        name: SHAPED if name in source.key_expressions else raw.field(name).type
        for name in dict.fromkeys((*source.ids, *source.columns))
    }
    schema = pa.schema(out)
    if any(made.several for made in source.key_expressions.values()):
        schema = with_rows_per_record(schema, source.record)
    plan = InputPlan(source, schema, raw, (), (), ())
    return keep_good(arrays, plan, rejects, np.arange(len(arrays[0])))
