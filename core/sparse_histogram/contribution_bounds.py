"""How much of a user to count, chosen from the data: `max_contributions: auto`.

Released: for cells of a fixed grid, how many users have a total of so many contributions (distinct keys, where each
counts once), with discrete Laplace noise of scale 1/ε on every cell.

Guarantee: ε-differential privacy. A user's total follows from the user's own records, is at most `MAX_CHOICE`, and
lies in one cell: a user added or removed changes one number by 1. (The histogram of Dwork, McSherry, Nissim, Smith
2006; a bound chosen privately before it is used is the idea of Near and Abuah, "Programming Differential Privacy",
chapter on the sparse vector technique; a histogram of users answers all candidates at once.)

Post-processing, free: a user with T > C contributions keeps each with probability C/T, so that a key loses at most

    H(C) = Σ over users of (1 − C/T)₊

of its count by bounding, on average, whatever the key. C is the candidate with the smallest

    (variance of the noise on a count at C) + H(C)²,

the mean square error of a key that all heavy users have in common. Both are estimated from released numbers, in exact
arithmetic, so that every worker chooses the same.

The same numbers for open keys in place of contributions, released before keys are selected by weights, choose the
number of rounds (`UserTotals.rounds`). Whatever is chosen is (ε', δ)-DP by itself, so all together is (ε + ε', δ)-DP
(basic composition, which holds for mechanisms chosen by earlier results: Dwork, Roth 2014, Theorem 3.16 and section
3.5.1).

| symbol | meaning |
|---|---|
| T | contributions of a user with at most L∞ per key, clamped to `MAX_CHOICE` |
| C | how many of them are counted |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.key_selection.rounds import best_rounds
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.laws import LaplaceLaw
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import integer, rational, show
from hushgram.sensitivity import Exact, Sensitivity

__all__ = ["GRID", "MAX_CHOICE", "UserTally", "UserTotals", "choose", "privacy_map", "release_totals"]

#: The most that is ever counted of a user: so many keys of each are kept before the choice is made.
MAX_CHOICE = 1024
# From so many scales on the number of users in a cell is known well enough to go on from it.
_CLEAR = 8
# From so many scales on there are users in a cell at all, for choices.
_SOME, _SURELY_SOME = 2, 4
#: Upper ends of the cells, and the candidates for C: two a doubling.
GRID = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024)


# A user lies in one cell.
_ONE_CELL = Sensitivity(1, 1)


@dataclass(frozen=True)
class UserTally(Exact):
    """Exact numbers of users in each cell; tallies of disjoint users add up. Private."""

    users: NDArray[np.int64]
    sensitivity: Sensitivity = _ONE_CELL

    @classmethod
    def of(cls, totals: NDArray[np.int64]) -> UserTally:
        """Return the tally of users with these totals, each at least 1."""
        cells = np.searchsorted(np.array(GRID), np.minimum(totals, MAX_CHOICE))
        return cls(np.bincount(cells, minlength=len(GRID)).astype(np.int64))

    @classmethod
    def zero(cls) -> UserTally:
        """Return the tally of nobody."""
        return cls(np.zeros(len(GRID), np.int64))

    def __add__(self, other: UserTally) -> UserTally:
        return UserTally(self.users + other.users)


@dataclass(frozen=True)
class UserTotals:
    """How many users have totals in each cell, with noise. Released."""

    users: tuple[int, ...]
    scale: Fraction

    def lost(self, chosen: int) -> Fraction:
        """Return H(C): about the most that any key loses by bounding."""
        parts = (n * (1 - chosen / middle) for n, middle in self._cells() if n and middle > chosen)
        return sum(parts, Fraction(0))

    def dropped_share(self, chosen: int) -> float:
        """Return about the share of all contributions that bounding drops, for people."""
        cells = self.likely()
        whole = sum(n * middle for n, middle in cells)
        return 1 - sum(n * min(middle, chosen) for n, middle in cells) / whole if whole else 0.0

    def likely(self) -> list[tuple[float, float]]:
        """Return (users, their total) as they are likely to be; none where too little is clear.

        Cells behind the last clear one follow it in the ratio of the clear cells before (a power law), until less than
        one user is left. Inside a cell there are more users the smaller the total, so that their mean is below its
        middle: it is taken as the root of its ends' product. Shares of ε may be chosen by these floats, so there are
        only operations in them that every machine rounds alike.
        """
        ends = zip((0, *GRID), GRID, strict=False)
        cells = [
            (float(n), math.sqrt((low + 1) * high))
            for (n, _), (low, high) in zip(self._cells(), ends, strict=True)
        ]
        last = max((i for i, (n, _) in enumerate(cells) if n > _CLEAR * self.scale), default=0)
        if last < 4:
            return []
        clear = cells[: last + 1]
        ratio = min(math.sqrt(math.sqrt(clear[-1][0] / max(clear[-5][0], 1.0))), 0.65)
        n, middle = clear[-1]
        while n >= 1:
            n, middle = n * ratio, middle * math.sqrt(2.0)
            clear.append((n, middle))
        return clear

    def most_lost(self, chosen: int, level: float = 0.95) -> float:
        """Return what no key loses more than by bounding, with probability ``level``: H(C), its noise and its chance.

        Users of each cell are taken to have its largest total, of the last cell any. Two deviations are for which
        of a user's keys are dropped.
        """
        above = [(n, 1 - chosen / high) for n, high in zip(self.users, GRID, strict=True) if high > chosen]
        above.append((self.users[-1], chosen / MAX_CHOICE))  # a total above the last end loses more
        noise = LaplaceLaw(float(self.scale)).interval(level, len(above))
        most = max(sum(n * share for n, share in above), 0.0) + noise
        return float(most + 2 * most**0.5)

    def in_words(self, chosen: int, per_count: int | float = 1) -> str:
        """Return the choice, and what bounding is likely to drop, in words; a count stands for ``per_count``."""
        most = self.most_lost(chosen) * per_count
        share = f"about {self.dropped_share(chosen):.0%}" if self.likely() else "an unknown share"
        return (
            f"at most {chosen * per_count:,.10g} of a user, chosen from the data; {share} of what users add was"
            f" dropped, and at most about {float(f'{most:.2g}'):,.10g} from any key"
        )

    def rounds(self) -> int:
        """Return the number of rounds of key selection, where totals are numbers of keys."""
        return best_rounds(self.clear())

    def clear(self) -> list[tuple[int, Fraction]]:
        """Return (users, middle of the cell) of the cells where there surely are some."""
        return [(n, middle) for n, middle in self._cells(_SURELY_SOME) if n]

    def keys_in_words(self) -> str:
        """Return how many users have one key and how many several, in words, where totals are numbers of keys."""
        one, several = max(self.users[0], 0), max(sum(self.users[1:]), 0)
        law = LaplaceLaw(float(self.scale))
        errors = f"± {law.radius(0.95):,} and ± {law.interval(0.95, len(self.users) - 1):,.0f}"
        return f"about {one:,} users have one key, about {several:,} several ({errors} with 95 % probability)"

    def _cells(self, scales: int = _SOME) -> list[tuple[int, Fraction]]:
        """Return (users, middle of the cell); numbers that their noise explains are left at 0."""
        return [
            (n if n > scales * self.scale else 0, Fraction(low + 1 + high, 2))
            for n, low, high in zip(self.users, (0, *GRID), GRID, strict=False)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {"at_most": list(GRID), "users": list(self.users), "scale": show(self.scale)}

    @classmethod
    def from_dict(cls, text: Mapping[str, Any]) -> UserTotals:
        """Return the totals that `to_dict` wrote; raise a ParameterError where a number is wrong."""
        if tuple(text["at_most"]) != GRID or len(text["users"]) != len(GRID):
            raise ParameterError("UserTotals: cells are not those of this version")
        users = tuple(integer(n, "users", "UserTotals", low=-(1 << 62), high=1 << 62) for n in text["users"])
        scale = rational(text["scale"], "scale", "UserTotals")
        if not 0 < scale <= 1 << 34:
            raise ParameterError("UserTotals: scale must be above 0 and at most 2^34")
        return cls(users, scale)


def privacy_map(scale: Fraction) -> Fraction:
    """Return ε of the release with this noise scale."""
    return _ONE_CELL.l1 / scale


def release_totals(tally: UserTally, epsilon: Fraction, release_key: ReleaseKey) -> UserTotals:
    """Release every cell with noise of scale 1/ε, also where nobody is."""
    tally.admit(_ONE_CELL)
    scale = _ONE_CELL.l1 / epsilon
    source = release_key.source("contributions", 0, digest(tally.users))
    noisy = tally.users + discrete_laplace(scale, len(tally.users), source)
    return UserTotals(tuple(noisy.tolist()), scale)


def choose(totals: UserTotals, variance: Callable[[int], Fraction], candidates: Sequence[int] = GRID) -> int:
    """Return the C with the smallest variance(C) + H(C)²; of equal ones the smallest."""
    return min(candidates, key=lambda chosen: (variance(chosen) + totals.lost(chosen) ** 2, chosen))
