"""Truncated geometric noise: the noise whose threshold names the most keys where a user adds 1 to one key.

**Selection** (Desfontaines, Voss, Gipson, Mandayam 2022, "Differentially private partition selection", Theorem 1). Let
π(n) be the probability that a key of n users is listed. Where a user has one key, no (ε, δ)-DP method has a larger π,
at any n, than

    π(0) = 0,   π(n + 1) = min(e^ε·π(n) + δ,  1 − e^(−ε)·(1 − π(n) − δ),  1).

**Noise.** Take Z = τ − N with P(N = n) = p_n = π(n) − π(n − 1), and τ the least n with π(n) ≥ ½. Then x + Z ≥ τ with
probability π(x): a threshold on the noisy count selects optimally, and the count comes with it. p rises from p_1 = δ by
the factor e^ε, and falls by e^(−ε) after its peak: a discrete Laplace distribution with both ends cut off. It is their
truncated symmetric geometric noise where that is as good; elsewhere its center lies between two integers.

**Guarantee.** x + Z ≥ τ released with its value is (ε, δ)-DP where one user adds 1 to one count. A new key (x from 0 to
1) is listed with probability π(1) ≤ δ. At a key that others have, p is moved by 1, and

    Σ_n max(p_n − e^ε·p_(n−1), 0) ≤ δ      and      Σ_n max(p_n − e^ε·p_(n+1), 0) ≤ δ.

*Proof.* The three branches of π come in this order, since the first is at most the second where π(n) ≤
(1 − δ)/(1 + e^ε), and π rises. First sum: p_1 ≤ δ, and p_(n+1) ≤ e^ε·p_n, since π(n + 1) ≤ e^ε·π(n) + δ with equality
for all smaller n of the first branch, and later p falls. Second sum: before the last two terms it is 0. In the
first branch p rises; in the second p_(n+1) = e^(−ε)·p_n. Between them π(n) ≤ 1 − e^(−ε)·(1 − π(n − 1) − δ), so
(e^ε − 1)·(1 − π(n)) ≥ p_n − δ, and e^ε·p_(n+1) = (e^ε − 1)·(1 − π(n)) + δ ≥ p_n. For the last two, L − 1 and L, the
same inequality at n = L − 1, where 1 − π(n) = p_L, is e^ε·p_L ≥ p_L + p_(L−1) − δ, so they add up to at most
max(δ, p_L), and p_L ≤ δ because π(L) = 1.

Encodings beside it have Laplace noise: ε adds up, δ does not.

| symbol | meaning |
|---|---|
| x | exact count of a key |
| τ | the threshold |
| L | how many values Z has, about 2·ln(1/δ)/ε |
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import enclose, ratio_interval
from hushgram.noise.laplace import LaplaceNoise
from hushgram.noise.laws import NoiseLaw, TableLaw
from hushgram.sensitivity import Sensitivity

__all__ = ["NOISE", "TruncatedGeometricNoise", "chances_to_list"]

# δ is rounded down to so many binary digits, so that π(1) is exactly δ in fixed point. The smallest δ is 2^−200.
_DIGITS = 64
# Binary places of π: errors of the recursion grow by at most 1/δ, so that more than 64 places are sure.
_PLACES = 384


@dataclass(frozen=True)
class TruncatedGeometricNoise(LaplaceNoise):
    """``scale`` is 1/ε; all of δ is the noise's, and the threshold costs nothing beside it."""

    delta: Fraction = Fraction(0)
    name = "truncated_geometric"
    title = "truncated geometric"
    one_key = True
    # Tables of π have about 2·ln(1/δ) entries per unit of scale.
    max_scale = 1 << 8

    def with_delta(self, delta: Fraction) -> TruncatedGeometricNoise:
        return TruncatedGeometricNoise(_rounded_down(delta))

    def privacy_map(
        self, scales: tuple[Fraction, ...], epsilon: Fraction, sensitivity: Sensitivity
    ) -> Fraction:
        """Return δ where the first vector has this noise and the others have Laplace noise."""
        pure = super().privacy_map(scales, epsilon, sensitivity)
        return max(pure, self.delta) if sensitivity.l1 == 1 else Fraction(1)

    def plausible(self, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity) -> bool:
        return self.in_range(scale) and super().plausible(scale, epsilon, sensitivity)

    def variance(self, scale: Fraction) -> Fraction:
        left = [(1 << _PLACES) - low for low, _ in chances_to_list(1 / scale, self.delta)]  # P[N > n]
        first, second = sum(left), sum((2 * n + 1) * chance for n, chance in enumerate(left))  # E N, E N²
        return Fraction(second, 1 << _PLACES) - Fraction(first, 1 << _PLACES) ** 2

    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        """Draw n with π(n − 1) ≤ U < π(n) for a uniform U: 64 binary digits of it, or more where they tie."""
        cuts, threshold = _first_digits(1 / scale, self.delta)
        words = source.words(size)
        number = np.searchsorted(cuts, words)
        tied = np.flatnonzero(cuts[np.minimum(number, len(cuts) - 1)] == words)
        for place in tied.tolist():
            number[place] = _settled(1 / scale, self.delta, int(words[place]), source)
        return threshold - 1 - number.astype(np.int64)

    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        return _tail(1 / scale, self.delta, at)

    def beyond(
        self, scale: Fraction, places: int, grain: int, first: int = 1
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        chances, users = chances_to_list(1 / scale, self.delta), _threshold(1 / scale, self.delta)
        low = [one >> _PLACES - places for one, _ in chances]  # P[Z ≥ τ − n] for n = 0, 1, …
        sums = [0, *accumulate(low)]  # of P[Z ≥ s] over s > τ − n
        mean = (users << places) - sum((1 << places) - each for each in low)
        both = [
            (tail, (users - n) * tail + sums[n] - (mean * tail >> places))
            for n, tail in enumerate(low[:users])
        ]
        nothing = (0, 0)
        for t in count(first, grain):
            yield both[users - t] if t <= users else nothing, both[users - t - 1] if t < users else nothing

    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        raise ParameterError(f"noise {self.name} needs delta above 0; set delta, or noise to laplace")

    def law(self, scale: float) -> NoiseLaw:
        return _law(scale, self.delta)


def _rounded_down(delta: Fraction) -> Fraction:
    places = _DIGITS - delta.numerator.bit_length() + delta.denominator.bit_length()
    return Fraction((delta.numerator << places) // delta.denominator, 1 << places)


@lru_cache(maxsize=16)
def chances_to_list(rate: Fraction, delta: Fraction, places: int = _PLACES) -> list[tuple[int, int]]:
    """Enclose π(0), π(1), … up to the first that is 1, in units of 2^−``places``; ``rate`` is ε.

    >>> [low / 2**384 for low, _ in chances_to_list(Fraction(100), Fraction(1, 4))]
    [0.0, 0.25, 1.0]
    """
    if not 0 < delta < 1:
        raise ParameterError("noise truncated_geometric needs delta above 0 and below 1")
    one, step = 1 << places, (delta.numerator << places) // delta.denominator
    grows, falls = (_scaled(rate, sign, places) for sign in (1, -1))
    out = [(0, 0)]
    while (found := out[-1])[0] < one:
        (low, high), rest = found, [max(one - end - step, 0) for end in found]
        first = (low * grows[0] >> places) + step, -(-high * grows[1] >> places) + step
        second = one + (-rest[0] * falls[1] >> places), one - (rest[1] * falls[0] >> places)
        out.append((min(first[0], second[0], one), min(first[1], second[1], one)))
    return out


def _scaled(rate: Fraction, sign: int, places: int) -> tuple[int, int]:
    """Return e^(sign·rate) in units of 2^−``places``, rounded down and up."""
    low, high = enclose(lambda iv: iv.exp(sign * ratio_interval(iv, rate)), places + 512)
    return (low.numerator << places) // low.denominator, -((-high.numerator << places) // high.denominator)


@lru_cache(maxsize=16)
def _threshold(rate: Fraction, delta: Fraction) -> int:
    """Return τ, the least n with π(n) ≥ ½."""
    chances = chances_to_list(rate, delta)
    return next(n for n, (low, _) in enumerate(chances) if 2 * low >= 1 << _PLACES)


@lru_cache(maxsize=16)
def _digits(rate: Fraction, delta: Fraction, bits: int) -> list[int]:
    """Return ⌊2^bits·π(n)⌋ for n = 1, 2, … where π(n) < 1; the precision rises until all of them are certain."""
    places = bits + _PLACES
    while True:
        ends = [[end >> places - bits for end in pair] for pair in chances_to_list(rate, delta, places)[1:-1]]
        if all(low == high < 1 << bits for low, high in ends):
            return [low for low, _ in ends]
        places *= 2


@lru_cache(maxsize=16)
def _first_digits(rate: Fraction, delta: Fraction) -> tuple[NDArray[np.uint64], int]:
    return np.array(_digits(rate, delta, 64), np.uint64), _threshold(rate, delta)


def _settled(rate: Fraction, delta: Fraction, drawn: int, source: BitSource) -> int:
    """Return how many π(1), π(2), … are at most U, of which ``drawn`` are the first 64 binary digits."""
    bits = 64
    while True:
        bits, drawn = bits + 64, drawn << 64 | int(source.words(1)[0])
        cuts = _digits(rate, delta, bits)
        place = bisect_left(cuts, drawn)
        if place == len(cuts) or cuts[place] != drawn:
            return place


@lru_cache(maxsize=256)
def _tail(rate: Fraction, delta: Fraction, at: int) -> Callable[[Any], Any]:
    """Enclose P[Z ≥ at] = π(τ − at)."""
    users = _threshold(rate, delta) - at

    def interval(iv: Any) -> Any:
        places = max(_PLACES, iv.prec + _PLACES)
        chances = chances_to_list(rate, delta, places)
        low, high = chances[min(max(users, 0), len(chances) - 1)]
        return iv.mpf([iv.mpf(low).a, iv.mpf(high).b]) / iv.mpf(1 << places)

    return interval


@lru_cache(maxsize=16)
def _law(scale: float, delta: Fraction) -> NoiseLaw:
    rate = 1 / Fraction(scale)
    listed = np.array([low for low, _ in chances_to_list(rate, delta)], object)[::-1]
    one = 1 << _PLACES
    table = (
        (numbers / one).astype(np.float64) for numbers in (-np.diff(listed), listed[:-1], one - listed[:-1])
    )
    return TableLaw(scale, _threshold(rate, delta) - len(listed) + 1, *table)


NOISE = TruncatedGeometricNoise()
