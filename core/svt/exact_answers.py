"""Exact answers to all queries of a stream in one pass over arrays. Private: nothing here is ever shown.

A plan turns queries into counters that add up: the answers of a part of the data are one vector of whole
numbers, vectors of parts are summed in any order, and `answers` reads the queries off the sum. Two forms of
data are read:

* keys (`add_keys`): a `Histogram` of bounded contributions by key, for "key" and "prefix" queries;
* records (`add_records`): distinct records with bounded counts, for "between" and "where" queries.

Keys are found by fingerprint, or by text where prefixes need the text anyway. Prefixes and ranges are
half-open intervals of an ordered set: all their ends, sorted, cut it into cells; a part adds its counts by
cell, and an answer is the difference of two running sums. So 100,000 ranges cost one sort, not 100,000
passes.

Which records of a user count is decided by the bounding rule on (user, record), where a record is the tuple
of key and queried columns. `pack_records` writes that tuple as bytes, `unpack_records` reads the columns
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.exact.histogram import Histogram
from hushgram.exact.keys import fingerprints
from hushgram.inputs.condition_values import typed_value
from hushgram.inputs.conditions import bind
from hushgram.svt.queries import KeyQuery, PrefixQuery, Query, RangeQuery, WhereQuery

__all__ = ["QueryPlan", "compact", "pack_records", "queryable", "unpack_records"]

I64 = NDArray[np.int64]

_SEPARATOR, _ESCAPE, _NULL = b"\x1f", b"\\", b"\\N"


class QueryPlan:
    """All queries of one or several streams over one input, compiled against its schema."""

    def __init__(self, queries: Sequence[Query], schema: pa.Schema, key: str) -> None:
        self.size = len(queries)
        self.key = key
        others = (q for q in queries if not isinstance(q.kind, KeyQuery))
        self.columns = tuple(dict.fromkeys(name for query in others for name in query.columns))
        kinds = list(enumerate(query.kind for query in queries))
        keys = [(i, kind.key) for i, kind in kinds if isinstance(kind, KeyQuery)]
        prefixes = [(i, kind.prefix.encode()) for i, kind in kinds if isinstance(kind, PrefixQuery)]
        self.texts = bool(prefixes)
        self.reads_keys = bool(keys or prefixes)
        self.reads_records = len(keys) + len(prefixes) < self.size
        self.record_schema = self._record_schema(schema)
        self._keys = compact([i for i, _ in keys])
        self._wanted, self._key_slot = _distinct_keys([text for _, text in keys], self.texts)
        self._prefix = _Cells([(i, text, _after_prefix(text)) for i, text in prefixes])
        self._ranges = _range_cells(kinds, self.record_schema)
        where = [(i, kind.condition) for i, kind in kinds if isinstance(kind, WhereQuery)]
        self._where = [(i, bind(condition, self.record_schema)) for i, condition in where]
        ranges = [cells.size for cells in self._ranges.values()]
        self._ends = np.cumsum([0, len(self._wanted), self._prefix.size, *ranges, len(self._where)])

    def _record_schema(self, schema: pa.Schema) -> pa.Schema:
        names = tuple(dict.fromkeys((self.key, *self.columns))) if self.columns else ()
        for name in names:
            if name not in schema.names:
                raise ParameterError(f"query: no column {name!r}; the columns are {', '.join(schema.names)}")
        return pa.schema([(name, queryable(name, schema.field(name).type)) for name in names])

    def zeros(self) -> I64:
        """The vector of no data."""
        return np.zeros(int(self._ends[-1]), dtype=np.int64)

    def add_keys(self, into: I64, histogram: Histogram) -> None:
        """Count a part of the bounded contributions by key."""
        if not len(histogram):
            return
        keys, prefix = self._parts(into)[:2]
        if not self.texts:
            keys += histogram.listed(self._wanted)
            return
        assert histogram.texts is not None
        if len(self._wanted):
            slots = pc.index_in(histogram.texts, value_set=self._wanted)
            held = slots.is_valid().to_numpy(zero_copy_only=False)
            np.add.at(keys, slots.drop_null().to_numpy(), histogram.counts[held])
        self._prefix.add(prefix, histogram.texts, histogram.counts)

    def add_records(self, into: I64, records: pa.Table, counts: I64) -> None:
        """Count distinct records of `record_schema`, each with its bounded count."""
        parts = self._parts(into)
        for cells, part in zip(self._ranges.values(), parts[2:-1], strict=True):
            cells.add(part, _one_array(records.column(cells.column)), counts)
        for slot, (_, condition) in enumerate(self._where):
            parts[-1][slot] += counts[condition.matches(records)].sum()

    def answers(self, total: I64) -> I64:
        """The exact answer of each query, from the sum over all parts."""
        out = np.zeros(self.size, dtype=np.int64)
        parts = self._parts(total)
        out[np.asarray(self._keys, dtype=np.intp)] = parts[0][self._key_slot]
        self._prefix.read(parts[1], out)
        for cells, part in zip(self._ranges.values(), parts[2:-1], strict=True):
            cells.read(part, out)
        for (i, _), count in zip(self._where, parts[-1], strict=True):
            out[i] = count
        return out

    def counting(self) -> QueryPlan:
        """The same plan for those who only count: smaller to send."""
        out = copy(self)
        out._keys, out._key_slot = range(0), np.zeros(0, dtype=np.uint32)
        return out

    def reading(self) -> QueryPlan:
        """The same plan for those who only read answers off: smaller to send."""
        out = copy(self)
        out._wanted = None
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Plans travel to workers: arrays and parsed conditions, which are bound again there."""
        where = [(i, bound.condition) for i, bound in self._where]
        return {**self.__dict__, "_where": where}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._where = [(i, bind(condition, self.record_schema)) for i, condition in state["_where"]]

    def _parts(self, vector: I64) -> list[I64]:
        return [vector[low:high] for low, high in zip(self._ends[:-1], self._ends[1:], strict=True)]


def compact(numbers: Sequence[int]) -> range | I64:
    """Ascending whole numbers as a range where they have no gaps: plans travel as pickles."""
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return np.array(numbers, dtype=np.int64)


def _distinct_keys(texts: list[str], as_text: bool) -> tuple[Any, NDArray[np.uint32]]:
    """Distinct wanted keys (texts, or sorted fingerprints), and where each query finds its own."""
    if as_text:
        encoded = pa.array([text.encode() for text in texts], pa.large_binary()).dictionary_encode()
        return encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False).astype(np.uint32)
    wanted, slot = np.unique(fingerprints(pa.array(texts, pa.large_string())), return_inverse=True)
    return wanted, slot.astype(np.uint32)


class _Cells:
    """Counters between the sorted ends of half-open intervals [low, high) over an ordered set."""

    def __init__(self, intervals: Sequence[tuple[int, Any, Any]], column: str = "", kind: Any = None) -> None:
        self.column = column
        self._kind = pa.large_binary() if kind is None else kind
        ends = {low for _, low, _ in intervals} | {high for _, _, high in intervals if high is not None}
        order = sorted(ends)
        place = {end: i for i, end in enumerate(order)}
        self._ends = order
        self._queries = np.array([i for i, _, _ in intervals], dtype=np.intp)
        # the running sum over the first j + 1 cells counts all values below end j
        self._low = np.array([place[low] + 1 for _, low, _ in intervals], dtype=np.intp)
        self._high = np.array(
            [len(order) + 1 if high is None else place[high] + 1 for _, _, high in intervals], dtype=np.intp
        )
        self.size = len(order) + 1 if intervals else 0

    def add(self, into: I64, values: Any, counts: I64) -> None:
        if not self.size:
            return
        if values.null_count:
            valid = values.is_valid()
            values, counts = values.filter(valid), counts[valid.to_numpy(zero_copy_only=False)]
        np.add.at(into, self._cell(values), counts)

    def _cell(self, values: Any) -> NDArray[np.intp]:
        """How many ends are at most each value."""
        if self._kind != pa.large_binary():
            numbers: NDArray[Any] = _numbers(values, self._kind)
            return np.searchsorted(np.array(self._ends, dtype=numbers.dtype), numbers, side="right")
        ends = pa.array(self._ends, pa.large_binary())
        both = pa.concat_arrays([ends, values.cast(pa.large_binary())])
        order = pc.array_sort_indices(both).to_numpy()  # stable: an end comes before an equal value
        is_end = order < len(ends)
        passed = np.cumsum(is_end)
        cells = np.empty(len(both), dtype=np.intp)
        cells[order] = passed
        return cells[len(ends) :]

    def read(self, part: I64, out: I64) -> None:
        if self.size:
            sums = np.concatenate([[0], np.cumsum(part)])
            out[self._queries] = sums[self._high] - sums[self._low]


def _numbers(values: Any, kind: pa.DataType) -> NDArray[Any]:
    """Values of a column in the type whose order decides."""
    stored = values.cast(_storage(values.type)) if pa.types.is_temporal(values.type) else values
    numbers: NDArray[Any] = stored.cast(kind).to_numpy(zero_copy_only=False)
    return numbers


def _one_array(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _after_prefix(prefix: bytes) -> bytes | None:
    """The smallest bytes above every text that begins with ``prefix``; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _range_cells(kinds: list[tuple[int, Any]], schema: pa.Schema) -> dict[str, _Cells]:
    """One set of cells for each column that "between" queries name."""
    found: dict[str, list[tuple[int, Any, Any]]] = {}
    for i, kind in kinds:
        if isinstance(kind, RangeQuery):
            found.setdefault(kind.column, []).append((i, *_half_open(kind, schema.field(kind.column).type)))
    kind_of = {name: _ordered_type(schema.field(name).type) for name in found}
    return {name: _Cells(intervals, name, kind_of[name]) for name, intervals in found.items()}


def _ordered_type(kind: pa.DataType) -> pa.DataType:
    """The type whose order decides: whole numbers, floats or bytes."""
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return pa.uint64() if kind == pa.uint64() else pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    return pa.large_binary()


def _half_open(query: RangeQuery, kind: pa.DataType) -> tuple[Any, Any]:
    """[low, high] of a query as [low, high) of the ordered type; high None is "no end"."""
    ordered = _ordered_type(kind)
    if pa.types.is_boolean(kind):
        raise ParameterError(f"query: between needs an ordered column, and {query.column!r} is {kind}")
    if pa.types.is_integer(kind) and isinstance(query.low, Fraction) and isinstance(query.high, Fraction):
        limits = np.iinfo(np.uint64 if ordered == pa.uint64() else np.int64)
        low, high = -(-query.low // 1), query.high // 1 + 1
        return max(low, int(limits.min)), None if high > int(limits.max) else max(high, int(limits.min))
    try:
        low_scalar, high_scalar = typed_value(query.low, kind), typed_value(query.high, kind)
    except ValueError as problem:
        raise ParameterError(f"query: between on column {query.column!r}: {problem}") from None
    if ordered == pa.large_binary():
        low, high = (scalar.cast(pa.large_binary()).as_py() for scalar in (low_scalar, high_scalar))
        return low, high + b"\0"
    if ordered == pa.float64():
        return low_scalar.as_py(), float(np.nextafter(high_scalar.as_py(), np.inf))
    low, high = (scalar.cast(_storage(kind)).cast(pa.int64()).as_py() for scalar in (low_scalar, high_scalar))
    return low, high + 1


# --- records as bytes -------------------------------------------------------------------------------------


def queryable(name: str, kind: pa.DataType) -> pa.DataType:
    """The type in which a queried column travels; refuses nested values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind) or str(kind) == "string_view":
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return pa.binary()
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )
    if not plain or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise ParameterError(f"query: column {name!r} is {kind}; a queried column must hold plain values")
    return kind


def pack_records(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.LargeBinaryArray:
    """The columns of ``schema`` as one column of bytes, injective: equal bytes mean equal records."""
    if not len(schema):
        return pa.array([b""] * batch.num_rows, pa.large_binary())
    columns = [_to_bytes(batch.column(name), schema.field(name).type) for name in schema.names]
    joined = pc.binary_join_element_wise(
        *columns,
        pa.scalar(_SEPARATOR, pa.large_binary()),
        null_handling="replace",
        null_replacement=_NULL,
    )
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def unpack_records(packed: pa.LargeBinaryArray, schema: pa.Schema) -> pa.Table:
    """The columns that `pack_records` wrote."""
    if not len(schema):
        return pa.table({"": pa.nulls(len(packed))})
    split = pc.split_pattern(packed, _SEPARATOR).flatten()
    width = len(schema)
    arrays = []
    for i, field in enumerate(schema):
        text = split.take(pa.array(np.arange(i, len(split), width)))
        text = pc.if_else(pc.equal(text, pa.scalar(_NULL, pa.large_binary())), None, text)
        arrays.append(_from_bytes(text, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _storage(kind: pa.DataType) -> pa.DataType:
    """The whole numbers that hold a date or time."""
    return pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()


def _to_bytes(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.cast(kind)
    if pa.types.is_temporal(kind):
        column = column.cast(_storage(kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = column.cast(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = column.cast(pa.large_string()).cast(pa.large_binary())
    else:
        return column.cast(pa.large_string()).cast(pa.large_binary())
    text = pc.replace_substring(text, pattern=_ESCAPE, replacement=_ESCAPE + b"E")
    return pc.replace_substring(text, pattern=_SEPARATOR, replacement=_ESCAPE + b"S")


def _from_bytes(text: Any, kind: pa.DataType) -> Any:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _is_string(kind):
        text = pc.replace_substring(text, pattern=_ESCAPE + b"S", replacement=_SEPARATOR)
        text = pc.replace_substring(text, pattern=_ESCAPE + b"E", replacement=_ESCAPE)
        return text.cast(kind)
    plain = text.cast(pa.large_string())
    if pa.types.is_temporal(kind):
        return plain.cast(_storage(kind)).cast(kind)
    return plain.cast(kind)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
