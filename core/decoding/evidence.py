"""All that a release says about how many keys have which count, as one linear model.

With μ_j keys in bin j, and the keys beyond the support taken from the list as they are:

* the profile: N_t = Σ_{x ≥ t} μ, with discrete Laplace noise of known scale;
* the records: n = Σ x·μ;
* each column's load: a share f of ones means that ℓ = (f − p)/(1 − 2p) of the positions are hit, by
  n_b = −s_b·ln(1 − ℓ) keys, and n_b = Σ P(y ≥ b | x)·μ;
* the listed values: in each range of values Σ P(value | x)·μ keys, and d·P(value | 0) empty cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgram.decoding.channel import Channel
from hushgram.decoding.released import Floats, Ints, Released
from hushgram.decoding.support import Bins

__all__ = ["Evidence", "Listing", "gather"]

GUESS = 0.3  # relative standard deviation of n and k that a configuration states
SLACK = 5e-4  # relative error of n from the atoms' width
LEAST = 1e-3  # a column keeps at least this share of empty positions, so that its load stays finite
VALUES = 40  # ranges of listed values, half a noise scale each; the last one runs to the support's end


@dataclass(frozen=True)
class Evidence:
    """values ≈ matrix·μ, with variances floor + poisson·(matrix·μ)."""

    matrix: Floats
    values: Floats
    floor: Floats
    poisson: Floats

    @classmethod
    def of(cls, matrix: Floats, values: Floats, floor: Floats, *, poisson: bool = False) -> Evidence:
        """Rows with noise of known variance, or (``poisson``) numbers of keys."""
        return cls(matrix, values, floor, np.full(len(values), float(poisson)))

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(
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
        step = max(1, int(released.noise / 2.0))
        cuts = np.arange(released.bound, min(top, released.bound + VALUES * step) + 1, step)
        place = (released.listed - released.bound) // step
        inside = released.listed <= top
        tally = np.bincount(np.clip(place[inside], 0, len(cuts) - 1), minlength=len(cuts))
        far = released.listed[~inside]
        return cls(
            np.append(cuts, top + 1), tally.astype(np.int64), len(far), float(far.sum(dtype=np.float64))
        )


def gather(
    channel: Channel, bins: Bins, shape: Floats, listing: Listing, loose: float
) -> tuple[Evidence, Evidence]:
    """All evidence, and that of the records alone.

    ``shape`` is (atoms, bins), how a bin's keys lie in it. ``loose`` is a relative error of n that comes
    on top, while it is not known where in their bins the counts lie.
    """
    records = _records(channel, bins, shape, listing)
    softened = Evidence.of(records.matrix, records.values, records.floor + (loose * records.values) ** 2)
    others = _loads(channel, bins, shape, listing.beyond) + _listed(channel, bins, shape, listing)
    return _profile(channel, bins, shape, listing.beyond) + softened + others, records


def _profile(channel: Channel, bins: Bins, shape: Floats, beyond: int) -> Evidence:
    """N_t; without a profile the number of keys that the configuration states. N_1 comes first."""
    released = channel.released
    use = released.profile_at <= bins.top
    if not use.any():
        stated = max(released.keys, 1.0)
        values = np.array([max(stated - beyond, 1.0)])
        return Evidence.of(np.ones((1, bins.count)), values, np.array([(GUESS * stated) ** 2]))
    reach = bins.support.low[None, :] >= released.profile_at[use][:, None]
    noise = np.full(int(use.sum()), 2.0 * released.profile_noise**2 + 1.0)
    return Evidence.of(reach.astype(np.float64) @ shape, released.profile[use] - beyond, noise)


def _records(channel: Channel, bins: Bins, shape: Floats, listing: Listing) -> Evidence:
    released = channel.released
    body = released.records - listing.beyond_sum
    if len(released.profile_at):
        known = 2.0 * released.profile_noise**2 + listing.beyond * channel.variance
        variance = known + (SLACK * max(body, 1.0)) ** 2 + 1.0
    else:
        variance = (GUESS * max(released.records, 1.0)) ** 2 + 1.0
    return Evidence.of((bins.support.at @ shape)[None, :], np.array([body]), np.array([variance]))


def _loads(channel: Channel, bins: Bins, shape: Floats, beyond: int) -> Evidence:
    sizes, contrast = channel.released.sizes.astype(np.float64), 1.0 - 2.0 * channel.released.flip
    share = channel.set_above
    empty = np.maximum(1.0 - (share - channel.released.flip) / contrast, LEAST)
    full = channel.reach(np.array([float(bins.top)]))[0]  # of keys beyond the support
    variance = sizes * np.maximum(share * (1.0 - share), 1e-9) / (contrast * empty) ** 2 + 1.0
    return Evidence.of(
        channel.reach(bins.support.at).T @ shape, -sizes * np.log(empty) - beyond * full, variance
    )


def _listed(channel: Channel, bins: Bins, shape: Floats, listing: Listing) -> Evidence:
    edges = listing.cuts.astype(np.float64)
    over = np.stack([channel.tail(np.ceil(edge - bins.support.at)) for edge in edges])  # (edges, atoms)
    zeros = -np.diff(channel.tail(edges)) * (channel.released.cells or 0.0)
    return Evidence.of(-np.diff(over, axis=0) @ shape, listing.tally - zeros, 1.0 + zeros, poisson=True)
