"""How common is each count? A prior over x ≥ 1, fitted to the released numbers alone (free of privacy cost).

The fit looks for the number μ_j of keys in each of some 50 bins of counts. Each observation (see
`rows`) has the precision that its noise leaves it, so whichever is the stronger decides: the profile
where there are many keys, the list in the tail, the loads where the sizes came from a configuration.

What no observation decides is filled by a smooth log-density: bends against ln x are penalised, and a power
law has none; it leans weakly towards x^−2. Bends are penalised as by Student's t, not as by a Gaussian, so that
a distribution of a few spikes is possible where the profile shows it. Least squares on ln μ by damped
Gauss–Newton steps with Huber weights: positive by construction, and one wild observation cannot take the
fit along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgram.decoding.constants import CURVE, ENOUGH, HUBER, LEAN, LOOSE, PASSES, STEPS, STIFF, STRIDE, TAIL
from hushgram.decoding.evidence import Evidence
from hushgram.decoding.released import Floats, Released
from hushgram.decoding.rows import Listing, Rows, gather
from hushgram.decoding.support import Bins, Support, make_bins

__all__ = ["Prior", "fit_prior"]


@dataclass(frozen=True)
class Prior:
    """Masses of the atoms (sum 1) of ``keys`` keys; ``beyond`` listed ones lie above the support.

    ``doubt`` is the standard error that the fit leaves on the mean count of a key that is not listed, and
    ``variance`` the variance of such a count: together they say how far a large total may be off as a whole.
    """

    support: Support
    mass: Floats
    doubt: float
    variance: float
    keys: float
    beyond: int


@dataclass(frozen=True)
class _Smoothness:
    """Residuals targets − rows·ln μ in standard deviations, each with its degrees of freedom."""

    rows: Floats
    targets: Floats
    freedom: Floats


def fit_prior(released: Released, evidence: Evidence) -> Prior:
    """Fit the prior of a release. Input: public numbers. Output: masses over the support, none negative."""
    bins = make_bins(released, evidence.grain)
    listing = Listing.of(released, bins.top)
    atoms = np.arange(len(bins.support.at))
    spread = bins.share(bins.support.width / bins.support.at**2, np.ones(bins.count))
    middle = bins.sums(spread * bins.support.at)
    shape = np.zeros((len(atoms), bins.count))
    smooth = _smoothness(bins, middle)
    theta = np.log(bins.width / middle**2)
    for number in range(PASSES):
        shape[atoms, bins.owner] = spread
        rows, records = gather(
            released, evidence, bins, shape, listing, LOOSE if number < PASSES - 1 else 0.0
        )
        if number == 0:
            theta = theta + np.log(max(float(rows.values[0]), 1.0) / float(np.exp(theta).sum()))
        theta, curvature = _solve(rows, smooth, theta)
        mass = np.exp(theta)
        inside = _tilt(bins, _spread(bins, mass, middle), records)
        spread = inside / mass[bins.owner]
    return _summary(released, bins, inside, curvature, listing.beyond)


def _smoothness(bins: Bins, middle: Floats) -> _Smoothness:
    """Bends of the ln density against ln x, and its lean.

    Inside a cell of the profile's grid little is known, so bends are small there; from cell to cell they
    may be as sharp as the data say.
    """
    count = bins.count
    gap = np.maximum(np.diff(np.log(middle)), 1e-3)
    slope = np.zeros((count - 1, count))
    slope[np.arange(count - 1), np.arange(count - 1)] = -1.0 / gap
    slope[np.arange(count - 1), np.arange(1, count)] = 1.0 / gap
    offset = slope @ np.log(bins.width)  # the density is μ/width
    inside = (bins.cell[2:] == bins.cell[:-2]) if count > 2 else np.zeros(0, dtype=bool)
    between = np.where(inside, STIFF, CURVE) * np.sqrt((gap[:-1] + gap[1:]) / 2.0)
    lean = np.sqrt(gap) / LEAN
    return _Smoothness(
        rows=np.vstack([np.diff(slope, axis=0) / between[:, None], slope * lean[:, None]]),
        targets=np.concatenate([np.diff(offset) / between, (offset - 2.0) * lean]),
        freedom=np.concatenate([np.where(inside, 1e9, TAIL), np.full(count - 1, TAIL)]),
    )


@dataclass(frozen=True)
class _Point:
    """The objective at one θ: residuals and weights of the evidence and of the smoothness, and their loss."""

    rest: Floats
    weight: Floats
    bend: Floats
    soft: Floats
    loss: float

    @classmethod
    def at(cls, rows: Rows, smooth: _Smoothness, theta: Floats) -> _Point:
        expected = rows.matrix @ np.exp(theta)
        weight = 1.0 / (rows.floor + rows.poisson * expected)
        rest = rows.values - expected
        size = np.abs(rest) * np.sqrt(weight)
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2).sum()
        bend = smooth.targets - smooth.rows @ theta
        loss += 0.5 * (smooth.freedom * np.log1p(bend**2 / smooth.freedom)).sum()
        pull = np.minimum(1.0, HUBER / np.maximum(size, 1e-12))
        return cls(rest, weight * pull, bend, 1.0 / (1.0 + bend**2 / smooth.freedom), float(loss))


def _solve(rows: Rows, smooth: _Smoothness, theta: Floats) -> tuple[Floats, Floats]:
    """Levenberg–Marquardt for θ = ln μ; returns θ and the curvature there."""
    damping, point = 1e-2, _Point.at(rows, smooth, theta)
    for _ in range(STEPS):
        jacobian = rows.matrix * np.exp(theta)
        curvature = jacobian.T @ (point.weight[:, None] * jacobian)
        curvature += smooth.rows.T @ (point.soft[:, None] * smooth.rows)
        gradient = jacobian.T @ (point.weight * point.rest) + smooth.rows.T @ (point.soft * point.bend)
        damped = curvature + np.diag(damping * (1.0 + np.diag(curvature)))
        step = np.clip(np.linalg.solve(damped, gradient), -STRIDE, STRIDE)
        trial = np.clip(theta + step, -20.0, 45.0)
        new = _Point.at(rows, smooth, trial)
        if new.loss <= point.loss:
            gain = point.loss - new.loss
            theta, point, damping = trial, new, max(damping / 5.0, 1e-9)
            if gain < ENOUGH:
                break
        else:
            damping *= 8.0
            if damping > 1e9:
                break
    misfit = max(1.0, float(np.mean(point.rest**2 * point.weight)))
    return theta, curvature / misfit  # what the bins cannot explain adds to the doubt


def _spread(bins: Bins, mass: Floats, middle: Floats) -> Floats:
    """Share each bin's mass among its atoms along the line between neighbouring log-densities."""
    line = np.interp(np.log(bins.support.at), np.log(middle), np.log(mass / bins.width))
    return bins.share(bins.support.width * np.exp(np.clip(line - line.max(), -60.0, 0.0)), mass)


def _tilt(bins: Bins, spread: Floats, records: Rows) -> Floats:
    """Lean the counts inside all bins alike, if n says so by more than its standard deviation.

    Bins keep their mass, and so the profile its fit: this decides only what the profile cannot see, for
    example at which end of a bin a spike stands.
    """
    at, mass = bins.support.at, bins.sums(spread)
    seen, allowed = float(records.values[0]), float(records.floor[0]) ** 0.5
    rest = seen - float(spread @ at)
    if abs(rest) <= allowed:
        return spread
    goal = seen - np.sign(rest) * allowed
    low, high = (0.0, 8.0) if rest > 0 else (-8.0, 0.0)
    for _ in range(20):
        middle = (low + high) / 2.0
        leaned = bins.share(spread * np.exp(middle * bins.place), mass)
        low, high = (middle, high) if leaned @ at < goal else (low, middle)
    return leaned


def _summary(released: Released, bins: Bins, spread: Floats, curvature: Floats, beyond: int) -> Prior:
    """Normalise, and state what the fit leaves open about keys that are not listed."""
    at = bins.support.at
    hidden = spread * released.hidden(at)
    hidden /= max(float(hidden.sum()), 1e-300)
    mean = float(hidden @ at)
    pull = bins.sums(hidden * (at - mean))  # d mean / d ln μ
    ridge = 1e-9 * np.diag(1.0 + np.diag(curvature))
    doubt = max(float(pull @ np.linalg.solve(curvature + ridge, pull)), 0.0) ** 0.5
    keys = float(spread.sum())
    return Prior(bins.support, spread / keys, doubt, float(hidden @ (at - mean) ** 2), keys, beyond)
