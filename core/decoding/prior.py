"""How common is each count? A prior over x ≥ 1, fitted to the released numbers alone (free of privacy cost).

The fit looks for the number μ_j of keys in each of some 50 bins of counts. All that a release says is
linear in μ:

* the profile: N_t = Σ_{x ≥ t} μ, with discrete Laplace noise of known scale;
* the records: n = Σ x·μ;
* each column's load: a share f of ones means that ℓ = (f − p)/(1 − 2p) of the positions are hit, by n_b
  = −s_b·ln(1 − ℓ) keys, and n_b = Σ P(y ≥ b | x)·μ;
* the listed values: in each range of values Σ P(value | x)·μ keys, and d·P(value | 0) empty cells.

Counts far above the bound are listed for certain and almost exactly, so they are taken from the list as
they are. Each observation has the precision that its noise leaves it, so whichever is the stronger
decides: the profile where there are many keys, the list in the tail, the loads where the sizes came
from a configuration. What no observation decides is filled by a smooth log-density (bends against ln x
are penalised, and a power law has none), leaning weakly towards x^−2. Bends are penalised as by
Student's t, not as by a Gaussian, so that a distribution of a few spikes is possible where the profile
shows it. Least squares on ln μ by damped Gauss–Newton steps with Huber weights: positive by
construction, and one wild observation cannot take the fit along.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from hushgram.decoding.channel import Channel
from hushgram.decoding.released import Floats, Ints, Released

__all__ = ["Prior", "Support", "atom_edges", "fit_prior"]

REACH = (
    30.0  # the support ends this many noise scales above the bound: P(a count there is not listed) < e^−30
)
FINE = 16  # atoms are at most 1/16 of their count, and 1/16 of the noise scale, wide
SPLIT = 4  # at most so many bins of the fit in a cell of the profile's grid
CURVE = 3.0  # standard deviation of the change of slope of ln density over one unit of ln x
STIFF = 2.0  # the same inside a cell of the profile's grid
LEAN = 3.0  # standard deviation of the slope about −2
GUESS = 0.3  # relative standard deviation of n and k that a configuration states
SLACK = 5e-4  # relative error of n from the atoms' width
HUBER = 10.0  # an observation pulls no harder than at this many standard deviations
TAIL = 2.0  # degrees of freedom of the bends: a distribution of a few spikes must be possible
PASSES = 3  # the later ones know how counts lie inside the bins
STEPS = 50
ENOUGH = 1e-3  # gain in the log-likelihood below which the fit is done


@dataclass(frozen=True)
class Support:
    """Atoms of the prior: the integers low … high of each, and the count that stands for them."""

    low: Ints
    high: Ints
    at: Floats


@dataclass(frozen=True)
class Prior:
    """Masses of the atoms (sum 1).

    ``doubt`` is the standard error that the fit leaves on the mean count of a key that is not listed, and
    ``variance`` the variance of such a count: together they say how far a large total may be off as a whole.
    """

    support: Support
    mass: Floats
    doubt: float
    variance: float


@dataclass(frozen=True)
class _Model:
    """The linear model values ≈ matrix·μ, with variances floor + poisson·(matrix·μ)."""

    matrix: Floats
    values: Floats
    floor: Floats
    poisson: Floats
    records: int  # the row of n


def _grid(top: int) -> Ints:
    """1, 2, 3, 4, 6, 8, 12, 16, … up to top."""
    powers = 2 ** np.arange(0, 62, dtype=np.int64)
    grid = np.unique(np.concatenate([powers, 3 * powers[:60]]))
    return grid[grid <= max(top, 1)]


def atom_edges(released: Released, top: int, fine: int) -> Ints:
    """Edges of ranges of counts from 1 to top, each so narrow that no likelihood changes much inside it.

    A range is at most 1/fine of its count; within REACH noise scales of the bound also at most 1/fine of
    the noise scale, and below that 1/fine of the level width (or 1/1000 of the bound, whatever the width).
    """
    close = max(1, int(released.noise / fine))
    below = max(close, int(released.width / fine), released.bound // 1000)
    start = released.bound - REACH * released.noise
    edges, at = [1], 1
    while at <= top:
        at += min(max(1, at // fine), below, max(close, int(start - at)))
        edges.append(min(at, top + 1))
    return np.asarray(edges, dtype=np.int64)


def _parts(start: int, end: int, released: Released) -> int:
    """Bins of the fit for the cell start ≤ x < end: 1/8 of their count wide, a noise scale where listed."""
    if start > 4096:  # keeps the fit small where counts, and so the noise, are in the thousands
        return 1
    wide = start / 8.0 if end <= released.bound else min(start / 8.0, released.noise)
    return max(1, min(SPLIT, end - start, int(np.ceil((end - start) / max(wide, 1.0)))))


def _edges(released: Released, top: int) -> tuple[Ints, Ints, Ints]:
    """Edges of the atoms, of the bins of the fit (a subset), and of the profile's cells (a subset again)."""
    grid = released.profile_at if len(released.profile_at) else _grid(top)
    grid = np.unique(np.concatenate([[1], grid[grid <= top], [top + 1]])).astype(np.int64)
    parts = [
        np.unique(np.linspace(a, b, _parts(int(a), int(b), released) + 1)[:-1].astype(np.int64))
        for a, b in itertools.pairwise(grid)
    ]
    bins = np.concatenate([*parts, [top + 1]])
    return np.unique(np.concatenate([atom_edges(released, top, FINE), bins])), bins, grid


def _observations(channel: Channel, support: Support, shape: Floats, top: int) -> _Model:
    """All that the release says about μ."""
    released = channel.released
    far = released.listed[released.listed > top].astype(np.float64)
    beyond = float(len(far))
    scale = 2.0 * released.profile_noise**2
    rows: list[Floats] = []
    seen: list[float] = []
    variance: list[float] = []
    for t, total in zip(released.profile_at, released.profile, strict=True):
        if t <= top:
            rows.append(shape.T @ (support.low >= t).astype(np.float64))
            seen.append(float(total) - beyond)
            variance.append(scale + 1.0)
    if not rows:
        rows.append(np.ones(shape.shape[1]))
        seen.append(max(released.keys - beyond, 1.0))
        variance.append((GUESS * max(released.keys, 1.0)) ** 2)
    records_row = len(rows)
    rows.append(shape.T @ support.at)
    records = max(released.records, 1.0)
    body = max(released.records - float(far.sum()), 1.0)
    seen.append(released.records - float(far.sum()))
    known = len(released.profile_at) > 0
    variance.append(
        (scale + beyond * channel.variance + (SLACK * body) ** 2 + 1.0)
        if known
        else (GUESS * records) ** 2 + 1.0
    )
    reach = shape.T @ channel.reach(support.at)  # (bins, m)
    full = channel.reach(np.array([float(top)]))[0]  # keys beyond the support
    flip = released.flip
    for level in range(channel.levels):
        size = float(released.sizes[level])
        share = float(channel.set_above[level])
        empty = max(1.0 - (share - flip) / (1.0 - 2.0 * flip), 1e-3)
        rows.append(reach[:, level])
        seen.append(-size * np.log(empty) - beyond * full[level])
        variance.append(size * max(share * (1.0 - share), 1e-9) / ((1.0 - 2.0 * flip) * empty) ** 2 + 1.0)
    fixed = len(rows)
    step = max(1, int(released.noise / 2.0))
    cuts = np.arange(released.bound, min(top, released.bound + 40 * step) + step, step)
    counts = np.histogram(released.listed, bins=np.append(cuts, top + 1) if cuts[-1] <= top else cuts)[0]
    edges = (np.append(cuts, top + 1) if cuts[-1] <= top else cuts).astype(np.float64)
    over = np.stack([channel.tail(np.ceil(edge - support.at)) for edge in edges])  # (edges, X)
    zero = channel.tail(edges) * released.cells if released.cells is not None else np.zeros(len(edges))
    within = (over[:-1] - over[1:]) @ shape
    matrix = np.vstack([np.stack(rows), within])
    values = np.concatenate([seen, counts - (zero[:-1] - zero[1:])])
    poisson = np.concatenate([np.zeros(fixed), np.ones(len(counts))])
    floor = np.concatenate([variance, 1.0 + (zero[:-1] - zero[1:])])
    return _Model(matrix, values, floor, poisson, records_row)


def _smoothness(middle: Floats, wide: Floats, cell: Ints) -> tuple[Floats, Floats, Floats]:
    """Rows M, targets c and tails of the residuals c − M·ln μ: bends of the ln density, and its lean.

    Inside a cell of the profile's grid little is known, so bends are small there; from cell to cell they
    may be as sharp as the data say (Student's t with TAIL degrees of freedom).
    """
    count = len(middle)
    gap = np.maximum(np.diff(np.log(middle)), 1e-3)
    slope = np.zeros((count - 1, count))
    slope[np.arange(count - 1), np.arange(count - 1)] = -1.0 / gap
    slope[np.arange(count - 1), np.arange(1, count)] = 1.0 / gap
    offset = slope @ np.log(wide)  # the density is μ/width
    inside = (cell[2:] == cell[:-2]) if count > 2 else np.zeros(0, dtype=bool)
    between = np.where(inside, STIFF, CURVE) * np.sqrt((gap[:-1] + gap[1:]) / 2.0)
    lean = np.sqrt(gap) / LEAN
    rows = np.vstack([np.diff(slope, axis=0) / between[:, None], slope * lean[:, None]])
    tails = np.concatenate([np.where(inside, 1e9, TAIL), np.full(count - 1, TAIL)])
    return rows, np.concatenate([np.diff(offset) / between, (offset - 2.0) * lean]), tails


def _solve(
    model: _Model, rows: Floats, targets: Floats, tails: Floats, start: Floats
) -> tuple[Floats, Floats]:
    """Penalised least squares for μ = e^θ by Levenberg–Marquardt steps; returns μ and the curvature in θ."""

    def weigh(theta: Floats) -> tuple[Floats, Floats, Floats, Floats, float]:
        expected = model.matrix @ np.exp(theta)
        weight = 1.0 / (model.floor + model.poisson * expected)
        rest = model.values - expected
        size = np.abs(rest) * np.sqrt(weight)
        loss = np.where(size <= HUBER, 0.5 * size**2, HUBER * size - 0.5 * HUBER**2).sum()
        bend = targets - rows @ theta
        loss += 0.5 * (tails * np.log1p(bend**2 / tails)).sum()
        weight = weight * np.minimum(1.0, HUBER / np.maximum(size, 1e-12))
        return rest, weight, bend, 1.0 / (1.0 + bend**2 / tails), float(loss)

    theta, damping = start, 1e-2
    rest, weight, bend, soft, loss = weigh(theta)
    for _ in range(STEPS):
        jacobian = model.matrix * np.exp(theta)
        curvature = jacobian.T @ (weight[:, None] * jacobian) + rows.T @ (soft[:, None] * rows)
        gradient = jacobian.T @ (weight * rest) + rows.T @ (soft * bend)
        damped = curvature + np.diag(damping * (1.0 + np.diag(curvature)))
        step = np.clip(np.linalg.solve(damped, gradient), -1.5, 1.5)
        trial = np.clip(theta + step, -20.0, 45.0)
        new = weigh(trial)
        if new[4] <= loss:
            gain = loss - new[4]
            theta, damping = trial, max(damping / 5.0, 1e-9)
            rest, weight, bend, soft, loss = new
            if gain < ENOUGH:
                break
        else:
            damping *= 8.0
            if damping > 1e9:
                break
    misfit = max(1.0, float(np.mean(rest**2 * weight)))
    return np.asarray(np.exp(theta)), curvature / misfit  # what the bins cannot explain adds to the doubt


def fit_prior(channel: Channel) -> Prior:
    """Fit the prior of a release. Input: public numbers. Output: masses over the support, all positive."""
    released = channel.released
    top = released.bound + int(np.ceil(REACH * released.noise))
    fine, bins, grid = _edges(released, top)
    low, high = fine[:-1], fine[1:] - 1
    support = Support(low, high, (low + high) / 2.0)
    owner = np.searchsorted(bins, low, side="right") - 1
    wide = (high - low + 1).astype(np.float64)
    inner = wide / support.at**2
    shape = np.zeros((len(low), len(bins) - 1))
    shape[np.arange(len(low)), owner] = inner / np.bincount(owner, inner)[owner]
    middle = shape.T @ support.at
    widths = np.diff(bins).astype(np.float64)
    spread = np.zeros(len(low))
    cell = np.searchsorted(grid, bins[:-1], side="right")
    rows, targets, tails = _smoothness(middle, widths, cell)
    theta = np.log(widths / middle**2)
    for _ in range(PASSES):
        model = _observations(channel, support, shape, top)
        if not np.any(spread):
            theta = theta + np.log(max(float(model.values[0]), 1.0) / float(np.exp(theta).sum()))
        mass, curvature = _solve(model, rows, targets, tails, theta)
        theta = np.log(mass)
        spread = _tilt(_spread(owner, mass, middle, widths, support), owner, support, model)
        shape[np.arange(len(low)), owner] = spread / mass[owner]
    hidden = spread * channel.hidden(support.at)
    hidden /= max(float(hidden.sum()), 1e-300)
    mean = float(hidden @ support.at)
    pull = np.bincount(owner, hidden * (support.at - mean), minlength=len(mass))  # d mean / d ln μ
    ridge = 1e-9 * np.diag(1.0 + np.diag(curvature))
    doubt = max(float(pull @ np.linalg.solve(curvature + ridge, pull)), 0.0) ** 0.5
    variance = float(hidden @ (support.at - mean) ** 2)
    return Prior(support, spread / spread.sum(), doubt, variance)


def _spread(owner: Ints, mass: Floats, middle: Floats, widths: Floats, support: Support) -> Floats:
    """Share each bin's mass among its atoms along the line between neighbouring log-densities."""
    line = np.interp(np.log(support.at), np.log(middle), np.log(mass / widths))
    wide = (support.high - support.low + 1).astype(np.float64)
    weight = wide * np.exp(np.clip(line - line.max(), -60.0, 0.0))
    return np.asarray(weight / np.bincount(owner, weight)[owner] * mass[owner])


def _tilt(spread: Floats, owner: Ints, support: Support, model: _Model) -> Floats:
    """Lean the counts inside all bins alike, if n says so by more than its standard deviation.

    Bins keep their mass, and so the profile its fit: this decides only what the profile cannot see, for
    example at which end of a bin a spike stands.
    """
    total = np.bincount(owner, spread)
    first, last = (
        np.minimum.reduceat(support.low, _starts(owner)),
        np.maximum.reduceat(support.high, _starts(owner)),
    )
    at = (support.at - first[owner]) / np.maximum(last - first, 1)[owner] - 0.5

    def leaned(by: float) -> Floats:
        weight = spread * np.exp(by * at)
        return np.asarray(weight * (total / np.maximum(np.bincount(owner, weight), 1e-300))[owner])

    seen, allowed = float(model.values[model.records]), float(model.floor[model.records]) ** 0.5
    rest = seen - float(spread @ support.at)
    if abs(rest) <= allowed:
        return spread
    goal = seen - np.sign(rest) * allowed
    low, high = (0.0, 8.0) if rest > 0 else (-8.0, 0.0)
    for _ in range(20):
        middle = (low + high) / 2.0
        low, high = (middle, high) if leaned(middle) @ support.at < goal else (low, middle)
    return leaned((low + high) / 2.0)


def _starts(owner: Ints) -> Ints:
    return np.flatnonzero(np.diff(owner, prepend=-1))
