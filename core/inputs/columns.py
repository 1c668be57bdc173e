"""Columns of records: one type for each over all files, and which rows must be set aside."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.exact.identifiers import to_id
from hushgram.exact.weights import wrong_values
from hushgram.inputs.conditions import bind
from hushgram.inputs.shaping import bound_record
from hushgram.inputs.source import InputPlan, Rejects, Source

__all__ = [
    "Places", "Texts", "common_type", "is_utf8", "keep_good", "no_column", "parsed", "valid_text",
]  # fmt: skip


def common_type(kinds: list[pa.DataType]) -> pa.DataType:
    """One type for a column that differs between files; whole numbers beside text become text."""
    distinct = list(dict.fromkeys(kinds))
    if len(distinct) == 1:
        return distinct[0]
    if any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in distinct):
        return pa.large_binary()
    if all(pa.types.is_string(kind) or pa.types.is_integer(kind) for kind in distinct):
        return pa.string()
    return pa.large_string()


def no_column(name: str, columns: Sequence[str]) -> str:
    """What to say of a column that is not there."""
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
    remedy = f"; did you mean {close[0]!r}?" if close else "."
    return f"no column {name!r}{remedy} The columns are: {shown or '(none)'}"


def valid_text(column: pa.Array) -> NDArray[np.bool_] | None:
    """None where every value is UTF-8 (one pass in C++), else which rows are."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return None
    try:
        column.validate(full=True)
        return None
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        return np.fromiter((value is None or _decodes(value) for value in raw.to_pylist()), bool, len(raw))


def _text_or_null(column: pa.Array) -> pa.Array:
    """The column, with null in place of text that is not UTF-8."""
    good = valid_text(column)
    return column if good is None else pc.if_else(pa.array(good), column, pa.scalar(None, column.type))


def is_utf8(data: bytes) -> bool:
    """Whether a block is UTF-8 as a whole: one pass in C++, several gigabytes a second."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decodes(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


#: where each row of a batch begins in its file; or where all of them begin; or how to find out
Places = NDArray[np.int64] | int | Callable[[], NDArray[np.int64]]


def keep_good(
    arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places, *, decoded: bool = False
) -> pa.RecordBatch:
    """The records that are not left out, with their identifiers made; those that lack one are set aside.

    `arrays` follow plan.raw; `decoded` says that all text is known to be UTF-8.
    """
    source = plan.source
    if not decoded:
        arrays = [
            _text_or_null(a) if n in source.secrets else a
            for n, a in zip(plan.raw.names, arrays, strict=True)
        ]
    if plan.constants:
        arrays, plan = _with_constants(arrays, plan)
    if source.where is not None:
        mask = _bound(source.where, plan.raw).matches(pa.RecordBatch.from_arrays(arrays, schema=plan.raw))
        kept = pa.array(mask)
        arrays = [column.filter(kept) for column in arrays]
        places = _places_of(places, mask)
    if not decoded and source.recipes:
        arrays, places = _readable(arrays, plan, rejects, places)
    arrays, places = _shaped(arrays, plan, places)
    good: NDArray[np.bool_] | None = None
    for name, column in zip(plan.schema.names, arrays, strict=True):
        for reason, rows in _wrong(name, column, source, decoded):
            fresh = np.flatnonzero(~rows if good is None else ~rows & good)
            _set_aside(arrays, plan.schema, rejects, reason, fresh, places)
            good = rows if good is None else good & rows
    arrays = [to_id(column, field.type) for column, field in zip(arrays, plan.schema, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=plan.schema)
    return batch if good is None else batch.filter(pa.array(good))


def _wrong(
    name: str, column: pa.Array, source: Source, decoded: bool
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """(reason, rows that are good) of what makes records bad in this column."""
    if name in source.values:
        yield from wrong_values(column, name)
    if name not in source.ids:
        return
    if (there := _not_null(column)) is not None:
        yield f"{name} is null", there
    if not decoded and name not in source.recipes and (text := valid_text(column)) is not None:
        yield f"{name} is not UTF-8", text


def _with_constants(arrays: list[pa.Array], plan: InputPlan) -> tuple[list[pa.Array], InputPlan]:
    """With the columns that folders give."""
    values = [pa.scalar(text, pa.string()).cast(field.type) for field, text in plan.constants]
    raw = pa.schema([*plan.raw, *(field for field, _ in plan.constants)])
    made = [pa.repeat(value, len(arrays[0])) for value in values]
    return [*arrays, *made], replace(plan, raw=raw, constants=())


def _readable(
    arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places
) -> tuple[list[pa.Array], Places]:
    """Without the records whose text cannot be shaped since it is no text."""
    for name in plan.source.texts:
        column = arrays[plan.raw.names.index(name)]
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            column = column.cast(pa.large_binary()).view(pa.large_string())
        good = valid_text(column)
        if good is not None:
            _set_aside(arrays, plan.raw, rejects, f"{name} is not UTF-8", np.flatnonzero(~good), places)
            arrays, places = [part.filter(pa.array(good)) for part in arrays], _places_of(places, good)
    return arrays, places


def _shaped(arrays: list[pa.Array], plan: InputPlan, places: Places) -> tuple[list[pa.Array], Places]:
    """The columns that come out, in the order of plan.schema."""
    columns = dict(zip(plan.raw.names, arrays, strict=True))
    made, parents = dict(columns), None
    for name, recipe in plan.source.recipes.items():
        made[name], found = recipe.apply(columns)
        if found is not None:
            parents = found
            if plan.source.record is not None:
                rows = bound_record(made[name], parents, *plan.source.record)
                made[name], parents = made[name].take(pa.array(rows)), parents[rows]
    if parents is not None:
        several = {name for name, recipe in plan.source.recipes.items() if recipe.several}
        rows = pa.array(parents)
        made = {name: column if name in several else column.take(rows) for name, column in made.items()}
        places = _places_of(places, parents)
    return [made[name] for name in plan.schema.names], places


_bound = lru_cache(maxsize=16)(bind)


def _places_of(places: Places, rows: NDArray[Any]) -> Places:
    """The places of chosen rows: a mask or their numbers."""
    if isinstance(places, int):
        return places
    if callable(places):
        return lambda: _chosen(places(), rows)
    return _chosen(places, rows)


def _chosen(places: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.int64]:
    chosen: NDArray[np.int64] = places[: len(rows)][rows] if rows.dtype == bool else places[rows]
    return chosen


def _not_null(column: pa.Array) -> NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    valid: NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return valid


def _set_aside(
    arrays: list[pa.Array],
    schema: pa.Schema,
    rejects: Rejects,
    reason: str,
    rows: NDArray[np.int64],
    places: Places,
) -> None:
    shown = rows[: rejects.room(reason)]
    if len(shown) and callable(places):  # a pass over the block: only where a place is shown
        places = places()
    for row in shown:
        record = "" if not rejects.keep else _shown(schema.names, arrays, int(row))
        at = places if isinstance(places, int) else int(places[row])  # type: ignore[index]
        rejects.add(reason, at, record)
    if len(rows) > len(shown):
        rejects.add(reason, -1, count=len(rows) - len(shown))


def _shown(names: list[str], arrays: list[pa.Array], row: int) -> str:
    """A record as JSON, for the operator."""
    record = {name: _plain(column[row]) for name, column in zip(names, arrays, strict=True)}
    return json.dumps(record, ensure_ascii=False, default=str)


def _plain(value: pa.Scalar) -> Any:
    try:
        plain = value.as_py()
    except UnicodeDecodeError:
        plain = value.cast(pa.binary()).as_py()
    except (ValueError, OverflowError):  # a moment that Python has no object for
        plain = value.cast(pa.string()).as_py()
    return plain.decode("utf-8", "surrogateescape") if isinstance(plain, bytes) else plain


Convert = Callable[[list[bytes | None], pa.DataType], pa.Array]


def parsed(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Texts as values of another type; ArrowInvalid where one is none."""
    return pa.array(values, pa.binary()).cast(pa.string()).cast(kind)


class Texts:
    """Records of the slow path: values as bytes, with where each record stands, to be converted together.

    `convert` makes values of all types but text; it raises ArrowInvalid, and each value must be converted by
    itself, whatever stands beside it.
    """

    def __init__(self, plan: InputPlan, convert: Convert = parsed) -> None:
        self._plan, self._convert = plan, convert
        self._columns: list[list[bytes | None]] = [[] for _ in plan.raw]
        self._records: list[tuple[int, bytes]] = []
        self.places = np.empty(0, np.int64)  # where the records of `arrays` begin

    def add(self, values: list[bytes | None], at: int, record: bytes) -> None:
        """One record, its values in the order of the schema."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._records.append((at, record))

    def arrays(self, rejects: Rejects) -> list[pa.Array]:
        """The columns; a record with a value that is not of its column's type is set aside, but for secrets."""
        parts = [
            _converted(values, field.type, self._convert)
            for values, field in zip(self._columns, self._plan.raw, strict=True)
        ]
        good = np.ones(len(self._records), bool)
        for field, (_, wrong) in zip(self._plan.raw, parts, strict=True):
            if field.name in self._plan.source.secrets:
                continue  # null instead
            spelling = "UTF-8" if _is_text(field.type) else str(field.type)
            for row in wrong:
                if good[row]:
                    rejects.add(f"{field.name} is not {spelling}", *self._records[row])
                    good[row] = False
        self.places = np.array([at for at, _ in self._records], np.int64)[good]
        return [array if good.all() else array.filter(pa.array(good)) for array, _ in parts]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _converted(
    values: list[bytes | None], kind: pa.DataType, convert: Convert, first: int = 0
) -> tuple[pa.Array, list[int]]:
    """(values as `kind`, rows that are not): whole where it works, else by halves down to the culprits."""
    if not values or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(values, kind), []
    try:
        text = _is_text(kind)
        return pa.array(values, pa.binary()).cast(kind) if text else convert(values, kind), []
    except pa.ArrowException:
        if len(values) == 1:
            return pa.nulls(1, kind), [first]
    half = len(values) // 2
    left, wrong = _converted(values[:half], kind, convert, first)
    right, more = _converted(values[half:], kind, convert, first + half)
    return pa.concat_arrays([left, right]), wrong + more
