"""Values beside columns: a literal in the type of the column that it is compared with, without rounding."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hushgram.exact.identifiers import is_text, one_array

__all__ = ["Value", "always", "is_text", "numbers_in", "of_distinct", "text_bytes", "typed_value"]

Value: TypeAlias = Fraction | str | bool
_SAMPLE = 4096


def always(operator: str, value: Fraction, kind: pa.DataType) -> bool | None:
    """What a comparison says about every whole number, where the value is none or lies outside all of them."""
    limits = np.iinfo(np.uint64 if kind == pa.uint64() else np.int64)
    if value.denominator != 1:
        return operator == "!="
    if value < int(limits.min):
        return operator in (">", ">=", "!=")
    if value > int(limits.max):
        return operator in ("<", "<=", "!=")
    return None


def typed_value(value: Value, kind: pa.DataType) -> pa.Scalar:
    """A literal as a scalar of the column's type; ValueError where the types do not fit."""
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if isinstance(value, bool):
        if pa.types.is_boolean(kind):
            return pa.scalar(value)
    elif isinstance(value, Fraction):
        if pa.types.is_integer(kind) and value.denominator == 1:
            return pa.scalar(value.numerator, pa.uint64() if kind == pa.uint64() else pa.int64())
        if numeric:
            return pa.scalar(_float(value, single=pa.types.is_float32(kind)), pa.float64())
    elif is_text(kind):
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        return pa.scalar(value if text else value.encode(), kind)
    elif pa.types.is_temporal(kind):
        return _moment(value, kind)
    found = {Fraction: "a number", bool: "true or false", str: "text"}[type(value)]
    hint = "; text goes in single quotes" if is_text(kind) or pa.types.is_temporal(kind) else ""
    raise ValueError(f"expected a value for a column of type {kind}, found {found}{hint}")


def _float(value: Fraction, *, single: bool) -> float:
    """As the column would hold it: in single precision, 0.1 is the column's 0.1."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return float(np.float32(number)) if single else number


def _moment(value: str, kind: pa.DataType) -> pa.Scalar:
    """A date or time from its ISO text."""
    try:
        if pa.types.is_time(kind):
            return pa.scalar(datetime.time.fromisoformat(value), kind)
        return pa.scalar(value).cast(kind)
    except (ValueError, pa.ArrowException):
        zoned = pa.types.is_timestamp(kind) and kind.tz
        example = "09:30:00" if pa.types.is_time(kind) else "2026-11-16" + ("T00:00:00Z" if zoned else "")
        raise ValueError(f"{value!r} is not a {kind} such as {example}") from None


def text_bytes(column: pa.Array) -> pa.Array:
    """Values as the bytes of their text: text need not be UTF-8."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    plain = column.cast(kind) if kind != column.type else column
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return (plain if binary else plain.cast(pa.large_string())).cast(pa.large_binary())


def numbers_in(column: pa.Array) -> pa.Array:
    """Numbers as they are, and text as numbers, each value by itself; what is none becomes null."""
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column.cast(pa.float64(), safe=False)
    text = text_bytes(column)
    is_number = pc.match_substring_regex(text, r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?\s*$")
    found = pc.if_else(is_number, text, None).cast(pa.large_string())
    return pc.ascii_ltrim(pc.ascii_trim_whitespace(found), "+").cast(pa.float64())


def of_distinct(column: pa.Array | pa.ChunkedArray, test: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """A test that costs more than finding out which texts are the same, unless nearly all of them differ."""
    column = one_array(column)
    some = column.slice(0, _SAMPLE)
    if 10 * pc.count_distinct(some).as_py() > 9 * len(some):
        return test(column)
    encoded = column.dictionary_encode()
    return test(encoded.dictionary).take(encoded.indices)
