"""Posterior of one key's count, given its bits *and* what the threshold part says of it ★.

The weight of a count x is prior(x)·P(bits | x)·P(value | x), where a key that is not listed counts as
the censored observation x + Z < bound. Because P(bits | x) = Σ_y P(y | x)·P(bits | y) has only m + 1
terms, every moment over x is a product of a pattern's m + 1 likelihoods with a small table that depends
on the value alone: work is done for each distinct outcome, not for each key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hushgram.decoding.channel import Channel
from hushgram.decoding.prior import Prior
from hushgram.decoding.released import Floats, Ints

__all__ = ["Outcomes", "Posterior", "near_limit"]

CHUNK = 1 << 21  # elements of a table that is in memory at a time
NEAR = 15.0  # values within this many noise scales of the bound are weighed with the prior
ENUMERATE = 12  # columns up to which credible intervals are calibrated over all patterns
SPARE = 3.0  # a credible interval leaves out at most so many times 1 − level for any one outcome
MARGIN = 0.2  # share of 1 − level that the average of credible intervals keeps in hand: the prior is a fit
LEAN = 2.0  # exponent of the power law that stands for the prior far above the bound


def near_limit(channel: Channel) -> int:
    """The largest value that is weighed with the prior; :meth:`Posterior.far` serves those above."""
    return channel.released.bound + int(np.ceil(NEAR * channel.released.noise))


@dataclass(frozen=True)
class Outcomes:
    """Distinct outcomes: packed bits, and the listed value or −1."""

    words: Ints
    values: Ints


class Posterior:
    """Moments and credible intervals of outcomes; a key is in the data with probability ``present``."""

    def __init__(self, channel: Channel, prior: Prior, present: float) -> None:
        support = prior.support
        self.channel = channel
        self.low = np.append(0, support.low)
        self.high = np.append(0, support.high)
        self.at = np.append(0.0, support.at)
        self.mass = np.append(1.0 - present, present * prior.mass)
        self.rounding = channel.rounding(self.at)  # (X, m + 1)
        self.hidden = channel.hidden(self.at)
        self._spares: dict[float, float] = {}

    def weights(self, values: Ints) -> Floats:
        """(V,) values (−1: not listed) → (V, X) prior × P(value | x), each row scaled to a largest of 1."""
        table = np.empty((len(values), len(self.at)))
        free = values < 0
        table[free] = self.hidden
        table[~free] = self.channel.value(values[~free].astype(np.float64), self.at)
        table *= self.mass
        return np.asarray(table / np.maximum(table.max(axis=1, keepdims=True), 1e-300))

    def moments(self, outcomes: Outcomes) -> tuple[Floats, Floats, Floats]:
        """Mean, variance and third central moment of each outcome."""
        centre = self.at - 0.0
        likely = self._likely(outcomes.words)
        values, place = np.unique(outcomes.values, return_inverse=True)
        tables = np.empty((4, len(values), self.channel.levels + 1))
        shift = np.where(values < 0, 0.0, values).astype(np.float64)  # powers about v keep their digits
        for part in _chunks(len(values), len(self.at)):
            weight = self.weights(values[part])
            off = centre[None, :] - shift[part][:, None]
            for power in range(4):
                tables[power, part] = (weight * off**power) @ self.rounding
        sums = np.einsum("pdy,dy->pd", tables[:, place], likely)
        total = np.maximum(sums[0], 1e-300)
        first, second, third = sums[1] / total, sums[2] / total, sums[3] / total
        variance = np.maximum(second - first**2, 0.0)
        skew = third - 3.0 * first * second + 2.0 * first**3
        return first + shift[place], variance, skew

    def interval(self, outcomes: Outcomes, level: float) -> tuple[Floats, Floats]:
        """Short ranges of counts that hold ``level`` of the posterior on average over keys.

        Counts are whole, so a range that must hold ``level`` for each outcome holds more on average, much
        more where few counts occur. What may be dropped is therefore raised until the average is right,
        to at most SPARE times as much for any outcome.
        """
        low = np.empty(len(outcomes.words))
        high = np.empty(len(outcomes.words))
        spare = self._spare(level)
        for part in _chunks(len(low), len(self.at)):
            weight = self._rows(Outcomes(outcomes.words[part], outcomes.values[part]))
            weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
            first, last = _trim(weight, self.high - self.low + 1.0, spare)
            low[part], high[part] = self.low[first], self.high[last]
        return low, high

    def _rows(self, outcomes: Outcomes) -> Floats:
        """(D, X) posterior weights, each row up to a factor."""
        return np.asarray(self.weights(outcomes.values) * (self._likely(outcomes.words) @ self.rounding.T))

    def _spare(self, level: float) -> float:
        """Posterior that an interval may leave out, so that over keys that are not listed it is 1 − ``level``."""
        if level not in self._spares:
            self._spares[level] = self._found_spare(level)
        return self._spares[level]

    def _found_spare(self, level: float) -> float:
        least, most = 1.0 - level, SPARE * (1.0 - level)
        if self.channel.levels > ENUMERATE:
            return least
        words = np.arange(1 << self.channel.levels, dtype=np.int64)
        logs = self.channel.log_patterns(words)  # (D, m + 1), not scaled: rows add up to the marginal
        weight = (np.exp(logs) @ self.rounding.T) * (self.mass * self.hidden)
        weight /= max(float(weight.sum()), 1e-300)
        marginal = weight.sum(axis=1)
        each = weight / np.maximum(marginal[:, None], 1e-300)
        held = np.cumsum(each, axis=1)
        target = level + MARGIN * (1.0 - level)

        def average(spare: float) -> float:
            first, last = _trim(each, self.high - self.low + 1.0, spare)
            rows = np.arange(len(each))
            inside = held[rows, last] - np.where(first > 0, held[rows, np.maximum(first - 1, 0)], 0.0)
            return float(marginal @ inside)

        if average(most) >= target:
            return most
        for _ in range(12):
            middle = (least + most) / 2.0
            least, most = (middle, most) if average(middle) >= target else (least, middle)
        return least

    def far(self, values: Ints) -> tuple[Floats, Floats]:
        """Mean and variance for values above the near limit, where the prior is a power law."""
        at = values.astype(np.float64)
        return at - LEAN * self.channel.variance / np.maximum(at, 1.0), np.full(
            len(at), self.channel.variance
        )

    def _likely(self, words: Ints) -> Floats:
        """(D,) patterns → (D, m + 1) likelihoods of y, each row scaled to a largest of 1."""
        logs = self.channel.log_patterns(words)
        return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _chunks(count: int, wide: int) -> list[slice]:
    step = max(1, CHUNK // max(wide, 1))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _trim(weight: Floats, wide: Floats, spare: float) -> tuple[Ints, Ints]:
    """Drop atoms from the thinner end while no more than ``spare`` is dropped; first and last that remain."""
    rows = np.arange(len(weight))
    first = np.zeros(len(weight), dtype=np.int64)
    last = np.full(len(weight), weight.shape[1] - 1, dtype=np.int64)
    left = np.full(len(weight), spare)
    thin = weight / wide
    while len(rows):
        a, b = first[rows], last[rows]
        lower = thin[rows, a] <= thin[rows, b]
        drop = weight[rows, np.where(lower, a, b)]
        go = (drop <= left[rows]) & (a < b)
        rows, lower, drop = rows[go], lower[go], drop[go]
        left[rows] -= drop
        first[rows] += lower
        last[rows] -= ~lower
    return first, last
