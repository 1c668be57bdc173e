"""Columns of records: which rows are accepted, with their identifiers made."""

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

from hushgram.contributions.keys import ACCEPTED, id_type, to_id
from hushgram.contributions.sums import wrong_values
from hushgram.errors import InputError
from hushgram.inputs import source as limits
from hushgram.inputs.conditions import bind
from hushgram.inputs.key_expressions import bound_record
from hushgram.inputs.source import InputPlan, Places, Rejects, Source

__all__ = [
    "Texts", "cuts", "identifier_type", "is_utf8", "keep_good", "no_column", "parsed", "row_sizes", "valid_text",
]  # fmt: skip


def no_column(name: str, columns: Sequence[str]) -> str:
    """Return the message about a column that is not there, with the name that was probably meant."""
    shown = ", ".join(columns[:20]) + (", …" if len(columns) > 20 else "")
    close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
    remedy = f"; did you mean {close[0]!r}?" if close else "."
    return f"no column {name!r}{remedy} The columns are: {shown or '(none)'}"


def identifier_type(name: str, kind: pa.DataType, path: str, source: Source) -> pa.DataType:
    """Return the type in which a column of a user or key is read; raise an `InputError` where it cannot be one."""
    if pa.types.is_timestamp(kind) and name not in source.ids:
        whole = [
            e.text
            for e in source.key_expressions.values()
            for p in e.parts
            if p.column == name and not p.steps
        ]
        if whole:
            raise InputError(
                f"{path}: column {name!r} is {kind}, and {whole[0]} would make nearly every record a key of its own; "
                f"write {name} | truncate hour (or day, week)"
            )
        return pa.string()  # truncated to an hour, a day or a week
    found = id_type(kind)
    if found is None:
        raise InputError(
            f"{path}: column {name!r} is {kind}; a user or key must be {ACCEPTED}: cast it to text first"
        )
    return found


# --- text -------------------------------------------------------------------------------------------------


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def valid_text(column: pa.Array) -> NDArray[np.bool_] | None:
    """Return None if every value is UTF-8 (one pass in C++), else which rows are."""
    if not _is_text(column.type):
        return None
    try:
        column.validate(full=True)
        return None
    except pa.ArrowInvalid:
        raw = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
        return np.fromiter((value is None or _decodes(value) for value in raw.to_pylist()), bool, len(raw))


def _decodes(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8 as a whole: one pass in C++, several gigabytes per second."""
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, pa.py_buffer(data)]).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


# --- acceptance -------------------------------------------------------------------------------------------


def keep_good(
    arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places, *, decoded: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the accepted records of a batch, with their identifiers made, in at least one batch.

    Records for which `where` is not true are left out; those that lack an identifier, have a value that cannot be
    added up, or give too many keys, are rejected. Where a record may give several keys, the batches are cut by what
    comes out; whatever can fail fails before the first of them.

    Args:
        arrays: the columns of plan.raw.
        plan: the plan for the item (`in_the_file`).
        rejects: where rejected records are counted.
        places: where each row begins in its file.
        decoded: whether all text is known to be UTF-8.
    """
    source = plan.source
    if not decoded:
        arrays = [
            _text_or_null(column) if name in source.secrets else column
            for name, column in zip(plan.raw.names, arrays, strict=True)
        ]
    if plan.constants:
        arrays, plan = _with_constants(arrays, plan)
    if source.where is not None:
        mask = _bound(source.where, plan.raw).matches(pa.RecordBatch.from_arrays(arrays, schema=plan.raw))
        arrays, places = _filtered(arrays, places, mask)
    if not decoded and source.key_expressions:
        arrays, places = _readable(arrays, plan, rejects, places)
    for made, rows in _with_keys(arrays, plan, rejects, places, decoded):
        good = _good(plan.schema.names, made, plan, rejects, rows, decoded)
        ids = [to_id(column, field.type) for column, field in zip(made, plan.schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(ids, schema=plan.schema)
        yield batch if good is None else batch.filter(pa.array(good))


def _good(
    names: list[str], arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places, decoded: bool
) -> NDArray[np.bool_] | None:
    """Return which rows no column is a reason to reject, and count the others; None where that is all of them."""
    good: NDArray[np.bool_] | None = None
    for name, column in zip(names, arrays, strict=True):
        for reason, rows in _wrong(name, column, plan.source, decoded):
            fresh = np.flatnonzero(~rows if good is None else ~rows & good)
            rejects.add_rows(reason, fresh, places, _as_json(names, arrays))
            good = rows if good is None else good & rows
    return good


_bound = lru_cache(maxsize=16)(bind)


def _text_or_null(column: pa.Array) -> pa.Array:
    """Return the column with null in place of text that is not UTF-8."""
    good = valid_text(column)
    return column if good is None else pc.if_else(pa.array(good), column, pa.scalar(None, column.type))


def _with_constants(arrays: list[pa.Array], plan: InputPlan) -> tuple[list[pa.Array], InputPlan]:
    """Add the columns that folders give."""
    values = [pa.scalar(text, pa.string()).cast(field.type) for field, text in plan.constants]
    raw = pa.schema([*plan.raw, *(field for field, _ in plan.constants)])
    made = [pa.repeat(value, len(arrays[0])) for value in values]
    return [*arrays, *made], replace(plan, raw=raw, constants=())


def _readable(
    arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places
) -> tuple[list[pa.Array], Places]:
    """Reject the records to which a key expression cannot be applied, since a column is not UTF-8."""
    for name in plan.source.texts:
        column = arrays[plan.raw.names.index(name)]
        if _is_bytes(column.type):
            column = column.cast(pa.large_binary()).view(pa.large_string())
        good = valid_text(column)
        if good is not None:
            rows, record = np.flatnonzero(~good), _as_json(plan.raw.names, arrays)
            rejects.add_rows(f"{name} is not UTF-8", rows, places, record)
            arrays, places = _filtered(arrays, places, good)
    return arrays, places


def _with_keys(
    arrays: list[pa.Array], plan: InputPlan, rejects: Rejects, places: Places, decoded: bool
) -> Iterator[tuple[list[pa.Array], Places]]:
    """Apply the key expressions; yields the columns of plan.schema, in parts where records give several keys."""
    source, columns = plan.source, dict(zip(plan.raw.names, arrays, strict=True))
    several = next((name for name, made in source.key_expressions.items() if made.several), None)
    single = {
        name: made.apply(columns)[0] for name, made in source.key_expressions.items() if name != several
    }
    if several is None:
        yield [(columns | single)[name] for name in plan.schema.names], places
        return
    made = source.key_expressions[several]
    texts, others = made.texts(columns), [n for n in plan.schema.names if n != several]
    copied = [(columns | single)[name] for name in others]
    good = _good(
        others, copied, plan, rejects, places, decoded
    )  # once for the record, not for each of its keys
    keys, size = made.expansion(texts)
    size = size + keys * (limits.KEY_BYTES + sum(map(sizes_of, copied)))
    small = size <= limits.MAX_KEYS_BYTES
    large = np.flatnonzero(~small if good is None else ~small & good)
    rejects.add_rows(f"{several} gives too many keys", large, places, _as_json(plan.raw.names, arrays))
    good = small if good is None else small & good
    if not good.all():
        texts, copied = ([column.filter(pa.array(good)) for column in held] for held in (texts, copied))
        places, size = _places_of(places, good), size[good]
    for start, stop in cuts(size):
        found, parents = made.keys([text.slice(start, stop - start) for text in texts])
        assert parents is not None
        if source.record is not None:
            rows = bound_record(found, parents, *source.record)
            found, parents = found.take(pa.array(rows)), parents[rows]
        parents = parents + start
        repeated = [column.take(pa.array(parents)) for column in copied]
        out = dict(zip(others, repeated, strict=True)) | {several: found}
        yield [out[name] for name in plan.schema.names], _places_of(places, parents)


def cuts(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows of up to BATCH_BYTES, or of one row; at least one range."""
    ends, start, stop = np.cumsum(sizes), 0, 0
    while stop < len(sizes) or not stop:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limits.BATCH_BYTES, side="right")))
        yield start, min(stop, len(sizes))
        start = stop


def row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return how many bytes each row needs without dictionaries."""
    sizes: NDArray[np.int64] = np.zeros(len(batch), np.int64) + sum(map(sizes_of, batch.columns))
    return sizes


def sizes_of(column: pa.Array) -> NDArray[np.int64] | int:
    """Return how many bytes a copy of each value needs, without its dictionary."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        size = sizes_of(column.dictionary)
        if isinstance(size, int) or not len(size):
            return 8
        return size[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]  # type: ignore[no-any-return]
    if _is_text(kind) or _is_bytes(kind):
        return pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
    return int(kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 8


def _wrong(
    name: str, column: pa.Array, source: Source, decoded: bool
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield (reason, rows that are good) for each reason to reject records by this column."""
    if name in source.values:
        yield from wrong_values(column, name)
    if name not in source.ids:
        return
    if column.null_count:
        yield f"{name} is null", pc.is_valid(column).to_numpy(zero_copy_only=False)
    if not decoded and name not in source.key_expressions and (text := valid_text(column)) is not None:
        yield f"{name} is not UTF-8", text


def _filtered(
    arrays: list[pa.Array], places: Places, rows: NDArray[np.bool_]
) -> tuple[list[pa.Array], Places]:
    kept = pa.array(rows)
    return [column.filter(kept) for column in arrays], _places_of(places, rows)


def _places_of(places: Places, rows: NDArray[Any]) -> Places:
    """Return the places of chosen rows: a mask or their numbers."""

    def chosen() -> NDArray[np.int64]:
        starts = places() if callable(places) else places
        return starts[: len(rows)][rows] if rows.dtype == bool else starts[rows]  # type: ignore[no-any-return]

    return chosen


def _as_json(names: list[str], arrays: list[pa.Array]) -> Callable[[int], str]:
    """Return a function that shows one record to the operator."""

    def shown(row: int) -> str:
        record = {name: _plain(column[row]) for name, column in zip(names, arrays, strict=True)}
        return json.dumps(record, ensure_ascii=False, default=str)

    return shown


def _plain(value: pa.Scalar) -> Any:
    try:
        plain = value.as_py()
    except UnicodeDecodeError:
        plain = value.cast(pa.binary()).as_py()
    except (ValueError, OverflowError):  # a moment that Python has no object for
        plain = value.cast(pa.string()).as_py()
    return plain.decode("utf-8", "surrogateescape") if isinstance(plain, bytes) else plain


# --- the slow path: records one by one ----------------------------------------------------------------------

Convert = Callable[[list[bytes | None], pa.DataType], pa.Array]


def parsed(values: list[bytes | None], kind: pa.DataType) -> pa.Array:
    """Convert texts to another type; ArrowInvalid where one cannot be."""
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

    def add(self, values: list[bytes | None], at: int, record: bytes) -> None:
        """Add one record, its values in the order of the schema."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self._records.append((at, record))

    def arrays(self, rejects: Rejects) -> tuple[list[pa.Array], NDArray[np.int64]]:
        """Return (columns, where their rows begin); a value of another type rejects its record, unless it is secret."""
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
        places = np.array([at for at, _ in self._records], np.int64)[good]
        return [array if good.all() else array.filter(pa.array(good)) for array, _ in parts], places


def _converted(
    values: list[bytes | None], kind: pa.DataType, convert: Convert, first: int = 0
) -> tuple[pa.Array, list[int]]:
    """Return (values as `kind`, rows that are not): whole where it works, else by halves down to the culprits."""
    if not values or _is_bytes(kind):
        return pa.array(values, kind), []
    try:
        return (pa.array(values, pa.binary()).cast(kind) if _is_text(kind) else convert(values, kind)), []
    except MemoryError:
        raise  # Arrow's is one of its exceptions, too
    except pa.ArrowException:
        if len(values) == 1:
            return pa.nulls(1, kind), [first]
    half = len(values) // 2
    left, wrong = _converted(values[:half], kind, convert, first)
    right, more = _converted(values[half:], kind, convert, first + half)
    return pa.concat_arrays([left, right]), wrong + more
