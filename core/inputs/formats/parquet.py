"""Parquet: row groups as work items, only the needed columns, types from the footer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from hushgram.contributions.keys import to_id
from hushgram.errors import InputError
from hushgram.inputs.columns import keep_good
from hushgram.inputs.formats.format import FilePlan, Format
from hushgram.inputs.source import Chunk, InputFile, InputPlan, Opener, Rejects, Source, WorkItem, first_line

__all__ = ["FORMAT"]

_BATCH_ROWS = 1 << 18
_BATCH_BYTES = 64 << 20
_FEW_ROWS = 64
# What pyarrow raises on damaged files: ValueError for names that are not UTF-8, OverflowError for sizes.
_DAMAGE = (pa.ArrowException, OSError, EOFError, ValueError, OverflowError, MemoryError)


def _plan(file: InputFile, compression: str | None, source: Source, opener: Opener) -> FilePlan:
    """Return schema, work items and rows from the footer alone."""
    try:
        with opener(file.path) as raw:
            footer = pq.ParquetFile(raw)
            schema, meta = footer.schema_arrow, footer.metadata
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
            batches = file.iter_batches(_batch_rows(file, item, names), row_groups=item.groups, columns=names)
            at = sum(file.metadata.row_group(group).num_rows for group in range(min(item.groups)))
            for batch in batches:
                yield from _chunks(batch, plan, rejects, at, item.size * batch.num_rows // max(rows, 1))
                at += batch.num_rows
    except _DAMAGE as problem:
        raise InputError(f"{item.path}: damaged Parquet data: {first_line(problem)}") from None


def _batch_rows(file: pq.ParquetFile, item: WorkItem, names: list[str]) -> int:
    """Return the rows of a batch: 2^18, fewer where rows are so wide that the batch would be large.

    The sizes of single columns in the footer must not be asked for: pyarrow ends the process where they are damaged.
    """
    groups = [file.metadata.row_group(group) for group in item.groups]
    rows, size = sum(group.num_rows for group in groups), sum(group.total_byte_size for group in groups)
    if size * _BATCH_ROWS <= rows * _BATCH_BYTES:
        return _BATCH_ROWS
    first = next(file.iter_batches(_FEW_ROWS, row_groups=item.groups[:1], columns=names), None)
    width = 1 if first is None or not first.num_rows else max(1, first.nbytes // first.num_rows)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // width))


def _chunks(batch: pa.RecordBatch, plan: InputPlan, rejects: Rejects, at: int, size: int) -> Iterator[Chunk]:
    """Yield the accepted records of a batch, in halves where it cannot be converted, down to the record that cannot."""
    trial = Rejects(rejects.path, rejects.keep)
    try:
        arrays = [to_id(_column(batch, field.name), field.type) for field in plan.raw]
        good = keep_good(arrays, plan, trial, at + np.arange(batch.num_rows))
    except (pa.ArrowInvalid, pa.ArrowCapacityError):  # such as more text than 32-bit offsets reach
        half = batch.num_rows // 2
        if half:
            yield from _chunks(batch.slice(0, half), plan, rejects, at, size // 2)
            yield from _chunks(batch.slice(half), plan, rejects, at + half, size - size // 2)
            return
        trial, good = Rejects(rejects.path, rejects.keep), plan.empty
        trial.add("record cannot be converted", at)
    rejects.merge(trial)
    yield Chunk(good, size, *rejects.take())


FORMAT = Format(
    "parquet", (".parquet", ".pq"), _plan, _read, pieces="file and row groups", compressible=False
)
