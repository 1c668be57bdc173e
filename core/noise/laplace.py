"""Discrete Laplace noise on counts.

Z is an integer with P(Z = z) ∝ q^|z|, q = e^(−1/b); P[Z ≥ t] = q^t/(1 + q) for t ≥ 1 (Inusah, Kozubowski 2006).

Guarantee: noise of scale b = C/ε on every count is ε-differentially private: one user moves the counts by at most C
in L1, and each unit changes the probability of an output by at most e^(1/b) (Ghosh, Roughgarden, Sundararajan 2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
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
    """``scale`` is b. All of δ is left for the threshold."""

    name = "laplace"
    bits_at_one = Fraction(13, 5)
    # Less for the list leaves keys below the threshold that hide small ones in their buckets (benchmarks.error).
    shares = tuple(Fraction(percent, 100) for percent in range(50, 75, 5))

    def split_delta(self, delta: Fraction) -> tuple[Fraction, Fraction]:
        return Fraction(0), delta

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

    def tails(self, scale: Fraction, places: int) -> Iterator[int]:
        """Yield P[Z ≥ t] for t = 1, 2, … in the same units."""
        one, q = 1 << places, self.ratio(scale, places)
        power = one
        while True:
            power = power * q >> places
            yield power * one // (one + q)

    def sample_tail(self, scale: Fraction, at: int, size: int, source: BitSource) -> NDArray[np.int64]:
        return at + geometric(scale, size, source)  # memoryless beyond 0

    def law(self, scale: float) -> NoiseLaw:
        return LaplaceLaw(scale)


NOISE = LaplaceNoise()
