"""heavy.parquet: the threshold part of a sketch, written and read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hushgram.errors import FormatError
from hushgram.sketch.parquet_pages import (
    BYTE_ARRAY,
    DELTA_BINARY_PACKED,
    DELTA_LENGTH_BYTE_ARRAY,
    INT64,
    Column,
    contents_of,
)
from hushgram.sparse_histogram.plan import Plan
from hushgram.sparse_histogram.threshold import Heavy

__all__ = ["heavy_bytes", "read_heavy"]

_ROWS_PER_GROUP = 1 << 17
# What a file may need in memory: so much at least, or so many times its own size.
_LEAST_ROOM, _MOST_TIMES = 64 << 20, 1024
_LARGEST_VALUE = 1 << 62


def heavy_bytes(heavy: Heavy) -> bytes:
    """The file: sorted fingerprints as packed differences, values packed, texts where there are any."""
    content = _written(heavy, "zstd")
    # What compresses beyond all measure would look like an attack to the reader.
    return content if 2 * _memory(heavy) <= _room(len(content)) else _written(heavy, "none")


def _written(heavy: Heavy, compression: str) -> bytes:
    import pyarrow.parquet as pq

    columns = [
        (
            pa.field("fingerprint", pa.uint64(), nullable=False),
            pa.array(heavy.fingerprints.astype(np.uint64)),
        ),
        (pa.field("value", pa.int64(), nullable=False), pa.array(heavy.values.astype(np.int64))),
    ]
    encodings = {"fingerprint": "DELTA_BINARY_PACKED", "value": "DELTA_BINARY_PACKED"}
    if heavy.texts is not None:
        columns.append((pa.field("key", pa.binary(), nullable=False), heavy.texts.cast(pa.binary())))
        encodings["key"] = "DELTA_LENGTH_BYTE_ARRAY"
    fields, arrays = zip(*columns, strict=True)
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(list(arrays), schema=pa.schema(fields)),
        sink,
        use_dictionary=False,
        column_encoding=encodings,
        compression=compression,
        write_statistics=False,
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )
    return bytes(sink.getvalue())


def read_heavy(content: bytes, plan: Plan, rows: int, where: object) -> Heavy:
    """What `heavy_bytes` wrote; every row is checked."""
    try:
        heavy = _read(content, plan, rows)
        _check(heavy, plan)
        return heavy
    except FormatError as error:
        raise FormatError(f"{where}: {error}") from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        raise FormatError(f"{where}: cannot be read as Parquet ({reason}); copy the sketch again") from None


def _read(content: bytes, plan: Plan, rows: int) -> Heavy:
    import pyarrow.parquet as pq

    columns = [Column(name, INT64, DELTA_BINARY_PACKED) for name in ("fingerprint", "value")]
    if plan.kind.texts:
        columns.append(Column("key", BYTE_ARRAY, DELTA_LENGTH_BYTE_ARRAY))
    room = _room(len(content))
    found_rows, uncompressed = contents_of(content, columns, min(rows, room // 16))
    if found_rows != rows:
        raise FormatError(f"has {found_rows} rows, the manifest says {rows}")
    if uncompressed > room:
        raise FormatError("needs more memory than a file of its size may")
    with pq.ParquetFile(pa.BufferReader(content), thrift_string_size_limit=1 << 20) as file:
        table = file.read(use_threads=False)
    wanted = {"fingerprint": pa.uint64(), "value": pa.int64(), "key": pa.binary()}
    for column in columns:
        found = table[column.name]
        if found.type != wanted[column.name] or found.null_count:
            raise FormatError(f"column {column.name!r} must be there as {wanted[column.name]}, without nulls")
    prints, values = (_numbers(table[name]) for name in ("fingerprint", "value"))
    if not plan.kind.texts:
        return Heavy(prints, values)
    texts = table["key"].cast(pa.large_binary()).combine_chunks()
    return Heavy(prints, values, texts if isinstance(texts, pa.LargeBinaryArray) else texts.chunk(0))


def _numbers(column: pa.ChunkedArray) -> NDArray[Any]:
    """As `to_numpy`, which would import pandas where it is installed."""
    kind = np.uint64 if column.type == pa.uint64() else np.int64
    parts = [
        np.frombuffer(chunk.buffers()[1] or b"", kind)[chunk.offset : chunk.offset + len(chunk)]
        for chunk in column.chunks
    ]
    return np.concatenate([np.zeros(0, kind), *parts]) if len(parts) != 1 else parts[0]


def _check(heavy: Heavy, plan: Plan) -> None:
    prints: NDArray[np.uint64] = heavy.fingerprints
    ordered = prints[1:] >= prints[:-1] if plan.kind.texts else prints[1:] > prints[:-1]
    if not bool(np.all(ordered)):
        raise FormatError("fingerprints are not sorted")
    if len(prints) and plan.domain_bits is not None and int(prints[-1]) >> plan.domain_bits:
        raise FormatError("a fingerprint lies outside of the domain")
    least = plan.threshold if plan.kind.sparse else -_LARGEST_VALUE
    if len(prints) and not least <= int(heavy.values.min()) <= int(heavy.values.max()) <= _LARGEST_VALUE:
        raise FormatError(f"a value is below {least} or above 2^62")


def _memory(heavy: Heavy) -> int:
    return 16 * len(heavy) + (0 if heavy.texts is None else int(heavy.texts.nbytes))


def _room(size: int) -> int:
    return max(_LEAST_ROOM, _MOST_TIMES * size)
