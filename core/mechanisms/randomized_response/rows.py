"""Released rows in a form that reveals only which rows there are.

A table of randomized responses is a multiset of rows (public columns, randomized bits). It is written in one form:

    order    by a token of the row's content, a pseudorandom function under the release key; equal rows stand together
    parts    `ROWS_PER_PART` rows each, except the last

So the bytes of the table are a function of the release key and the multiset. The order of the input, how a secret is
spelled, and where files, batches and bundles end have no part in it, and the shape of the table is a function of the
number of rows. (Two different rows share a token with probability 2^-128.)

On its way a part of the multiset is `Rows`: each distinct row once, with how often it occurs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.keys import one_array
from hushgram.contributions.users import user_tokens
from hushgram.errors import ParameterError
from hushgram.inputs.conditions import Condition, bind, numbers_in, text_bytes
from hushgram.inputs.source import overlapping

__all__ = ["ROWS_PER_PART", "Rows", "Secret", "check_columns", "from_bytes", "to_bytes"]


#: Part of the format: how a table is cut must not follow from anything but its number of rows.
ROWS_PER_PART = 1 << 18


@dataclass(frozen=True)
class Rows:
    """Distinct rows in the order of their tokens, how often each occurs, and the tokens in two halves."""

    table: pa.Table
    counts: NDArray[np.int64]
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]

    @classmethod
    def of(cls, table: pa.Table, key: bytes) -> Rows:
        """Return the rows of a table, with their tokens under ``key``."""
        return cls.merge([cls(table, np.ones(table.num_rows, np.int64), *_tokens(table, key))])

    @classmethod
    def merge(cls, parts: Iterable[Rows]) -> Rows:
        """Return the sum of at least one part."""
        held = list(parts)
        counts, high, low = (
            np.concatenate([getattr(part, name) for part in held]) for name in ("counts", "high", "low")
        )
        order = np.lexsort((low, high))
        high, low = high[order], low[order]
        new = np.ones(len(order), bool)
        new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        first = np.flatnonzero(new)
        table = pa.concat_tables(part.table for part in held).take(order[first])
        return cls(table, np.add.reduceat(counts[order], first), high[first], low[first])

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (to_bytes(self.table), self.counts, self.high, self.low)

    def split(self, groups: int) -> Iterator[tuple[int, Rows]]:
        """Yield the rows by ranges of tokens: (group, its rows)."""
        half = np.uint64(32)
        of = ((self.high >> half) * np.uint64(groups)) >> half
        ends = np.searchsorted(of, np.arange(groups + 1, dtype=np.uint64))
        for group in np.flatnonzero(np.diff(ends)):
            held = slice(ends[group], ends[group + 1])
            rows = self.table.slice(held.start, held.stop - held.start)
            yield int(group), Rows(rows, self.counts[held], self.high[held], self.low[held])

    def cut(self, first: int) -> Iterator[tuple[int, int, pa.Table]]:
        """Yield (part, position, rows of it, each as often as it occurs); the first row has position ``first``."""
        ends = first + np.cumsum(self.counts)
        last = int(ends[-1])
        for part in range(first // ROWS_PER_PART, -(-last // ROWS_PER_PART)):
            low, high = max(first, part * ROWS_PER_PART), min(last, (part + 1) * ROWS_PER_PART)
            yield part, low, self.table.take(np.searchsorted(ends, np.arange(low, high), side="right"))


def _unpickled(table: bytes, *arrays: NDArray[Any]) -> Rows:
    return Rows(from_bytes(table), *arrays)


def to_bytes(table: pa.Table) -> bytes:
    """Return a table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_bytes(content: bytes) -> pa.Table:
    """Return what `to_bytes` wrote."""
    return pa.ipc.open_stream(content).read_all()


def _bytes(column: pa.Array) -> pa.Array:
    """Return bytes that tell the values of a column apart; an error of Arrow where its type is nested."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    try:
        return column.cast(pa.large_binary())
    except pa.ArrowNotImplementedError:
        return column.view(pa.binary(column.type.bit_width // 8)).cast(pa.large_binary())


def _tokens(table: pa.Table, key: bytes) -> list[NDArray[np.uint64]]:
    """Return a 128-bit token of each row, in two halves: of the tokens of its values."""
    values = [half for column in table.columns for half in _distinct(_bytes(one_array(column)), key)]
    joined = np.stack(values, axis=1).astype("<u8")
    rows = pa.Array.from_buffers(pa.binary(8 * len(values)), len(joined), [None, pa.py_buffer(joined)])
    return _distinct(rows.cast(pa.large_binary()), key)


def _distinct(values: pa.LargeBinaryArray, key: bytes) -> list[NDArray[np.uint64]]:
    """Return tokens of values, each distinct one computed once; that of null is 0."""
    encoded = values.dictionary_encode()
    codes = pc.fill_null(encoded.indices, len(encoded.dictionary)).to_numpy()
    return [np.append(half, np.uint64(0))[codes] for half in user_tokens(encoded.dictionary, key)]


# Secret bits: how each record's value becomes a bit, whatever the value is.
#
# A bit follows from the values of its own record alone. A value that is missing or cannot be read as what it is tested
# for is missing, and a missing value is 0 (in a condition: unknown, as in SQL). Types of columns can be refused, before
# anything is read; values never are.


@dataclass(frozen=True)
class Secret:
    """A secret bit of each record: a column of booleans (or numbers, which count unless they are 0), or a condition."""

    name: str
    column: str = ""
    equals: str | None = None
    at_least: float | None = None
    where: Condition | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that hold or decide the bit."""
        return (self.column,) if self.where is None else self.where.columns

    def bits(self, batch: pa.RecordBatch) -> NDArray[np.bool_]:
        """Return the exact bits of a batch: private."""
        if self.where is not None:
            return bind(self.where, batch.schema).matches(batch)
        column = batch.column(self.column)
        if self.equals is not None:
            found = pc.equal(text_bytes(column), pa.scalar(self.equals.encode(), pa.large_binary()))
        elif self.at_least is not None:
            found = pc.greater_equal(numbers_in(column), self.at_least)
        elif pa.types.is_boolean(column.type):
            found = column
        else:
            words = pc.match_substring_regex(text_bytes(column), "^(true|yes|t|y)$", ignore_case=True)
            found = pc.or_kleene(words, pc.greater(pc.abs(numbers_in(column)), 0))  # NaN is a missing value
        return np.asarray(pc.fill_null(found, False), dtype=np.bool_)


def check_columns(schema: pa.Schema, secrets: Sequence[Secret], public: Sequence[str]) -> None:
    """Refuse columns that cannot be secret or public, from names and types alone."""
    exposed = overlapping(public, (column for secret in secrets for column in secret.columns))
    if exposed is not None:
        raise ParameterError(f"public: column {exposed!r} is secret and cannot be public")
    empty = pa.RecordBatch.from_pylist([], schema)
    for secret in secrets:
        try:
            secret.bits(empty)
        except pa.ArrowException:
            kinds = ", ".join(f"{name} ({schema.field(name).type})" for name in secret.columns)
            raise ParameterError(
                f"secrets: no bit can be made of {kinds}; use columns of single values"
            ) from None
    for name in public:
        try:
            Rows.of(pa.table({name: empty.column(name)}), bytes(32))
        except (pa.ArrowException, ValueError):
            kind = schema.field(name).type
            raise ParameterError(
                f"public: column {name!r} is {kind}; publish columns of single values"
            ) from None
