"""Sizing: how many records, and how many keys have at least t of them, released with noise.

Released: n̂ and N̂_t for t in a fixed grid, each the exact number plus discrete Laplace noise of scale 2C/ε.

Guarantee: ε-differential privacy. One unit of count added to one key changes n by 1 and N_t by 1 for at most one t
(the one that the key now reaches), so one user, who moves at most C units, changes the whole vector by at most 2C in
L1, however fine the grid is. (Dwork, McSherry, Nissim, Smith 2006, for the Laplace mechanism; Ghosh, Roughgarden,
Sundararajan 2009 for its discrete form.)

| symbol | meaning |
|---|---|
| x_i | exact count of key i |
| n | Σ x_i |
| N_t | number of keys with x_i ≥ t; k = N_1 |
| C | most that one user contributes |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.histogram import NOISE_SHARDS, Histogram
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import CONSTANT, UNBOUNDED, Exact, Sensitivity

__all__ = ["PROFILE_GRID", "Sizes", "Survey", "of_sizes", "privacy_map", "release_sizes"]


def _grid() -> tuple[int, ...]:
    """Return every t up to 16, then four per octave up to 2^40: fine where the decoder needs it, and free."""
    octaves = (base << shift for shift in range(2, 39) for base in (4, 5, 6, 7))
    return tuple(sorted({*range(1, 17), *(t for t in octaves if t > 16), 1 << 40}))


PROFILE_GRID = _grid()
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Survey(Exact):
    """Exact n and N_t of some noise shards, and a digest of each; surveys of different shards add up. Private."""

    records: int
    profile: NDArray[np.int64]
    digests: tuple[tuple[int, bytes], ...]
    sensitivity: Sensitivity = UNBOUNDED

    @classmethod
    def of(cls, shards: Iterable[tuple[int, Histogram]]) -> Survey:
        """Return the survey of noise shards by number, each complete."""
        found = list(shards)
        ordered = np.sort(np.concatenate([part.counts for _, part in found] or [np.zeros(0, np.int64)]))
        profile = len(ordered) - np.searchsorted(ordered, np.array(PROFILE_GRID, np.int64), side="left")
        digests = tuple((shard, part.digest()) for shard, part in found)
        moved = of_sizes(Exact.shared(part for _, part in found))
        return cls(int(ordered.sum()), profile.astype(np.int64), digests, moved)

    @classmethod
    def of_digests(cls, shards: Iterable[tuple[int, Histogram]]) -> Survey:
        """Return the digests of noise shards alone, without sizes."""
        digests = tuple((shard, part.digest()) for shard, part in shards)
        return replace(cls.of([]), digests=digests)

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.records + other.records,
            self.profile + other.profile,
            self.digests + other.digests,
            Exact.shared((self, other)),
        )

    def data_digest(self, shards: int = NOISE_SHARDS) -> bytes:
        """Return the digest of all data in so many shards, whatever the order and grouping in which these came."""
        numbers, digests = zip(*sorted(self.digests), strict=True)
        if numbers != tuple(range(shards)):
            raise AssertionError(f"a survey needs each of the {shards} noise shards once")
        return digest("all shards", *digests)


@dataclass(frozen=True)
class Sizes:
    """Public numbers from which columns, domain and prior follow: released, or guessed by the config.

    ``profile`` is empty where they were guessed.
    """

    records: int
    keys: int
    profile: tuple[int, ...]
    scale: Fraction

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "records": self.records,
            "keys": self.keys,
            "profile_at": list(PROFILE_GRID) if self.profile else [],
            "profile": list(self.profile),
            "scale": show(self.scale),
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> Sizes:
        """Return the sizes that `to_dict` wrote; raise a ParameterError where a number is out of range."""
        grid, profile = text["profile_at"], text["profile"]
        if grid not in ([], list(PROFILE_GRID)) or not isinstance(profile, list) or len(profile) != len(grid):
            raise ParameterError("Sizes: profile must be empty or have a number for each t of the grid")
        low, high = -_LARGEST, _LARGEST
        numbers = [integer(n, "profile", "Sizes", low=low, high=high) for n in profile]
        records, keys = (integer(text[n], n, "Sizes", low=low, high=high) for n in ("records", "keys"))
        scale = rational(text["scale"], "scale", "Sizes")
        if not 0 <= scale <= 1 << 36 or (scale == 0) != (not numbers):
            raise ParameterError(f"Sizes: scale must be from 0 to 2^36, got {show(scale)[:60]}")
        return cls(records, keys, tuple(numbers), scale)


def of_sizes(counts: Sensitivity) -> Sensitivity:
    """Return the sensitivity of (n, N_t for all t) where counts have this one."""
    if counts == CONSTANT:
        return counts
    return replace(counts.added_up(), max_contributions=2 * counts.max_contributions)


def privacy_map(scale: Fraction, counts: Sensitivity) -> Fraction:
    """Return ε of the release with this noise scale."""
    return of_sizes(counts).l1 / scale


def release_sizes(survey: Survey, epsilon: Fraction, counts: Sensitivity, release_key: ReleaseKey) -> Sizes:
    """Release n̂ and N̂_t with noise of scale 2C/ε, for the sensitivity of ``counts``."""
    calibrated = of_sizes(counts)
    survey.admit(calibrated)
    scale = calibrated.l1 / epsilon
    exact = np.concatenate([[survey.records], survey.profile]).astype(np.int64)
    noise = discrete_laplace(scale, len(exact), release_key.source("size", 0, digest(exact)))
    released = (exact + noise).tolist()
    return Sizes(records=released[0], keys=released[1], profile=tuple(released[1:]), scale=scale)
