"""Zero-concentrated differential privacy: conversion between ρ and (ε, δ).

A mechanism is ρ-zCDP if its Rényi divergence of every order α > 1 is at most ρα (Bun, Steinke 2016). ρ adds up
over adaptive steps. A pure ε-DP step has ρ = ε²/2; one whose privacy loss lies in an interval of length ε
(ε-bounded range, as the exponential mechanism's does) has ρ = ε²/8 (Cesar, Rogers 2021, from Hoeffding's
lemma).

Back to (ε, δ), for any order α > 1 (Canonne, Kamath, Steinke 2020, Proposition 12):

    δ = exp((α − 1)(αρ − ε)) · (1 − 1/α)^α / (α − 1)                                                  (1)

or, solved for one of the others, with K(α) = (α ln(1 − 1/α) − ln(α − 1) − ln δ)/(α − 1):

    ε = αρ + K(α),    ρ = (ε − K(α))/α

Every order proves its bound, so the order is found in floating point, by golden section on ln(α − 1), where each of
the three is unimodal. The bound at that order is then enclosed in interval arithmetic and rounded against ourselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hushgram.noise.intervals import enclose, ratio_interval

__all__ = ["bounded_range_epsilon", "rho_for", "zcdp_delta", "zcdp_epsilon"]

# ρ is put on this grid, always rounded down.
_GRID = 1 << 40
_BITS = 256


@lru_cache(maxsize=1024)
def zcdp_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Return an upper bound of the δ for which ρ-zCDP is (ε, δ)-DP."""
    r, e = float(rho), float(epsilon)
    order = _best_order(lambda a: (a - 1) * (a * r - e + math.log1p(-1 / a)) - math.log(a))

    def bound(iv: Any) -> Any:
        a = ratio_interval(iv, order)
        return iv.exp((a - 1) * (ratio_interval(iv, order * rho - epsilon) + iv.log(1 - 1 / a))) / a

    return min(enclose(bound, _BITS)[1], Fraction(1))


@lru_cache(maxsize=1024)
def zcdp_epsilon(rho: Fraction, delta: Fraction) -> Fraction:
    """Return the ε of ρ-zCDP at δ, rounded up. Never below 0: at a large δ the bound is negative.

    >>> round(float(zcdp_epsilon(Fraction(1, 2), Fraction(1, 10**6))), 2)
    5.22
    """
    r, d = float(rho), float(delta)
    order = _best_order(lambda a: a * r + _cost(a, d))
    high = enclose(lambda iv: ratio_interval(iv, order * rho) + _cost_interval(iv, order, delta), _BITS)[1]
    return max(Fraction(0), Fraction(math.ceil(high * 10**9), 10**9))


@lru_cache(maxsize=1024)
def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the largest ρ on the grid that is certainly (ε, δ)-DP; 0 if there is none.

    >>> float(rho_for(Fraction(3), Fraction(1, 10**7)))  # doctest: +ELLIPSIS
    0.157...
    """
    e, d = float(epsilon), float(delta)
    order = _best_order(lambda a: (_cost(a, d) - e) / a)
    low = enclose(lambda iv: ratio_interval(iv, epsilon) - _cost_interval(iv, order, delta), _BITS)[0]
    return max(Fraction(math.floor(low / order * _GRID), _GRID), Fraction(0))


def bounded_range_epsilon(epsilon: Fraction, delta: Fraction, steps: int) -> Fraction:
    """Return the ε' of which ``steps`` adaptive ε'-bounded-range steps are (ε, δ)-DP: √(8ρ/c), rounded down."""
    square = 8 * rho_for(epsilon, delta) / steps
    return Fraction(math.isqrt(int(square * _GRID * _GRID)), _GRID)


def _cost(order: float, delta: float) -> float:
    """Return K(α)."""
    return (order * math.log1p(-1 / order) - math.log(order - 1) - math.log(delta)) / (order - 1)


def _cost_interval(iv: Any, order: Fraction, delta: Fraction) -> Any:
    """Enclose K(α)."""
    a = ratio_interval(iv, order)
    return (a * iv.log(1 - 1 / a) - iv.log(a - 1) - iv.log(ratio_interval(iv, delta))) / (a - 1)


def _best_order(bound: Callable[[float], float]) -> Fraction:
    """Return the order with about the smallest bound."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(1e-4), math.log(1e9)
    for _ in range(120):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        worse = bound(1 + math.exp(first)) > bound(1 + math.exp(second))
        low, high = (first, high) if worse else (low, second)
    return Fraction(1 + math.exp((low + high) / 2)).limit_denominator(1 << 20)
