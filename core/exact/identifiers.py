"""Identifiers as columns: which Arrow types have canonical bytes, and how they are spelled.

A value means the same from every format and from Python: whole numbers are their decimal text, text is UTF-8, bytes
are themselves, dates are ``YYYY-MM-DD`` and booleans ``true`` and ``false``, as a CSV file would spell them.
Floats, decimals, timestamps and nested values have no spelling of their own (is it 1, 1.0 or 1e0?) and are
refused.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["ACCEPTED", "id_type", "one_array", "spelled", "to_id"]

ACCEPTED = "text, bytes, whole numbers, dates or booleans"


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which an identifier of type `kind` travels, or None where it has no canonical bytes."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_unsigned_integer(kind) and kind.bit_width == 64:
        return pa.uint64()
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return kind
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or str(kind) == "binary_view":
        return pa.binary()
    if pa.types.is_string(kind) or pa.types.is_null(kind) or str(kind) == "string_view":
        return pa.string()
    if pa.types.is_date(kind) or pa.types.is_boolean(kind):
        return pa.string()
    return None


def to_id(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """An identifier column as `kind` (see `id_type`, `common_type`)."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == kind:
        return column
    if pa.types.is_date64(column.type):
        column = column.cast(pa.date32())
    if pa.types.is_integer(column.type) and not pa.types.is_integer(kind):
        column = column.cast(pa.string())
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return column.cast(kind)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column without its chunks."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunks, or too large for one
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def spelled(column: pa.Array) -> pa.Array | None:
    """An identifier column as text, bytes or whole numbers, or None where its type has no canonical bytes.

    A dictionary is kept for speed, unless a null is among its values, where null_count does not see it.
    """
    if pa.types.is_dictionary(column.type):
        if column.dictionary.null_count:
            return spelled(column.dictionary_decode())
        values = spelled(column.dictionary)
        if values is None or values is column.dictionary:
            return None if values is None else column
        return pa.DictionaryArray.from_arrays(column.indices, values)
    kind = id_type(column.type)
    if kind is None or not (pa.types.is_date(column.type) or pa.types.is_boolean(column.type)):
        return None if kind is None else column
    return to_id(column, kind)
