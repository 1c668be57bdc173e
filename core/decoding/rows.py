"""All that a release says about how many keys have which count, as one linear model.

With μ_j keys in bin j, and the keys beyond the support taken from the list as they are:

* the profile: N_t = Σ_{x ≥ t} μ, with discrete Laplace noise of known scale;
* the records: n = Σ x·μ;
* what the encoding as a whole shows (`Evidence.rows`);
* the listed values: in each range of values Σ P(value | x)·μ keys, and d·P(value | 0) empty cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hushgram.decoding.constants import GUESS, SLACK, VALUES
from hushgram.decoding.released import Floats, Ints, Released
from hushgram.decoding.support import Bins

if TYPE_CHECKING:
    from hushgram.decoding.evidence import Evidence

__all__ = ["Listing", "Rows", "gather"]


@dataclass(frozen=True)
class Rows:
    """values ≈ matrix·μ, with variances floor + poisson·(matrix·μ)."""

    matrix: Floats
    values: Floats
    floor: Floats
    poisson: Floats

    @classmethod
    def of(cls, matrix: Floats, values: Floats, floor: Floats, *, poisson: bool = False) -> Rows:
        """Rows with noise of known variance, or (``poisson``) numbers of keys."""
        return cls(matrix, values, floor, np.full(len(values), float(poisson)))

    def __add__(self, other: Rows) -> Rows:
        return Rows(
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
    def of(cls, released: Released, top: int) -> Listing:
        step = max(1, int(released.noise.scale / 2.0))
        cuts = np.arange(released.bound, min(top, released.bound + VALUES * step) + 1, step)
        place = (released.listed - released.bound) // step
        inside = released.listed <= top
        tally = np.bincount(np.clip(place[inside], 0, len(cuts) - 1), minlength=len(cuts))
        far = released.listed[~inside]
        return cls(
            np.append(cuts, top + 1), tally.astype(np.int64), len(far), float(far.sum(dtype=np.float64))
        )


def gather(
    released: Released, evidence: Evidence, bins: Bins, shape: Floats, listing: Listing, loose: float
) -> tuple[Rows, Rows]:
    """All evidence, and that of the records alone.

    ``shape`` is (atoms, bins), how a bin's keys lie in it. ``loose`` is a relative error of n that comes
    on top, while it is not known where in their bins the counts lie.
    """
    records = _records(released, bins, shape, listing)
    softened = Rows.of(records.matrix, records.values, records.floor + (loose * records.values) ** 2)
    others = evidence.rows(bins, shape, listing.beyond) + _listed(released, bins, shape, listing)
    return _profile(released, bins, shape, listing.beyond) + softened + others, records


def _profile(released: Released, bins: Bins, shape: Floats, beyond: int) -> Rows:
    """N_t; without a profile the number of keys that the configuration states. N_1 comes first."""
    use = released.profile_at <= bins.top
    if not use.any():
        stated = max(released.keys, 1.0)
        values = np.array([max(stated - beyond, 1.0)])
        return Rows.of(np.ones((1, bins.count)), values, np.array([(GUESS * stated) ** 2]))
    reach = bins.support.low[None, :] >= released.profile_at[use][:, None]
    noise = np.full(int(use.sum()), 2.0 * released.profile_noise**2 + 1.0)
    return Rows.of(reach.astype(np.float64) @ shape, released.profile[use] - beyond, noise)


def _records(released: Released, bins: Bins, shape: Floats, listing: Listing) -> Rows:
    body = released.records - listing.beyond_sum
    if len(released.profile_at):
        known = 2.0 * released.profile_noise**2 + listing.beyond * released.noise.variance
        variance = known + (SLACK * max(body, 1.0)) ** 2 + 1.0
    else:
        variance = (GUESS * max(released.records, 1.0)) ** 2 + 1.0
    return Rows.of((bins.support.at @ shape)[None, :], np.array([body]), np.array([variance]))


def _listed(released: Released, bins: Bins, shape: Floats, listing: Listing) -> Rows:
    edges = listing.cuts.astype(np.float64)
    over = np.stack(
        [released.noise.tail(np.ceil(edge - bins.support.at)) for edge in edges]
    )  # (edges, atoms)
    zeros = -np.diff(released.noise.tail(edges)) * (released.cells or 0.0)
    return Rows.of(-np.diff(over, axis=0) @ shape, listing.tally - zeros, 1.0 + zeros, poisson=True)
