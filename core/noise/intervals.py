"""Real numbers in [0, 1] given by their exact base-256 digits.

A Bernoulli draw compares random bytes with the digits of its probability, one digit after another, until
they differ. So a probability need never be rounded: e^(−ε) is as good as 1/5. Digits of irrational numbers
come from mpmath's interval arithmetic: an interval whose ends agree on a digit proves that digit, and the
precision rises until they agree.

The numbers used here are rationals, e^(−r), and functions of them; those of the second kind are irrational
for r > 0 (Lindemann), so the loop ends.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hushgram.errors import ParameterError

__all__ = [
    "Computed",
    "Digits",
    "Rational",
    "enclose",
    "exact_end",
    "exp_neg",
    "geometric_digit",
    "laplace_tail",
    "ratio_interval",
]  # fmt: skip

# iv of mpmath has one global precision: whoever computes digits holds this lock.
_LOCK = threading.RLock()
_FIRST_BITS = 192
_MAX_BITS = 1 << 20


class Digits(ABC):
    """A real number p in [0, 1]: ``byte(i)`` is its i-th digit after the point in base 256."""

    def __init__(self) -> None:
        self._known = b""

    def byte(self, index: int) -> int:
        """Return digit ``index``; 0 is the most significant."""
        while index >= len(self._known):
            self._known = self._leading(max(24, 2 * len(self._known), index + 1))
        return self._known[index]

    def ends_before(self, index: int) -> bool:
        """Return whether all digits from ``index`` on are known to be zero."""
        return False

    @abstractmethod
    def _leading(self, count: int) -> bytes:
        """Return at least the first ``count`` digits."""


class Rational(Digits):
    """A fraction in [0, 1).

    >>> [Rational(Fraction(1, 3)).byte(i) for i in range(3)]
    [85, 85, 85]
    """

    def __init__(self, value: Fraction) -> None:
        if not 0 <= value < 1:
            raise ParameterError(f"probability must be at least 0 and below 1, got {value}")
        super().__init__()
        self.value = value

    def ends_before(self, index: int) -> bool:
        return (self.value.numerator << (8 * index)) % self.value.denominator == 0

    def _leading(self, count: int) -> bytes:
        return ((self.value.numerator << (8 * count)) // self.value.denominator).to_bytes(count, "big")


class Computed(Digits):
    """An irrational number that ``interval(iv)`` encloses at the working precision of mpmath's ``iv``."""

    def __init__(self, interval: Callable[[Any], Any]) -> None:
        super().__init__()
        self._interval = interval

    def _leading(self, count: int) -> bytes:
        bits = _FIRST_BITS + 8 * count
        while bits <= _MAX_BITS:
            low, high = self._scaled(bits, count)
            if low == high:
                return low.to_bytes(count, "big")
            bits *= 2
        raise ArithmeticError(
            "a probability could not be separated from a digit boundary"
        )  # pragma: no cover

    def _scaled(self, bits: int, count: int) -> tuple[int, int]:
        """Return ⌊256^count · p⌋ for both ends of the interval."""
        low, high = enclose(self._interval, bits)
        top = (1 << (8 * count)) - 1
        shift = 8 * count
        return tuple(min(max((end.numerator << shift) // end.denominator, 0), top) for end in (low, high))  # type: ignore[return-value]


def enclose(interval: Callable[[Any], Any], bits: int) -> tuple[Fraction, Fraction]:
    """Return the exact rational ends of the interval that ``interval(iv)`` gives at this precision."""
    from mpmath import iv

    with _LOCK:
        before = iv.prec
        iv.prec = bits
        try:
            value = interval(iv)
            return exact_end(value.a), exact_end(value.b)
        finally:
            iv.prec = before


def exact_end(end: Any) -> Fraction:
    """Return the dyadic rational that a one-point interval holds."""
    (sign, mantissa, exponent, _), _ = end._mpi_
    if mantissa == 0 and exponent != 0:
        raise ArithmeticError("an interval has an infinite end")
    scaled = Fraction(int(mantissa)) * (Fraction(2) ** int(exponent))
    return -scaled if sign else scaled


def ratio_interval(iv: Any, value: Fraction) -> Any:
    """Return an interval around a fraction."""
    return iv.mpf(value.numerator) / iv.mpf(value.denominator)


@lru_cache(maxsize=4096)
def exp_neg(rate: Fraction) -> Digits:
    """Return e^(−rate) for rate > 0."""
    if rate <= 0:
        raise ParameterError(f"exp_neg: rate must be above 0, got {rate}")
    return Computed(lambda iv: iv.exp(-ratio_interval(iv, rate)))


@lru_cache(maxsize=4096)
def geometric_digit(rate: Fraction, j: int) -> Digits:
    """Return the probability q^(2^j) / (1 + q^(2^j)), q = e^(−rate), that binary digit j of a geometric variable is 1.

    For P(G = g) = (1 − q) q^g the binary digits of G are independent, because q^g is a product over them.
    """

    def interval(iv: Any) -> Any:
        return 1 / (1 + iv.exp(ratio_interval(iv, rate * 2**j)))

    return Computed(interval)


@lru_cache(maxsize=256)
def laplace_tail(rate: Fraction, at: int) -> Callable[[Any], Any]:
    """Enclose P[Z ≥ at] for discrete Laplace Z with P(Z = z) ∝ q^|z|, q = e^(−rate).

    q^at / (1 + q) for at ≥ 1, and 1 − q^(1 − at) / (1 + q) otherwise.
    """

    def interval(iv: Any) -> Any:
        r = ratio_interval(iv, rate)
        q = iv.exp(-r)
        if at >= 1:
            return iv.exp(-r * at) / (1 + q)
        return 1 - iv.exp(-r * (1 - at)) / (1 + q)

    return interval
