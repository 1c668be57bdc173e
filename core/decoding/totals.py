"""The sum over a set of keys, whatever the set: rare keys, heavy keys, keys that nobody used, or a mixture ★.

Nothing is assumed about the set. Its *interval* is that of the unbiased sum, which holds for any fixed set. Its
*estimate* is sharper: the set's own distribution of counts is fitted to what the lookups of its keys found (an
empirical Bayes estimate; post-processing, so free), under four hypotheses that are averaged by how well each
explains the outcomes (its evidence, by Laplace's approximation):

* all keys are in the data, and their counts are distributed as all keys' are;
* no key is in the data;
* all keys are in the data, and the density of their counts is that of all keys times a smooth function of ln x
  (bends and slopes of its logarithm are penalised);
* the same, except for a share of the keys that is absent.

A fit can be wrong about an odd set, so the estimate never leaves the unbiased sum by more than INSIDE of its
standard deviations.

Every interval of a sum comes from `total_interval`: from a sum of many noises, whose variances add up, and from ends
that are proved another way. What listed keys alone prove and what the released sizes allow are two such ends. Each may
fail with PROVED of the missing coverage, and the sum's own interval with the rest, so that all of them together hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from hushgram.decoding.confidence import OutcomeTable
from hushgram.decoding.constants import (
    PROVED,
    SET_ABSENT,
    SET_BEND,
    SET_FLOOR,
    SET_NOISE,
    SET_RATIO,
    SET_RIDGE,
    SET_SLOPE,
    SET_STEPS,
)  # fmt: skip
from hushgram.decoding.likelihood import Floats, Ints, Likelihood, ReleasedNumbers
from hushgram.decoding.prior import Prior

__all__ = ["TotalModel", "normal_range", "positive_range", "radius", "total_interval"]


class TotalModel:
    """Fits of sets of keys to one release. Bins are coarse: 0, and ranges of counts that grow by SET_RATIO, or of
    SET_NOISE noise scales above the threshold."""

    def __init__(self, released: ReleasedNumbers, likelihood: Likelihood, prior: Prior) -> None:
        grid = prior.grid
        self.outcomes = OutcomeTable(released, likelihood)
        edges = [1]
        while edges[-1] <= grid.high[-1]:
            wide = edges[-1] * (SET_RATIO - 1.0)
            if edges[-1] >= released.threshold:  # here values tell counts apart by their noise
                wide = min(wide, SET_NOISE * released.noise.scale)
            edges.append(edges[-1] + max(1, int(wide)))
        bins = np.searchsorted(edges, grid.low, side="right") - 1
        power = grid.width / grid.at**2
        weight = prior.mass + SET_FLOOR * power / power.sum()  # no bin is impossible
        mass = np.bincount(bins, weight)
        inside = np.zeros((len(bins), len(mass)))
        inside[np.arange(len(bins)), bins] = weight / mass[bins]
        rows = np.vstack([self.outcomes.chances(np.zeros(1)), inside.T @ self.outcomes.chances(grid.at)])
        self.chances = np.maximum(rows.T, 1e-300)  # (outcomes, bins)
        self.mean = np.append(0.0, grid.at @ inside)
        self.usual = mass / mass.sum()
        self.spread = None  # of the unbiased estimate, by bin, where the encoding counts what is passed on
        if released.rest is not None:
            none, some = (
                square - bias**2
                for bias, square in (
                    released.moments(at, likelihood.encoded_variance) for at in (np.zeros(1), grid.at)
                )
            )
            self.spread = np.maximum(np.append(none, some @ inside), 0.0)
        self.penalty = _penalty(np.log(self.mean[1:]))

    def total(self, symbols: Ints, values: Ints) -> tuple[float, float]:
        """Estimate the sum of the counts of these keys (``values`` −1: not listed).

        Where the encoding counts what is passed on, also the variance of the sum of their unbiased estimates; else 0.
        """
        seen = np.bincount(self.outcomes.index(symbols, values), minlength=len(self.chances))
        often, chances = seen[seen > 0].astype(np.float64), self.chances[seen > 0]
        absent, there = chances[:, 0], chances[:, 1:]
        fits = [
            (self.usual, float(often @ np.log(there @ self.usual))),
            _fit(often, there, np.log(self.usual), self.penalty[1:, 1:]),
            _fit(often, chances, np.log(np.append(1.0, self.usual)), self.penalty),
        ]
        likelihood = np.array([float(often @ np.log(absent)), *(fit[1] for fit in fits)])
        weight = np.exp(likelihood - likelihood.max())
        weight /= weight.sum()
        joint = [chances[:, :1], *(chances[:, -len(mass) :] * mass for mass, _ in fits)]
        found = [0.0, 0.0]
        for place, of_bins in enumerate((self.mean, self.spread)):
            if of_bins is not None:
                sums = [float(often @ _means(each, of_bins)) for each in joint[1:]]
                found[place] = float(weight @ [of_bins[0] * float(often.sum()), *sums])
        return found[0], found[1]


def _means(joint: Floats, at: Floats) -> Floats:
    """Return the mean count of each outcome, from the joint probabilities of outcomes and (the last) bins."""
    return np.asarray(joint @ at[-joint.shape[1] :] / joint.sum(axis=1))


def _fit(often: Floats, chances: Floats, start: Floats, penalty: Floats) -> tuple[Floats, float]:
    """Return the bins' masses and their log-evidence, where ln(masses) = start + φ, φ ~ N(0, penalty⁻¹).

    Levenberg–Marquardt for φ; the evidence is Laplace's approximation.
    """
    phi, damping, calm = np.zeros(len(start)), 1e-2, 0
    mass, chance, loss = _at(phi, often, chances, start, penalty)
    for _ in range(SET_STEPS):
        lift = chances * mass / chance[:, None] - mass
        gradient = often @ lift - penalty @ phi
        curvature = (lift * often[:, None]).T @ lift + penalty
        damped = curvature + np.diag(damping * (1.0 + np.diag(curvature)))
        trial = phi + np.clip(np.linalg.solve(damped, gradient), -3.0, 3.0)
        new = _at(trial, often, chances, start, penalty)
        if new[2] <= loss:
            calm = calm + 1 if loss - new[2] < 1e-2 else 0
            phi, damping = trial, max(damping / 5.0, 1e-9)
            mass, chance, loss = new
            if calm == 2:
                break
        else:
            damping *= 8.0
            if damping > 1e9:
                break
    room = np.linalg.slogdet(curvature)[1] - np.linalg.slogdet(penalty)[1]
    return mass, -loss - float(room) / 2.0


def _at(
    phi: Floats, often: Floats, chances: Floats, start: Floats, penalty: Floats
) -> tuple[Floats, Floats, float]:
    """Return masses, probabilities of the outcomes, and the loss at one φ."""
    line = start + phi
    mass = np.exp(line - line.max())
    mass /= mass.sum()
    chance = chances @ mass
    return mass, chance, float(phi @ penalty @ phi / 2.0 - often @ np.log(chance))


def _penalty(at: Floats) -> Floats:
    """Return the precision of φ: slopes and changes of slope against ln x; of the share that is absent; a ridge."""
    count, gap = len(at), np.maximum(np.diff(at), 1e-3)
    slope = np.zeros((count - 1, count + 1))
    rows = np.arange(count - 1)
    slope[rows, rows + 1], slope[rows, rows + 2] = -1.0 / gap, 1.0 / gap
    bend = np.diff(slope, axis=0) / (SET_BEND * np.sqrt((gap[:-1] + gap[1:]) / 2.0))[:, None]
    slope *= (np.sqrt(gap) / SET_SLOPE)[:, None]
    ridge = np.full(count + 1, SET_RIDGE)
    ridge[0] = SET_ABSENT**-2
    return np.asarray(bend.T @ bend + slope.T @ slope + np.diag(ridge))


# --- intervals of sums ------------------------------------------------------------------------------------------

_NORMAL = 5.0  # from this ratio of normal to Laplace noise on their sum is normal for every purpose here
_FAR = 7.0  # deviations from which on a sum does not feel that it cannot be negative
_STEP = 0.01


def total_interval(
    estimate: float,
    variance: float,
    level: float,
    *,
    laplace: float = 0.0,
    proven: Callable[[float], tuple[float, float]] | None = None,
) -> tuple[float, float]:
    """Return an interval for a nonnegative sum.

    Args:
        estimate: An unbiased estimate of the sum.
        variance: The variance of its normal part.
        level: The probability with which the interval holds.
        laplace: The scale of the Laplace noise that it has beside.
        proven: Returns a lower and an upper end of the sum, each of which fails with the given probability at most.
    """
    missed = 1.0 - level
    if proven is None:
        least, most = 0.0, math.inf
    else:
        least, most = proven(PROVED * missed)
        level = 1.0 - (1.0 - 2.0 * PROVED) * missed
    deviation = math.sqrt(variance)
    if laplace:
        deviation = radius(level, variance, laplace) / NormalDist().inv_cdf(0.5 + level / 2.0)
    low, high = positive_range(estimate, deviation, level)
    low = max(low, least, 0.0)
    return low, max(min(high, most), low)


def radius(level: float, variance: float, laplace: float) -> float:
    """Return r with P(|N + L| ≤ r) = level, N normal of this variance and L Laplace of this scale."""
    deviation = math.sqrt(max(variance, 0.0))
    if deviation >= _NORMAL * laplace:
        return NormalDist().inv_cdf(0.5 + level / 2.0) * math.sqrt(max(variance, 0.0) + 2.0 * laplace**2)
    missed = (1.0 - level) / 2.0
    if not deviation:
        return -laplace * math.log(2.0 * missed)
    ratio = deviation / laplace

    def normal(x: float) -> float:
        """Return P(X ≤ x) of a standard normal X, with all digits where it is small."""
        return 0.5 * math.erfc(-x / math.sqrt(2.0))

    low, high = 0.0, 9.0 * deviation - laplace * math.log(2.0 * missed)
    for _ in range(60):
        r = (low + high) / 2.0
        at, far = r / deviation, r / laplace
        beside = math.exp(ratio**2 / 2.0 - far) * normal(at - ratio)
        tail = normal(-at) + (beside - math.exp(ratio**2 / 2.0 + far) * normal(-at - ratio)) / 2.0
        low, high = (r, high) if tail > missed else (low, r)
    return high


def normal_range(mean: float, variance: float, third: float, level: float) -> tuple[float, float]:
    """Return the Cornish–Fisher interval of a sum from its first three moments."""
    deviation = float(np.sqrt(max(variance, 0.0)))
    z = NormalDist().inv_cdf(0.5 + level / 2.0)
    skew = float(np.clip(third / max(deviation, 1e-150) ** 3 if deviation > 0 else 0.0, -1.0, 1.0))
    shift = skew * (z * z - 1.0) / 6.0
    return mean + deviation * (shift - z), mean + deviation * (shift + z)


def positive_range(mean: float, deviation: float, level: float) -> tuple[float, float]:
    """Return an interval for a nonnegative sum from a normal estimate of it (Feldman, Cousins 1998, section IV).

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
    """Return the estimates first … last that each sum s accepts, all in standard deviations."""
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
    """Return the estimate below s whose ratio is that of ``last``: e^(−(x − s)²/2) for x ≥ 0, e^(xs − s²/2) below."""
    inside = 2.0 * sums - last
    below = (sums**2 - (last - sums) ** 2) / (2.0 * np.maximum(sums, 1e-12))
    return np.where(inside >= 0.0, inside, np.where(sums > 0.0, below, -np.inf))
