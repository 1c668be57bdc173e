"""Exact answers to all queries of a stream in one pass over arrays. Private: nothing here is ever shown.

A plan turns queries into counters that add up: the answers of a part of the data are one vector of whole
numbers, vectors of parts are summed in any order, and `answers` reads the queries off the sum. Two forms of
data are read:

* keys (`add_keys`): a `Histogram` of bounded contributions by key, for "key" and "prefix" queries;
* records (`add_records`): distinct records with bounded counts, for "between" and "where" queries.

How a kind of query is counted is part of the kind (`hushgram.mechanisms.svt.queries`).

Of the records of a user C are drawn, each with the same chance (`Bounds.of_records`). They travel as tuples of key and
queried columns: `pack_records` writes such a tuple as bytes, `unpack_records` reads the columns back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.errors import ParameterError
from hushgram.mechanisms.svt.queries import (
    KINDS,
    Counters,
    DataShape,
    IntervalCounters,
    KeyCounters,
    Query,
    QueryKind,
    storage_type,
)
from hushgram.sensitivity import CONSTANT, Exact, ExactVector, Sensitivity

__all__ = ["QueryPlan", "pack_records", "queryable", "unpack_records"]

I64 = NDArray[np.int64]

_SEPARATOR, _ESCAPE, _NULL = b"\x1f", b"\\", b"\\N"


class QueryPlan:
    """All queries of one or several streams over one input, compiled against its schema."""

    def __init__(self, queries: Sequence[Query], schema: pa.Schema, key: str) -> None:
        self.size = len(queries)
        self.key = key
        held: dict[type[QueryKind], list[tuple[int, QueryKind]]] = {kind: [] for kind in KINDS.values()}
        for i, query in enumerate(queries):
            held[type(query.kind)].append((i, query.kind))
        asked = [(kind, some) for kind, some in held.items() if some]
        self.columns = tuple(dict.fromkeys(name for query in queries for name in query.kind.columns))
        self.texts = any(kind.needs_texts for kind, _ in asked)
        self.reads_keys = any(kind.data == "keys" for kind, _ in asked)
        self.reads_records = any(kind.data == "records" for kind, _ in asked)
        self.record_schema = self._record_schema(schema)
        shape = DataShape(self.texts, self.record_schema)
        self._counters: list[tuple[str, Counters]] = []
        self._single: list[
            bool
        ] = []  # whether their queries count one key each, which a user moves by at most L∞
        for kind, some in asked:
            made = kind.counters(some, shape)
            self._counters += [(kind.data, counters) for counters in made]
            self._single += [some[0][1].sensitivity(2, 1) == 1] * len(made)
        self._ends = np.cumsum([0, *(counters.size for _, counters in self._counters)])
        of_keys = [counters for form, counters in self._counters if form == "keys"]
        #: where key queries lie among prefixes, to know how many of both one key counts in; None for other mixtures
        self._nested: Any = None
        if [type(one) for one in of_keys] == [KeyCounters, IntervalCounters] and self.texts:
            self._nested = of_keys[1].cells(of_keys[0].wanted)  # type: ignore[attr-defined]

    def _record_schema(self, schema: pa.Schema) -> pa.Schema:
        names = tuple(dict.fromkeys((self.key, *self.columns))) if self.columns else ()
        for name in names:
            if name not in schema.names:
                raise ParameterError(f"query: no column {name!r}; the columns are {', '.join(schema.names)}")
        return pa.schema([(name, queryable(name, schema.field(name).type)) for name in names])

    def zeros(self) -> I64:
        """Return the vector of no data."""
        return np.zeros(int(self._ends[-1]), dtype=np.int64)

    def add_keys(self, into: I64, histogram: Histogram) -> None:
        """Count a part of the bounded contributions by key."""
        if len(histogram):
            self._add(into, "keys", histogram, histogram.counts)

    def add_records(self, into: I64, records: pa.Table, counts: I64) -> None:
        """Count distinct records of `record_schema`, each with its bounded count."""
        self._add(into, "records", records, counts)

    def _add(self, into: I64, data: str, rows: Any, counts: I64) -> None:
        for (form, counters), part in zip(self._counters, self._parts(into), strict=True):
            if form == data:
                counters.add(part, rows, counts)

    def answers(self, total: ExactVector, streams: Sequence[int]) -> list[ExactVector]:
        """Return the exact answers of streams of so many queries each, from the sum over all parts."""
        out = np.zeros(self.size, dtype=np.int64)
        for (_, counters), part in zip(self._counters, self._parts(total.values), strict=True):
            counters.read(part, out)
        ends = np.cumsum([0, *streams]).tolist()
        return [
            ExactVector(out[low:high], self.sensitivity(total.sensitivity, low, high))
            for low, high in pairwise(ends)
        ]

    def sensitivity(self, counted: Sensitivity, low: int = 0, high: int | None = None) -> Sensitivity:
        """Return the sensitivity of the answers at positions low ≤ i < high, from that of the counted contributions.

        Counters whose queries overlap h times add C·h to the L1 norm and C²·h to the squared L2 norm, or h·‖u‖₂² where
        each counts one key (see `hushgram.mechanisms.svt.histogram` for the proof). Where h is 0, no query counts any
        record: there are no queries, or all are ranges such as 0.4 to 0.6 of whole numbers.
        """
        high = self.size if high is None else high
        overlaps = [counters.overlap(low, high) for _, counters in self._counters]
        if counted == CONSTANT or not any(overlaps):
            return CONSTANT
        squares = most = 0
        for h, single in zip(overlaps, self._single, strict=True):
            each = counted.max_per_key if single else counted.max_contributions
            squares += h * (counted.l2_squared if single else counted.max_contributions**2)
            most = max(most, each * min(h, 1))
        if self._nested is not None:
            overlaps[:2] = [self._nesting(low, high)]
        total = sum(overlaps) * counted.max_contributions
        return Sensitivity(
            min(total, most * (high - low)), most, counted.unit, counted.monotone,
            l2_bound=squares, l0_bound=min(total, high - low),
        )  # fmt: skip

    def _nesting(self, low: int, high: int) -> int:
        """Return in how many key and prefix queries one key counts, at most."""
        keys, prefixes = (counters for form, counters in self._counters if form == "keys")
        asked, depths = keys.asked(low, high), prefixes.depths(low, high)  # type: ignore[attr-defined]
        return max(int(depths.max()), int((asked + depths[self._nested])[asked > 0].max(initial=0)))

    def counting(self) -> QueryPlan:
        """Return the plan without what only readers of answers need: smaller to send."""
        return self._with([(form, counters.counting()) for form, counters in self._counters])

    def reading(self) -> QueryPlan:
        """Return the plan without what only counting needs: smaller to send."""
        return self._with([(form, counters.reading()) for form, counters in self._counters])

    def _with(self, counters: list[tuple[str, Counters]]) -> QueryPlan:
        out = copy(self)
        out._counters = counters
        return out

    def _parts(self, vector: I64) -> list[I64]:
        return [vector[low:high] for low, high in zip(self._ends[:-1], self._ends[1:], strict=True)]


def counted(keys: Iterable[Exact], records: Iterable[Exact]) -> Sensitivity:
    """Return the sensitivity of contributions by key and by record together; they are bounded to one C.

    Only by key is less than C in one place, so that of keys says more.
    """
    by_key, by_record = Exact.shared(keys), Exact.shared(records)
    if len({each.added_up() for each in (by_key, by_record) if each != CONSTANT}) > 1:
        raise AssertionError(f"keys and records of different bounds: {by_key}, {by_record}")
    return by_record if by_key == CONSTANT else by_key


# --- records as bytes -------------------------------------------------------------------------------------


def queryable(name: str, kind: pa.DataType) -> pa.DataType:
    """Return the type in which a queried column travels; refuse nested values."""
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
    """Pack the columns of ``schema`` into one column of bytes, injective: equal bytes mean equal records."""
    if not len(schema):
        return pa.array([b""] * batch.num_rows, pa.large_binary())
    columns = [_to_bytes(batch.column(name), schema.field(name).type) for name in schema.names]
    joined = pc.binary_join_element_wise(
        *columns, pa.scalar(_SEPARATOR, pa.large_binary()), null_handling="replace", null_replacement=_NULL
    )
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def unpack_records(packed: pa.LargeBinaryArray, schema: pa.Schema) -> pa.Table:
    """Return the columns that `pack_records` wrote."""
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


def _to_bytes(column: Any, kind: pa.DataType) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.cast(kind)
    if pa.types.is_temporal(kind):
        column = column.cast(storage_type(kind))
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        text = column.cast(pa.large_binary())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = column.cast(pa.large_string()).cast(pa.large_binary())
    else:
        return column.cast(pa.large_string()).cast(pa.large_binary())
    text = pc.replace_substring(text, pattern=_ESCAPE, replacement=_ESCAPE + b"E")
    return pc.replace_substring(text, pattern=_SEPARATOR, replacement=_ESCAPE + b"S")


def _from_bytes(text: Any, kind: pa.DataType) -> Any:
    if kind in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string()):
        text = pc.replace_substring(text, pattern=_ESCAPE + b"S", replacement=_SEPARATOR)
        text = pc.replace_substring(text, pattern=_ESCAPE + b"E", replacement=_ESCAPE)
        return text.cast(kind, safe=False)  # text of a record need not be UTF-8
    plain = text.cast(pa.large_string())
    if pa.types.is_temporal(kind):
        return plain.cast(storage_type(kind)).cast(kind)
    return plain.cast(kind)
