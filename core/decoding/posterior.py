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
        """Short ranges of counts that hold at least ``level`` of the posterior of each outcome."""
        low = np.empty(len(outcomes.words))
        high = np.empty(len(outcomes.words))
        likely = self._likely(outcomes.words)
        for part in _chunks(len(low), len(self.at)):
            weight = self.weights(outcomes.values[part]) * (likely[part] @ self.rounding.T)
            weight /= np.maximum(weight.sum(axis=1, keepdims=True), 1e-300)
            first, last = _trim(weight, self.high - self.low + 1.0, 1.0 - level)
            low[part], high[part] = self.low[first], self.high[last]
        return low, high

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
