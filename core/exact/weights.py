"""Values as whole numbers: sums of reals on a public grid, without a float.

A unit has `GRAINS` grains. A record's value, cut at the most that a user may add to one key, becomes grains; grains
are added up for each user and key; the sum becomes units. Both steps round at random, up with the probability of what
is left over, so that expectations stay what they were (up to 2^-32 of a unit; floats finer than about 2^-40 of a unit
are cut). A missing value adds nothing. Draws come from a keyed hash of whose value it is, never from other records.

    value ─ min(·, max_value) ─► grains ─ Σ over a user's records of a key ─► min(·, max_value) ─► units

| symbol | meaning |
|---|---|
| p / q | the unit |
| n / b | a value as an integer over a power of 2 or of 10, the same for a whole column |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hushgram.errors import InputError, ParameterError
from hushgram.exact.hashing import mix
from hushgram.exact.identifiers import decoded, one_array, plain_type
from hushgram.exact.keys import array_of
from hushgram.numbers import Number, rational, show

__all__ = [
    "GRAINS", "MOST_SUM", "MOST_UNITS", "MOST_VALUE", "NUMBERS", "Grid", "checked_sums", "checked_values",
    "is_number", "units", "wrong_values",
]  # fmt: skip

_GRAIN_BITS = 12
#: so many grains are a unit
GRAINS = 1 << _GRAIN_BITS
#: the most units that a user may add, in all
MOST_UNITS = 1 << 20
#: the most units of a key that a caller may have added up
MOST_SUM = 1 << 40
#: values are below this
MOST_VALUE = 1 << 62
#: what a column of values may be
NUMBERS = "whole numbers, floating-point numbers or decimals"
# times so many units it is below 2^62
_MOST_NUMERATOR = 1 << 42
_DRAW_BITS = np.uint64(44)  # leaves 20 bits of a hash
_SALT = np.uint64(0x9E3779B97F4A7C15)

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The grid of a release: its unit, and how many units a user may add to one key."""

    unit: Fraction
    most: int

    def grains(self, values: pa.Array, draws: Callable[[], U64]) -> I64:
        """Each value in grains; `values` hold no value of `wrong_values`. `draws` are hashes, one for each row."""
        limit = (1 << 62) // max(self.most, MOST_UNITS)  # so that no product reaches 2^63
        if self.unit.numerator >= limit:
            raise ParameterError(
                f"unit {show(self.unit)} has too many digits for {self.most:,} of them; choose a rounder one"
            )
        n, b = _integers(values.fill_null(0) if values.null_count else values, self.unit, limit)
        scaled = Fraction(b) * self.unit  # n/b is n·q/p units
        p, q = scaled.numerator, scaled.denominator
        whole, left = _divided(np.minimum(n, self.most * p // q + 1) * q, p)
        grains: I64 = whole << _GRAIN_BITS
        if left.any():
            more, left = _divided(left << _GRAIN_BITS, p)
            grains += more
            if left.any():
                drawn = (draws() >> _DRAW_BITS).astype(np.int64)
                grains += drawn * p < left << 20
        return np.minimum(grains, self.most << _GRAIN_BITS)


def _divided(n: I64, p: int) -> tuple[I64, I64]:
    """Quotients and remainders: np.divmod, faster."""
    whole = n // p
    return whole, n - whole * p


def units(grains: I64, hashes: U64) -> I64:
    """Grains to units, rounded at random by the hash of each."""
    drawn = (mix(hashes ^ _SALT) >> np.uint64(64 - _GRAIN_BITS)).astype(np.int64)
    return (grains + drawn) >> _GRAIN_BITS


def _whole_units(owner: str, unit: Fraction, **bounds: Fraction) -> list[int]:
    """Bounds as numbers of units; a ParameterError where one is not whole, or values cannot be divided in 64 bits."""
    if unit <= 0:
        raise ParameterError(f"{owner}: unit must be above 0, got {show(unit)}")
    if unit.numerator >= _MOST_NUMERATOR or unit.denominator >= 1 << 30:
        raise ParameterError(
            f"{owner}: unit must be a fraction of whole numbers below 2^42 and 2^30, got {show(unit)[:60]};"
            " choose a rounder one"
        )
    for name, bound in bounds.items():
        if not 1 <= bound / unit <= MOST_UNITS or (bound / unit).denominator != 1:
            raise ParameterError(
                f"{owner}: {name} must be a whole number of units ({show(unit)}) from 1 to 2^20,"
                f" got {show(bound)}, which is {show(bound / unit)[:40]} of them"
            )
    return [int(bound / unit) for bound in bounds.values()]


def bounds_in_units(
    owner: str, unit: Number | None, most: Number, max_value: Number | None, max_per_key: int
) -> tuple[Fraction, int | str, int]:
    """Unit, and the bounds of a user (in all, for one key) as numbers of units."""
    if unit is None or max_value is None:
        missing = "unit" if unit is None else "max_value"
        raise ParameterError(
            f"{owner}: {missing} must be given where values are added up: at most max_value of a user for one key,"
            " rounded to unit, such as a sixteenth of it"
        )
    if max_per_key != 1:
        raise ParameterError(f"{owner}: max_per_key has no effect beside max_value; leave it out")
    grid = rational(unit, "unit", owner)
    bounds = {"max_value": rational(max_value, "max_value", owner)}
    if most == "auto":
        return grid, "auto", _whole_units(owner, grid, **bounds)[0]
    bounds["max_contributions"] = rational(most, "max_contributions", owner)
    per_key, in_all = _whole_units(owner, grid, **bounds)
    return grid, in_all, per_key


def bounds_in_values(values: dict[str, Any]) -> dict[str, Any]:
    """The reverse: bounds of parameters as they are given."""
    unit = values.get("unit")
    if unit is None:
        return values
    in_all, per_key = values["max_contributions"] * unit, values["max_per_key"] * unit
    return {**values, "max_contributions": in_all, "max_value": per_key, "max_per_key": 1}


def is_number(kind: pa.DataType) -> bool:
    """Whether values of this type can be added up."""
    kind = plain_type(kind)
    if pa.types.is_decimal(kind):
        return bool(kind.scale >= 0)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def wrong_values(values: pa.Array, name: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """(reason, rows that are good), for each reason for which there are bad ones. A null adds nothing.

    Values are compared in their own type, so that a record's fate follows from its own value.
    """
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        least = pa.scalar(float(MOST_VALUE))  # a power of 2: exact
        tests = [("is not a number", pc.is_nan(values)), ("is infinite", pc.is_inf(values))]
    else:
        least, tests = _most_value(values.type), []
    tests.append(("is negative", pc.less(values, pa.scalar(0, values.type))))
    if least is not None:
        tests.append(("is too large", pc.greater_equal(values, least)))
    for reason, wrong in tests:
        if pc.any(wrong).as_py():
            yield f"{name} {reason}", pc.invert(pc.fill_null(wrong, False)).to_numpy(zero_copy_only=False)


def _most_value(kind: pa.DataType) -> pa.Scalar | None:
    """`MOST_VALUE` as a whole number or decimal of this type; None where all of its values are smaller."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(MOST_VALUE), kind) if 10 ** _digits(kind) > MOST_VALUE else None
    return pa.scalar(MOST_VALUE, kind) if kind.bit_width == 64 else None


def _digits(kind: pa.DataType) -> int:
    """Digits before the point."""
    return int(kind.precision - kind.scale)


def checked_values(values: object, rows: int, what: str = "values") -> pa.Array:
    """A caller's column of values, of which none may be wrong; an `InputError` says what is."""
    column = decoded(one_array(array_of(values, what)))
    if pa.types.is_null(column.type):  # an empty list, or nothing but missing values
        column = column.cast(pa.int64())
    if not is_number(column.type):
        raise InputError(f"{what} must be {NUMBERS}, got {column.type}")
    if len(column) != rows:
        raise InputError(f"{what} must be as many as the keys, got {len(column)} and {rows}")
    for reason, good in wrong_values(column, "a value"):
        raise InputError(f"{what}: {reason}, at row {int(np.argmin(good)) + 1}; leave these records out")
    return column


def checked_sums(sums: object, rows: int, unit: Fraction) -> pa.Array:
    """A caller's column of sums of many users, each below `MOST_SUM` units."""
    column = checked_values(sums, rows, "counts")
    if rows and Fraction(pc.max(column).as_py() or 0) >= MOST_SUM * unit:
        raise InputError(f"counts must be below 2^40 units of {show(unit)}; raise unit")
    return column


def _integers(values: pa.Array, unit: Fraction, limit: int) -> tuple[I64, int]:
    """(n, b) with values n/b, such that the numerator of b units is below the limit.

    b follows from the type and the unit alone; what is finer than 1/b is cut from a value.
    """
    kind = values.type
    if pa.types.is_integer(kind):
        return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), 1
    if pa.types.is_decimal(kind):
        return _decimals(values, unit, limit)
    b = 1
    while (2 * b * unit).numerator < limit and b < 1 << 60:
        b *= 2
    floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.floor(np.minimum(floats * b, 2.0**63 - 1024)).astype(np.int64), b  # times a power of 2: exact


def _decimals(values: pa.Array, unit: Fraction, limit: int) -> tuple[I64, int]:
    """The same for decimals, of any width."""
    scale = 0
    while scale < values.type.scale and (10 ** (scale + 1) * unit).numerator < limit:
        scale += 1
    b = 10**scale
    last = ((1 << 63) - 1) // b  # a larger value is above every bound
    if last < min(MOST_VALUE, 10 ** _digits(values.type)):
        top = pa.scalar(Decimal(last), values.type)
        values = pc.if_else(pc.greater(values, top), top, values)
    limbs = values.cast(pa.decimal128(38, scale), safe=False)  # cut, not rounded
    low = np.frombuffer(limbs.buffers()[1], "<i8")  # low limb first; the other one is 0
    return low[2 * limbs.offset : 2 * (limbs.offset + len(limbs)) : 2].copy(), b
