"""Discrete Gaussian noise: exact sampler and tails (Canonne, Kamath, Steinke 2020, "The Discrete Gaussian").

    P(Z = z) = e^(−z²/2σ²) / Σ_k e^(−k²/2σ²),  z ∈ ℤ

Sampler (their Algorithm 3, with t = σ instead of ⌊σ⌋ + 1; any t > 0 is right): draw Y from the discrete Laplace
distribution of scale t and keep it with probability e^(−γ), γ = (|Y| − σ²/t)²/2σ². As |y|/t + (|y| − σ²/t)²/2σ² =
y²/2σ² + σ²/2t², what is kept has the probabilities above; about three of four are. For σ = u/v, γ = (|Y|·v − u)²/2u²
is an integer over one common denominator, so e^(−γ) is a product of fixed numbers e^(−2^j/2u²) over the binary digits
of that integer: one exact Bernoulli draw each, on arrays.

Tails are sums of exact terms in fixed point, rounded up, with a proven bound of the error: an enclosure, as for
Laplace noise. What noise of this kind costs is in `hushgram.noise.gaussian`.

| symbol | meaning |
|---|---|
| σ | the scale, a rational; the variance of Z is at most σ² |
| t | scale of the proposal |
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import enclose, exp_neg, ratio_interval
from hushgram.noise.sampling import bernoulli, discrete_laplace

__all__ = ["MOST_VARIANCE", "discrete_gaussian", "gaussian_tails"]

#: Tails are summed term by term: a standard deviation above 2^15 would take seconds, and drowns any count.
MOST_VARIANCE = 1 << 30
# σ = u/v: below these, |Y|·v − u fits 62 bits for every Y that discrete Laplace noise can be.
_MOST_SCALE, _MOST_DENOMINATOR = 1 << 34, 1 << 12
# γ is worked on in pieces of so many bits of |Y|·v − u, so that products fit 64 bits.
_HALF = 31


def discrete_gaussian(scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
    """``size`` independent draws with P(Z = z) ∝ e^(−z²/2σ²), σ = ``scale``.

    >>> from hushgram.noise.entropy import BitSource
    >>> discrete_gaussian(Fraction(2), 8, BitSource(bytes(32))).dtype
    dtype('int64')
    """
    _check(scale)
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        # How many are proposed at a time depends on how many are missing alone: the draws stay independent.
        proposed = discrete_laplace(scale, (size - filled) * 4 // 3 + 16, source)
        kept = proposed[_accepted(proposed, scale, source)][: size - filled]
        out[filled : filled + len(kept)] = kept
        filled += len(kept)
    return out


def _check(scale: Fraction) -> None:
    if not 0 < scale <= _MOST_SCALE or scale.denominator > _MOST_DENOMINATOR:
        raise ParameterError(
            f"discrete_gaussian: scale must be above 0, at most 2^34 and a multiple of 1/n for n <= 4096, got {scale}"
        )


def _accepted(proposed: NDArray[np.int64], scale: Fraction, source: BitSource) -> NDArray[np.intp]:
    """Places of the proposals that pass a draw of probability e^(−γ), γ = (|Y|·v − u)²/2u²."""
    u, v = scale.numerator, scale.denominator
    off = np.abs(np.abs(proposed) * np.int64(v) - np.int64(u))
    high, low = off >> _HALF, off & ((1 << _HALF) - 1)
    unit = Fraction(1, 2 * u * u)
    left = np.arange(len(off))
    # off² = high²·2^62 + high·low·2^32 + low²
    for factor, product in ((1 << 2 * _HALF, high * high), (2 << _HALF, high * low), (1, low * low)):
        left = _survivors(left, product, unit * factor, source)
    return left


def _survivors(
    left: NDArray[np.intp], numbers: NDArray[np.int64], unit: Fraction, source: BitSource
) -> NDArray[np.intp]:
    """Of the places ``left`` those that pass a draw of probability e^(−unit·number): one for each binary digit."""
    top = int(numbers.max()).bit_length() if len(numbers) else 0
    for j in reversed(range(top)):  # the largest factors first: they reject most
        marked = (numbers[left] >> j) & 1 == 1
        at = np.flatnonzero(marked)
        fails = at[~bernoulli(exp_neg(unit * (1 << j)), len(at), source)]
        if len(fails):
            left = np.delete(left, fails)
    return left


# --- tails ------------------------------------------------------------------------------------------------------


def gaussian_tails(variance: Fraction, at: int) -> Callable[[Any], Any]:
    """Interval of P[Z ≥ at] where P(Z = z) ∝ e^(−z²/2·variance)."""
    if not 0 < variance <= MOST_VARIANCE:
        raise ParameterError(f"gaussian_tails: the variance must be above 0 and at most 2^30, got {variance}")

    def interval(iv: Any) -> Any:
        whole, beyond = (_sum_from(iv, variance, t) for t in (1, at if at >= 1 else 1 - at))
        share = beyond / (1 + 2 * whole)
        return share if at >= 1 else 1 - share

    return interval


def _sum_from(iv: Any, variance: Fraction, at: int) -> Any:
    """Interval of Σ_{z ≥ at} e^(−z²/2·variance) for at ≥ 1."""
    point, before = _prefix_sums(variance, iv.prec)
    sum_ = before[-1] - before[min(at, len(before)) - 1]
    low, high = max(sum_ - _SLACK, 0), sum_ + _SLACK
    return iv.mpf([iv.mpf(low).a, iv.mpf(high).b]) / iv.mpf(1 << point)


# Proven below: no sum is off by more than this many units of the last place.
_SLACK = 1 << 72


@lru_cache(maxsize=4)
def _prefix_sums(variance: Fraction, bits: int) -> tuple[int, list[int]]:
    """Fixed point of ``bits + 96`` binary places, and Σ_{1 ≤ z < t} e^(−z²/2V) for t = 1, 2, ... in it.

    Terms follow from T(z + 1) = T(z)·R(z), R(z + 1) = R(z)·g with g = e^(−1/V), all rounded up. In units of the last
    place R(z) is then off by at most 2z + 2 and T(z) by z² + 4z, a sum of N terms by N³ + 4N². The sums end at N with
    e^(−N²/2V) below one unit; what is left out is at most 1/(1 − e^(−N/V)) ≤ 2 + 2V/N units. For V ≤ 2^30 and at
    most 2^12 places N is below 2^23: less than 2^72 in all.
    """
    point = bits + 96
    one = 1 << point
    last = isqrt(int(2 * variance * point * Fraction(7, 10))) + 2  # ln 2 < 7/10

    def power(rate: Fraction) -> int:
        high = enclose(lambda iv: iv.exp(-ratio_interval(iv, rate)), point + 32)[1]
        return -((-high.numerator << point) // high.denominator)

    ratio, step = power(1 / (2 * variance)), power(1 / variance)
    term, total, sums = one, 0, [0]
    for _ in range(last):
        term = (term * ratio >> point) + 1
        ratio = (ratio * step >> point) + 1
        total += term
        sums.append(total)
    return point, sums
