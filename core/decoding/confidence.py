"""Confidence intervals that hold for any true count: a Neyman construction over all outcomes ★.

For each count x a set of outcomes with P(set | x) ≥ level is accepted; the interval of an outcome runs
from the smallest to the largest count that accepts it. Then P(interval holds x | x) ≥ level for every
x, whatever the distribution of counts is. Outcomes are accepted in falling order of P(outcome |
x)/P(outcome), the order that makes intervals short on average (Pratt 1961); the marginal P(outcome)
mixes the fitted prior with one that is flat in ln x, so that intervals stay short where the prior has
no mass.

Patterns are enumerated exactly: each is an outcome of its own up to 15 columns; with more, the ones of
neighbouring columns are counted together. Where that leaves many, outcomes are merged by the mean of y
under a flat prior: a merged outcome has the sum of its parts' probabilities, so coverage stays exact.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.channel import Channel
from hushgram.decoding.posterior import Outcomes
from hushgram.decoding.prior import Prior
from hushgram.decoding.released import Floats, Ints
from hushgram.decoding.support import atom_edges

__all__ = ["Confidence"]

ENUMERATE = 15  # columns up to which all 2^m patterns are listed
PARTS = 4  # groups of columns beyond that; 3 beyond 40, so that outcomes stay in the ten thousands
FREE = 64  # outcomes of the bits of a key that is not listed
TIED = 8  # outcomes of the bits of a listed key
RANGES = 0.06  # share of the missing coverage that ranges of counts add to be safe
FINE = 8  # candidate counts and ranges of values are at most 1/8 noise scale wide
TOP = 12.0  # candidate counts end so many noise scales above the bound; then v ± radius is exact to e^−12


class _Bits:
    """A public partition of the bit patterns into few classes with their exact probabilities given y."""

    def __init__(self, channel: Channel) -> None:
        levels = channel.levels
        if levels <= ENUMERATE:
            self.groups = [range(level, level + 1) for level in range(levels)]
        else:
            cuts = np.linspace(0, levels, (PARTS if levels <= 40 else 3) + 1).astype(int)
            self.groups = [range(a, b) for a, b in itertools.pairwise(cuts)]
        chance = np.ones((1, levels + 1))  # (outcomes, y)
        for group in self.groups:
            part = _count_chances(channel, group)  # (ones, y)
            chance = (part[:, None, :] * chance[None, :, :]).reshape(-1, levels + 1)
        self.chance = chance
        self.score = (chance @ np.arange(levels + 1)) / np.maximum(chance.sum(axis=1), 1e-300)

    def code(self, words: Ints) -> Ints:
        """(D,) packed patterns → index into ``chance``."""
        code = np.zeros(len(words), dtype=np.int64)
        place = 1
        for group in self.groups:
            ones = np.zeros(len(words), dtype=np.int64)
            for level in group:
                ones += (words >> level) & 1
            code += ones * place
            place *= len(group) + 1
        return code

    def merge(self, most: int) -> tuple[Ints, Floats]:
        """Class of each outcome, and (classes, y) probabilities; at most ``most`` classes, by score."""
        if len(self.score) <= most:
            return np.arange(len(self.score)), self.chance
        order = np.argsort(self.score, kind="stable")
        share = np.cumsum(self.chance[order].mean(axis=1))
        label = np.empty(len(order), dtype=np.int64)
        label[order] = np.minimum((share * most).astype(np.int64), most - 1)
        label = np.unique(label, return_inverse=True)[1]
        table = np.zeros((int(label.max()) + 1, self.chance.shape[1]))
        np.add.at(table, label, self.chance)
        return label, table


def _count_chances(channel: Channel, group: range) -> Floats:
    """(ones, y): probability of each number of ones among the columns of a group, for each y."""
    ys = np.arange(channel.levels + 1)
    table = np.zeros((len(group) + 1, len(ys)))
    table[0] = 1.0
    for level in group:
        one = np.where(ys > level, channel.set_below, channel.set_above[level])
        up = np.zeros_like(table)
        up[1:] = table[:-1] * one
        table = table * (1.0 - one) + up
    return table


class Confidence:
    """Intervals for distinct outcomes at one level; the table is built once, from public numbers."""

    def __init__(self, channel: Channel, prior: Prior, level: float, zero: bool) -> None:
        released = channel.released
        self.channel = channel
        self.radius = channel.radius(level)
        self.zero = zero
        self.top = released.bound + int(np.ceil(TOP * released.noise))
        edges = atom_edges(released, self.top + int(np.ceil(TOP * released.noise)), FINE)
        low, high = edges[:-1], edges[1:] - 1
        if np.any(high > low):  # ranges of counts are judged by their middle
            level += RANGES * (1.0 - level)
        if zero:
            low, high = np.append(0, low), np.append(0, high)
        counts = (low + high) / 2.0
        self.bits = _Bits(channel)
        self.free, free = self.bits.merge(FREE)
        self.tied, tied = self.bits.merge(TIED)
        step = max(1, int(released.noise / FINE))
        last = self.top + int(np.ceil(TOP * released.noise)) + step
        self.cuts = np.arange(released.bound, last + 1, step)  # ranges of values; the last one is open
        rounding = channel.rounding(counts)
        over = np.stack([channel.tail(np.ceil(cut - counts)) for cut in self.cuts.astype(np.float64)], axis=1)
        ranges = over - np.append(over[:, 1:], np.zeros((len(counts), 1)), axis=1)  # (X, V)
        if zero and released.cells is None:
            ranges[0] = 0.0
        loose = (rounding @ free.T) * channel.hidden(counts)[:, None]
        bound = (rounding @ tied.T)[:, None, :] * ranges[:, :, None]
        chance = np.concatenate([loose, bound.reshape(len(counts), -1)], axis=1)  # (X, outcomes)
        open_end = len(self.cuts) - 1  # values above the table are far from its counts
        far = np.arange(chance.shape[1]) >= loose.shape[1] + open_end * len(tied)
        accepted = _accept(chance, _marginal(prior, low, high, counts), far, low <= self.top, level)
        self.anywhere: NDArray[np.bool_] = np.asarray(accepted.any(axis=0))
        self.low = low[accepted.argmax(axis=0)].astype(np.float64)
        self.high = high[len(high) - 1 - accepted[::-1].argmax(axis=0)].astype(np.float64)

    def interval(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """(low, high) of each outcome."""
        code = self.bits.code(outcomes.words)
        listed = outcomes.values >= 0
        value = np.where(listed, outcomes.values, 0)
        place = np.clip(np.searchsorted(self.cuts, value, side="right") - 1, 0, len(self.cuts) - 1)
        classes = int(self.tied.max()) + 1
        index = np.where(
            listed, int(self.free.max()) + 1 + place * classes + self.tied[code], self.free[code]
        )
        low, high = self.low[index], self.high[index]
        # Counts above the table accept the values within the radius.
        above = listed & (value + self.radius > self.top)
        alone = above & ~self.anywhere[index]
        low = np.where(alone, np.maximum(value - self.radius, self.top + 1), low)
        return low, np.where(above, value + self.radius, high)


def _marginal(prior: Prior, low: Ints, high: Ints, counts: Floats) -> Floats:
    """Weights of the candidate counts: half the fitted prior, half flat in ln x."""
    total = np.append(0.0, np.cumsum(prior.mass))
    ends = np.append(prior.support.low, prior.support.high[-1] + 1)
    fitted = np.interp(high + 1.0, ends, total) - np.interp(low, ends, total)
    flat = np.log1p((high - low + 1.0) / np.maximum(counts, 0.5))
    return np.asarray(fitted / max(fitted.sum(), 1e-300) + flat / flat.sum()) / 2.0


def _accept(
    chance: Floats, weight: Floats, far: NDArray[np.bool_], near: NDArray[np.bool_], level: float
) -> NDArray[np.bool_]:
    """(X, outcomes): what each ``near`` count accepts, in falling order of likelihood over marginal.

    Outcomes that no count accepts go to the count that favours them most, unless they are ``far``.
    """
    ratio = chance / np.maximum(weight @ chance, 1e-300)
    ratio[:, far] = -1.0
    order = np.argsort(-ratio, axis=1, kind="stable")
    sorted_chance = np.take_along_axis(chance, order, axis=1)
    before = np.cumsum(sorted_chance, axis=1) - sorted_chance
    accepted = np.zeros(chance.shape, dtype=bool)
    np.put_along_axis(accepted, order, before < level - 1e-12, axis=1)
    accepted[:, far] = False
    accepted[~near] = False  # these stand in the marginal only; the radius serves them
    best = ratio.argmax(axis=0)
    lonely = np.flatnonzero(~accepted.any(axis=0) & ~far & near[best])
    accepted[best[lonely], lonely] = True
    return accepted
