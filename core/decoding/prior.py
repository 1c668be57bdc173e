"""How common is each count? A prior over x ≥ 1, fitted to the released numbers alone (free of privacy cost).

The fit looks for the number μ_j of keys in each of some 50 bins of counts. Each observation (see below)
has the precision that its noise leaves it, so whichever is the stronger decides: the profile
where there are many keys, the list in the tail, the loads where the sizes came from a configuration.

What no observation decides is filled by a smooth log-density: bends against ln x are penalised, and a power
law has none; it leans weakly towards x^−2. Bends are penalised as by Student's t, not as by a Gaussian, so that
a distribution of a few spikes is possible where the profile shows it. Least squares on ln μ by damped
Gauss–Newton steps with Huber weights: positive by construction, and one wild observation cannot take the
fit along.

The counts that a prior lives on are *atoms* (ranges of counts), grouped into the bins that a fit can tell apart. All
that a release says about how many keys have which count is one linear model (`Observations`). With μ_j keys in bin j,
and the keys beyond the grid taken from the list as they are:

* the profile: N_t = Σ_{x ≥ t} μ, with discrete Laplace noise of known scale;
* the records: n = Σ x·μ;
* what the encoding as a whole shows (`Likelihood.observations`);
* the listed values: in each range of values Σ P(value | x)·μ keys, and d·P(value | 0) empty cells.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hushgram.decoding.constants import (
    ATOMS,
    CURVE,
    ENOUGH,
    GUESS,
    HUBER,
    LEAN,
    LOOSE,
    PASSES,
    SLACK,
    SPLIT,
    STEPS,
    STIFF,
    STRIDE,
    SUPPORT_REACH,
    TAIL,
    VALUES,
    WIDE_BINS,
)  # fmt: skip
from hushgram.decoding.likelihood import Floats, Ints, Likelihood, ReleasedNumbers

__all__ = ["Bins", "CountGrid", "Observations", "Prior", "atom_edges", "fit_prior", "make_bins"]


# --- counts: atoms and bins -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CountGrid:
    """Atoms: the integers low … high of each, and the count that stands for them."""

    low: Ints
    high: Ints
    at: Floats

    @property
    def width(self) -> Floats:
        """Number of integers in each atom."""
        return (self.high - self.low + 1).astype(np.float64)


@dataclass(frozen=True)
class Bins:
    """Atoms in bins, bins in cells of the profile's grid; each is cut where the next coarser one is."""

    grid: CountGrid
    edges: Ints
    cell: Ints  # cell of each bin
    top: int  # the largest count

    @property
    def count(self) -> int:
        """Number of bins."""
        return len(self.edges) - 1

    @cached_property
    def owner(self) -> Ints:
        """Bin of each atom."""
        return np.searchsorted(self.edges, self.grid.low, side="right") - 1

    @property
    def width(self) -> Floats:
        """Number of integers in each bin."""
        return np.diff(self.edges).astype(np.float64)

    @cached_property
    def place(self) -> Floats:
        """Where an atom lies in its bin, from −½ to ½."""
        first, length = self.edges[:-1], np.maximum(np.diff(self.edges) - 1, 1)
        return np.asarray((self.grid.at - first[self.owner]) / length[self.owner] - 0.5)

    def sums(self, values: Floats) -> Floats:
        """Sum over the atoms of each bin."""
        return np.bincount(self.owner, values, minlength=self.count).astype(np.float64)

    def share(self, weight: Floats, mass: Floats) -> Floats:
        """Return the mass of each atom, if every bin's mass is shared among its atoms by weight."""
        return np.asarray(weight * (mass / np.maximum(self.sums(weight), 1e-300))[self.owner])


def atom_edges(released: ReleasedNumbers, grain: float, top: int, fine: int) -> Ints:
    """Return edges of ranges of counts from 1 to top, each so narrow that no likelihood changes much inside it.

    A range is at most 1/fine of its count; within SUPPORT_REACH noise scales of the bound also at most 1/fine of
    the noise scale, and below that 1/fine of the grain of the encoding (or 1/1000 of the bound).
    """
    close = max(1, int(released.noise.scale / fine))
    below = max(close, int(grain / fine), released.threshold // 1000)
    start = released.threshold - SUPPORT_REACH * released.noise.scale
    edges, at = [1], 1
    while at <= top:
        at += min(max(1, at // fine), below, max(close, int(start - at)))
        edges.append(min(at, top + 1))
    return np.asarray(edges, dtype=np.int64)


def make_bins(released: ReleasedNumbers, grain: float) -> Bins:
    """Return atoms and bins for the counts that a release can say something about."""
    top = released.last + int(np.ceil(SUPPORT_REACH * released.noise.scale))
    grid = released.profile_at if len(released.profile_at) else _usual_grid(top)
    grid = np.unique(np.concatenate([[1], grid[grid <= top], [top + 1]])).astype(np.int64)
    parts = [
        np.unique(np.linspace(a, b, _parts(int(a), int(b), released) + 1)[:-1].astype(np.int64))
        for a, b in itertools.pairwise(grid)
    ]
    edges = np.concatenate([*parts, [top + 1]])
    fine = np.unique(np.concatenate([atom_edges(released, grain, top, ATOMS), edges]))
    low, high = fine[:-1], fine[1:] - 1
    cell = np.searchsorted(grid, edges[:-1], side="right")
    return Bins(CountGrid(low, high, (low + high) / 2.0), edges, cell, top)


def _usual_grid(top: int) -> Ints:
    """Return 1, 2, 3, 4, 6, 8, 12, 16, … up to top, for releases without a profile."""
    powers = 2 ** np.arange(0, 62, dtype=np.int64)
    grid = np.unique(np.concatenate([powers, 3 * powers[:60]]))
    return grid[grid <= max(top, 1)]


def _parts(start: int, end: int, released: ReleasedNumbers) -> int:
    """Return bins for the cell start ≤ x < end: 1/8 of their count wide, and a noise scale where keys are listed."""
    if start > WIDE_BINS:  # keeps the fit small where counts, and so the noise, are in the thousands
        return 1
    wide = start / 8.0 if end <= released.threshold else min(start / 8.0, released.noise.scale)
    return max(1, min(SPLIT, end - start, int(np.ceil((end - start) / max(wide, 1.0)))))


# --- observations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Observations:
    """values ≈ matrix·μ, with variances floor + poisson·(matrix·μ)."""

    matrix: Floats
    values: Floats
    floor: Floats
    poisson: Floats

    @classmethod
    def of(cls, matrix: Floats, values: Floats, floor: Floats, *, poisson: bool = False) -> Observations:
        """Make rows with noise of known variance, or (``poisson``) numbers of keys."""
        return cls(matrix, values, floor, np.full(len(values), float(poisson)))

    def __add__(self, other: Observations) -> Observations:
        return Observations(
            np.vstack([self.matrix, other.matrix]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.floor, other.floor]),
            np.concatenate([self.poisson, other.poisson]),
        )


@dataclass(frozen=True)
class Listing:
    """The listed values in short: ranges of values with the keys in each, and what lies beyond the support."""

    cuts: Ints
    tally: Ints
    beyond: int
    beyond_sum: float

    @classmethod
    def of(cls, released: ReleasedNumbers, top: int) -> Listing:
        step = max(1, int(released.noise.scale / 2.0))
        cuts = np.arange(released.threshold, min(top, released.threshold + VALUES * step) + 1, step)
        cuts = np.unique(np.append(cuts, released.last))
        place = np.searchsorted(cuts, released.listed, side="right") - 1
        inside = released.listed <= top
        tally = np.bincount(np.maximum(place[inside], 0), minlength=len(cuts))
        far = released.listed[~inside]
        return cls(
            np.append(cuts, top + 1),
            tally.astype(np.int64),
            len(far),
            float((far - released.far_noise.mean).sum()),
        )


def gather(
    released: ReleasedNumbers,
    likelihood: Likelihood,
    bins: Bins,
    shape: Floats,
    listing: Listing,
    loose: float,
) -> tuple[Observations, Observations]:
    """Return all observations, and that of the records alone.

    ``shape`` is (atoms, bins), how a bin's keys lie in it. ``loose`` is a relative error of n that comes
    on top, while it is not known where in their bins the counts lie.
    """
    records = _records(released, bins, shape, listing)
    softened = Observations.of(records.matrix, records.values, records.floor + (loose * records.values) ** 2)
    others = likelihood.observations(bins, shape, listing.beyond) + _listed(released, bins, shape, listing)
    return _profile(released, bins, shape, listing.beyond) + softened + others, records


def _profile(released: ReleasedNumbers, bins: Bins, shape: Floats, beyond: int) -> Observations:
    """Return N_t from N_1 on; without a profile the number of keys that the configuration states."""
    use = released.profile_at <= bins.top
    if not use.any():
        stated = max(released.keys, 1.0)
        values = np.array([max(stated - beyond, 1.0)])
        return Observations.of(np.ones((1, bins.count)), values, np.array([(GUESS * stated) ** 2]))
    reach = bins.grid.low[None, :] >= released.profile_at[use][:, None]
    noise = np.full(int(use.sum()), 2.0 * released.profile_noise**2 + 1.0)
    return Observations.of(reach.astype(np.float64) @ shape, released.profile[use] - beyond, noise)


def _records(released: ReleasedNumbers, bins: Bins, shape: Floats, listing: Listing) -> Observations:
    body = released.records - listing.beyond_sum
    if len(released.profile_at):
        known = 2.0 * released.profile_noise**2 + listing.beyond * released.far_noise.variance
        variance = known + (SLACK * max(body, 1.0)) ** 2 + 1.0
    else:
        variance = (GUESS * max(released.records, 1.0)) ** 2 + 1.0
    return Observations.of((bins.grid.at @ shape)[None, :], np.array([body]), np.array([variance]))


def _listed(released: ReleasedNumbers, bins: Bins, shape: Floats, listing: Listing) -> Observations:
    edges = listing.cuts.astype(np.float64)
    inside = released.ranges(edges, bins.grid.at).T[:-1]  # (ranges, atoms)
    zeros = -np.diff(released.noise.tail(edges)) * (released.domain_size or 0.0)
    if released.named:
        zeros[edges[:-1] >= released.last] = 0.0
    return Observations.of(inside @ shape, listing.tally - zeros, 1.0 + zeros, poisson=True)


# --- fit --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prior:
    """Masses of the atoms (sum 1) of ``keys`` keys; ``beyond`` listed ones lie above the support.

    ``doubt`` is the standard error that the fit leaves on the mean count of a key that is not listed, and
    ``variance`` the variance of such a count: together they say how far a large total may be off as a whole.
    """

    grid: CountGrid
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


def fit_prior(released: ReleasedNumbers, likelihood: Likelihood) -> Prior:
    """Fit the prior of a release. Input: public numbers. Output: masses over the support, none negative."""
    bins = make_bins(released, likelihood.grain)
    listing = Listing.of(released, bins.top)
    atoms = np.arange(len(bins.grid.at))
    spread = bins.share(bins.grid.width / bins.grid.at**2, np.ones(bins.count))
    middle = bins.sums(spread * bins.grid.at)
    shape = np.zeros((len(atoms), bins.count))
    smooth = _smoothness(bins, middle)
    theta = np.log(bins.width / middle**2)
    for number in range(PASSES):
        shape[atoms, bins.owner] = spread
        rows, records = gather(
            released, likelihood, bins, shape, listing, LOOSE if number < PASSES - 1 else 0.0
        )
        if number == 0:
            theta = theta + np.log(max(float(rows.values[0]), 1.0) / float(np.exp(theta).sum()))
        theta, curvature = _solve(rows, smooth, theta)
        mass = np.exp(theta)
        inside = _tilt(bins, _spread(bins, mass, middle), records)
        spread = inside / mass[bins.owner]
    return _summary(released, bins, inside, curvature, listing.beyond)


def _smoothness(bins: Bins, middle: Floats) -> _Smoothness:
    """Return curvature and slope of the ln density against ln x.

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
    """The objective at one θ: residuals and weights of the observations and of the smoothness, and their loss."""

    rest: Floats
    weight: Floats
    bend: Floats
    soft: Floats
    loss: float

    @classmethod
    def at(cls, rows: Observations, smooth: _Smoothness, theta: Floats) -> _Point:
        expected = rows.matrix @ np.exp(theta)
        weight = 1.0 / (rows.floor + rows.poisson * expected)
        rest = rows.values - expected
        size = np.abs(rest) * np.sqrt(weight)
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2).sum()
        bend = smooth.targets - smooth.rows @ theta
        loss += 0.5 * (smooth.freedom * np.log1p(bend**2 / smooth.freedom)).sum()
        pull = np.minimum(1.0, HUBER / np.maximum(size, 1e-12))
        return cls(rest, weight * pull, bend, 1.0 / (1.0 + bend**2 / smooth.freedom), float(loss))


def _solve(rows: Observations, smooth: _Smoothness, theta: Floats) -> tuple[Floats, Floats]:
    """Solve for θ = ln μ by Levenberg–Marquardt; return θ and the curvature there."""
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
    line = np.interp(np.log(bins.grid.at), np.log(middle), np.log(mass / bins.width))
    return bins.share(bins.grid.width * np.exp(np.clip(line - line.max(), -60.0, 0.0)), mass)


def _tilt(bins: Bins, spread: Floats, records: Observations) -> Floats:
    """Shift the counts inside all bins by one slope, if n differs by more than its standard deviation.

    Bins keep their mass, and so the profile its fit: this decides only what the profile cannot see, for
    example at which end of a bin a spike stands.
    """
    at, mass = bins.grid.at, bins.sums(spread)
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


def _summary(released: ReleasedNumbers, bins: Bins, spread: Floats, curvature: Floats, beyond: int) -> Prior:
    """Normalise, and state what the fit leaves open about keys that are not listed."""
    at = bins.grid.at
    hidden = spread * released.hidden(at)
    hidden /= max(float(hidden.sum()), 1e-300)
    mean = float(hidden @ at)
    pull = bins.sums(hidden * (at - mean))  # d mean / d ln μ
    ridge = 1e-9 * np.diag(1.0 + np.diag(curvature))
    doubt = max(float(pull @ np.linalg.solve(curvature + ridge, pull)), 0.0) ** 0.5
    keys = float(spread.sum())
    return Prior(bins.grid, spread / keys, doubt, float(hidden @ (at - mean) ** 2), keys, beyond)
