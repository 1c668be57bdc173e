"""The share of records that bounding keeps, released: what users have before it, and what is counted of it.

Released: users are put into cells by how many records they have (by their sum, where values are summed): up to 1, 2, 4,
… 2^20. For each cell, the sum of all records of its users and the sum of those that bounding keeps, with discrete
Laplace noise.

Guarantee: ε-differential privacy. A user's records and what is kept of them follow from the user's own rows, and lie
in one cell. There the user adds at most 1 to the first sum in units of the cell's end, and at most 1 to the second in
units of min(end, C): 2 in all. Units are divided into 2^10 parts, so that sums are whole numbers, and noise has scale
2 · 2^10/ε. (Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2009.) So the sum of inactive users
has little noise, and no clamp on active ones has to be guessed.

Post-processing, free: the share kept of the records of users up to a cell, for the largest cell for which noise leaves
it clear. An interval holds every share s for which noise explains Σ kept − s · Σ offered (Fieller; Chernoff's bound),
for all cells at once.
Of users with few records bounding drops little: cells that end below 4·C say nothing by themselves.

| symbol | meaning |
|---|---|
| C | most that one user contributes |
| end | most records of a user in a cell |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import Bounds, Contributions
from hushgram.contributions.sums import GRAINS
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import ExactVector, Sensitivity

__all__ = ["ENDS", "Kept", "KeptShare", "nobody", "privacy_map", "release_kept", "tally_kept"]

#: Upper ends of the cells; a user with more is clamped to the last.
ENDS = tuple(1 << j for j in range(21))
# Parts of a unit: rounding to them is below the noise of any release.
_PARTS = 1 << 10
# A user moves one number of each half by at most a unit.
_TWO_UNITS = Sensitivity(2 * _PARTS, _PARTS, l0_bound=2)
# A share is shown up to this ±, and of cells within the first one the largest is taken.
_CLEAR, _OPEN = 0.05, 0.15
# Only users with more than C records can lose any by C: a share of users with up to so many times C says something.
_TELLING = 4

I64 = NDArray[np.int64]
Floats = NDArray[np.float64]


def privacy_map(scale: Fraction) -> Fraction:
    """Return ε of the release with this noise scale."""
    return _TWO_UNITS.l1 / scale


def tally_kept(rows: Contributions, bounds: Bounds) -> ExactVector:
    """Return both sums of every cell, in parts of units; tallies of disjoint users add up. Exact and private."""
    kept, offered = rows.kept_and_offered(bounds)
    grain = GRAINS if bounds.weighted else 1
    ends = np.array(ENDS, np.int64) * grain
    offered = np.minimum(offered, ends[-1])
    cell = np.searchsorted(ends, offered)
    end, most = ends[cell], np.minimum(ends[cell] // grain, bounds.max_contributions)
    out = np.zeros(2 * len(ENDS), np.int64)
    np.add.at(out, cell, (offered * _PARTS + end // 2) // end)
    np.add.at(out, cell + len(ENDS), np.minimum((kept * _PARTS + most // 2) // most, _PARTS))
    return ExactVector(out, _TWO_UNITS)


def nobody() -> ExactVector:
    """Return the tally of nobody."""
    return ExactVector(np.zeros(2 * len(ENDS), np.int64), _TWO_UNITS)


def release_kept(tally: ExactVector, epsilon: Fraction, release_key: ReleaseKey) -> KeptShare:
    """Release every sum with noise, also where nobody is."""
    sums = tally.admit(_TWO_UNITS).values
    scale = _TWO_UNITS.l1 / epsilon
    source = release_key.for_data(digest("kept share", sums)).source("kept share")
    noisy = (sums + discrete_laplace(scale, len(sums), source)).tolist()
    return KeptShare(tuple(noisy[: len(ENDS)]), tuple(noisy[len(ENDS) :]), scale)


# --- post-processing: free --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """The share that bounding keeps of the records of users with at most ``up_to``, and its interval at 95 %."""

    share: float
    low: float
    high: float
    up_to: int


@dataclass(frozen=True)
class KeptShare:
    """Noisy sums of every cell: before bounding in parts of its end, after it in parts of min(end, C). Released."""

    offered: tuple[int, ...]
    kept: tuple[int, ...]
    scale: Fraction

    def estimate(self, max_contributions: int, level: float = 0.95) -> Kept | None:
        """Return the share kept, of users up to the largest cell that is clear; None where noise hides it."""
        telling = [at for at, end in enumerate(ENDS) if end >= min(_TELLING * max_contributions, ENDS[-1])]
        each = 1.0 - (1.0 - level) / len(telling)  # of which one is chosen by looking: all hold at once
        found = [self._up_to(last, max_contributions, each) for last in telling]
        shown = [kept for kept in found if kept is not None]
        clear = [kept for kept in shown if kept.high - kept.low <= 2 * _CLEAR]
        if clear:
            return clear[-1]
        best = min(shown, key=lambda kept: kept.high - kept.low, default=None)
        return best if best is not None and best.high - best.low <= 2 * _OPEN else None

    def _up_to(self, last: int, most: int, level: float) -> Kept | None:
        ends = np.array(ENDS[: last + 1], np.float64)
        before, after = ends / _PARTS, np.minimum(ends, most) / _PARTS
        offered = float(before @ np.array(self.offered[: last + 1], np.float64))
        kept = float(after @ np.array(self.kept[: last + 1], np.float64))
        shares = np.linspace(0.0, 1.0, 101)
        spread = self._spread(np.hstack([np.tile(after, (101, 1)), np.outer(shares, before)]), level)
        inside = shares[np.abs(kept - shares * offered) <= spread]
        if not len(inside) or offered <= 0:
            return None
        low, high = float(inside[0]), float(inside[-1])
        return Kept(min(max(kept / offered, low), high), low, high, ENDS[last])

    def _spread(self, weights: Floats, level: float) -> Floats:
        """Return what Σ wᵢ·noise exceeds with probability 1 − level, for each row of weights (Chernoff).

        Discrete Laplace noise of scale b has a smaller moment generating function than the continuous one,
        1/(1 − (b·t)²), since (cosh x − 1)/x² rises.
        """
        largest = weights.max(axis=1)
        steps = np.linspace(0.02, 0.98, 40)
        relative = (weights / largest[:, None])[:, None, :] * steps[None, :, None]
        moments = -np.log1p(-(relative**2)).sum(axis=2)
        bound = (math.log(2.0 / (1.0 - level)) + moments) / steps
        out: Floats = float(self.scale) * largest * bound.min(axis=1)
        return out

    def in_words(self, max_contributions: int, per_count: int | float = 1, *, sums: bool = False) -> str:
        """Return the share kept as a sentence without its end; a count stands for ``per_count``."""
        found, what = self.estimate(max_contributions), "the sum" if sums else "all records"
        if found is None:
            return f"noise hides the share of {what} that bounding keeps: too few users, or kept_share is too small"
        of, more, verb = ("the sum", "in all", "is") if sums else ("the records", "records", "are")
        return (
            f"about {found.share:.0%} ({found.low:.0%} to {found.high:.0%}) of {of} of users with at most"
            f" {found.up_to * per_count:,.10g} {more} {verb} counted, and at most"
            f" {max_contributions * per_count:,.10g} of any other user; how much a single key lost is not known"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "at_most": list(ENDS),
            "parts": _PARTS,
            "offered": list(self.offered),
            "kept": list(self.kept),
            "scale": show(self.scale),
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> KeptShare:
        """Return what `to_dict` wrote; raise a ParameterError where a number is wrong."""
        halves = [text["offered"], text["kept"]]
        if tuple(text["at_most"]) != ENDS or text["parts"] != _PARTS or {*map(len, halves)} != {len(ENDS)}:
            raise ParameterError("KeptShare: cells are not those of this version")
        low, high = -(1 << 62), 1 << 62
        offered, kept = (
            tuple(integer(n, "sum", "KeptShare", low=low, high=high) for n in half) for half in halves
        )
        scale = rational(text["scale"], "scale", "KeptShare")
        if not 0 < scale <= 1 << 50:
            raise ParameterError("KeptShare: scale must be above 0 and at most 2^50")
        return cls(offered, kept, scale)
