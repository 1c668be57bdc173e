"""Posterior of one key's count, given its symbol *and* what the threshold part says of it ★.

The weight of a count x is prior(x)·P(value | x) for a listed key, and prior(x)·P(not listed, symbol | x) for any
other. Work is done for each distinct outcome, not for each key; where P(not listed, symbol | x) has few factors (ALP:
m + 1), every moment over x is a product of a symbol's factors with a small table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgram.decoding.constants import CHUNK, MARGIN, NEAR, POWER, SPARE
from hushgram.decoding.likelihood import Floats, Ints, Likelihood, ReleasedNumbers
from hushgram.decoding.prior import Prior

__all__ = ["Outcomes", "Posterior", "near_limit"]


def near_limit(released: ReleasedNumbers) -> int:
    """Return the largest value that is weighed with the prior; :meth:`Posterior.far` serves those above."""
    return released.last + int(np.ceil(NEAR * released.noise.scale))


@dataclass(frozen=True)
class Outcomes:
    """Distinct outcomes: the encoding's symbol, and the listed value or −1."""

    symbols: Ints
    values: Ints


class Posterior:
    """Moments and credible intervals of outcomes; a key is in the data with probability ``present``."""

    def __init__(
        self, released: ReleasedNumbers, likelihood: Likelihood, prior: Prior, present: float
    ) -> None:
        grid = prior.grid
        self.released = released
        self.likelihood = likelihood
        self.low = np.append(0, grid.low)
        self.high = np.append(0, grid.high)
        self.at = np.append(0.0, grid.at)
        self.mass = np.append(1.0 - present, present * prior.mass)
        self._spares: dict[float, float] = {}

    def weights(self, values: Ints) -> Floats:
        """Return (V, X) prior × P(value | x) for (V,) values, each row scaled to a maximum of 1; of −1, not listed, the
        prior alone: the symbol says the rest."""
        table = np.empty((len(values), len(self.at)))
        free = values < 0
        table[free] = 1.0
        table[~free] = self.released.value(values[~free].astype(np.float64), self.at)
        table *= self.mass
        return np.asarray(table / np.maximum(table.max(axis=1, keepdims=True), 1e-300))

    def moments(self, outcomes: Outcomes) -> tuple[Floats, Floats, Floats]:
        """Return mean, variance and third central moment of each outcome."""
        order = np.argsort(outcomes.values, kind="stable")  # outcomes of a value share its row of weights
        out = np.empty((3, len(order)))
        for part in _chunks(len(order), len(self.at)):
            chosen = order[part]
            out[:, chosen] = self._moments(Outcomes(outcomes.symbols[chosen], outcomes.values[chosen]))
        return out[0], out[1], out[2]

    def _moments(self, outcomes: Outcomes) -> Floats:
        left, right = self.likelihood.factors(outcomes.symbols, self.at)
        values, place = np.unique(outcomes.values, return_inverse=True)
        shift = np.where(values < 0, 0.0, values).astype(np.float64)  # powers about v keep their digits
        weight, off = self.weights(values), self.at[None, :] - shift[:, None]
        sums = np.empty((4, len(place)))
        listed = outcomes.values >= 0
        for power in range(4):
            table = weight * off**power
            whole = table.sum(axis=1)[place]
            table = table if right is None else table @ right
            sums[power] = np.einsum("dk,dk->d", table[place], left)
            sums[power] = np.where(listed, whole, sums[power])
        first, second, third = sums[1:] / np.maximum(sums[0], 1e-300)
        variance = np.maximum(second - first**2, 0.0)
        skew = third - 3.0 * first * second + 2.0 * first**3
        return np.stack([first + shift[place], variance, skew])

    def absent(self, outcomes: Outcomes) -> Floats:
        """Return the probability of a count of 0 for each outcome."""
        out = np.empty(len(outcomes.symbols))
        for part in _chunks(len(out), len(self.at)):
            weight = self._rows(Outcomes(outcomes.symbols[part], outcomes.values[part]))
            out[part] = weight[:, 0] / np.maximum(weight.sum(axis=1), 1e-300)
        return out

    def interval(self, outcomes: Outcomes, level: float) -> tuple[Floats, Floats]:
        """Return short ranges of counts that hold ``level`` of the posterior on average over keys.

        Counts are whole, so a range that must hold ``level`` for each outcome holds more on average, much
        more where few counts occur. What may be dropped is therefore raised until the average is right,
        to at most SPARE times as much for any outcome.
        """
        low = np.empty(len(outcomes.symbols))
        high = np.empty(len(outcomes.symbols))
        spare = self._spare(level)
        for part in _chunks(len(low), len(self.at)):
            weight = self._rows(Outcomes(outcomes.symbols[part], outcomes.values[part]))
            weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
            kept = _Kept.all_of(weight).trimmed(weight, self.high - self.low + 1.0, spare)
            low[part], high[part] = self.low[kept.first], self.high[kept.last]
        return low, high

    def _rows(self, outcomes: Outcomes) -> Floats:
        """Return (D, X) posterior weights, each row up to a factor."""
        likely = np.where(outcomes.values[:, None] >= 0, 1.0, self._likely(outcomes.symbols))
        return self.weights(outcomes.values) * likely

    def _spare(self, level: float) -> float:
        """Return the posterior mass to leave out of each interval: 1 − ``level`` on average over keys not listed."""
        if level not in self._spares:
            self._spares[level] = self._found_spare(level)
        return self._spares[level]

    def _found_spare(self, level: float) -> float:
        least, most = 1.0 - level, SPARE * (1.0 - level)
        symbols = self.likelihood.every_symbol()
        if symbols is None:
            return least
        weight = self._likely(symbols) * self.mass  # rows add up to the marginal
        weight /= max(float(weight.sum()), 1e-300)
        marginal = weight.sum(axis=1)
        each = weight / np.maximum(marginal[:, None], 1e-300)
        held = np.cumsum(each, axis=1)
        target = level + MARGIN * (1.0 - level)

        def trimmed(kept: _Kept, spare: float) -> tuple[_Kept, float]:
            kept = kept.trimmed(each, self.high - self.low + 1.0, spare)
            rows, before = np.arange(len(each)), np.maximum(kept.first - 1, 0)
            inside = held[rows, kept.last] - np.where(kept.first > 0, held[rows, before], 0.0)
            return kept, float(marginal @ inside)

        kept = trimmed(_Kept.all_of(each), least)[0]  # what is dropped first is dropped at every spare
        if trimmed(kept, most)[1] >= target:
            return most
        for _ in range(12):
            middle = (least + most) / 2.0
            further, average = trimmed(kept, middle)
            least, most, kept = (middle, most, further) if average >= target else (least, middle, kept)
        return least

    def far(self, values: Ints) -> tuple[Floats, Floats]:
        """Return mean and variance for values above the near limit, where the prior is a power law."""
        mean, variance = self.released.far(values)
        return mean - POWER * variance / np.maximum(mean, 1.0), variance

    def _likely(self, symbols: Ints) -> Floats:
        """Return (D, X) likelihoods of (D,) symbols of keys that are not listed."""
        left, right = self.likelihood.factors(symbols, self.at)
        return left if right is None else left @ right.T


def _chunks(count: int, wide: int) -> list[slice]:
    step = max(1, CHUNK // max(wide, 1))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


@dataclass(frozen=True)
class _Kept:
    """Of each row the atoms first … last, and the weight of those that were dropped."""

    first: Ints
    last: Ints
    gone: Floats

    @classmethod
    def all_of(cls, weight: Floats) -> _Kept:
        rows, atoms = weight.shape
        return cls(np.zeros(rows, np.int64), np.full(rows, atoms - 1, np.int64), np.zeros(rows))

    def trimmed(self, weight: Floats, wide: Floats, spare: float) -> _Kept:
        """Drop atoms from the thinner end while no more than ``spare`` is dropped in all."""
        first, last, gone = self.first.copy(), self.last.copy(), self.gone.copy()
        rows = np.arange(len(weight))
        while len(rows):
            a, b = first[rows], last[rows]
            left, right = weight[rows, a], weight[rows, b]
            lower = left / wide[a] <= right / wide[b]
            drop = gone[rows] + np.where(lower, left, right)
            go = (drop <= spare) & (a < b)
            rows, lower = rows[go], lower[go]
            gone[rows] = drop[go]
            first[rows] += lower
            last[rows] -= ~lower
        return _Kept(first, last, gone)
