"""Confidence intervals that hold for any true count: a Neyman construction over all outcomes ★.

For each count x a set of outcomes with P(set | x) ≥ level is accepted; the interval of an outcome runs
from the smallest to the largest count that accepts it. Then P(interval holds x | x) ≥ level for every
x, whatever the distribution of counts is. Outcomes are accepted in falling order of P(outcome |
x)/P(outcome), the order that makes intervals short on average (Pratt 1961); the marginal P(outcome)
mixes the fitted prior with one that is flat in ln x, so that intervals stay short where the prior has
no mass.

That is for one key, chosen without looking at the release. (At δ = 0 another key may be in its cell; where that costs
more than a few hundredths of 1 − level, by the fitted prior, each count is missed by as much less.)

For a key that was picked out of N by looking, all of the N intervals must hold at once: each misses with (1 − level)/N
at most (Bonferroni). At δ = 0 a key shares its cell with another one with probability k/d, which is nothing for one
key and much for many: 0.3 of the missing coverage is for keys that share the cell of one of
the J = 0.3·(1 − level)·d/N largest listed values (N keys do with N·J/d at most), and intervals of other listed values
go down to 0; outcomes of keys that are not listed are those of mixtures, with k/d for another key in the cell.

**Listed keys** ★ are picked by the release itself, out of all keys (δ > 0) or all cells of the domain (δ = 0). Let
R be how many are listed, and α = 1 − level. A count x rejects listed outcomes only up to

    max(0.9·α/R·P(listed | x), 0.05·α/K)        K: the cells, or the keys at most (but for 0.05·α)

and what it rejects is a tail of one order, so the union of two sets: one with P(· | x, listed) ≤ 0.9·α/R, one with
P(· | x) ≤ 0.05·α/K. *Proof that all R intervals hold at once with at least 1 − α.* Noise is independent between
cells, so given which cells are listed each listed cell is in its first set with at most 0.9·α/R, and any of the R
with at most 0.9·α. Whether listed or not, any of K is in its second set with at most 0.05·α. An empty cell that is
listed is such a cell with x = 0: its interval holds 0. (With a top list a cell is listed if it or a sub-cell of it is.)

Outcomes are those of `OutcomeTable`, whose probabilities are exact.

**The estimate** ★ of an outcome is the count with the largest p-value: the probability, given the count, of this and
all outcomes after it in the count's order. A count accepts an outcome at a level if its p-value exceeds 1 − level, so
this is the count that the intervals shrink to as the level falls (the maximum of the confidence curve; Blaker 2000, a
Hodges–Lehmann estimate), and it lies in the interval of every level. For a listed key it is close to the noisy count.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hushgram.decoding.constants import COLLIDING, FINE, LISTED_SHARE, LONELY, RANGES, SHORTEN, TOP
from hushgram.decoding.likelihood import Floats, Ints, Likelihood, ReleasedNumbers
from hushgram.decoding.posterior import Outcomes
from hushgram.decoding.prior import Prior, atom_edges

__all__ = ["Confidence", "OutcomeTable"]


# All that a lookup can find, as few outcomes with exact probabilities: classes of symbols, and ranges of values.
#
# An outcome is a class of the encoding's symbols of a key that is not listed, or a range of listed values. Its
# probability given a count is the sum over its parts, so whatever is built on outcomes stays exact however coarse
# they are. Probabilities keep their digits however small they are: each range is a difference of the nearer tail.


class OutcomeTable:
    """Outcomes of one release, in ranges of values of 1/FINE noise scale up to twice the reach above the bound.

    The reach is TOP noise scales, or ``least`` where that is more.
    """

    def __init__(self, released: ReleasedNumbers, likelihood: Likelihood, least: int = 0) -> None:
        self.released, self.likelihood = released, likelihood
        reach = max(int(np.ceil(TOP * released.noise.scale)), least)
        self.top = released.last + reach
        self.step = max(1, int(released.noise.scale / FINE))
        # Ranges of values; the last one is open. Those of a top list begin at its threshold.
        below = np.arange(released.threshold, released.last, self.step)
        self.cuts = np.append(below, np.arange(released.last, self.top + reach + self.step + 1, self.step))
        self.hidden = 0  # classes of keys that are not listed

    def chances(self, counts: Floats) -> Floats:
        """Return (X, outcomes) probabilities for (X,) counts."""
        released, cuts = self.released, self.cuts.astype(np.float64)
        ranges = released.ranges(cuts, counts)
        hidden = self.likelihood.hidden_classes(counts)
        self.hidden = hidden.shape[1]
        return np.concatenate([hidden, ranges], axis=1)

    @property
    def open_end(self) -> int:
        """The first outcome of the last range of values, which has no upper end."""
        return self.hidden + len(self.cuts) - 1

    def index(self, symbols: Ints, values: Ints) -> Ints:
        """Return the outcome of each lookup; ``values`` is −1 where a key is not listed."""
        listed, value = values >= 0, np.maximum(values, 0)
        place = np.clip(np.searchsorted(self.cuts, value, side="right") - 1, 0, len(self.cuts) - 1)
        return np.where(listed, self.hidden + place, self.likelihood.hidden_class(symbols))


class Confidence:
    """Intervals for distinct outcomes at one level; the table is built once, from public numbers."""

    def __init__(
        self,
        released: ReleasedNumbers,
        likelihood: Likelihood,
        prior: Prior,
        level: float,
        zero: bool,
        among: int = 1,
        listed: bool = False,
    ) -> None:
        """Compute intervals that hold at once for ``among`` keys, or for all ``listed`` keys."""
        noise, missed = released.far_noise, 1.0 - level
        shared = among > 1 and not listed and released.domain_size is not None
        miss = missed / among * (LISTED_SHARE if listed else 1.0 - COLLIDING if shared else 1.0)
        if among == 1 and not listed:
            miss -= _met(released, prior, miss)
        self.least = 0.0 if zero else 1.0
        self.clear = _clear(released, COLLIDING * missed / among) if shared else -1
        self.released, self.level = released, 1.0 - miss
        self.radius = noise.radius(self.level)
        self.table = table = OutcomeTable(released, likelihood, self.radius + 1)
        edges = atom_edges(released, likelihood.grain, 2 * table.top - released.last, FINE)
        low, high = edges[:-1], edges[1:] - 1
        if np.any(high > low):  # ranges of counts are judged by their middle, half a range away
            away = self.radius + np.array([0.0, noise.scale / (2.0 * FINE)])
            miss *= min(1.0 - RANGES, float(np.divide(*np.maximum(noise.tail(away)[::-1], 1e-300))))
        if zero:
            low, high = np.append(0, low), np.append(0, high)
        self.counts = counts = (low + high) / 2.0
        self.chance = chance = table.chances(counts)
        far = np.arange(chance.shape[1]) >= table.open_end  # values there are far from the table's counts
        misses = np.full(len(counts), miss)
        if shared:
            hidden = chance[:, : table.hidden]
            hidden += (
                _beside(prior, low, high) @ hidden * (prior.keys / float(released.domain_size or np.inf))
            )
        if listed:
            chance[:, : table.hidden] = 0.0
            rest = (1.0 - LISTED_SHARE) * missed / 2.0
            misses = np.maximum(
                miss * chance.sum(axis=1), rest / (released.places or released.most_keys(rest))
            )
        accepted, centre = _accept(chance, _marginal(prior, low, high, counts), far, low <= table.top, misses)
        self.centre = counts[centre]
        self.anywhere: NDArray[np.bool_] = np.asarray(accepted.any(axis=0))
        first, last = accepted.argmax(axis=0), len(high) - 1 - accepted[::-1].argmax(axis=0)
        if not listed:
            inside = table.cuts + table.step + self.radius <= table.top
            fixed = ~np.append(np.ones(table.hidden, np.bool_), inside[: chance.shape[1] - table.hidden])
            first, last = _shorten(chance, first, last, np.where(fixed, -1, centre), misses)
        self.low, self.high = low[first].astype(np.float64), high[last].astype(np.float64)

    def interval(self, outcomes: Outcomes) -> tuple[Floats, Floats]:
        """Return (low, high) of each outcome."""
        index = self.table.index(outcomes.symbols, outcomes.values)
        value, top = outcomes.values, self.table.top
        low, high = self.low[index], self.high[index]
        # Counts above the table accept what `far_interval` says.
        above = self._above(value)
        least, most = self.released.far_interval(value[above], self.level)
        alone = ~self.anywhere[index[above]]
        low[above] = np.where(alone, np.maximum(least, top + 1), low[above])
        high[above] = np.maximum(most, np.where(alone, 0.0, high[above]))
        low[(value >= 0) & (value <= self.clear)] = self.least
        return low, high

    def estimate(self, outcomes: Outcomes) -> Floats:
        """Return the count with the largest p-value of each outcome; above the table the unbiased estimate."""
        index = self.table.index(outcomes.symbols, outcomes.values)
        out = self.centre[index]
        above = self._above(outcomes.values)
        out[above] = self.released.far(outcomes.values[above])[0]
        return out

    def _above(self, values: Ints) -> Ints:
        """Return places of listed values near which some counts lie above the table."""
        return np.flatnonzero((values >= 0) & (values + self.radius > self.table.top))

    def half_widths(self) -> tuple[Floats, Floats]:
        """Return counts, and half the mean length of the interval of a key with each; up to the table's top."""
        near = self.counts <= self.table.top
        length = np.where(self.anywhere, self.high - self.low, 2.0 * self.radius)
        length[self.table.open_end :] = 2.0 * self.radius
        return self.counts[near], (self.chance[near] @ length) / 2.0


def _met(released: ReleasedNumbers, prior: Prior, miss: float) -> float:
    """Return how much more often intervals miss since keys share cells; 0 where it is little, at most half of ``miss``.

    A key of the data is in the same cell with probability k/d; its count moves the noisy one.
    """
    if released.domain_size is None:
        return 0.0
    radius, at = released.noise.radius(1.0 - miss), np.ceil(prior.grid.at)
    missed = released.noise.tail(radius + 1.0 - at) + released.noise.tail(radius + 1.0 + at)
    held = np.where(at < released.last, prior.mass, 0.0) if released.top is not None else prior.mass
    more = prior.keys / released.domain_size * float(held @ np.maximum(missed - miss, 0.0))
    return min(more, miss / 2.0) if more > RANGES * miss else 0.0


def _marginal(prior: Prior, low: Ints, high: Ints, counts: Floats) -> Floats:
    """Return weights of the candidate counts: half the fitted prior, half flat in ln x."""
    total = np.append(0.0, np.cumsum(prior.mass))
    ends = np.append(prior.grid.low, prior.grid.high[-1] + 1)
    fitted = np.interp(high + 1.0, ends, total) - np.interp(low, ends, total)
    flat = np.log1p((high - low + 1.0) / np.maximum(counts, 0.5))
    return np.asarray(fitted / max(fitted.sum(), 1e-300) + flat / flat.sum()) / 2.0


def _beside(prior: Prior, low: Ints, high: Ints) -> Floats:
    """Return (X, X) probabilities of what a cell holds, if a key of each count shares it with a key of the data."""
    total = np.append(0.0, np.cumsum(prior.mass))
    ends = np.append(prior.grid.low, prior.grid.high[-1] + 1)
    first, last = (np.subtract.outer(at, (low + high) / 2.0).T for at in (low, high + 1.0))
    return np.asarray(np.interp(last, ends, total) - np.interp(first, ends, total))


def _clear(released: ReleasedNumbers, miss: float) -> int:
    """Return the largest value except J that a key shares a cell with at probability ``miss`` at most; −1: none."""
    number, listed = int(miss * float(released.domain_size or 0.0)), released.listed
    if released.named:  # and in no cell
        listed = listed[listed < released.last]
    return -1 if number >= len(listed) else int(np.partition(listed, -1 - number)[-1 - number])


def _accept(
    chance: Floats, weight: Floats, far: NDArray[np.bool_], near: NDArray[np.bool_], misses: Floats
) -> tuple[NDArray[np.bool_], Ints]:
    """Return (X, outcomes) that each ``near`` count accepts: all but the last in order of likelihood over marginal,
    whose probability is at most the count's ``misses``. It is summed from the small end, so that no digit is lost.
    Also the place of the count with the largest p-value (the middle of several).

    Outcomes that no count accepts go to the counts that favour them nearly as much as the one that favours them
    most, unless they are ``far``.
    """
    ratio = chance / np.maximum(weight @ chance, 1e-300)
    ratio[:, far] = -1.0
    order = np.argsort(-ratio, axis=1, kind="stable")
    left = np.cumsum(np.take_along_axis(chance, order, axis=1)[:, ::-1], axis=1)[:, ::-1]
    p_value = np.empty_like(chance)
    np.put_along_axis(p_value, order, left, axis=1)
    accepted = p_value > misses[:, None] * (1.0 + 1e-9)
    accepted[:, far] = False
    accepted[~near] = False  # these stand in the marginal only; the radius serves them
    best = ratio.argmax(axis=0)
    lonely = np.flatnonzero(~accepted.any(axis=0) & ~far & near[best])
    accepted[:, lonely] = near[:, None] & (ratio[:, lonely] >= LONELY * ratio[best[lonely], lonely])
    p_value[~accepted] = 0.0
    p_value[:, lonely] = np.where(accepted[:, lonely], ratio[:, lonely], 0.0)
    most = p_value >= p_value.max(axis=0) * (1.0 - 1e-9)
    first, last = most.argmax(axis=0), len(most) - 1 - most[::-1].argmax(axis=0)
    return accepted, (first + last) // 2


def _shorten(chance: Floats, first: Ints, last: Ints, centre: Ints, misses: Floats) -> tuple[Ints, Ints]:
    """Move ends of intervals towards their ``centre`` (−1: not at all) while no count is missed more than ``misses``.

    An interval holds all counts between the smallest and the largest that accept its outcome, so some counts are held
    far more often than they must be; ends that lie at those are moved. Upper ends first, from the largest count down,
    then lower ends from 0 up; at each count those of its least likely outcomes first.
    """
    first, last, counts = first.copy(), last.copy(), range(len(chance))
    rows = np.arange(len(chance))[:, None]
    missed = np.where((rows < first) | (rows > last), chance, 0.0).sum(axis=1)
    for ends, step in ((last, -1), (first, 1)):
        for x in [x for x in counts[::step] if missed[x] < SHORTEN * misses[x]]:
            here = np.flatnonzero((ends == x) & (centre != x) & (centre >= 0))
            here = here[np.argsort(chance[x, here], kind="stable")]
            gone = missed[x] + np.cumsum(chance[x, here])
            moved = here[gone <= misses[x]]
            ends[moved] += step
            missed[x] += chance[x, moved].sum()
    return first, last
