"""{"column": c, "between": [a, b]}: how many records have a ≤ c ≤ b."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from hushgram.errors import ParameterError
from hushgram.inputs.condition_values import typed_value
from hushgram.inputs.conditions import kind_of
from hushgram.svt.kinds.intervals import IntervalCounters, storage_type
from hushgram.svt.kinds.kind import I64, Counters, DataShape, QueryKind, read_text

__all__ = ["RangeQuery"]


@dataclass(frozen=True, slots=True)
class RangeQuery(QueryKind):
    """How many records have ``low`` ≤ column ≤ ``high``."""

    name: ClassVar[str] = "range"
    fields: ClassVar[tuple[str, ...]] = ("column", "between")
    data: ClassVar[Literal["keys", "records"]] = "records"

    column: str
    low: Fraction | str
    high: Fraction | str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        column, bounds = read_text(fields["column"], "column", where), fields.get("between")
        if not isinstance(bounds, Sequence) or isinstance(bounds, str) or len(bounds) != 2:
            raise ParameterError(f"{where}: between must be two values such as [30, 49], got {bounds!r}")
        low, high = (_bound(bound, where) for bound in bounds)
        if isinstance(low, str) != isinstance(high, str):
            raise ParameterError(f"{where}: between must be two numbers or two texts, got {bounds!r}")
        if low > high:  # type: ignore[operator]
            raise ParameterError(f"{where}: between must begin with the smaller value, got {list(bounds)!r}")
        return cls(column, low, high)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        return {self.column: kind_of(self.low)}

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, RangeQuery]], shape: DataShape) -> Sequence[Counters]:
        """One set of cells for each column."""
        found: dict[str, list[tuple[int, Any, Any]]] = {}
        for i, query in queries:
            kind = shape.record_schema.field(query.column).type
            found.setdefault(query.column, []).append((i, *_half_open(query, kind)))
        return [
            _RangeCounters(intervals, name, _ordered_type(shape.record_schema.field(name).type))
            for name, intervals in found.items()
        ]


class _RangeCounters(IntervalCounters):
    def __init__(self, intervals: Sequence[tuple[int, Any, Any]], column: str, ordered: pa.DataType) -> None:
        super().__init__(intervals, ordered)
        self._column = column

    def add(self, into: I64, rows: pa.Table, counts: I64) -> None:
        column = rows.column(self._column)
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        self.add_values(into, whole, counts)


def _bound(value: Any, where: str) -> Fraction | str:
    if isinstance(value, str):
        return value
    try:
        if isinstance(value, bool):
            raise ValueError
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{where}: between must be numbers, dates or texts, got {value!r}") from None


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
    stored = storage_type(kind)
    low, high = (scalar.cast(stored).cast(pa.int64()).as_py() for scalar in (low_scalar, high_scalar))
    return low, high + 1
