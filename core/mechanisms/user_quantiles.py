"""Quantiles over users, to choose bounds by: keys per user, the most for one key, and the total of a user.

Released: for each of three figures and each cell of a public grid of powers of 2, how many users lie in that cell, with
discrete Laplace noise of scale 3/ε on every number.

Guarantee: ε-differential privacy. Each figure is one number per user, which follows from the user's own records: how
many keys the user has, the largest count (or sum of values) of one key, and the sum over all keys. A user lies in one
cell per figure, so that one user added or removed changes three numbers by 1: 3 in L1, 1 in each number. No bound on
contributions is needed. (The histogram of Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2009
for discrete noise.)

Post-processing, free: the q-quantile is the smallest end t of a cell with

    D(t) = (1 − q)·#{users ≤ t} − q·#{users > t} ≥ 0,

which rises in t. An interval holds every t that noise cannot exclude: D(t) is not significantly below 0, and D of the
end before is not significantly above (two tests at the true quantile, each by Chernoff's bound on the noise).

| symbol | meaning |
|---|---|
| q | share of users at or below the quantile |
| t | upper end of a cell |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.contributions.bounding import BoundingSpec, Bounds, Contributions
from hushgram.contributions.histogram import KeyTable
from hushgram.contributions.sums import GRAINS, MAX_MULTIPLE, Grid, checked_values
from hushgram.errors import ParameterError
from hushgram.noise.entropy import ReleaseKey, digest
from hushgram.noise.laws import LaplaceLaw
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, rational, show
from hushgram.sensitivity import ExactVector, Sensitivity

__all__ = [
    "ADVISED", "FIGURES", "QUANTILES", "Quantile", "QuantileParams", "UserFigures", "privacy_map", "quantiles_of_users",
    "release_figures", "tally_users",
]  # fmt: skip

_OWNER = "QuantileParams"
#: The three figures of a user.
FIGURES = ("keys per user", "most for one key", "total per user")
#: Quantiles that are shown, and the one that bounds are advised by.
QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
ADVISED = 0.95
# So many keys of a user are looked at, by keyed priority.
_MAX_KEYS = 1 << 16
# Figures are clamped to the last end of a grid. Bounds above these are hardly ever worth their noise, and every cell
# above a quantile adds to the noise on it.
_LAST_KEYS, _LAST_RECORDS = 1 << 12, 1 << 16
# Values are counted in multiples of 2^-7, up to 2^39 per user and key: then 2^16 keys stay below 2^63. Two grids of
# 2^32 grains cover that: one whose grain is 2^-7, and one for values from 2^25 on, whose grain is 2^7.
_FINE, _COARSE = Grid(Fraction(GRAINS, 128), MAX_MULTIPLE), Grid(Fraction(GRAINS * 128), MAX_MULTIPLE)
_UNIT, _SHIFT = Fraction(1, 128), 14
_FINE_END = MAX_MULTIPLE * GRAINS
# A user lies in one cell per figure.
_ONE_CELL_EACH = Sensitivity(len(FIGURES), 1)

I64 = NDArray[np.int64]


@dataclass(frozen=True, init=False)
class QuantileParams:
    """Parameters: ε of all numbers together, and whether values are summed or records counted.

    >>> QuantileParams("0.05").scale
    Fraction(60, 1)
    """

    epsilon: Fraction
    summed: bool

    def __init__(self, epsilon: Number, *, summed: bool = False) -> None:
        object.__setattr__(self, "epsilon", rational(epsilon, "epsilon", _OWNER))
        object.__setattr__(self, "summed", bool(summed))
        if not Fraction(1, 1 << 20) <= self.epsilon <= 1000:
            raise ParameterError(f"{_OWNER}: epsilon must be from 2^-20 to 1000, got {show(self.epsilon)}")

    @property
    def scale(self) -> Fraction:
        """Return the noise scale on every number."""
        return _ONE_CELL_EACH.l1 / self.epsilon

    @property
    def ends(self) -> tuple[tuple[int, ...], ...]:
        """Return the upper ends of the cells of each figure: records, or values in units of 2^-7."""
        keys, most = _powers(_LAST_KEYS), _powers(_FINE_END << _SHIFT if self.summed else _LAST_RECORDS)
        return keys, most, most

    def bounding(
        self,
        user: str,
        key: str,
        release_key: ReleaseKey,
        value: str | None = None,
        public_keys: KeyTable | None = None,
    ) -> BoundingSpec:
        """Return what is read of the records of users: each user's keys, nearly all of them."""
        values = (None,) if value is None else ((value, _FINE), (value, _COARSE))
        return BoundingSpec(user, key, self.key(release_key), self.bounds, False, values, public_keys)

    @property
    def bounds(self) -> tuple[Bounds, ...]:
        """Return the bounds under which rows of users are pruned: one per column of counts."""
        return (Bounds(_MAX_KEYS, 1),) * (2 if self.summed else 1)

    def key(self, release_key: ReleaseKey) -> ReleaseKey:
        """Return the key for these public choices."""
        stated = {"epsilon": show(self.epsilon), "summed": str(self.summed)}
        return release_key.for_parameters("bounds", stated)


def privacy_map(scale: Fraction) -> Fraction:
    """Return ε of the release with this noise scale."""
    return _ONE_CELL_EACH.l1 / scale


def tally_users(rows: Contributions, params: QuantileParams) -> ExactVector:
    """Return how many users lie in each cell of each figure; tallies of disjoint users add up. Exact and private."""
    keys, most, totals = rows.prune(*params.bounds).per_user(_in_units)
    cells = [
        np.bincount(np.searchsorted(np.array(ends), np.minimum(figure, ends[-1])), minlength=len(ends))
        for figure, ends in zip((keys, most, totals), params.ends, strict=True)
    ]
    return ExactVector(np.concatenate(cells).astype(np.int64), _ONE_CELL_EACH)


def release_figures(tally: ExactVector, params: QuantileParams, release_key: ReleaseKey) -> UserFigures:
    """Release every number with noise of scale 3/ε, also where nobody is."""
    counts = tally.admit(_ONE_CELL_EACH).values
    source = params.key(release_key).for_data(digest("user figures", counts)).source("user figures")
    noisy = (counts + discrete_laplace(params.scale, len(counts), source)).tolist()
    users, at = [], 0
    for ends in params.ends:
        users.append(tuple(noisy[at : at + len(ends)]))
        at += len(ends)
    return UserFigures(params, tuple(users))


def quantiles_of_users(
    users: Any,
    keys: Any,
    params: QuantileParams,
    *,
    values: Any = None,
    release_key: ReleaseKey | None = None,
) -> UserFigures:
    """Release how many keys, records per key and records users have, as ``hushgram bounds`` does.

    Args:
        users: the column of users.
        keys: the column of keys.
        params: the parameters; ``summed`` where values are given.
        values: a column of numbers from 0 on that is summed.
        release_key: reproduces an earlier result; whoever has it can subtract the noise.

    >>> params = QuantileParams(1000)
    >>> found = quantiles_of_users(["ann", "ann", "bob"], ["/a", "/b", "/a"], params)
    >>> found.quantile("keys per user", 0.95).at_most
    2.0
    """
    release_key = release_key or ReleaseKey.generate()
    if params.summed != (values is not None):
        raise ParameterError(f"{_OWNER}: summed must be True where values are given, and only there")
    columns = [] if values is None else [checked_values(values, len(keys))]
    spec = params.bounding("user", "key", release_key, None if values is None else "value")
    return release_figures(tally_users(spec.contributions(users, keys, columns), params), params, release_key)


# --- post-processing: free --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantile:
    """The q-quantile of a figure over users, as the end of a cell, and an interval that holds it with 95 %."""

    at_most: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Return whether the interval is within a factor of 2 of the estimate, on either side."""
        return self.high <= 2 * self.at_most and self.low >= self.at_most / 2

    def in_words(self) -> str:
        """Return estimate and interval, as narrow as noise allows: "16", "16 (8 to 16)" or "8 or more"."""
        if self.low == self.high:
            return f"{self.at_most:,.10g}"
        if self.high > 8 * self.low:
            return f"{self.low:,.10g} or more"
        return f"{self.at_most:,.10g} ({self.low:,.10g} to {self.high:,.10g})"


@dataclass(frozen=True)
class UserFigures:
    """Noisy numbers of users by cell, for each figure. Released."""

    params: QuantileParams
    users: tuple[tuple[int, ...], ...]

    def ends(self, figure: str) -> list[float]:
        """Return the upper ends of a figure's cells, in records or in the column's own numbers."""
        place = FIGURES.index(figure)
        unit = float(_UNIT) if self.params.summed and place else 1.0
        return [end * unit for end in self.params.ends[place]]

    def number_of_users(self, level: float = 0.95) -> tuple[float, float]:
        """Return about how many users there are, and the ± at this level."""
        law = LaplaceLaw(float(self.params.scale))
        return float(sum(self.users[0])), law.interval(level, len(self.users[0]))

    def quantile(self, figure: str, q: float, level: float = 0.95) -> Quantile:
        """Return the q-quantile of a figure, with an interval at this level."""
        counts, ends = np.array(self.users[FIGURES.index(figure)], np.float64), self.ends(figure)
        below = np.cumsum(counts)
        distance = (1.0 - q) * below - q * (below[-1] - below)
        spread = np.array([self._spread(t + 1, len(counts) - t - 1, q, level) for t in range(len(counts))])
        before = np.concatenate([[-math.inf], (distance - spread)[:-1]])
        inside = np.flatnonzero((distance >= -spread) & (before < 0))
        inside = inside if len(inside) else np.arange(len(counts))
        found = [t for t in inside if distance[t] >= 0] or [inside[-1]]
        return Quantile(ends[found[0]], ends[inside[0]], ends[inside[-1]])

    def _spread(self, low: int, high: int, q: float, level: float) -> float:
        """Return what the noise of D exceeds with probability (1 − level)/2 on one side (Chernoff)."""
        law = LaplaceLaw(float(self.params.scale))
        target = math.log(2.0 / (1.0 - level))
        steps = (step / 40.0 / law.scale for step in range(1, 40))
        return min(
            (target + low * law.log_moment(at * (1.0 - q)) + high * law.log_moment(at * q)) / at
            for at in steps
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the quantiles that people look at, one row each."""
        return [
            {"figure": self.name(figure), "quantile": q, "at_most": found.at_most, "low": found.low,
             "high": found.high, "suggests": self._suggests(figure, found) if q == ADVISED else None}
            for figure in FIGURES for q in QUANTILES for found in [self.quantile(figure, q)]
        ]  # fmt: skip

    def name(self, figure: str) -> str:
        """Return what a figure counts, in words."""
        what = "value" if self.params.summed else "records"
        return {
            FIGURES[0]: "keys per user",
            FIGURES[1]: f"most {what} of a user for one key",
            FIGURES[2]: f"{what} per user",
        }[figure]

    def _suggests(self, figure: str, found: Quantile) -> str | None:
        if not found.clear:
            return None
        advice = self.advice()
        if figure == FIGURES[0]:
            return None if self.params.summed else f"max_contributions: {found.at_most:g}"
        field = (
            "max_contributions"
            if figure == FIGURES[2]
            else "max_value"
            if self.params.summed
            else "max_per_key"
        )
        return f"{field}: {advice[-1][field]:.15g}"

    def advice(self) -> list[dict[str, float]]:
        """Return bounds that leave 95 % of users as they are: sets of fields of ``privacy``, one of which to choose."""
        keys, most, total = (self.quantile(figure, ADVISED).at_most for figure in FIGURES)
        total = max(total, most)
        if not self.params.summed:
            once = {"max_contributions": keys}
            return [once] if most <= 1 else [once, {"max_contributions": total, "max_per_key": most}]
        granularity = max(most / 16, total / MAX_MULTIPLE)
        return [{"max_contributions": total, "max_value": most, "granularity": granularity}]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "noise_scale": show(self.params.scale),
            "figures": [
                {"figure": self.name(figure), "at_most": self.ends(figure), "users": list(users)}
                for figure, users in zip(FIGURES, self.users, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, text: Mapping[str, Any], params: QuantileParams) -> UserFigures:
        """Return the figures that `to_dict` wrote."""
        return cls(params, tuple(tuple(map(int, figure["users"])) for figure in text["figures"]))


def _powers(last: int) -> tuple[int, ...]:
    return tuple(1 << step for step in range(last.bit_length()))


def _in_units(counts: I64) -> I64:
    """Return counts of distinct rows in one column: values from both grids, each where it is precise."""
    if counts.ndim == 1:
        return counts
    fine, coarse = counts[:, 0], counts[:, 1]
    return np.where(fine < _FINE_END, fine, np.maximum(coarse, _FINE_END >> _SHIFT) << _SHIFT)
