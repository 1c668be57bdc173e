"""Zero-concentrated differential privacy: what ρ buys, and what ρ a stated (ε, δ) allows.

A mechanism is ρ-zCDP if its Rényi divergence of every order α > 1 is at most ρα (Bun, Steinke 2016). ρ adds up
over adaptive steps. A pure ε-DP step has ρ = ε²/2; one whose privacy loss lies in an interval of length ε
(ε-bounded range, as the exponential mechanism's does) has ρ = ε²/8 (Cesar, Rogers 2021, from Hoeffding's
lemma).

Back to (ε, δ), with τ = ρα, for any α > 1 (Canonne, Kamath, Steinke 2020, Proposition 12):

    δ = exp((α − 1)(τ − ε)) · (1 − 1/α)^(α−1) / α

The order α is found in floating point; the δ that it proves is enclosed in interval arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hushgram.noise.intervals import enclose, ratio_interval

__all__ = ["bounded_range_epsilon", "rdp_epsilon", "rho_for", "zcdp_delta", "zcdp_epsilon"]

# ρ is put on this grid, always rounded down.
_GRID = 1 << 40


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """An upper bound of the δ for which ρ-zCDP is (ε, δ)-DP, proved at one order."""
    order = Fraction(_best_order(float(rho), float(epsilon))).limit_denominator(1 << 20)

    def bound(iv: Any) -> Any:
        alpha, one = ratio_interval(iv, order), ratio_interval(iv, order - 1)
        loss = ratio_interval(iv, rho * order - epsilon)
        return iv.exp(one * loss + one * iv.log(one / alpha)) / alpha

    return min(enclose(bound, 256)[1], Fraction(1))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The ε of ρ-zCDP at δ, by the same proposition: for tables, in floating point.

    >>> round(zcdp_epsilon(0.5, 1e-6), 2)
    5.22
    """
    low, high = 0.0, rho + 2 * math.sqrt(rho * -math.log(delta))
    for _ in range(100):
        middle = (low + high) / 2
        enough = _log_delta(rho, middle, _best_order(rho, middle)) <= math.log(delta)
        low, high = (low, middle) if enough else (middle, high)
    return high


@lru_cache(maxsize=1024)
def rho_for(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest ρ on the grid that is certainly (ε, δ)-DP; 0 if there is none."""
    low, high = 0.0, float(epsilon)
    for _ in range(100):
        middle = (low + high) / 2
        enough = _log_delta(middle, float(epsilon), _best_order(middle, float(epsilon)))
        low, high = (middle, high) if enough <= math.log(float(delta)) else (low, middle)
    steps = int(low * _GRID)
    while steps > 0 and zcdp_delta(Fraction(steps, _GRID), epsilon) > delta:
        steps -= max(1, steps >> 20)
    return Fraction(max(steps, 0), _GRID)


def bounded_range_epsilon(epsilon: Fraction, delta: Fraction, steps: int) -> Fraction:
    """The ε' of which ``steps`` adaptive ε'-bounded-range steps are (ε, δ)-DP: √(8ρ/c), rounded down."""
    square = 8 * rho_for(epsilon, delta) / steps
    return Fraction(math.isqrt(int(square * _GRID * _GRID)), _GRID)


def _log_delta(rho: float, epsilon: float, order: float) -> float:
    return (order - 1) * (rho * order - epsilon + math.log1p(-1 / order)) - math.log(order)


def _best_order(rho: float, epsilon: float) -> float:
    """The order that proves the least δ: golden section on ln(α − 1), where the bound is unimodal."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = math.log(1e-4), math.log(1e9)
    for _ in range(120):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        worse = _log_delta(rho, epsilon, 1 + math.exp(first)) > _log_delta(rho, epsilon, 1 + math.exp(second))
        low, high = (first, high) if worse else (low, second)
    return 1 + math.exp((low + high) / 2)


def rdp_epsilon(order: float, loss: float, delta: float) -> float:
    """ε at δ of a Rényi divergence of one order, by dp-accounting: for tables, in floating point."""
    from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon

    return float(compute_epsilon([order], [loss], delta)[0])
