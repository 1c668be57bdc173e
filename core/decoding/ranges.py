"""Intervals of a sum from its moments."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from hushgram.decoding.released import Floats

__all__ = ["normal_range", "positive_range"]

_FAR = 7.0  # deviations from which on a sum does not feel that it cannot be negative
_STEP = 0.01


def normal_range(mean: float, variance: float, third: float, level: float) -> tuple[float, float]:
    """Cornish–Fisher interval of a sum from its first three moments."""
    deviation = float(np.sqrt(max(variance, 0.0)))
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    skew = float(np.clip(third / max(deviation, 1e-150) ** 3 if deviation > 0 else 0.0, -1.0, 1.0))
    shift = skew * (z * z - 1.0) / 6.0
    return mean + deviation * (shift - z), mean + deviation * (shift + z)


def positive_range(mean: float, deviation: float, level: float) -> tuple[float, float]:
    """Interval for a sum that is not negative, from a normal estimate of it (Feldman, Cousins 1998, section IV).

    Each true sum s accepts estimates in falling order of their likelihood over that of the best sum ≥ 0, until
    ``level`` is reached: the interval holds ``level`` for every s ≥ 0, is never empty, and never below 0.
    """
    at = mean / max(deviation, 1e-150)
    if at > _FAR:
        return normal_range(mean, deviation**2, 0.0, level)
    sums, first, last = _accepted(level)
    good = np.flatnonzero((first <= at) & (at <= last))  # 0 accepts whatever lies below it
    if not len(good):  # at a level near 0 no sum of the grid accepts it
        good = np.array([round(max(at, 0.0) / _STEP)])
    return float(sums[good[0]]) * deviation, max(float(sums[good[-1]]), _STEP) * deviation


@lru_cache(maxsize=16)
def _accepted(level: float) -> tuple[Floats, Floats, Floats]:
    """For sums s in deviations: the estimates first … last that s accepts."""
    sums = np.arange(0.0, 2.0 * _FAR, _STEP)
    normal = np.array([NormalDist().cdf(x / 1000.0) for x in range(-9000, 9001)])
    points = np.arange(-9.0, 9.0005, 0.001)

    def cdf(x: Floats) -> Floats:
        return np.asarray(np.interp(x, points, normal, left=0.0, right=1.0))

    low, high = sums.copy(), sums + 9.0  # bisect for the last estimate; the first one has the same ratio
    for _ in range(50):
        last = (low + high) / 2.0
        enough = cdf(last - sums) - cdf(_same_ratio(last, sums) - sums) >= level
        low, high = np.where(enough, low, last), np.where(enough, last, high)
    return sums, _same_ratio(high, sums), high


def _same_ratio(last: Floats, sums: Floats) -> Floats:
    """The estimate below s whose ratio is that of ``last``: e^(−(x − s)²/2) for x ≥ 0, e^(xs − s²/2) below."""
    inside = 2.0 * sums - last
    below = (sums**2 - (last - sums) ** 2) / (2.0 * np.maximum(sums, 1e-12))
    return np.where(inside >= 0.0, inside, np.where(sums > 0.0, below, -np.inf))
