"""Goodness-of-fit tests with a stated false-alarm rate, and the exact distributions that samplers must have.

All draws in tests come from fixed keys, so a test either always passes or always fails; the false-alarm rate says how
likely a correct sampler was to fail when its keys were first chosen. It is 1e-7 a test.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

FALSE_ALARM = 1e-7


def laplace_pmf(scale: float, z: int) -> float:
    """P(Z = z) of discrete Laplace noise."""
    q = math.exp(-1 / scale)
    return (1 - q) / (1 + q) * q ** abs(z)


def laplace_tail(scale: float, t: int) -> float:
    """P(Z ≥ t), by summing: independent of the closed form used in hushgram."""
    reach = t + int(60 * scale) + 60
    return math.fsum(laplace_pmf(scale, z) for z in range(t, reach))


@cache
def _gaussian_total(scale: float) -> float:
    reach = math.ceil(40 * scale) + 2
    return math.fsum(math.exp(-z * z / (2 * scale * scale)) for z in range(-reach, reach + 1))


def gaussian_pmf(scale: float, z: int) -> float:
    """P(Z = z) of discrete Gaussian noise."""
    return math.exp(-z * z / (2 * scale * scale)) / _gaussian_total(scale)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """P(χ² ≥ statistic), by the regularised incomplete gamma function."""
    import mpmath

    return float(mpmath.gammainc(freedom / 2, statistic / 2, mpmath.inf, regularized=True))


def fits(draws: Sequence[int] | np.ndarray, probabilities: Mapping[int, float]) -> bool:
    """Whether draws agree with a distribution at the false-alarm rate; rare values are pooled into one cell."""
    draws = np.asarray(draws)
    total = len(draws)
    values, seen = np.unique(draws, return_counts=True)
    counts = dict(zip(values.tolist(), seen.tolist(), strict=True))
    cells, pooled_p, pooled_n = [], 1.0, total
    for value, p in probabilities.items():
        if p * total >= 20:
            n = counts.get(value, 0)
            cells.append((n, p * total))
            pooled_p -= p
            pooled_n -= n
    if pooled_p * total > 5:
        cells.append((pooled_n, pooled_p * total))
    elif pooled_n > 5 + 10 * math.sqrt(5 + max(pooled_p, 0) * total) + 20:
        return False
    statistic = sum((n - e) ** 2 / e for n, e in cells)
    return chi_square_tail(statistic, max(len(cells) - 1, 1)) > FALSE_ALARM
