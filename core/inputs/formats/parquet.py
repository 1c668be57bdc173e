"""Parquet: row groups as work items, only the needed columns, types from the footer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hushgram.contributions.keys import is_text, to_id
from hushgram.errors import InputError
from hushgram.inputs import source as limits
from hushgram.inputs.columns import cuts, keep_good, row_sizes
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.source import (
    Chunk,
    InputFile,
    InputPlan,
    Opener,
    Rejects,
    Source,
    WorkItem,
    first_line,
    no_memory,
)

__all__ = ["FORMAT"]

_BATCH_ROWS = 1 << 18
_FEW_ROWS = 64
# So many at a time where a value is written as what differs from the one before: how long it is, is not known before.
_DELTA_ROWS = 1 << 10
# What pyarrow raises on damaged files: ValueError for names that are not UTF-8, OverflowError for sizes.
_DAMAGE = (pa.ArrowException, OSError, EOFError, ValueError, OverflowError)


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    """Return schema, work items and rows from the footer alone."""
    try:
        with opener(file.path) as raw:
            footer = pq.ParquetFile(raw)
            schema, meta = footer.schema_arrow, footer.metadata
    except MemoryError:
        raise no_memory(file.path) from None
    except _DAMAGE as problem:
        raise InputError(
            f"{file.path}: not a readable Parquet file ({first_line(problem).rstrip('.')}); write it again,"
            " or set input.format"
        ) from None
    twice = next((name for name in source.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"{file.path}: column {twice!r} occurs {schema.names.count(twice)} times; rename one"
        )
    items: list[WorkItem] = []
    groups: list[int] = []
    size = 0
    for group in range(meta.num_row_groups):
        groups.append(group)
        size += meta.row_group(group).total_byte_size
        if 4 * size >= source.item_bytes or group == meta.num_row_groups - 1:
            share = file.size * len(groups) // meta.num_row_groups
            items.append(WorkItem(file.path, "parquet", None, 0, -1, share, tuple(groups)))
            groups, size = [], 0
    types = {name: kind for name in source.names if (kind := _type_of(schema, name)) is not None}
    return FilePlan(
        [*schema.names, *(name for name in types if name not in schema.names)], types, items, meta.num_rows
    )


def _type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of a column, or of a field of a struct, as in request.url; None where there is none."""
    if name in schema.names:
        return schema.field(name).type
    first, *path = name.split(".")
    kind = schema.field(first).type if first in schema.names else None
    for part in path:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    first, *path = name.split(".")
    return pc.struct_field(batch.column(first), path)


def _read(item: WorkItem, plan: InputPlan, opener: Opener) -> Iterator[Chunk]:
    """Read the row groups of an item."""
    rejects = Rejects(item.path, plan.source.keep_rejected)
    names = plan.raw.names
    try:
        with opener(item.path) as raw:
            file = pq.ParquetFile(raw, pre_buffer=False)
            rows = sum(file.metadata.row_group(group).num_rows for group in item.groups)
            at = sum(file.metadata.row_group(group).num_rows for group in range(min(item.groups)))
            for batch in _batches(file, raw, item, names):
                yield from _chunks(batch, plan, rejects, at, item.size * batch.num_rows // max(rows, 1))
                at += batch.num_rows
    except MemoryError:
        raise  # Arrow's is one of its exceptions, too
    except _DAMAGE as problem:
        raise InputError(f"{item.path}: damaged Parquet data: {first_line(problem)}") from None


def _batches(file: pq.ParquetFile, raw: Any, item: WorkItem, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an item in batches of up to BATCH_BYTES, or of one row.

    A dictionary has a long value once, and its rows may repeat it. So where it has one, columns are read with their
    dictionaries, and batches are cut by what the rows will be. Of values that are written as differences Arrow makes no
    dictionaries: there are few rows in a batch then. How values are written must not be asked of the footer: pyarrow
    ends the process where that is damaged.
    """
    texts = [name for name in names if _is_text(_type_of(file.schema_arrow, name))]
    for group in item.groups:
        rows, source = _batch_rows(file, group, names), file
        footer = file.metadata.row_group(group)
        longest = int(footer.total_byte_size)  # no value is longer than all of them
        if texts and longest * min(rows, int(footer.num_rows)) > limits.BATCH_BYTES:
            try:
                longest = _longest(raw, file.metadata, group, texts)
            except _DAMAGE:
                longest, rows = 0, min(rows, _DELTA_ROWS)
            if longest * rows > limits.BATCH_BYTES:
                source = _opened(raw, file.metadata, texts)
        for batch in source.iter_batches(rows, row_groups=[group], columns=names):
            columns = {name: _column(batch, name) for name in names}
            whole = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            yield from (whole.slice(start, stop - start) for start, stop in cuts(row_sizes(whole)))


def _opened(raw: Any, metadata: Any, coded: list[str], **options: Any) -> pq.ParquetFile:
    return pq.ParquetFile(raw, metadata=metadata, read_dictionary=coded, pre_buffer=False, **options)


def _longest(raw: Any, metadata: Any, group: int, coded: list[str]) -> int:
    """Return the length of the longest values in the dictionaries of a row group, of all columns together."""
    file = _opened(raw, metadata, coded, buffer_size=1 << 16)  # reads no more than it needs for a row
    first = next(file.iter_batches(1, row_groups=[group], columns=coded), None)
    columns = [] if first is None else [_column(first, name) for name in coded]
    values = (column.dictionary if pa.types.is_dictionary(column.type) else column for column in columns)
    return sum(int(pc.max(pc.binary_length(some)).as_py() or 0) for some in values)


def _batch_rows(file: pq.ParquetFile, group: int, names: list[str]) -> int:
    """Return the rows to read at a time: 2^18, fewer where rows are so wide that the batch would be large.

    The sizes of single columns in the footer must not be asked for: pyarrow ends the process where they are damaged.
    """
    kinds = [_type_of(file.schema_arrow, name) for name in names]
    fixed: int = sum(
        kind.byte_width for kind in kinds if kind is not None and pa.types.is_fixed_size_binary(kind)
    )
    most = max(1, min(_BATCH_ROWS, limits.BATCH_BYTES // max(1, fixed)))
    footer = file.metadata.row_group(group)
    rows, size = int(footer.num_rows), int(footer.total_byte_size)
    if size * most <= rows * limits.BATCH_BYTES:
        return most
    first = next(file.iter_batches(_FEW_ROWS, row_groups=[group], columns=names), None)
    width = 1 if first is None or not first.num_rows else max(1, first.nbytes // first.num_rows)
    return max(1, min(most, limits.BATCH_BYTES // width))


def _is_text(kind: pa.DataType | None) -> bool:
    return kind is not None and (is_text(kind) or pa.types.is_dictionary(kind))


def _chunks(batch: pa.RecordBatch, plan: InputPlan, rejects: Rejects, at: int, size: int) -> Iterator[Chunk]:
    """Yield the accepted records of a batch, in halves where it cannot be converted, down to the record that cannot."""
    trial = Rejects(rejects.path, rejects.keep)
    try:
        arrays = [to_id(batch.column(field.name), field.type) for field in plan.raw]
        batches = keep_good(arrays, plan, trial, at + np.arange(batch.num_rows))
        good = next(batches)
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # such as more text than 32-bit offsets reach
        half = batch.num_rows // 2
        if half:
            yield from _chunks(batch.slice(0, half), plan, rejects, at, size // 2)
            yield from _chunks(batch.slice(half), plan, rejects, at + half, size - size // 2)
            return
        trial, batches, good = Rejects(rejects.path, rejects.keep), iter(()), plan.empty
        trial.add("record cannot be converted", at)
    for part in chain((good,), batches):
        rejects.merge(trial)
        trial.take()
        yield Chunk(part, size, *rejects.take())
        size = 0


FORMAT = Format(
    "parquet", (".parquet", ".pq"), _plan, _read, pieces="file and row groups", compressible=False
)
