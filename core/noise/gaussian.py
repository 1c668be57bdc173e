"""Discrete Gaussian noise on counts: what one or two noisy vectors, released together, cost, and scales for that.

A user moves each vector by v, with parts of at most L∞ that add up to at most C, and every count has independent
noise of scale σ_1 in the first vector, of σ_2 in the second. Three bounds on δ at a given ε, each of which holds:

* **By continuous noise** (any L∞): `hushgram.noise.gdp`. Within a percent of the truth at scales of 10 and more.
* **Concentrated** (any L∞; the best at scales below 2). ρ-zCDP with ρ = Σ_i ‖v‖₂²/2σ_i² (Canonne, Kamath, Steinke
  2020, Theorem 14 and composition), and their Proposition 12: δ ≤ e^((a−1)(aρ−ε))/(a−1) · (1 − 1/a)^a for any a > 1.
  ‖v‖₂² is at most q·L∞² + r² with C = q·L∞ + r, r < L∞: of two parts 0 < x ≤ y < L∞ moving one unit from x to y adds
  2(y − x) + 2 > 0 to the sum of squares, so only one part lies strictly between 0 and L∞ where that is largest.
* **Exact** (L∞ = 1). v has C ones; fewer are a projection of that, and never worse. The loss of an output is
  (W + M/2)/c with W = Σ_i a_i S_i, where S_i is the sum of C draws of scale σ_i, a_i are the smallest integers with
  1/σ_i² = a_i/c, and M = C·Σ a_i. W is a discrete Gaussian of variance V = c·M but for a factor within 1 ± η: where
  two Gaussians on ℤ are added, P(a·x + b·y = w) is e^(−w²/2V) times a sum of e^(−(k−s)²/2τ²) over k ∈ ℤ, with
  1/τ² = V/(V_1·V_2), which lies between τ√2π·(1 − η) and τ√2π·(1 + η), η = 2Σ_{k≥1} e^(−2π²τ²k²) (Poisson summation).
  Hence with T(t) = P[Gaussian of variance V on ℤ ≥ t] and w₀ = ⌈cε − M/2⌉

      δ ≤ Π (1 + η)/(1 − η) · (T(w₀) − e^ε·T(w₀ + M)),

  the product over all additions. It is within 10^−30 of the truth at scales of 3 and more.

Both directions, user added and user removed, have the same δ: the noise is symmetric. All numbers are enclosed by
intervals and taken at their upper ends. Tests compare with full enumeration.

| symbol | meaning |
|---|---|
| C, L∞ | most that one user adds in all, and to one count |
| σ_i | scale of the noise of vector i |
| ρ, a | zCDP, order of the Rényi divergence |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.gdp import NoisyVector, gdp_delta, gdp_mu, smallest
from hushgram.noise.intervals import Digits, enclose, exp_neg, ratio_interval
from hushgram.noise.laws import GaussianLaw, NoiseLaw
from hushgram.noise.noises import Noise
from hushgram.noise.sampling import Lanes, bernoulli, discrete_laplace
from hushgram.noise.zcdp import zcdp_delta
from hushgram.sensitivity import Sensitivity

__all__ = [
    "MAX_VARIANCE", "NOISE", "GaussianNoise", "discrete_gaussian", "discrete_gaussians", "gaussian_delta",
    "gaussian_scales", "gaussian_tails", "unit_shift_delta",
]  # fmt: skip


# Discrete Gaussian noise: exact sampler and tails (Canonne, Kamath, Steinke 2020, "The Discrete Gaussian").
#
#     P(Z = z) = e^(−z²/2σ²) / Σ_k e^(−k²/2σ²),  z ∈ ℤ
#
# Sampler (their Algorithm 3, with t = σ instead of ⌊σ⌋ + 1; any t > 0 is right): draw Y from the discrete Laplace
# distribution of scale t and keep it with probability e^(−γ), γ = (|Y| − σ²/t)²/2σ². As |y|/t + (|y| − σ²/t)²/2σ² =
# y²/2σ² + σ²/2t², what is kept has the probabilities above; about three of four are. For σ = u/v, γ = (|Y|·v − u)²/2u²
# is an integer over one common denominator, so e^(−γ) is a product of fixed numbers e^(−2^j/2u²) over the binary digits
# of that integer: one exact Bernoulli draw each, on arrays.
#
# Tails are sums of exact terms in fixed point, rounded up, with a proven bound of the error: an enclosure, as for
# Laplace noise.
#
# | symbol | meaning |
# |---|---|
# | σ | the scale, a rational; the variance of Z is at most σ² |
# | t | scale of the proposal |

#: Tails are summed term by term: a standard deviation above 2^15 would take seconds, and drowns any count.
MAX_VARIANCE = 1 << 30
# σ = u/v: below these, |Y|·v − u fits 62 bits for every Y that discrete Laplace noise can be.
_MAX_SCALE, _MAX_DENOMINATOR = 1 << 34, 1 << 12
# Draws that are made side by side: few passes over arrays that still fit a cache.
_SIDE_BY_SIDE = 1 << 17
# γ is worked on in pieces of so many bits of |Y|·v − u, so that products fit 64 bits.
_HALF = 31


def discrete_gaussian(scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
    """Draw ``size`` independent integers with P(Z = z) ∝ e^(−z²/2σ²), σ = ``scale``.

    >>> from hushgram.noise.entropy import BitSource
    >>> discrete_gaussian(Fraction(2), 8, BitSource(bytes(32))).dtype
    dtype('int64')
    """
    return discrete_gaussians(scale, [size], [source])


def discrete_gaussians(
    scale: Fraction, sizes: Sequence[int], sources: Sequence[BitSource]
) -> NDArray[np.int64]:
    """Return what `discrete_gaussian` draws of each size from its source, one after another.

    Sources are drawn from side by side: a pass over a small array costs nearly as much as one over a large array.
    """
    _check(scale)
    out = np.empty(sum(sizes), dtype=np.int64)
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first]) - sizes[first]
        last = max(int(np.searchsorted(ends, before + _SIDE_BY_SIDE, "right")), first + 1)
        _fill(out[before : ends[last - 1]], scale, sizes[first:last], sources[first:last])
        first = last
    return out


def _fill(
    out: NDArray[np.int64], scale: Fraction, sizes: Sequence[int], sources: Sequence[BitSource]
) -> None:
    ends = np.cumsum(sizes)
    missing = np.array(sizes)
    while missing.any():
        # How many are proposed at a time depends on how many are missing alone: the draws stay independent.
        lanes = Lanes(sources, np.cumsum(np.where(missing > 0, missing * 4 // 3 + 16, 0)))
        proposed = discrete_laplace(scale, lanes)
        kept = _accepted(proposed, scale, lanes)
        for i, (low, high) in enumerate(pairwise([0, *lanes.ends(kept).tolist()])):
            some = proposed[kept[low:high]][: missing[i]]
            at = ends[i] - missing[i]
            out[at : at + len(some)] = some
            missing[i] -= len(some)


def _check(scale: Fraction) -> None:
    if not 0 < scale <= _MAX_SCALE or scale.denominator > _MAX_DENOMINATOR:
        raise ParameterError(
            f"discrete_gaussian: scale must be above 0, at most 2^34 and a multiple of 1/n for n <= 4096, got {scale}"
        )


def _accepted(proposed: NDArray[np.int64], scale: Fraction, lanes: Lanes) -> NDArray[np.intp]:
    """Return the places of the proposals that pass a draw of probability e^(−γ), γ = (|Y|·v − u)²/2u²."""
    u, v = scale.numerator, scale.denominator
    off = np.abs(np.abs(proposed) * np.int64(v) - np.int64(u))
    high, low = off >> _HALF, off & ((1 << _HALF) - 1)
    unit = Fraction(1, 2 * u * u)
    left = np.arange(len(off))
    # off² = high²·2^62 + high·low·2^32 + low²
    for factor, product in ((1 << 2 * _HALF, high * high), (2 << _HALF, high * low), (1, low * low)):
        left = _survivors(left, product, unit * factor, lanes)
    return left


def _survivors(
    left: NDArray[np.intp], numbers: NDArray[np.int64], unit: Fraction, lanes: Lanes
) -> NDArray[np.intp]:
    """Return those of the places ``left`` that pass a draw of probability e^(−unit·number): one per binary digit."""
    top = int(numbers.max()).bit_length() if len(numbers) else 0
    if not top:
        return left
    lanes = lanes.at(left)
    octets = np.ascontiguousarray(numbers[left].astype("<i8", copy=False).view(np.uint8).reshape(-1, 8).T)
    passed = np.ones(len(left), np.bool_)
    factors = _factors(unit, top)
    for j in reversed(range(top)):  # the largest factors first: they reject most
        at = (((octets[j >> 3] & np.uint8(1 << (j & 7))) != 0) & passed).nonzero()[0]
        if len(at):
            passed[at] = bernoulli(factors[j], lanes.at(at))
    return left[passed.nonzero()[0]]  # several times faster than by a mask


@lru_cache(maxsize=256)
def _factors(unit: Fraction, number: int) -> tuple[Digits, ...]:
    """Return e^(−unit·2^j) for j below ``number``."""
    return tuple(exp_neg(unit * (1 << j)) for j in range(number))


# --- tails ------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def gaussian_tails(variance: Fraction, at: int) -> Callable[[Any], Any]:
    """Enclose P[Z ≥ at] where P(Z = z) ∝ e^(−z²/2·variance)."""
    if not 0 < variance <= MAX_VARIANCE:
        raise ParameterError(f"gaussian_tails: the variance must be above 0 and at most 2^30, got {variance}")

    def interval(iv: Any) -> Any:
        whole, beyond = (_sum_from(iv, variance, t) for t in (1, at if at >= 1 else 1 - at))
        share = beyond / (1 + 2 * whole)
        return share if at >= 1 else 1 - share

    return interval


def _sum_from(iv: Any, variance: Fraction, at: int) -> Any:
    """Enclose Σ_{z ≥ at} e^(−z²/2·variance) for at ≥ 1."""
    point, before = _prefix_sums(variance, iv.prec)
    sum_ = before[-1] - before[min(at, len(before)) - 1]
    low, high = max(sum_ - _SLACK, 0), sum_ + _SLACK
    return iv.mpf([iv.mpf(low).a, iv.mpf(high).b]) / iv.mpf(1 << point)


# Proven below: no sum is off by more than this many units of the last place.
_SLACK = 1 << 72


@lru_cache(maxsize=4)
def _prefix_sums(variance: Fraction, bits: int) -> tuple[int, list[int]]:
    """Return a fixed point of ``bits + 96`` binary places, and Σ_{1 ≤ z < t} e^(−z²/2V) for t = 1, 2, ... in it.

    Terms follow from T(z + 1) = T(z)·R(z), R(z + 1) = R(z)·g with g = e^(−1/V), all rounded up. In units of the last
    place R(z) is then off by at most 2z + 2 and T(z) by z² + 4z, a sum of N terms by N³ + 4N². The sums end at N with
    e^(−N²/2V) below one unit; what is left out is at most 1/(1 − e^(−N/V)) ≤ 2 + 2V/N units. For V ≤ 2^30 and at
    most 2^12 places N is below 2^23: less than 2^72 in all.
    """
    point = bits + 96
    one = 1 << point
    last = math.isqrt(int(2 * variance * point * Fraction(7, 10))) + 2  # ln 2 < 7/10

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


#: Scales are whole multiples of 1/GRID.
GRID = 64
_BITS, _FEWER_BITS, _TINY = 320, 112, Fraction(1, 1 << 80)
# Longer sums would take seconds; the bound by continuous noise is as good there.
_MAX_VARIANCE = 1 << 28
# Below this τ² the factor of the exact bound is far from 1 (and η ≥ 1 below 0.056).
_MIN_SPREAD = Fraction(1, 8)


class GaussianNoise(Noise):
    """``scale`` is σ, at most 2^15."""

    name = "gaussian"
    max_scale = 1 << 15

    def scales(
        self, epsilons: tuple[Fraction, ...], delta: Fraction, sensitivity: Sensitivity
    ) -> tuple[Fraction, ...]:
        """Return equal scales: the vectors are one mechanism of all of ε."""
        return gaussian_scales((1,) * len(epsilons), sum(epsilons, Fraction(0)), delta, sensitivity)

    def privacy_map(
        self, scales: tuple[Fraction, ...], epsilon: Fraction, sensitivity: Sensitivity
    ) -> Fraction:
        return gaussian_delta(scales, epsilon, sensitivity)

    def variance(self, scale: Fraction) -> Fraction:
        return scale * scale

    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        return discrete_gaussian(scale, size, source)

    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        return gaussian_tails(scale * scale, at)

    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        raise ParameterError("noise gaussian needs delta above 0; set delta, or noise to laplace")

    def law(self, scale: float) -> NoiseLaw:
        return GaussianLaw(scale)


# --- privacy map --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def gaussian_delta(scales: tuple[Fraction, ...], epsilon: Fraction, sensitivity: Sensitivity) -> Fraction:
    """Return an upper bound of δ at ``epsilon`` for vectors with noise of these scales, released together."""
    rho = sum((sensitivity.l2_squared / (2 * scale * scale) for scale in scales), Fraction(0))
    bounds = [zcdp_delta(rho, epsilon)]
    if min(scales) >= 1:
        vectors = tuple(NoisyVector(scale, sensitivity.l2_squared, sensitivity.l0) for scale in scales)
        bounds.append(gdp_delta(vectors, epsilon))
    if sensitivity.max_per_key == 1:
        exact = unit_shift_delta(scales, epsilon, sensitivity.max_contributions)
        bounds += [] if exact is None else [exact]
    return min(bounds)


@lru_cache(maxsize=256)
def gaussian_scales(
    weights: tuple[int, ...], epsilon: Fraction, delta: Fraction, sensitivity: Sensitivity
) -> tuple[Fraction, ...]:
    """Return scales in the ratio of ``weights``, the smallest on the grid whose δ at ``epsilon`` is at most ``delta``.

    >>> [float(scale) for scale in gaussian_scales((1,), Fraction(1), Fraction(1, 10**6), Sensitivity(1, 1))]
    [4.234375]
    """
    if epsilon <= 0 or not 0 < delta < 1:
        raise ParameterError("noise gaussian needs delta above 0; set delta, or noise to laplace")

    def scales(steps: int) -> tuple[Fraction, ...]:
        return tuple(Fraction(weight * steps, GRID) for weight in weights)

    def holds(steps: int) -> bool:
        return gaussian_delta(scales(steps), epsilon, sensitivity) <= delta

    l2 = math.sqrt(sensitivity.l2_squared * sum(1 / weight**2 for weight in weights))
    guess = max(int(l2 / gdp_mu(epsilon, delta) * GRID), 1)
    if guess * max(weights) > GRID << 34:
        raise ParameterError(
            "ReleaseParams: the noise would exceed 2^34; lower max_contributions or raise epsilon"
        )
    return scales(smallest(holds, guess))


# --- exact ------------------------------------------------------------------------------------------------------


def unit_shift_delta(scales: tuple[Fraction, ...], epsilon: Fraction, shifts: int) -> Fraction | None:
    """Return δ where each vector moves by 1 in at most ``shifts`` counts; None where the sums would be too long."""
    if not 1 <= len(scales) <= 2:
        return None
    steps, c = _lattice(scales)
    moved = shifts * sum(steps)
    variance = c * moved
    additions = _additions(scales, variance, shifts)
    if variance > _MAX_VARIANCE or min(spread for spread, _ in additions) < _MIN_SPREAD:
        return None
    start = math.ceil(c * epsilon - Fraction(moved, 2))
    near, far = gaussian_tails(variance, start), gaussian_tails(variance, start + moved)

    def bound(iv: Any) -> Any:
        return _unevenness(iv, additions) * (near(iv) - iv.exp(ratio_interval(iv, epsilon)) * far(iv))

    # Sums of fewer places are shorter, and good enough unless δ is tiny.
    stated = next(
        found for bits in (_FEWER_BITS, _BITS) if (found := enclose(bound, bits)[1]) > _TINY or bits == _BITS
    )
    return min(max(stated, Fraction(0)), Fraction(1))


def _lattice(scales: tuple[Fraction, ...]) -> tuple[list[int], Fraction]:
    """Return the smallest integers a_i and the c with 1/σ_i² = a_i/c."""
    precisions = [1 / (scale * scale) for scale in scales]
    whole = math.lcm(*(p.denominator for p in precisions))
    steps = [int(p * whole) for p in precisions]
    shared = math.gcd(*steps)
    return [step // shared for step in steps], Fraction(whole, shared)


def _additions(scales: tuple[Fraction, ...], variance: Fraction, shifts: int) -> list[tuple[Fraction, int]]:
    """Return (τ² at least, how many) of the additions: σ²/2 among draws of one scale, V_1·V_2/V for the two sums."""
    out = [(scale * scale / 2, shifts - 1) for scale in scales]
    if len(scales) == 2:
        out.append(((shifts * scales[0] * scales[1]) ** 2 / variance, 1))
    return out


def _unevenness(iv: Any, additions: list[tuple[Fraction, int]]) -> Any:
    """Return Π (1 + η)/(1 − η), with 2e^(−2π²τ²)/(1 − e^(−2π²τ²)) for η."""
    out = iv.mpf(1)
    for spread, times in additions:
        first = iv.exp(-2 * iv.pi**2 * ratio_interval(iv, spread))
        eta = 2 * first / (1 - first)
        out *= ((1 + eta) / (1 - eta)) ** times
    return out


NOISE = GaussianNoise()
