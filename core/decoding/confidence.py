"""Confidence intervals that hold for any true count: a Neyman construction over all outcomes ★.

For each count x a set of outcomes with P(set | x) ≥ level is accepted; the interval of an outcome runs
from the smallest to the largest count that accepts it. Then P(interval holds x | x) ≥ level for every
x, whatever the distribution of counts is. Outcomes are accepted in falling order of P(outcome |
x)/P(outcome), the order that makes intervals short on average (Pratt 1961); the marginal P(outcome)
mixes the fitted prior with one that is flat in ln x, so that intervals stay short where the prior has
no mass.

An outcome is a class of the encoding's symbols beside "not listed" or a range of listed values. Classes have
the sum of their parts' exact probabilities, so coverage stays exact however coarse they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.constants import FINE, RANGES, TOP
from hushgram.decoding.evidence import Evidence
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
        self.evidence = evidence
        self.radius = released.noise.radius(level)
        reach = int(np.ceil(TOP * released.noise.scale))
        self.top = released.bound + reach
        edges = atom_edges(released, evidence.grain, self.top + reach, FINE)
        low, high = edges[:-1], edges[1:] - 1
        if np.any(high > low):  # ranges of counts are judged by their middle
            level += RANGES * (1.0 - level)
        if zero:
            low, high = np.append(0, low), np.append(0, high)
        counts = (low + high) / 2.0
        step = max(1, int(released.noise.scale / FINE))
        # Ranges of values; the last one is open.
        self.cuts = np.arange(released.bound, self.top + reach + step + 1, step)
        over = np.stack(
            [released.noise.tail(np.ceil(cut - counts)) for cut in self.cuts.astype(np.float64)], axis=1
        )
        ranges = over - np.append(over[:, 1:], np.zeros((len(counts), 1)), axis=1)  # (X, V)
        if zero and released.cells is None:
            ranges[0] = 0.0
        hidden = evidence.hidden_classes(counts) * released.hidden(counts)[:, None]
        listed = (
            evidence.listed_classes(counts, np.asarray(self.cuts + (step - 1) / 2.0, np.float64))
            * ranges[:, :, None]
        )
        self.hidden, self.classes = hidden.shape[1], listed.shape[2]
        chance = np.concatenate([hidden, listed.reshape(len(counts), -1)], axis=1)  # (X, outcomes)
        open_end = len(self.cuts) - 1  # values above the table are far from its counts
        far = np.arange(chance.shape[1]) >= self.hidden + open_end * self.classes
        accepted = _accept(chance, _marginal(prior, low, high, counts), far, low <= self.top, level)
        self.anywhere: NDArray[np.bool_] = np.asarray(accepted.any(axis=0))
        self.low = low[accepted.argmax(axis=0)].astype(np.float64)
        self.high = high[len(high) - 1 - accepted[::-1].argmax(axis=0)].astype(np.float64)

    def interval(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """(low, high) of each outcome."""
        listed = outcomes.values >= 0
        value = np.where(listed, outcomes.values, 0)
        place = np.clip(np.searchsorted(self.cuts, value, side="right") - 1, 0, len(self.cuts) - 1)
        beside = self.hidden + place * self.classes + self.evidence.listed_class(outcomes.symbols, value)
        index = np.where(listed, beside, self.evidence.hidden_class(outcomes.symbols))
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
