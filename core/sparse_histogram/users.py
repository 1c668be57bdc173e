"""One noisy histogram over users ★: what bounding keeps, `max_contributions: auto` and the rounds of key selection.

Released, wherever users are known: for cells of a public grid, how many users have so many contributions before they
are bounded to C (distinct keys, where each counts once; with at most L∞ for a key), with discrete Laplace noise of
scale 1/ε on every cell.

Guarantee: ε-differential privacy. A user's total follows from the user's own records and lies in one cell: a user added
or removed changes one number by 1. (The histogram of Dwork, McSherry, Nissim, Smith 2006. A bound chosen privately
before it is used is the idea of Near and Abuah, "Programming Differential Privacy", chapter on the sparse vector
technique; a histogram answers all candidates at once.) What is chosen by it is (ε', δ)-DP by itself, so all together is
(ε + ε', δ)-DP: basic composition holds for mechanisms that follow from earlier results (Dwork, Roth 2014, Theorem 3.16
and section 3.5.1).

Post-processing, free, all of it in exact arithmetic where anything is decided by it, so that every worker decides the
same:

- **What is kept.** Bounding keeps Σ min(T, C) of Σ T. With the weights min(T, C) − s·T on the cells, noise explains the
  true share s, wherever in their cells users are: the interval holds every such s (Fieller; Chernoff's bound on the
  noise).
- **C.** A user with T > C contributions keeps each with probability C/T, so that a key loses at most
  H(C) = Σ (1 − C/T)₊ of its count, on average, whatever the key. C is the candidate with the smallest
  (variance of the noise on a count at C) + H(C)², the mean square error of a key that all heavy users have in common.
- **Rounds** of key selection, by what users have on average (`hushgram.key_selection.rounds.best_rounds`).

| symbol | meaning |
|---|---|
| T | contributions of a user with at most L∞ per key, clamped to the last end |
| C | how many of them are counted |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import best_rounds
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import ExactVector, Sensitivity

__all__ = [
    "CHOICES", "MAX_CHOICE", "Kept", "UserHistogram", "choose", "nobody", "privacy_map", "release_users", "tally_users",
    "user_ends",
]  # fmt: skip

#: The most that is ever chosen for C.
MAX_CHOICE = 1024
#: The candidates for C: two a doubling.
CHOICES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
# Users are told apart up to so many times C: what they have beyond it is held in memory for nothing else.
_BEYOND = 16
# From so many scales on the number of users in a cell is known well enough to go on from it.
_CLEAR = 8
# From so many scales on there are users in a cell at all, for choices.
_SOME, _SURELY_SOME = 2, 4
# Rounds follow from users with up to so many.
_FEW = 16
# A share is shown up to this ±, and of cells within the first one the largest is taken.
_NARROW, _WIDE = 0.05, 0.15
# Only users with more than C can lose any by C: a share of users with up to so many times C says something.
_TELLING = 4
# A user lies in one cell.
_ONE_CELL = Sensitivity(1, 1)
# Beyond a clear doubling there are at most so many times as many users in the next one.
_STEEPEST = 0.42

Floats = NDArray[np.float64]


def user_ends(max_contributions: int | None) -> tuple[int, ...]:
    """Return the upper ends of the cells, four a doubling up to 16·C; None for a C that is chosen from the data.

    >>> user_ends(1)
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    """
    last = MAX_CHOICE if max_contributions is None else _BEYOND * max_contributions
    unit, ends = 1, list(range(1, 9))
    while ends[-1] < last:
        unit *= 2
        ends += [unit * part for part in (5, 6, 7, 8)]
    return tuple(ends)


def privacy_map(scale: Fraction) -> Fraction:
    """Return ε of the release with this noise scale."""
    return _ONE_CELL.l1 / scale


def tally_users(totals: NDArray[np.int64], ends: Sequence[int]) -> ExactVector:
    """Return the number of users in each cell, of users with these totals; tallies of disjoint users add up. Exact and
    private."""
    cells = np.searchsorted(np.array(ends), np.minimum(totals, ends[-1]))
    return ExactVector(np.bincount(cells, minlength=len(ends)).astype(np.int64), _ONE_CELL)


def nobody(ends: Sequence[int]) -> ExactVector:
    """Return the tally of nobody."""
    return ExactVector(np.zeros(len(ends), np.int64), _ONE_CELL)


def release_users(
    tally: ExactVector, ends: Sequence[int], epsilon: Fraction, release_key: ReleaseKey
) -> UserHistogram:
    """Release every cell with noise of scale 1/ε, also where nobody is."""
    counts, scale = tally.admit(_ONE_CELL).values, _ONE_CELL.l1 / epsilon
    source = release_key.for_data(digest("users", counts)).source("users")
    noisy = counts + discrete_laplace(scale, len(counts), source)
    return UserHistogram(tuple(ends), tuple(noisy.tolist()), scale)


def choose(
    users: UserHistogram,
    variance: Callable[[int], Fraction],
    candidates: Sequence[int] = CHOICES,
    *,
    named_first: bool = False,
) -> int:
    """Return the C with the smallest variance(C) + H(C)²; of equal ones the smallest.

    Where a user's named keys count before others (``named_first``), half of what users have is taken to be named.
    """
    times = 2 if named_first else 1
    return min(candidates, key=lambda chosen: (variance(chosen) + users.lost(times * chosen) ** 2, chosen))


# --- post-processing: free --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """The share that bounding keeps of what users with at most ``up_to`` have (None: of all users), and its interval at
    95 %."""

    share: float
    low: float
    high: float
    up_to: int | None


@dataclass(frozen=True)
class UserHistogram:
    """How many users have totals in each cell, with noise. Released."""

    ends: tuple[int, ...]
    users: tuple[int, ...]
    scale: Fraction

    # --- decisions, in exact arithmetic -----------------------------------------------------------------------------

    def lost(self, chosen: int) -> Fraction:
        """Return H(C): about the most that any key loses by bounding."""
        parts = (n * (1 - chosen / middle) for n, middle in self._cells(CHOICES, _SOME) if middle > chosen)
        return sum(parts, Fraction(0))

    def rounds(self) -> int:
        """Return the number of rounds of key selection that suits these users."""
        seen = [
            (n, Fraction(low + 1 + high, 2))
            for n, (low, high) in zip(self.users, pairwise((0, *self.ends)), strict=True)
            if high <= _FEW  # of more active users noise would decide
        ]
        number = sum(n for n, _ in seen)
        clear = number > 0 and number**2 > (_SURELY_SOME * self.scale) ** 2 * len(seen)
        return best_rounds(seen if clear else ())

    def _cells(self, ends: Sequence[int], scales: int) -> list[tuple[int, Fraction]]:
        """Return (users, middle of the cell) of wider cells with these ends, whose number noise does not explain."""
        out = []
        for low, high in pairwise((0, *ends)):
            inside = [n for n, end in zip(self.users, self.ends, strict=True) if low < end <= high]
            n = sum(inside)
            if n > 0 and n * n > (scales * self.scale) ** 2 * len(inside):
                out.append((n, Fraction(low + 1 + high, 2)))
        return out

    # --- answers ------------------------------------------------------------------------------------------------------

    def kept(self, max_contributions: int, level: float = 0.95) -> Kept | None:
        """Return the share kept, of users up to the largest cell for which it is clear; None where noise hides it."""
        last = len(self.ends) - 1
        telling = [at for at, end in enumerate(self.ends) if end >= _TELLING * max_contributions] or [last]
        each = 1.0 - (1.0 - level) / len(telling)  # of which one is chosen by looking: all hold at once
        shown = [kept for at in telling if (kept := self._up_to(at, max_contributions, each)) is not None]
        narrow = [kept for kept in shown if kept.high - kept.low <= 2 * _NARROW]
        if narrow:
            return narrow[-1]
        best = min(shown, key=lambda kept: kept.high - kept.low, default=None)
        return best if best is not None and best.high - best.low <= 2 * _WIDE else None

    def _up_to(self, last: int, most: int, level: float) -> Kept | None:
        high = np.array(self.ends[: last + 1], np.float64)
        low = np.append(1.0, high[:-1] + 1.0)
        users, middle = np.array(self.users[: last + 1], np.float64), np.sqrt(low * high)
        offered, held = float(users @ middle), float(users @ np.minimum(middle, most))
        if offered <= 0:
            return None
        # What a user of a cell adds to Σ min(T, C) − s·Σ T lies between these, for some share of each percent.
        shares = np.arange(100)[:, None] / 100.0
        least, greatest = (
            choice(*(np.minimum(at, most) - share * at for at in (low, high)))
            for choice, share in ((np.minimum, shares + 0.01), (np.maximum, shares))
        )
        inside = (least @ users <= self._spread(least, level)) & (
            greatest @ users >= -self._spread(greatest, level)
        )
        found = np.flatnonzero(inside)
        if not len(found):
            return None
        least_share, most_share = float(found[0]) / 100.0, float(found[-1] + 1) / 100.0
        up_to = None if last == len(self.ends) - 1 else self.ends[last]
        return Kept(min(max(held / offered, least_share), most_share), least_share, most_share, up_to)

    def _spread(self, weights: Floats, level: float) -> Floats:
        """Return what Σ wᵢ·noise exceeds with probability (1 − level)/2, for each row of weights (Chernoff).

        Discrete Laplace noise of scale b has a smaller moment generating function than the continuous one,
        1/(1 − (b·t)²), since (cosh x − 1)/x² rises.
        """
        largest = np.maximum(np.abs(weights).max(axis=1), 1e-9)
        steps = np.linspace(0.02, 0.98, 40)
        relative = (weights / largest[:, None])[:, None, :] * steps[None, :, None]
        moments = -np.log1p(-(relative**2)).sum(axis=2)
        bound = (math.log(2.0 / (1.0 - level)) + moments) / steps
        out: Floats = float(self.scale) * largest * bound.min(axis=1)
        return out

    def likely(self) -> list[tuple[float, float]]:
        """Return (users, their total) as they are likely to be; none where too little is clear. For predictions.

        Beyond the last clear doubling each one has as many times the users of the one before as those (a power law),
        until less than one user is left. In a cell there are more users the smaller the total: their mean is taken as
        the root of its ends' product.
        """
        doublings: dict[int, float] = {}
        for n, end in zip(self.users, self.ends, strict=True):
            top = 1 << (end - 1).bit_length()
            doublings[top] = doublings.get(top, 0.0) + n
        clear = [top for top, n in doublings.items() if n > _CLEAR * self.scale]
        if not clear or clear[-1] < 4:
            return []
        last = clear[-1]
        open_ended = last == self.ends[-1]  # users with more are in the last cell
        if open_ended:
            ratio = doublings[last] / max(doublings[last] + doublings[last // 2], 1.0)
        else:  # the ratio of neighbours by itself has too much noise
            ratio = math.sqrt(doublings[last] / max(doublings[last // 4], 1.0))
        ratio = min(ratio, _STEEPEST)
        inside = 1.0 - ratio if open_ended else 1.0
        cells = [
            (max(float(n), 0.0) * (inside if low >= last // 2 else 1.0), math.sqrt((low + 1) * high))
            for n, (low, high) in zip(self.users, pairwise((0, *self.ends)), strict=True)
            if high <= last
        ]
        beyond, middle = inside * doublings[last] * ratio, last * math.sqrt(2.0)
        while beyond >= 1 and (open_ended or middle < self.ends[-1]):
            cells.append((beyond, middle))
            beyond, middle = beyond * ratio, middle * 2.0
        return cells

    # --- words --------------------------------------------------------------------------------------------------------

    def kept_in_words(
        self, max_contributions: int, per_count: int | float = 1, *, sums: bool = False, chosen: bool = False
    ) -> str:
        """Return what bounding keeps as a sentence without its end; a count stands for ``per_count``."""
        found, most = self.kept(max_contributions), f"{max_contributions * per_count:,.10g}"
        most = f"{most} of a user{', which was chosen from the data' if chosen else ''}"
        if found is None:
            return f"at most {most}; there are too few users to see through the noise how much that keeps"
        verb = "is"
        if found.up_to is None:
            whom = f"of what users have, up to {self.ends[-1] * per_count:,.10g} each,"
        else:
            verb = "is" if sums else "are"
            whom = f"of the {'sum' if sums else 'contributions'} of users with at most {found.up_to * per_count:,.10g}"
        return (
            f"about {found.share:.0%} ({found.low:.0%} to {found.high:.0%}) {whom} {verb} counted, at most {most};"
            " how much a single key lost is not known"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {"at_most": list(self.ends), "users": list(self.users), "scale": show(self.scale)}

    @classmethod
    def from_dict(cls, text: Mapping[str, Any], ends: Sequence[int]) -> UserHistogram:
        """Return what `to_dict` wrote for these ends; raise a ParameterError where a number is wrong."""
        if text["at_most"] != list(ends) or len(text["users"]) != len(ends):
            raise ParameterError("UserHistogram: cells are not those of these parameters")
        low, high = -(1 << 62), 1 << 62
        users = tuple(integer(n, "users", "UserHistogram", low=low, high=high) for n in text["users"])
        scale = rational(text["scale"], "scale", "UserHistogram")
        if not 0 < scale <= 1 << 34:
            raise ParameterError("UserHistogram: scale must be above 0 and at most 2^34")
        return cls(tuple(ends), users, scale)
