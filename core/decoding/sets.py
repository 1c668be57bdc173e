"""The sum over a set of keys, whatever the set: rare keys, heavy keys, keys that nobody used, or a mixture ★.

Nothing is assumed about the set. Its *interval* is that of the unbiased sum, which holds for any fixed set. Its
*estimate* is sharper: the set's own distribution of counts is fitted to what the lookups of its keys found (an
empirical Bayes estimate; post-processing, so free), under four hypotheses that are averaged by how well each
explains the outcomes (its evidence, by Laplace's approximation):

* all keys are in the data, and their counts are distributed as all keys' are;
* no key is in the data;
* all keys are in the data, and the density of their counts is that of all keys times a smooth function of ln x
  (bends and slopes of its logarithm are penalised);
* the same, but for a share of the keys that is absent.

A fit can be wrong about an odd set, so the estimate never leaves the unbiased sum by more than INSIDE of its
standard deviations, nor what the release as a whole says.
"""

from __future__ import annotations

import numpy as np

from hushgram.decoding.confidence import OutcomeTable
from hushgram.decoding.constants import (
    SET_ABSENT,
    SET_BEND,
    SET_FLOOR,
    SET_NOISE,
    SET_RATIO,
    SET_RIDGE,
    SET_SLOPE,
    SET_STEPS,
)
from hushgram.decoding.evidence import Evidence
from hushgram.decoding.prior import Prior
from hushgram.decoding.released import Floats, Ints, Released

__all__ = ["SetModel"]


class SetModel:
    """Fits of sets of keys to one release. Bins are coarse: 0, and ranges of counts that grow by SET_RATIO, or of
    SET_NOISE noise scales above the threshold."""

    def __init__(self, released: Released, evidence: Evidence, prior: Prior) -> None:
        support = prior.support
        self.outcomes = OutcomeTable(released, evidence)
        edges = [1]
        while edges[-1] <= support.high[-1]:
            wide = edges[-1] * (SET_RATIO - 1.0)
            if edges[-1] >= released.bound:  # here values tell counts apart by their noise
                wide = min(wide, SET_NOISE * released.noise.scale)
            edges.append(edges[-1] + max(1, int(wide)))
        bins = np.searchsorted(edges, support.low, side="right") - 1
        power = support.width / support.at**2
        weight = prior.mass + SET_FLOOR * power / power.sum()  # no bin is impossible
        mass = np.bincount(bins, weight)
        inside = np.zeros((len(bins), len(mass)))
        inside[np.arange(len(bins)), bins] = weight / mass[bins]
        rows = np.vstack([self.outcomes.chances(np.zeros(1)), inside.T @ self.outcomes.chances(support.at)])
        self.chances = np.maximum(rows.T, 1e-300)  # (outcomes, bins)
        self.mean = np.append(0.0, support.at @ inside)
        self.usual = mass / mass.sum()
        self.penalty = _penalty(np.log(self.mean[1:]))

    def total(self, symbols: Ints, values: Ints) -> float:
        """Estimated sum of the counts of these keys (``values`` −1: not listed)."""
        seen = np.bincount(self.outcomes.index(symbols, values), minlength=len(self.chances))
        often, chances = seen[seen > 0].astype(np.float64), self.chances[seen > 0]
        absent, there = chances[:, 0], chances[:, 1:]
        fits = [
            (self.usual, float(often @ np.log(there @ self.usual))),
            _fit(often, there, np.log(self.usual), self.penalty[1:, 1:]),
            _fit(often, chances, np.log(np.append(1.0, self.usual)), self.penalty),
        ]
        evidence = np.array([float(often @ np.log(absent)), *(fit[1] for fit in fits)])
        sums = [0.0, *(often @ _means(chances[:, -len(mass) :] * mass, self.mean) for mass, _ in fits)]
        weight = np.exp(evidence - evidence.max())
        return float(weight @ sums / weight.sum())


def _means(joint: Floats, at: Floats) -> Floats:
    """Mean count of each outcome, from the joint probabilities of outcomes and (the last) bins."""
    return np.asarray(joint @ at[-joint.shape[1] :] / joint.sum(axis=1))


def _fit(often: Floats, chances: Floats, start: Floats, penalty: Floats) -> tuple[Floats, float]:
    """The bins' masses and the log-evidence, where the logarithms of the masses are start + φ, φ ~ N(0, penalty⁻¹).

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
    """Masses, probabilities of the outcomes, and the loss at one φ."""
    line = start + phi
    mass = np.exp(line - line.max())
    mass /= mass.sum()
    chance = chances @ mass
    return mass, chance, float(phi @ penalty @ phi / 2.0 - often @ np.log(chance))


def _penalty(at: Floats) -> Floats:
    """Precision of φ: slopes and changes of slope against ln x; of the share that is absent; a ridge."""
    count, gap = len(at), np.maximum(np.diff(at), 1e-3)
    slope = np.zeros((count - 1, count + 1))
    rows = np.arange(count - 1)
    slope[rows, rows + 1], slope[rows, rows + 2] = -1.0 / gap, 1.0 / gap
    bend = np.diff(slope, axis=0) / (SET_BEND * np.sqrt((gap[:-1] + gap[1:]) / 2.0))[:, None]
    slope *= (np.sqrt(gap) / SET_SLOPE)[:, None]
    ridge = np.full(count + 1, SET_RIDGE)
    ridge[0] = SET_ABSENT**-2
    return np.asarray(bend.T @ bend + slope.T @ slope + np.diag(ridge))
