"""Exact rationals from what the user wrote.

Parameters such as ε, δ and α are never floats inside hushgram: "0.1" is one tenth. A float given in
Python is read by its shortest decimal form (``repr``), which is what the person meant when typing it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from decimal import Decimal
from fractions import Fraction
from typing import TypeAlias, TypeVar

from hushgram.errors import ParameterError

__all__ = [
    "Number",
    "boolean",
    "choice",
    "counted",
    "integer",
    "plus_minus",
    "positive",
    "rational",
    "rational_delta",
    "show",
    "stated_call",
    "stated_text",
]

T = TypeVar("T")
Number: TypeAlias = "Fraction | Decimal | str | int | float"

# Exponents beyond this are typing errors, and would make integers of absurd size.
_MAX_EXPONENT = 100
_FORM = re.compile(
    r"\s*[+-]?\d[\d_]{0,200}(?:\.\d{0,200})?(?:[eE]([+-]?\d{1,6}))?(?:\s*/\s*\d{1,200})?\s*|\s*[+-]?\.\d{1,200}\s*"
)


def rational(value: Number, name: str, owner: str) -> Fraction:
    """Return ``value`` as an exact fraction; ``owner`` and ``name`` say in the error what was being read."""
    if isinstance(value, bool) or not isinstance(value, Fraction | Decimal | str | int | float):
        raise ParameterError(f'{owner}: {name} must be a number such as "0.5" or "1/3", got {value!r}')
    if isinstance(value, Fraction | int):
        return Fraction(value)
    text = repr(value) if isinstance(value, float) else str(value)
    match = _FORM.fullmatch(text)
    if match is None:
        raise ParameterError(
            f'{owner}: {name} must be a finite number such as "0.5" or "1/3", got {text[:60]!r}'
        )
    if match.group(1) is not None and abs(int(match.group(1))) > _MAX_EXPONENT:
        raise ParameterError(
            f"{owner}: {name} must have an exponent between -{_MAX_EXPONENT} and {_MAX_EXPONENT}, got {text[:60]!r}"
        )
    try:
        head, _, tail = text.partition("/")
        return Fraction(head.strip()) / (Fraction(tail.strip()) if tail else 1)
    except ZeroDivisionError:
        raise ParameterError(f"{owner}: {name} divides by zero, got {text[:60]!r}") from None
    except ValueError:  # an underscore where none may be
        raise ParameterError(f'{owner}: {name} must be a number such as "0.5", got {text[:60]!r}') from None


def positive(value: Number, name: str, owner: str) -> Fraction:
    """Return ``value`` as an exact fraction above 0."""
    out = rational(value, name, owner)
    if out <= 0:
        raise ParameterError(f"{owner}: {name} must be above 0, got {show(out)}")
    return out


def rational_delta(value: Number, owner: str) -> Fraction:
    """Return ``value`` as a δ: at least 0 and below 1."""
    delta = rational(value, "delta", owner)
    if not 0 <= delta < 1:
        raise ParameterError(f"{owner}: delta must be at least 0 and below 1, got {show(delta)}")
    return delta


def choice(value: T, name: str, owner: str, allowed: Collection[T]) -> T:
    """Return ``value`` if it is one of those."""
    if value not in allowed:
        raise ParameterError(f"{owner}: {name} must be one of {', '.join(map(str, allowed))}, got {value!r}")
    return value


def integer(value: object, name: str, owner: str, *, low: int, high: int) -> int:
    """Return ``value`` as an integer between ``low`` and ``high``, both allowed."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{owner}: {name} must be a whole number from {low} to {high}, got {value!r}")
    if not low <= value <= high:
        raise ParameterError(f"{owner}: {name} must be from {low} to {high}, got {value}")
    return value


def boolean(value: object, name: str, owner: str) -> bool:
    """Return ``value`` if it is True or False; texts such as "no" are true in Python, and mean the opposite."""
    if not isinstance(value, bool):
        raise ParameterError(f"{owner}: {name} must be True or False, got {value!r}")
    return value


def show(value: Fraction) -> str:
    """Return the shortest exact text of a fraction: ``0.5`` where the decimal ends, else ``1/3``."""
    if value.denominator == 1:
        return str(value.numerator)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1 and value.denominator < 10**18:
        digits = len(str(value.denominator)) * 4
        scaled = value * 10**digits
        if scaled.denominator == 1:
            sign, whole = ("-" if scaled < 0 else ""), str(abs(scaled.numerator)).rjust(digits + 1, "0")
            return f"{sign}{whole[:-digits]}.{whole[-digits:].rstrip('0')}"
    return f"{value.numerator}/{value.denominator}"


def plus_minus(number: float, half: float, less: str = "fewer") -> str:
    """Return a released number with the half-width of its interval, in words; never a number below its noise.

    >>> plus_minus(51_200, 2_217), plus_minus(59, 2_217), plus_minus(-80, 2_397), plus_minus(7, 0)
    ('51,200 ± 2,217', 'fewer than 2,276', 'fewer than 2,397', '7')
    """
    if not half:
        return f"{number:,.15g}"
    if number < half:
        return f"{less} than {max(number, 0) + half:,.15g}"
    return f"{number:,.15g} ± {half:,.15g}"


def counted(number: int, what: str) -> str:
    """Return a number with its noun, in the plural where it needs that.

    >>> counted(1, "key"), counted(1_200, "key"), counted(2, "query")
    ('1 key', '1,200 keys', '2 queries')
    """
    several = f"{what[:-1]}ies" if what.endswith("y") and what[-2:-1] not in "aeiou" else f"{what}s"
    return f"{number:,} {what if number == 1 else several}"


def stated_text(value: object) -> str:
    """Return a parameter as the text that noise is derived from: fixed here, however classes show themselves.

    >>> stated_text({"epsilon": Fraction(1, 3), "total": None, "grid": "linear", "bounds": 3, "monotone": True})
    "{'epsilon': Fraction(1, 3), 'total': None, 'grid': 'linear', 'bounds': 3, 'monotone': True}"
    """
    if isinstance(value, Fraction):
        return f"Fraction({value.numerator}, {value.denominator})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{name}': {stated_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, str):
        return f"'{value}'"
    if value is None or isinstance(value, int):
        return str(value)
    raise AssertionError(f"no text is stated for {type(value).__name__}")


def stated_call(name: str, owner: object, fields: Collection[str]) -> str:
    """Return these fields of parameters as the text that noise is derived from, under a name that never changes."""
    return f"{name}({', '.join(f'{field}={stated_text(getattr(owner, field))}' for field in fields)})"
