"""Intervals of plain discrete Laplace noise: for public key lists, where every key is released with its noise."""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["laplace_interval"]

# From this many terms on the sum of the noise is normal for every purpose here.
_MANY = 30


def laplace_interval(scale: float, level: float, terms: int = 1) -> float:
    """Half-width of an interval that covers the sum of ``terms`` noises of this scale at ``level``, or more."""
    if terms == 1:
        # P(|Z| > h) = 2 q^(h+1)/(1 + q) ≤ 1 − level
        q = math.exp(-1.0 / scale)
        return float(max(math.ceil(math.log((1.0 - level) * (1.0 + q) / 2.0) / math.log(q)) - 1, 0))
    if terms < _MANY:  # Chernoff: E[e^(tZ)] = (1 − q)²/((1 − q e^t)(1 − q e^−t))
        return _chernoff(scale, level, terms)
    q = math.exp(-1.0 / scale)
    deviation = math.sqrt(terms * 2.0 * q) / (1.0 - q)
    return NormalDist().inv_cdf(0.5 + level / 2.0) * deviation


def _chernoff(scale: float, level: float, terms: int) -> float:
    q = math.exp(-1.0 / scale)
    target = math.log(2.0 / (1.0 - level))
    best = math.inf
    for step in range(1, 200):
        t = step / 200.0 / scale
        bound = 2.0 * math.log1p(-q) - math.log1p(-q * math.exp(t)) - math.log1p(-q * math.exp(-t))
        best = min(best, (target + terms * bound) / t)
    return best
