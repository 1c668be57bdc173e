"""Identifiers as columns: which Arrow types have canonical bytes, and how they are spelled.

A value means the same from every format and from Python: whole numbers are their decimal text, text is UTF-8, bytes
are themselves, dates are ``YYYY-MM-DD`` and booleans ``true`` and ``false``, as a CSV file would spell them.
Floats, decimals, timestamps and nested values have no spelling of their own (is it 1, 1.0 or 1e0?) and are
refused.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = ["ACCEPTED", "decoded", "id_type", "is_text", "one_array", "plain_type", "spelled", "to_id"]

ACCEPTED = "text, bytes, whole numbers, dates or booleans"


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values, also where they are coded by a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def decoded(column: pa.Array) -> pa.Array:
    """A column without its dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def id_type(kind: pa.DataType) -> pa.DataType | None:
    """The type in which an identifier of type `kind` travels, or None where it has no canonical bytes."""
    kind = plain_type(kind)
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
    """A column as `kind` (see `id_type`, `common_type`): each value by itself, and none of them fails.

    What is no text becomes its text where `kind` is text; numbers are rounded where a float cannot hold them.
    """
    column = decoded(column)
    if column.type == kind:
        return column
    if pa.types.is_date64(column.type):
        column = column.cast(pa.date32())
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if is_text(kind) and not is_text(column.type):
        column = column.cast(pa.string())
    return column.cast(kind, safe=False)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text or bytes."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column without its chunks."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if not column.num_chunks:
        return pa.array([], column.type)
    try:
        whole = column.combine_chunks()
    except (
        pa.ArrowInvalid
    ):  # dictionaries with nulls, or with more values together than their codes can number
        return one_array(pa.chunked_array([decoded(chunk) for chunk in column.chunks]))
    if isinstance(whole, pa.ChunkedArray):  # more text than 32-bit offsets reach
        wide = pa.large_string() if pa.types.is_string(column.type) else pa.large_binary()
        whole = column.cast(wide).combine_chunks()
    return whole


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
