"""Confidence intervals that hold for any true count: a Neyman construction over all outcomes ★.

For each count x a set of outcomes with P(set | x) ≥ level is accepted; the interval of an outcome runs
from the smallest to the largest count that accepts it. Then P(interval holds x | x) ≥ level for every
x, whatever the distribution of counts is. Outcomes are accepted in falling order of P(outcome |
x)/P(outcome), the order that makes intervals short on average (Pratt 1961); the marginal P(outcome)
mixes the fitted prior with one that is flat in ln x, so that intervals stay short where the prior has
no mass.

Outcomes are those of `OutcomeTable`, whose probabilities are exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.constants import FINE, LONELY, RANGES
from hushgram.decoding.evidence import Evidence
from hushgram.decoding.outcomes import OutcomeTable
from hushgram.decoding.posterior import Outcomes
from hushgram.decoding.prior import Prior
from hushgram.decoding.released import Floats, Ints, Released
from hushgram.decoding.support import atom_edges

__all__ = ["Confidence"]


class Confidence:
    """Intervals for distinct outcomes at one level; the table is built once, from public numbers."""

    def __init__(
        self, released: Released, evidence: Evidence, prior: Prior, level: float, zero: bool
    ) -> None:
        self.table = table = OutcomeTable(released, evidence)
        self.evidence, self.level = evidence, level
        self.radius = released.noise.radius(level)
        edges = atom_edges(released, evidence.grain, 2 * table.top - released.bound, FINE)
        low, high = edges[:-1], edges[1:] - 1
        if np.any(high > low):  # ranges of counts are judged by their middle
            level += RANGES * (1.0 - level)
        if zero:
            low, high = np.append(0, low), np.append(0, high)
        self.counts = counts = (low + high) / 2.0
        self.chance = chance = table.chances(counts)
        far = np.arange(chance.shape[1]) >= table.open_end  # values there are far from the table's counts
        accepted = _accept(chance, _marginal(prior, low, high, counts), far, low <= table.top, level)
        self.anywhere: NDArray[np.bool_] = np.asarray(accepted.any(axis=0))
        self.low = low[accepted.argmax(axis=0)].astype(np.float64)
        self.high = high[len(high) - 1 - accepted[::-1].argmax(axis=0)].astype(np.float64)

    def interval(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """(low, high) of each outcome."""
        index = self.table.index(outcomes.symbols, outcomes.values)
        value, top = outcomes.values, self.table.top
        low, high = self.low[index], self.high[index]
        # Counts above the table accept what `far_interval` says.
        above = np.flatnonzero((value >= 0) & (value + self.radius > top))
        least, most = self.evidence.far_interval(outcomes.symbols[above], value[above], self.level)
        alone = ~self.anywhere[index[above]]
        low[above] = np.where(alone, np.maximum(least, top + 1), low[above])
        high[above] = np.maximum(most, np.where(alone, 0.0, high[above]))
        return low, high

    def half_widths(self) -> tuple[Floats, Floats]:
        """Counts, and half the mean length of the interval of a key with each; up to the table's top."""
        near = self.counts <= self.table.top
        length = np.where(self.anywhere, self.high - self.low, 2.0 * self.radius)
        length[self.table.open_end :] = 2.0 * self.radius
        return self.counts[near], (self.chance[near] @ length) / 2.0


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

    Outcomes that no count accepts go to the counts that favour them nearly as much as the one that favours them
    most, unless they are ``far``.
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
    accepted[:, lonely] = near[:, None] & (ratio[:, lonely] >= LONELY * ratio[best[lonely], lonely])
    return accepted
