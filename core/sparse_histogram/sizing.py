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

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.exact.histogram import Histogram
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import show

__all__ = ["PROFILE_GRID", "Sizes", "Tally", "privacy", "release_sizes", "sensitivity"]


def _grid() -> tuple[int, ...]:
    """Every t up to 16, then four an octave up to 2^40: fine where the decoder needs it, and free (see above)."""
    octaves = (base << shift for shift in range(2, 39) for base in (4, 5, 6, 7))
    return tuple(sorted({*range(1, 17), *(t for t in octaves if t > 16), 1 << 40}))


PROFILE_GRID = _grid()


@dataclass(frozen=True)
class Tally:
    """Exact n and N_t of a part of the histogram; tallies of disjoint parts add up."""

    records: int
    profile: NDArray[np.int64]

    @classmethod
    def of(cls, histogram: Histogram) -> Tally:
        """Of one part, whose keys are complete."""
        ordered = np.sort(histogram.counts)
        profile = len(ordered) - np.searchsorted(ordered, np.array(PROFILE_GRID, np.int64), side="left")
        return cls(int(ordered.sum()), profile.astype(np.int64))

    @classmethod
    def zero(cls) -> Tally:
        """Of nothing."""
        return cls(0, np.zeros(len(PROFILE_GRID), np.int64))

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.records + other.records, self.profile + other.profile)


@dataclass(frozen=True)
class Sizes:
    """Public numbers from which columns, domain and prior follow: released, or guessed by the config.

    ``profile`` is empty where they were guessed.
    """

    records: int
    keys: int
    profile: tuple[int, ...]
    scale: Fraction

    def as_text(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "records": self.records,
            "keys": self.keys,
            "profile_at": list(PROFILE_GRID) if self.profile else [],
            "profile": list(self.profile),
            "scale": show(self.scale),
        }


def sensitivity(max_contributions: int) -> int:
    """L1 sensitivity of (n, N_t for all t)."""
    return 2 * max_contributions


def privacy(scale: Fraction, max_contributions: int) -> Fraction:
    """ε of the release with this noise scale."""
    return sensitivity(max_contributions) / scale


def release_sizes(tally: Tally, epsilon: Fraction, max_contributions: int, release_key: ReleaseKey) -> Sizes:
    """n̂ and N̂_t with noise of scale 2C/ε."""
    scale = sensitivity(max_contributions) / epsilon
    exact = np.concatenate([[tally.records], tally.profile]).astype(np.int64)
    noise = discrete_laplace(scale, len(exact), release_key.source("size", 0, digest(exact)))
    released = (exact + noise).tolist()
    return Sizes(records=released[0], keys=released[1], profile=tuple(released[1:]), scale=scale)
