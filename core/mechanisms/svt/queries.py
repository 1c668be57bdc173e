"""Queries of a stream: their kinds, their order, and how far one user can change an answer.

Every query counts bounded contributions. A user, after bounding, contributes at most C in all and at most
L∞ to one key (docs/svt.md), so adding or removing the user changes

    {"key": k}                         by at most min(L∞, C)    one key
    {"prefix": p}                      by at most C             any number of keys
    {"column": c, "between": [a, b]}   by at most C             any number of records
    {"where": condition}               by at most C             any number of records

and all answers move the same way: counts only grow when a user is added, so every stream of these queries is
monotone. The sensitivity of a stream is the largest of its queries; it is derived here and never typed in.

A kind of query is one class and one line in `KINDS`: how it is written, how far one user moves its answer, and how it
is counted. Its `Counters` answer all queries of the kind at once: whole numbers that add up over parts of the data,
from whose sum the answers are read.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.contributions.histogram import Histogram
from hushgram.contributions.keys import fingerprints
from hushgram.errors import InputError, ParameterError, is_unicode
from hushgram.inputs.conditions import Condition, bind, equality, kind_of, parse, typed_value

__all__ = [
    "KINDS", "Counters", "DataShape", "IntervalCounters", "KeyCounters", "KeyQuery", "PrefixQuery", "Query",
    "QueryKind", "RangeQuery", "WhereQuery", "check_stream", "compact", "default_id", "parse_query", "read_queries",
    "read_text", "sensitivity", "storage_type",
]  # fmt: skip

I64 = NDArray[np.int64]

_MAX_SEQUENCE = (1 << 63) - 1


@dataclass(frozen=True)
class DataShape:
    """What counters are compiled against: whether the text of keys is available, and the columns of records."""

    texts: bool
    record_schema: pa.Schema


class QueryKind(ABC):
    """What one query asks. All kinds count bounded contributions, so all are monotone."""

    __slots__ = ()
    #: the name of the kind in summaries
    name: ClassVar[str]
    #: the fields of its JSON object; the first tells the kind from the others
    fields: ClassVar[tuple[str, ...]]
    #: which form of the data it counts
    data: ClassVar[Literal["keys", "records"]]
    #: whether it needs the text of keys, not only their fingerprints
    needs_texts: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        """Return the query of a JSON object; ``where`` names the line in errors."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads besides user and key."""
        return ()

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        """The types that columns are compared as, and so read as from text files."""
        return {}

    def sensitivity(self, max_contributions: int, max_per_key: int) -> int:
        """Bound how far one user changes the answer: C, since a user contributes no more than that in all."""
        return max_contributions

    @classmethod
    @abstractmethod
    def counters(cls, queries: Sequence[tuple[int, Any]], shape: DataShape) -> Sequence[Counters]:
        """Return counters for all queries of this kind, each given with its position."""


class Counters(ABC):
    """Counters of one kind: ``size`` whole numbers that add up over parts of the data."""

    size: int

    @abstractmethod
    def add(self, into: I64, rows: Any, counts: I64) -> None:
        """Count a part: a `Histogram` of keys, or a table of distinct records; each row with its count."""

    @abstractmethod
    def read(self, totals: I64, out: I64) -> None:
        """Write the exact answers to their positions in ``out``."""

    def overlap(self, low: int, high: int) -> int:
        """Bound in how many of the queries at positions low ≤ i < high one row of the data can count."""
        return high - low

    def counting(self) -> Self:
        """Return a smaller copy that can only count, to send to workers."""
        return self

    def reading(self) -> Self:
        """Return a smaller copy that can only read answers, to send to workers."""
        return self


def read_text(value: Any, name: str, where: str, *, numbers: bool = False, empty: bool = False) -> str:
    """Return a text field of a query; with ``numbers`` a whole number is its decimal text."""
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not (value or empty):
        raise ParameterError(f"{where}: {name} must be text, got {value!r}")
    return _unicode(value, name, where)


def _unicode(text: str, name: str, where: str) -> str:
    """Refuse half a surrogate pair: no record can hold it, and no file of answers can be written with it."""
    if not is_unicode(text):
        raise ParameterError(f"{where}: {name} must be Unicode text, got {text!r:.80}")
    return text


@dataclass(frozen=True, slots=True)
class KeyQuery(QueryKind):
    """{"key": k}: how often one key occurs. One user changes it by at most min(L∞, C)."""

    name: ClassVar[str] = "key"
    fields: ClassVar[tuple[str, ...]] = ("key",)
    data: ClassVar[Literal["keys", "records"]] = "keys"

    key: str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        return cls(read_text(fields["key"], "key", where, numbers=True))

    def sensitivity(self, max_contributions: int, max_per_key: int) -> int:
        return min(max_per_key, max_contributions)

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, KeyQuery]], shape: DataShape) -> Sequence[Counters]:
        return [KeyCounters(queries, shape.texts)]


def compact(numbers: Sequence[int]) -> range | I64:
    """Return ascending whole numbers as a range where they have no gaps: plans travel as pickles."""
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return np.array(numbers, dtype=np.int64)


def _among(positions: Any, low: int, high: int) -> NDArray[np.bool_]:
    at = np.asarray(positions, dtype=np.intp)
    return (low <= at) & (at < high)


class KeyCounters(Counters):
    """One counter per distinct key, found by text where texts are available, else by fingerprint."""

    def __init__(self, queries: Sequence[tuple[int, KeyQuery]], texts: bool) -> None:
        self._queries: Any = compact([i for i, _ in queries])
        self._texts = texts
        keys = [query.key for _, query in queries]
        if texts:
            encoded = pa.array([key.encode() for key in keys], pa.large_binary()).dictionary_encode()
            self._wanted, slots = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
        else:
            self._wanted, slots = np.unique(
                fingerprints(pa.array(keys, pa.large_string())), return_inverse=True
            )
        self._slot = slots.astype(np.uint32)
        self.size = len(self._wanted)

    def add(self, into: I64, rows: Histogram, counts: I64) -> None:
        if not self._texts:
            into += rows.counts_of(self._wanted)
            return
        slots = pc.index_in(rows.texts, value_set=self._wanted)
        held = slots.is_valid().to_numpy(zero_copy_only=False)
        np.add.at(into, slots.drop_null().to_numpy(), counts[held])

    def read(self, totals: I64, out: I64) -> None:
        out[np.asarray(self._queries, dtype=np.intp)] = totals[self._slot]

    def overlap(self, low: int, high: int) -> int:
        """Return how often one key is asked for; exact."""
        return int(self.asked(low, high).max(initial=0))

    def asked(self, low: int, high: int) -> NDArray[np.intp]:
        """Return how many of these queries ask for each key."""
        return np.bincount(self._slot[_among(self._queries, low, high)], minlength=self.size)

    @property
    def wanted(self) -> Any:
        """The keys, as text where texts are available."""
        return self._wanted

    def counting(self) -> Self:
        out = copy(self)
        out._queries, out._slot = range(0), np.zeros(0, dtype=np.uint32)
        return out

    def reading(self) -> Self:
        out = copy(self)
        out._wanted = None
        return out


class IntervalCounters(Counters):
    """Counters between the sorted ends of half-open intervals (query, low, high); None is above all values.

    All ends, sorted, divide an ordered set into cells; a part adds its counts by cell, and an answer is the difference
    of two running sums. So 100,000 ranges cost one sort, not 100,000 passes.
    """

    def __init__(
        self, intervals: Sequence[tuple[int, Any, Any]], ordered: pa.DataType, column: str | None
    ) -> None:
        self._ordered, self._column = ordered, column  # the column of records; None: the text of keys
        ends = sorted({end for _, *both in intervals for end in both if end is not None})
        self._ends = pa.array(ends, ordered)
        self.size = len(ends) + 1
        # the running sum over the first j + 1 cells counts all values below end j
        sums = {end: j + 1 for j, end in enumerate(ends)} | {None: self.size}
        self._queries, self._low, self._high = (
            np.array(one, dtype=np.intp)
            for one in zip(*((i, sums[low], sums[high]) for i, low, high in intervals), strict=True)
        )
        if (self._low > self._high).any():  # such an answer would be minus a count, and its depth −1
            raise AssertionError("IntervalCounters: an interval ends below its beginning")

    def add(self, into: I64, rows: Any, counts: I64) -> None:
        values = rows.texts if self._column is None else rows.column(self._column)
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if values.null_count:  # nulls count nowhere
            valid = values.is_valid()
            values, counts = values.filter(valid), counts[valid.to_numpy(zero_copy_only=False)]
        np.add.at(into, self.cells(values), counts)

    def cells(self, values: Any) -> NDArray[np.intp]:
        """Count how many ends are at most each value."""
        if self._ordered != pa.large_binary():
            stored = values.cast(storage_type(values.type)) if pa.types.is_temporal(values.type) else values
            numbers: NDArray[Any] = stored.cast(self._ordered).to_numpy(zero_copy_only=False)
            return np.searchsorted(self._ends.to_numpy(), numbers, side="right")
        both = pa.concat_arrays([self._ends, values.cast(pa.large_binary())])
        order = pc.array_sort_indices(both).to_numpy()  # stable: an end comes before an equal value
        cells = np.empty(len(both), dtype=np.intp)
        cells[order] = np.cumsum(order < len(self._ends))
        return cells[len(self._ends) :]

    def read(self, totals: I64, out: I64) -> None:
        sums = np.concatenate([[0], np.cumsum(totals)])
        out[self._queries] = sums[self._high] - sums[self._low]

    def overlap(self, low: int, high: int) -> int:
        """Return the most intervals that share a cell: the nesting of prefixes, the overlap of ranges; exact."""
        return int(self.depths(low, high).max())

    def depths(self, low: int, high: int) -> I64:
        """Return how many of these queries count each cell."""
        among, edges = _among(self._queries, low, high), np.zeros(self.size + 1, dtype=np.int64)
        np.add.at(edges, self._low[among], 1)
        np.add.at(edges, self._high[among], -1)
        return np.cumsum(edges)


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the whole numbers that hold a date or time."""
    return pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()


@dataclass(frozen=True, slots=True)
class PrefixQuery(QueryKind):
    """{"prefix": p}: how often the keys that begin with a text occur; the empty text is all of them."""

    name: ClassVar[str] = "prefix"
    fields: ClassVar[tuple[str, ...]] = ("prefix",)
    data: ClassVar[Literal["keys", "records"]] = "keys"
    needs_texts: ClassVar[bool] = True

    prefix: str

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        return cls(read_text(fields["prefix"], "prefix", where, empty=True))

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, PrefixQuery]], shape: DataShape) -> Sequence[Counters]:
        """Count intervals of texts: from the prefix to the first text that does not begin with it."""
        texts = [(i, query.prefix.encode()) for i, query in queries]
        return [IntervalCounters([(i, text, _after(text)) for i, text in texts], pa.large_binary(), None)]


def _after(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above every text that begins with ``prefix``; None if there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


@dataclass(frozen=True, slots=True)
class RangeQuery(QueryKind):
    """{"column": c, "between": [a, b]}: how many records have a ≤ c ≤ b."""

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
        if isinstance(low, Fraction) and isinstance(high, Fraction) and low > high:
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
        """Return one set of intervals per column."""
        types = {name: shape.record_schema.field(name).type for _, query in queries for name in query.columns}
        found: dict[str, list[tuple[int, Any, Any]]] = {name: [] for name in types}
        for i, query in queries:
            found[query.column].append((i, *_half_open(query, types[query.column])))
        return [IntervalCounters(found[name], _ordered_type(types[name]), name) for name in found]


def _bound(value: Any, where: str) -> Fraction | str:
    if isinstance(value, str):
        return _unicode(value, "between", where)
    try:
        if isinstance(value, bool):
            raise ValueError
        return Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"{where}: between must be numbers, dates or texts, got {value!r}") from None


def _ordered_type(kind: pa.DataType) -> pa.DataType:
    """Return the type whose order decides: whole numbers, floats or bytes."""
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        return pa.uint64() if kind == pa.uint64() else pa.int64()
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.float64()
    return pa.large_binary()


def _half_open(query: RangeQuery, kind: pa.DataType) -> tuple[Any, Any]:
    """Return [low, high] of a query as [low, high) of the ordered type; None is above all of its values.

    Ends are compared as values of the column, not as they are written: texts such as 2026-01-01T00:00:00Z and
    2026-01-01T01:00:00+12:00 have another order than the instants that they name.
    """
    ordered = _ordered_type(kind)
    if pa.types.is_boolean(kind):
        raise ParameterError(f"query: between needs an ordered column, and {query.column!r} is {kind}")
    if pa.types.is_integer(kind) and isinstance(query.low, Fraction) and isinstance(query.high, Fraction):
        return _whole(-(-query.low // 1), ordered), _whole(query.high // 1 + 1, ordered)
    try:
        low, high = (_ordered(typed_value(end, kind)) for end in (query.low, query.high))
    except ValueError as problem:
        raise ParameterError(f"query: between on column {query.column!r}: {problem}") from None
    if low > high:
        raise ParameterError(
            f"query: between on column {query.column!r} must begin with the smaller value, got {query.low!r} above "
            f"{query.high!r} as {kind}"
        )
    if ordered == pa.large_binary():
        return low, high + b"\0"
    if ordered == pa.float64():
        return low, float(np.nextafter(high, np.inf))
    return low, _whole(high + 1, ordered)


def _ordered(value: pa.Scalar) -> Any:
    """Return a value of a column in the type whose order decides."""
    if pa.types.is_temporal(value.type):
        value = value.cast(storage_type(value.type))
    return value.cast(_ordered_type(value.type)).as_py()


def _whole(end: int, ordered: pa.DataType) -> int | None:
    """Return the least whole number of the type from ``end`` on; None where there is none."""
    limits = np.iinfo(ordered.to_pandas_dtype())
    return None if end > int(limits.max) else max(end, int(limits.min))


@dataclass(frozen=True, slots=True)
class WhereQuery(QueryKind):
    """{"where": condition}: how many records satisfy a condition."""

    name: ClassVar[str] = "where"
    fields: ClassVar[tuple[str, ...]] = ("where",)
    data: ClassVar[Literal["keys", "records"]] = "records"

    condition: Condition

    @classmethod
    def parse(cls, fields: Mapping[str, Any], where: str) -> Self:
        text = read_text(fields["where"], "where", where)
        try:
            return cls(parse(text))
        except ParameterError as problem:
            raise ParameterError(f"{where}: {problem}") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.condition.columns

    @property
    def column_types(self) -> dict[str, pa.DataType]:
        return self.condition.kinds

    @classmethod
    def counters(cls, queries: Sequence[tuple[int, WhereQuery]], shape: DataShape) -> Sequence[Counters]:
        return [_WhereCounters(queries, shape.record_schema)]


class _WhereCounters(Counters):
    """One counter per condition."""

    def __init__(self, queries: Sequence[tuple[int, WhereQuery]], schema: pa.Schema) -> None:
        self._where = [(i, query.condition) for i, query in queries]
        self._schema = schema
        self.size = len(self._where)
        _ = self._bound  # wrong columns and values show here

    @cached_property
    def _bound(self) -> list[Any]:
        return [bind(condition, self._schema) for _, condition in self._where]

    def __getstate__(self) -> dict[str, Any]:
        """Send conditions to workers as they were parsed; they are bound again there."""
        return {name: value for name, value in self.__dict__.items() if name != "_bound"}

    def add(self, into: I64, rows: pa.Table, counts: I64) -> None:
        for slot, condition in enumerate(self._bound):
            into[slot] += counts[condition.matches(rows)].sum()

    def read(self, totals: I64, out: I64) -> None:
        out[[i for i, _ in self._where]] = totals

    def overlap(self, low: int, high: int) -> int:
        """Return the number of conditions, but of tests for equality on one column only those for one value."""
        found: dict[str | int, Counter[Any]] = {}
        for i, condition in self._where:
            if low <= i < high:
                column, values = equality(condition, self._schema) or (i, {None})
                found.setdefault(column, Counter()).update(values)
        return sum(max(counts.values()) for counts in found.values())


#: Every kind of query, by the field that tells it from the others.
KINDS: dict[str, type[QueryKind]] = {
    "key": KeyQuery,
    "prefix": PrefixQuery,
    "column": RangeQuery,
    "where": WhereQuery,
}


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a stream: its name, its place in the order, and what it asks."""

    id: str
    sequence: int
    kind: QueryKind


def sensitivity(queries: Iterable[Query], max_contributions: int, max_per_key: int) -> int:
    """Return the most that one user changes any answer of the stream.

    >>> key, prefix = parse_query({"key": "a"}, 0, "q"), parse_query({"prefix": "a"}, 1, "q")
    >>> sensitivity([key], 8, 1), sensitivity([key, prefix], 8, 1)
    (1, 8)
    """
    return max(query.kind.sensitivity(max_contributions, max_per_key) for query in queries)


def default_id(sequence: int) -> str:
    """Return the name of a query that was given none."""
    return f"q{sequence}"


def parse_query(fields: Any, position: int, where: str) -> Query:
    """Return the query of a JSON object; ``where`` names the line in errors, ``position`` is its default seq.

    >>> parse_query({"id": "q1", "column": "age", "between": [30, 49]}, 0, "line 1").kind.low
    Fraction(30, 1)
    """
    if not isinstance(fields, Mapping):
        raise ParameterError(f'{where}: a query must be an object such as {{"key": "https://a/b"}}')
    kind = _kind_of(fields, where)
    sequence = fields.get("seq", position)
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= _MAX_SEQUENCE:
        raise ParameterError(f"{where}: seq must be a whole number from 0, got {sequence!r}")
    name = fields.get("id", default_id(sequence))
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name):
        raise ParameterError(f"{where}: id must be text, got {name!r}")
    return Query(_unicode(str(name), "id", where), sequence, kind.parse(fields, where))


def _kind_of(fields: Mapping[str, Any], where: str) -> type[QueryKind]:
    """Return the one kind that the fields of an object name."""
    first = {field: lead for lead, kind in KINDS.items() for field in kind.fields}
    forms = [" with ".join(f'"{field}"' for field in kind.fields) for kind in KINDS.values()]
    written = f"{', '.join(forms[:-1])}, or {forms[-1]}"
    for name in fields:
        if name not in first and name not in ("id", "seq"):
            raise ParameterError(f"{where}: unknown query kind or field {name!r}; write {written}")
    found = [lead for lead in KINDS if lead in fields]
    if len(found) != 1:
        shown = " and ".join(found) or "none of them"
        raise ParameterError(f"{where}: a query has exactly one of {written}, got {shown}")
    for name in fields:
        if name in first and first[name] != found[0]:
            raise ParameterError(f'{where}: "{name}" needs "{first[name]}"')
    return KINDS[found[0]]


def read_queries(lines: Iterable[str], source: str) -> list[Query]:
    """Return the queries of a JSONL file, checked as one stream and sorted by sequence number."""
    queries: list[Query] = []
    decode = json.JSONDecoder().decode
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            fields = decode(line)
        except ValueError as problem:
            reason = str(problem).splitlines()[0]
            raise InputError(f"{source}, line {number}: not JSON ({reason})") from None
        position = len(queries)
        plain = _plain_key_query(fields, position)
        queries.append(plain or parse_query(fields, position, f"{source}, line {number}"))
    return check_stream(queries, source)


def _plain_key_query(fields: Any, position: int) -> Query | None:
    """Return the most frequent form, {"key": ...} with or without an id, by a short path; None for all others."""
    if type(fields) is not dict or len(fields) > 2:
        return None
    key, name = fields.get("key"), fields.get("id")
    if type(key) is not str or not key or len(fields) != 1 + (type(name) is str and name != ""):
        return None
    if not is_unicode(key) or not is_unicode(name or ""):
        return None
    return Query(name or default_id(position), position, KeyQuery(key))


def check_stream(queries: Iterable[Query], source: str) -> list[Query]:
    """Return the queries in order; refuse two with one id or sequence number, and an empty stream."""
    ordered = sorted(queries, key=lambda query: query.sequence)
    if not ordered:
        raise InputError(f"{source}: no queries")
    for before, query in pairwise(ordered):
        if before.sequence == query.sequence:
            raise ParameterError(
                f"{source}: queries {before.id!r} and {query.id!r} both have seq {query.sequence}; "
                "give each its own sequence number, or none at all"
            )
    seen: set[str] = set()
    for query in ordered:
        if query.id in seen:
            raise ParameterError(f"{source}: two queries have the id {query.id!r}; ids must differ")
        seen.add(query.id)
    return ordered
