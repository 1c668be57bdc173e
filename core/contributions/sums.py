"""Values as whole numbers: sums of reals on a public grid, without a float.

Sums are multiples of the granularity, which has `GRAINS` grains. A record's value, clamped to the most that a user may
add to one key, becomes grains; grains are summed for each user and key; the sum becomes a multiple of the granularity.
Both steps round at random, up with the probability of the remainder, so that expectations stay the same (up to 2^-32 of
the granularity; what is finer than about 2^-40 of it in a float is dropped). A missing value adds nothing. Draws come
from a keyed hash of whose value it is, never from other records.

    value ─ min(·, max_value) ─► grains ─ Σ over a user's records of a key ─► min(·, max_value) ─► multiples

| symbol | meaning |
|---|---|
| p / q | the granularity |
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

from hushgram.contributions.keys import array_of, decoded, mix, one_array, plain_type
from hushgram.errors import InputError, ParameterError
from hushgram.numbers import Number, rational, show

__all__ = [
    "GRAINS",
    "MAX_MULTIPLE",
    "MAX_SUM",
    "MAX_VALUE",
    "NUMBERS",
    "Grid",
    "checked_sums",
    "checked_values",
    "is_number",
    "round_grains",
    "wrong_values",
]  # fmt: skip

_GRAIN_BITS = 12
#: grains per granularity
GRAINS = 1 << _GRAIN_BITS
#: the most that a user may add in all, in multiples of the granularity
MAX_MULTIPLE = 1 << 20
#: the largest sum of a key that a caller may state, in multiples of the granularity
MAX_SUM = 1 << 40
#: values are below this
MAX_VALUE = 1 << 62
#: what a column of values may be
NUMBERS = "whole numbers, floating-point numbers or decimals"
# times the largest multiple it is below 2^62
_MAX_NUMERATOR = 1 << 42
_DRAW_BITS = np.uint64(44)  # leaves 20 bits of a hash
_SALT = np.uint64(0x9E3779B97F4A7C15)

U64 = NDArray[np.uint64]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The grid of sums: multiples of ``granularity``, of which a user adds at most ``most`` to one key."""

    granularity: Fraction
    most: int

    def grains(self, values: pa.Array, draws: Callable[[], U64]) -> I64:
        """Return each value in grains; none of them is one of `wrong_values`. ``draws`` gives a hash per row."""
        limit = (1 << 62) // max(self.most, MAX_MULTIPLE)  # so that no product reaches 2^63
        if self.granularity.numerator >= limit:
            raise ParameterError(
                f"granularity {show(self.granularity)} has too many digits for {self.most:,} times it;"
                " choose a rounder one"
            )
        n, b = _integers(values.fill_null(0) if values.null_count else values, self.granularity, limit)
        scaled = Fraction(b) * self.granularity  # n/b is n·q/p times the granularity
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
    """Return quotients and remainders: np.divmod, faster."""
    whole = n // p
    return whole, n - whole * p


def round_grains(grains: I64, hashes: U64) -> I64:
    """Return grains as multiples of the granularity, rounded at random by the hash of each."""
    drawn = (mix(hashes ^ _SALT) >> np.uint64(64 - _GRAIN_BITS)).astype(np.int64)
    return (grains + drawn) >> _GRAIN_BITS


def _multiples(owner: str, granularity: Fraction, **bounds: Fraction) -> list[int]:
    """Return bounds as multiples of the granularity; raise where one is not whole, or values do not fit 64 bits."""
    if granularity <= 0:
        raise ParameterError(f"{owner}: granularity must be above 0, got {show(granularity)}")
    if granularity.numerator >= _MAX_NUMERATOR or granularity.denominator >= 1 << 30:
        raise ParameterError(
            f"{owner}: granularity must be a fraction of whole numbers below 2^42 and 2^30,"
            f" got {show(granularity)[:60]}; choose a rounder one"
        )
    for name, bound in bounds.items():
        if not 1 <= bound / granularity <= MAX_MULTIPLE or (bound / granularity).denominator != 1:
            raise ParameterError(
                f"{owner}: {name} must be a whole multiple of granularity ({show(granularity)}), from 1 to 2^20"
                f" times it, got {show(bound)}, which is {show(bound / granularity)[:40]} times it"
            )
    return [int(bound / granularity) for bound in bounds.values()]


def bounds_in_multiples(
    owner: str, granularity: Number | None, most: Number, max_value: Number | None, max_per_key: int
) -> tuple[Fraction, int | str, int]:
    """Return the granularity, and the bounds of a user (in all, per key) as multiples of it."""
    if granularity is None or max_value is None:
        missing = "granularity" if granularity is None else "max_value"
        raise ParameterError(
            f"{owner}: {missing} must be given where values are summed: at most max_value per user and key,"
            " rounded to multiples of granularity, such as a sixteenth of it"
        )
    if max_per_key != 1:
        raise ParameterError(f"{owner}: max_per_key has no effect beside max_value; leave it out")
    grid = rational(granularity, "granularity", owner)
    bounds = {"max_value": rational(max_value, "max_value", owner)}
    if most == "auto":
        return grid, "auto", _multiples(owner, grid, **bounds)[0]
    bounds["max_contributions"] = rational(most, "max_contributions", owner)
    per_key, in_all = _multiples(owner, grid, **bounds)
    return grid, in_all, per_key


def bounds_in_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with their bounds as they are given: the reverse of `bounds_in_multiples`."""
    granularity = values.get("granularity")
    if granularity is None:
        return values
    in_all, per_key = values["max_contributions"], values["max_per_key"] * granularity
    in_all = in_all if in_all == "auto" else in_all * granularity
    return {**values, "max_contributions": in_all, "max_value": per_key, "max_per_key": 1}


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of this type can be summed."""
    kind = plain_type(kind)
    if pa.types.is_decimal(kind):
        return bool(kind.scale >= 0)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def wrong_values(values: pa.Array, name: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield (reason, rows that are good) for each reason for which values are wrong. A null adds nothing.

    Values are compared in their own type, so that a record's fate follows from its own value.
    """
    if pa.types.is_floating(values.type):
        values = values.cast(pa.float64())
        least = pa.scalar(float(MAX_VALUE))  # a power of 2: exact
        tests = [("is not a number", pc.is_nan(values)), ("is infinite", pc.is_inf(values))]
    else:
        least, tests = _max_value_of(values.type), []
    tests.append(("is negative", pc.less(values, pa.scalar(0, values.type))))
    if least is not None:
        tests.append(("is too large", pc.greater_equal(values, least)))
    for reason, wrong in tests:
        if pc.any(wrong).as_py():
            yield f"{name} {reason}", pc.invert(pc.fill_null(wrong, False)).to_numpy(zero_copy_only=False)


def _max_value_of(kind: pa.DataType) -> pa.Scalar | None:
    """Return `MAX_VALUE` as a whole number or decimal of this type; None where all of its values are smaller."""
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(MAX_VALUE), kind) if 10 ** _digits(kind) > MAX_VALUE else None
    return pa.scalar(MAX_VALUE, kind) if kind.bit_width == 64 else None


def _digits(kind: pa.DataType) -> int:
    """Return the digits before the point."""
    return int(kind.precision - kind.scale)


def checked_values(values: object, rows: int, what: str = "values") -> pa.Array:
    """Return a caller's column of values; raise an `InputError` where one of them is wrong."""
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


def checked_sums(sums: object, rows: int, granularity: Fraction) -> pa.Array:
    """Return a caller's column of sums of many users, each below `MAX_SUM` times the granularity."""
    column = checked_values(sums, rows, "counts")
    if rows and Fraction(pc.max(column).as_py() or 0) >= MAX_SUM * granularity:
        raise InputError(
            f"counts must be below 2^40 times the granularity {show(granularity)}; raise granularity"
        )
    return column


def _integers(values: pa.Array, granularity: Fraction, limit: int) -> tuple[I64, int]:
    """Return (n, b) with values n/b, such that the numerator of b times the granularity is below the limit.

    b follows from the type and the granularity alone; what is finer than 1/b is dropped from a value.
    """
    kind = values.type
    if pa.types.is_integer(kind):
        return values.to_numpy(zero_copy_only=False).astype(np.int64, copy=False), 1
    if pa.types.is_decimal(kind):
        return _decimals(values, granularity, limit)
    b = 1
    while (2 * b * granularity).numerator < limit and b < 1 << 60:
        b *= 2
    floats = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.floor(np.minimum(floats * b, 2.0**63 - 1024)).astype(np.int64), b  # times a power of 2: exact


def _decimals(values: pa.Array, granularity: Fraction, limit: int) -> tuple[I64, int]:
    """Return the same for decimals, of any width."""
    scale = 0
    while scale < values.type.scale and (10 ** (scale + 1) * granularity).numerator < limit:
        scale += 1
    b = 10**scale
    last = ((1 << 63) - 1) // b  # a larger value is above every bound
    if last < min(MAX_VALUE, 10 ** _digits(values.type)):
        top = pa.scalar(Decimal(last), values.type)
        values = pc.if_else(pc.greater(values, top), top, values)
    limbs = values.cast(pa.decimal128(38, scale), safe=False)  # cut, not rounded
    low = np.frombuffer(limbs.buffers()[1], "<i8")  # low limb first; the other one is 0
    return low[2 * limbs.offset : 2 * (limbs.offset + len(limbs)) : 2].copy(), b
