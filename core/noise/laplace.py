"""Discrete Laplace noise on counts.

Z is an integer with P(Z = z) ∝ q^|z|, q = e^(−1/b); P[Z ≥ t] = q^t/(1 + q) for t ≥ 1 (Inusah, Kozubowski 2006).

Guarantee: noise of scale b = C/ε on every count is ε-differentially private: one user moves the counts by at most C
in L1, and each unit changes the probability of an output by at most e^(1/b) (Ghosh, Roughgarden, Sundararajan 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import laplace_tail
from hushgram.noise.laws import LaplaceLaw, NoiseLaw
from hushgram.noise.noises import Noise
from hushgram.noise.sampling import discrete_laplace, geometric
from hushgram.sensitivity import Sensitivity

__all__ = ["NOISE", "LaplaceNoise"]


class LaplaceNoise(Noise):
    """``scale`` is b."""

    name = "laplace"

    def scales(
        self, epsilons: tuple[Fraction, ...], delta: Fraction, sensitivity: Sensitivity
    ) -> tuple[Fraction, ...]:
        return tuple(sensitivity.l1 / epsilon for epsilon in epsilons)

    def privacy_map(
        self, scales: tuple[Fraction, ...], epsilon: Fraction, sensitivity: Sensitivity
    ) -> Fraction:
        return Fraction(int(sum(sensitivity.l1 / scale for scale in scales) > epsilon))

    def plausible(self, scale: Fraction, epsilon: Fraction, sensitivity: Sensitivity) -> bool:
        return scale * epsilon == sensitivity.l1

    def variance(self, scale: Fraction) -> Fraction:
        return 2 * scale * scale

    def sample(self, scale: Fraction, size: int, source: BitSource) -> NDArray[np.int64]:
        return discrete_laplace(scale, size, source)

    def tail(self, scale: Fraction, at: int) -> Callable[[Any], Any]:
        return laplace_tail(1 / scale, at)

    def ratio(self, scale: Fraction, places: int) -> int:
        """Return q = e^(−1/b) in units of 2^−``places``, of which 150 are right; every machine finds the same."""
        with localcontext() as context:
            context.prec = 60
            return int((Decimal(-scale.denominator) / Decimal(scale.numerator)).exp() * (1 << places))

    def beyond(
        self, scale: Fraction, places: int, grain: int, first: int = 1
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield (P[Z ≥ t], E[Z − E Z; Z ≥ t]) at t and t + 1 for each ``grain``-th t, in 2^−``places``."""
        one, q = 1 << places, self.ratio(scale, places)
        mean = (q << places) // (one - q)  # of a geometric number: what is beyond t, given Z ≥ t
        power, factor = _power(q, first, places), _power(q, grain, places)
        for t in count(first, grain):
            tail, after = ((each << places) // (one + q) for each in (power, power * q >> places))
            yield (
                (tail, tail * t + (tail * mean >> places)),
                (after, after * (t + 1) + (after * mean >> places)),
            )
            power = power * factor >> places

    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        return at + geometric(scale, size, source)  # memoryless beyond 0

    def law(self, scale: float) -> NoiseLaw:
        return LaplaceLaw(scale)


def _power(base: int, exponent: int, places: int) -> int:
    """Return base^exponent in units of 2^−``places``."""
    out = 1 << places
    for digit in f"{exponent:b}":
        out = out * out >> places
        out = out * base >> places if digit == "1" else out
    return out


NOISE = LaplaceNoise()
