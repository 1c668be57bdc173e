"""Gaussian differential privacy of discrete Gaussian noise: one privacy map for any number of noisy vectors.

A release adds independent discrete Gaussian noise of scale σ_i to vectors x_1, x_2, …; each vector may be chosen after
the ones before it were seen. One privacy unit moves x_i by an integer vector of squared L2 norm at most Δ_i² in at most
k_i coordinates.

**Theorem.** For any 0 < r_i < σ_i let η_i = 2 Σ_{j≥1} e^(−2π²r_i²j²) < 1, κ = Π ((1 + η_i)/(1 − η_i))^(k_i) and
μ² = Σ Δ_i²/(σ_i² − r_i²). The release is (ε, δ)-DP with

    δ = κ · D(ε − 2 ln κ, μ),      D(ε, μ) = Q(ε/μ − μ/2) − e^ε · Q(ε/μ + μ/2),      Q(x) = P[N(0, 1) ≥ x].

*Proof.* Draw Y from N(x, σ² − r²), then Z on ℤ with P(z | y) ∝ e^(−(z − y)²/2r²). The normalising sum of the second
step is r√2π·(1 ± η) for every y (Poisson summation), so P(Z = z) is e^(−(z − x)²/2σ²)/σ√2π up to a factor within
1/(1 ± η); the discrete Gaussian is the same up to such a factor (Peikert 2010, Theorem 3.1). So where one coordinate of
the discrete mechanism is replaced by post-processing of continuous noise of variance σ² − r², every probability changes
by a factor of at most (1 + η)/(1 − η). Replace the coordinates that the unit moves: κ in all, whatever came before.
Continuous Gaussian mechanisms that are chosen adaptively compose to μ-GDP, which is (ε, D(ε, μ))-DP for all ε (Dong,
Roth, Su 2022, Theorem 3.2 and Corollary 2.13). Hence P(S) ≤ κ·P_c(S) ≤ κ·(e^ε'·P'_c(S) + D(ε', μ)) ≤ κ²·e^ε'·P'(S) +
κ·D(ε', μ).

A pure ε-DP step is randomized response up to post-processing (Kairouz, Oh, Viswanath 2015), which is a comparison of
one Gaussian draw with μ/2 where Φ(μ/2) = e^ε/(1 + e^ε). So it can be counted as one more vector (`pure_mu_squared`).

Where it depends on earlier results which of several groups of vectors comes next (`OneOf`), the largest μ² and the
largest factor among them stand for it: the proof needs a bound of each step given all results before it, and no more.

Unlike zCDP and its conversion to (ε, δ), nothing is lost but κ and r: 7 % less noise at (1, 10^−6), for any L∞.

| symbol | meaning |
|---|---|
| σ, Δ², k | scale of the noise, squared L2 sensitivity and L0 sensitivity of a vector (`NoisyVector`) |
| r² | part of the variance that is given up for the comparison with continuous noise |
| Q, D | normal tail; δ of a μ-GDP mechanism at ε |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from hushgram.noise.intervals import enclose, exact_end, ratio_interval

__all__ = [
    "NoisyVector",
    "OneOf",
    "Vectors",
    "compares",
    "discrete_factor",
    "gdp_delta",
    "gdp_mu",
    "gdp_mu_squared",
    "mu_delta",
    "normal_tail",
    "pure_mu_squared",
    "smallest",
]

# Precision of all intervals. δ is stated to 20 digits and more, which is far more than any use of it.
BITS = 128
# r² is one of these: the first gives up little variance, the last makes κ − 1 smaller than 10^−60.
_SMOOTHING = tuple(Fraction(n, 4) for n in (1, 2, 3, 4, 6, 8, 16, 32))
# e^(−2π²r²) of each, as decimals: every machine makes the same choice
_UNEVENNESS = {
    r: Fraction(Context(prec=17).exp(Decimal(r.numerator) / r.denominator * Decimal("-19.739208802178716")))
    for r in _SMOOTHING
}


@dataclass(frozen=True)
class NoisyVector:
    """A vector with discrete Gaussian noise: scale, squared L2 sensitivity, and how many numbers one unit moves."""

    scale: Fraction
    l2_squared: int | Fraction
    l0: int

    @property
    def smoothing(self) -> Fraction:
        """Return r², about the best for these numbers; every choice is valid."""
        variance = self.scale * self.scale
        fitting = [r for r in _SMOOTHING if 2 * r < variance]
        return min(fitting, key=lambda r: 8 * self.l0 * _UNEVENNESS[r] + r / variance)

    @property
    def mu_squared(self) -> Fraction:
        """Return Δ²/(σ² − r²)."""
        return Fraction(self.l2_squared) / (self.scale**2 - self.smoothing)

    @property
    def compares(self) -> bool:
        """Return whether the scale is large enough for the comparison with continuous noise."""
        return 2 * _SMOOTHING[0] < self.scale * self.scale

    def factor(self, iv: Any) -> Any:
        """Enclose the factor between discrete and continuous noise."""
        first = iv.exp(-2 * iv.pi**2 * ratio_interval(iv, self.smoothing))
        eta = 2 * first / (1 - first)
        return ((1 + eta) / (1 - eta)) ** self.l0


@dataclass(frozen=True)
class OneOf:
    """One of several groups of vectors, chosen after earlier results were seen; nothing is known of the choice."""

    choices: tuple[tuple[NoisyVector, ...], ...]

    @property
    def mu_squared(self) -> Fraction:
        """Return the largest Σ Δ²/(σ² − r²)."""
        return max(gdp_mu_squared(choice) for choice in self.choices)

    @property
    def compares(self) -> bool:
        """Return whether every scale is large enough for the comparison with continuous noise."""
        return all(compares(choice) for choice in self.choices)

    def factor(self, iv: Any) -> Any:
        """Enclose the largest factor between discrete and continuous noise."""
        factors = [discrete_factor(iv, choice) for choice in self.choices]
        return iv.mpf([max(each.a for each in factors), max(each.b for each in factors)])


Vectors: TypeAlias = "tuple[NoisyVector | OneOf, ...]"


def compares(vectors: Vectors) -> bool:
    """Return whether all scales are large enough for the comparison with continuous noise; else no bound is known."""
    return all(vector.compares for vector in vectors)


def gdp_mu_squared(vectors: Vectors) -> Fraction:
    """Return μ² = Σ Δ²/(σ² − r²) of the continuous mechanism that stands for these vectors."""
    return sum((vector.mu_squared for vector in vectors), Fraction(0))


def discrete_factor(iv: Any, vectors: Vectors) -> Any:
    """Enclose κ, the factor between the discrete mechanism and the continuous one."""
    out = iv.mpf(1)
    for vector in vectors:
        out *= vector.factor(iv)
    return out


@lru_cache(maxsize=1024)
def gdp_delta(vectors: Vectors, epsilon: Fraction, pure: tuple[Fraction, ...] = ()) -> Fraction:
    """Return (privacy map) an upper bound of δ at ``epsilon``.

    Args:
        vectors: what noise is added to, in any order; later ones may depend on earlier results.
        epsilon: where δ is asked for.
        pure: ε of each pure step that belongs to the same release.
    """
    if not compares(vectors):
        return Fraction(1)
    mu_squared = gdp_mu_squared(vectors) + sum(map(pure_mu_squared, pure), Fraction(0))
    if not mu_squared:
        return Fraction(0)

    def bound(iv: Any) -> Any:
        factor = discrete_factor(iv, vectors)
        return factor * mu_delta(iv, ratio_interval(iv, epsilon) - 2 * iv.log(factor), mu_squared)

    return min(max(enclose(bound, BITS)[1], Fraction(0)), Fraction(1))


def mu_delta(iv: Any, epsilon: Any, mu_squared: Fraction) -> Any:
    """Enclose D(ε, μ) for an interval ``epsilon``."""
    if not mu_squared:
        gap = 1 - iv.exp(epsilon)
        return iv.mpf([max(gap.a, 0), max(gap.b, 0)])
    mu = iv.sqrt(ratio_interval(iv, mu_squared))
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return normal_tail(iv, near) - iv.exp(epsilon) * normal_tail(iv, far)


@lru_cache(maxsize=1024)
def pure_mu_squared(epsilon: Fraction) -> Fraction:
    """Return μ² for which every ε-DP mechanism is μ-GDP, rounded up: Φ(μ/2) ≥ e^ε/(1 + e^ε).

    >>> round(float(pure_mu_squared(Fraction(1, 50))), 6)
    0.000628
    """
    if not epsilon:
        return Fraction(0)

    def enough(steps: int) -> bool:
        def excess(iv: Any) -> Any:  # e^ε/(1 + e^ε) − Φ(μ/2) = Q(μ/2) − 1/(1 + e^ε)
            half = ratio_interval(iv, Fraction(steps, 1 << 33))
            return normal_tail(iv, half) - 1 / (1 + iv.exp(ratio_interval(iv, epsilon)))

        return enclose(excess, BITS)[1] <= 0

    guess = 2 * _normal_quantile(1 / (1 + math.exp(-float(epsilon))))
    return Fraction(smallest(enough, max(int(guess * (1 << 32)), 1)), 1 << 32) ** 2


def _normal_quantile(probability: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(probability)


@lru_cache(maxsize=256)
def gdp_mu(epsilon: Fraction, delta: Fraction) -> float:
    """Return about the largest μ with D(ε, μ) ≤ δ: a guess from which an exact search starts."""

    def over(mu: float) -> float:
        first, second = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        return math.erfc(first / math.sqrt(2)) / 2 - math.exp(epsilon) * math.erfc(second / math.sqrt(2)) / 2

    low, high = 0.0, 1.0
    while high < 1e6 and over(high) <= delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if over(middle) <= delta else (low, middle)
    return max(low, 1e-12)


# --- normal tail --------------------------------------------------------------------------------------------------


def normal_tail(iv: Any, x: Any) -> Any:
    """Enclose Q(x) = P[N(0, 1) ≥ x] for a narrow interval ``x``.

    From 1 on by Laplace's continued fraction, Q(x) = φ(x)/(x + 1/(x + 2/(x + …))), whose convergents lie on both
    sides in turn. Near 0 by ½ − φ(x)·Σ x^(2n+1)/(2n+1)!!, whose terms fall at least as fast as x²/(2n+3).
    """
    if x.b < 0:
        return 1 - normal_tail(iv, -x)
    if x.a < 1:
        return _near_zero(iv, x)
    density = iv.exp(-x * x / 2) / iv.sqrt(2 * iv.pi)
    terms = min(int(900 / float(x.a.b) ** 2) + 10, 1000)  # e^(−2x√(2n)) is about what is left
    bits = iv.prec + 32
    low, high = (exact_end(end) * (1 << bits) for end in (x.a, x.b))
    ends = [_convergent(math.floor(low), math.ceil(high), n, bits) for n in (terms, terms + 1)]
    return density * (1 << bits) / iv.mpf([min(a for a, _ in ends), max(b for _, b in ends)])


def _convergent(low: int, high: int, terms: int, bits: int) -> tuple[int, int]:
    """Enclose x + 1/(x + 2/(x + … terms/x)) for x from ``low`` to ``high``, all in units of 2^−``bits``."""
    a, b = low, high
    for n in range(terms, 0, -1):
        scaled = n << (2 * bits)
        a, b = low + scaled // b, high - (-scaled // a)
    return a, b


def _near_zero(iv: Any, x: Any) -> Any:
    square = x * x
    term, total, n = x, x, 0
    while True:
        n += 1
        term = term * square / (2 * n + 1)
        total += term
        if n > 4 and float(abs(term).b.b) < 2.0 ** -(iv.prec + 8):
            break
    rest = 2 * abs(term).b  # the ratio of later terms is below 1/2
    density = iv.exp(-square / 2) / iv.sqrt(2 * iv.pi)
    return iv.mpf(1) / 2 - density * (total + iv.mpf([-rest, rest]))


def smallest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the smallest whole number from 1 on that holds, searched from ``guess``; those above it hold too."""
    low, step = guess, 1
    while low > 0 and holds(low):
        low, step = low - step, 2 * step
    low, high, step = max(low, 0), max(low, 0) + 1, 1
    while not holds(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
