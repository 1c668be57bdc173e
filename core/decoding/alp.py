"""Likelihood of ALP's bits: the probability of every pattern, given the true count x.

P(bits | x) = Σ_y P(y | x)·∏_b P(bit_b | y)

* P(y | x): random rounding puts y on the two integers beside min(x, threshold)/w (Aumüller, Lebeda, Pagh
  2021, Alg. 1, step 1).
* P(bit_b = 1 | y) is 1 − p where b ≤ y. Above y the position holds whatever other keys and the noise
  left there: the hash is independent of them, so the probability is the share of ones that the column
  shows.

**argmax** (Alg. 2): f(n) = Σ_{a ≤ n} (2z_a − 1); the average of all n in 0 … m that maximise f, times the level
width.

**unbiased** ★: each column gives ẑ_b = (z_b − q_b)/(1 − p − q_b), where q_b is the share of ones in the
column, and E ẑ_b = P(y ≥ b | x), so w·Σ_b ẑ_b has mean min(x, threshold) whatever x is. For what lies above
the threshold: with v = x + Z and discrete Laplace Z, a function h of x has the unbiased estimate h(v) −
κ·(h(v+1) − 2h(v) + h(v−1)), κ = t/(1 − t)². For h(x) = max(x − threshold, 0) that is v − threshold above the
threshold, −κ at v = threshold, and 0 below, so it needs listed values only. The sum of both is exactly
unbiased, the selection by the threshold included. (For noise with mean μ and variance σ² of another law, v −
threshold − μ above the threshold and −(σ² − μ² + μ)/2 at it are unbiased far above the threshold, and near it on
average over x.) Values at least SURE noise scales above the threshold
leave the bits out, since x is then above the threshold except with probability below e^−SURE: the bias that this
adds is below 0.001 noise scales.

===========  ==================================================================================
symbol       meaning
===========  ==================================================================================
p            ``flip``: probability that randomized response flips a bit, 1/(α + 2)
w            ``width``: counts a level; y = RandRound(min(x, threshold)/w)
m, s_b       number of columns and bits in each (``sizes``); ``ones`` of them are set
===========  ==================================================================================
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from hushgram.decoding.constants import (
    CALIBRATE,
    CONTRAST,
    EMPTY,
    ENUMERATE,
    GROUPS,
    HIDDEN_CLASSES,
    SURE,
)
from hushgram.decoding.likelihood import Flags, Floats, Ints, Likelihood, ReleasedNumbers, need, uniform
from hushgram.decoding.prior import Bins, Observations
from hushgram.errors import ParameterError
from hushgram.noise.entropy import BitSource

__all__ = ["AlpLikelihood", "argmax_levels", "pack_bits"]

MAX_LEVELS = 62  # a bit pattern must fit one signed 64-bit word


def pack_bits(bits: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """Pack (N, m) bits into N words; bit b − 1 of the word is the bit of column b."""
    count, levels = bits.shape
    words = np.zeros(count, dtype=np.int64)
    for level in range(levels):
        words |= (bits[:, level] != 0).astype(np.int64) << level
    return words


class AlpLikelihood(Likelihood):
    """A symbol is a key's m bits, packed."""

    source: ClassVar[str] = "alp"

    def __init__(
        self, released: ReleasedNumbers, *, flip: float, width: float, sizes: ArrayLike, ones: ArrayLike
    ) -> None:
        self.released = released
        self.flip, self.width, self.grain = flip, width, width
        self.sizes = np.ascontiguousarray(sizes, dtype=np.int64).reshape(-1)
        self.ones = np.ascontiguousarray(ones, dtype=np.int64).reshape(-1)
        need(self, 0.0 < flip < 0.5, "flip", flip, "it is 1/(alpha + 2), between 0 and 1/2")
        need(self, 0.0 < width < np.inf, "width", width, "it must be positive and finite")
        self.passed = released.rest is not None
        few = len(self.sizes) <= MAX_LEVELS
        need(self, few, "sizes", len(self.sizes), f"at most {MAX_LEVELS} columns are read")
        need(self, len(self.sizes) == len(self.ones), "ones", len(self.ones), "one number for each column")
        need(self, bool(np.all(self.sizes >= 1)), "sizes", "a column of no bits", "leave the column out")
        fit = bool(np.all((self.ones >= 0) & (self.ones <= self.sizes)))
        need(self, fit, "ones", "a count", "it must fit its column")
        self.levels = len(self.sizes)
        share = self.ones / np.maximum(self.sizes, 1)
        self.set_below = 1.0 - flip  # P(bit = 1 | b ≤ y)
        most = flip + (1.0 - 2.0 * flip) * (1.0 - CONTRAST)
        self.set_above = np.clip(share, flip, most)  # P(bit = 1 | b > y)

    # Likelihoods ----------------------------------------------------------------------------------------

    def symbols(self, found: Any, values: Ints, listed: Flags) -> Ints:
        """(N, m) bits, column b read at h_b(key)."""
        bits = np.asarray(found)
        bits = bits.reshape(len(bits), -1) if len(bits) else np.zeros((0, self.levels), np.uint8)
        if bits.shape[1] != self.levels:
            raise ParameterError(
                f"Decoder: bits of {self.levels} columns are needed, got {bits.shape[1]}; "
                "look all of them up in the same sketch"
            )
        return pack_bits(bits)

    def planted(self, found: Any, counts: Ints, source: BitSource) -> Any:
        """Set bits up to the key's level, except for those that randomized response flips."""
        chance = uniform(source, (len(counts), self.levels + 1))
        if self.released.rest is None:
            held = np.minimum(counts, self.released.threshold).astype(np.float64)
        else:
            held = self.released.rest.mean(self.released.counted(counts.astype(np.float64)))
        level = np.floor(held / self.width + chance[:, 0])
        below = np.arange(self.levels) < level[:, None]
        return np.where(below, chance[:, 1:] >= self.flip, found)

    def factors(self, symbols: Ints, counts: Floats) -> tuple[Floats, Floats | None]:
        return np.exp(self.log_patterns(symbols)), self.levels_of(counts)

    def levels_of(self, counts: Floats) -> Floats:
        """Return (X, m + 1) probabilities that a key is not listed and has each level y, for (X,) counts."""
        return self.released.passed(counts, self.rounding)

    def every_symbol(self) -> Ints | None:
        return np.arange(1 << self.levels, dtype=np.int64) if self.levels <= CALIBRATE else None

    def rounding(self, counts: Floats) -> Floats:
        """Return (X, m + 1) probabilities of each level y for (X,) counts that are encoded."""
        top = self.levels
        scaled = np.minimum(np.minimum(counts, self._cap) / self.width, top)
        lower = np.floor(scaled).astype(np.int64)
        part = scaled - lower
        table = np.zeros((len(counts), top + 1))
        rows = np.arange(len(counts))
        table[rows, lower] = 1.0 - part
        table[rows, np.minimum(lower + 1, top)] += part
        return table

    @property
    def _cap(self) -> int:
        return self.released.threshold if self.released.rest is None else self.released.rest.most

    def reach(self, counts: Floats) -> Floats:
        """Return (X, m) probabilities that a key of each count sets the bit of b = 1 … m."""
        levels = self.levels_of(counts) if self.passed else self.rounding(counts)
        return np.cumsum(levels[:, :0:-1], axis=1)[:, ::-1]

    def log_patterns(self, words: Ints) -> Floats:
        """Return (D, m + 1) values of ln P(pattern | y) for (D,) packed patterns."""
        table = np.zeros((len(words), self.levels + 1))
        below = np.log([1.0 - self.set_below, self.set_below])
        for level in range(self.levels):
            above = np.log([1.0 - self.set_above[level], self.set_above[level]])
            bit = (words >> level) & 1
            table[:, : level + 1] += above[bit][:, None]
            table[:, level + 1 :] += below[bit][:, None]
        return table

    # Partitions -----------------------------------------------------------------------------------------

    @cached_property
    def patterns(self) -> Patterns:
        """All patterns, or groups of them, with their probabilities given y."""
        return Patterns(self)

    @cached_property
    def _hidden(self) -> tuple[Ints, Floats]:
        return self.patterns.merge(HIDDEN_CLASSES)

    def hidden_classes(self, counts: Floats) -> Floats:
        return self.levels_of(counts) @ self._hidden[1].T

    def hidden_class(self, symbols: Ints) -> Ints:
        return self._hidden[0][self.patterns.code(symbols)]

    # Estimates without a prior ----------------------------------------------------------------------------

    def argmax(self, symbols: Ints) -> Floats:
        bits = (symbols[:, None] >> np.arange(self.levels)) & 1
        return argmax_levels(bits) * self.width

    def unbiased(
        self, symbols: Ints, values: Ints, listed: Flags, *, mean: float | None = None
    ) -> tuple[Floats, Floats]:
        """Return estimates and variances, which cover randomized response, rounding and the threshold's noise.

        Rounding costs at most w²/4; x·(w − x), which is concave, as long as the mean count x is below w/2. Of N
        keys, N(N − 1)/s_b pairs share a bit of column b, which then counts for both.
        """
        if self.passed:
            return self._unbiased_rest(symbols, values, listed)
        threshold, noise = self.released.threshold, self.released.noise
        estimate = np.zeros(len(symbols))
        half = self.width / 2.0 if mean is None else float(np.clip(mean, 0.0, self.width / 2.0))
        variance = np.full(len(symbols), half * (self.width - half) if self.levels else 0.0)
        for level in range(self.levels):
            above = float(self.set_above[level])
            contrast = self.set_below - above
            reached = (((symbols >> level) & 1) - above) / contrast
            estimate += self.width * reached
            unset = above * (1.0 - above)
            spread = unset + reached * (self.set_below * (1.0 - self.set_below) - unset)
            pairs = 1.0 + (mean is not None) * (len(symbols) - 1) / float(self.sizes[level])
            variance += pairs * self.width**2 * spread / contrast**2
        over = np.where(listed, values - threshold, 0).astype(np.float64)
        last, far = self.released.last, self.released.far_noise
        mean_noise, spread_noise = (
            np.where(values >= last, getattr(far, name), getattr(noise, name))
            for name in ("mean", "variance")
        )
        sure = listed & (over >= SURE * noise.scale)
        edge = listed & (over <= 0)
        at_edge = (noise.variance - noise.mean**2 + noise.mean) / 2.0
        estimate += np.where(edge, -at_edge, over - mean_noise * listed)
        variance += np.where(listed, spread_noise + np.where(edge, at_edge**2, 0.0), 0.0)
        estimate = np.where(sure, values - mean_noise, estimate)
        return estimate, np.where(sure, spread_noise, variance)

    def _unbiased_rest(self, symbols: Ints, values: Ints, listed: Flags) -> tuple[Floats, Floats]:
        """Return the same where the encoding counts what the list passes on.

        What is subtracted is the share of ones of the column as it is, also where that is below p.
        """
        released, rest = self.released, self.released.rest
        assert rest is not None
        share = self.ones / np.maximum(self.sizes, 1)
        contrast = np.maximum(self.set_below - share, CONTRAST)
        bits = (symbols[:, None] >> np.arange(self.levels)) & 1
        hidden = self.width * ((bits - share) / contrast).sum(axis=1) + rest.offset
        own = values.astype(np.float64) - np.where(
            values >= released.last, released.far_noise.mean, released.noise.mean
        )
        if released.top is not None:
            cut = values == released.last - 1  # the mean of what was cut
            own = own + cut * released.noise.beyond(np.ones(1))[1] / released.noise.tail(np.ones(1)) - cut
            hidden = hidden + released.top.passes.offset
            own = own + np.where(values < released.last, released.top.passes.offset, 0.0)
        estimate = np.where(listed, own, hidden)
        spread = self.encoded_variance(np.maximum(hidden, 0.0))
        beyond = np.where(values >= released.last, released.far_noise.variance, released.noise.variance)
        return estimate, np.where(listed, beyond, spread)

    def encoded_variance(self, counts: Floats) -> Floats:
        """Return the variance of the unbiased estimate of encoded counts: of the bits, and of rounding."""
        share = self.ones / np.maximum(self.sizes, 1)
        contrast = np.maximum(self.set_below - share, CONTRAST)
        steps = np.arange(self.levels)
        reach = np.clip(np.minimum(counts, self._cap)[:, None] / self.width - steps, 0.0, 1.0)
        chance = share + reach * contrast
        return np.asarray((self.width**2 * chance * (1.0 - chance) / contrast**2).sum(axis=1))

    # The columns as a whole -------------------------------------------------------------------------------

    def observations(self, bins: Bins, shape: Floats, beyond: int) -> Observations:
        """Return each column's load: a share f of ones means that ℓ = (f − p)/(1 − 2p) of the positions are hit, by
        n_b = −s_b·ln(1 − ℓ) keys, and n_b = Σ P(y ≥ b | x)·μ.
        """
        sizes, contrast = self.sizes.astype(np.float64), 1.0 - 2.0 * self.flip
        share = self.set_above
        empty = np.maximum(1.0 - (share - self.flip) / contrast, EMPTY)
        full = self.reach(np.array([float(bins.top)]))[0]  # of keys beyond the support
        variance = sizes * np.maximum(share * (1.0 - share), 1e-9) / (contrast * empty) ** 2 + 1.0
        keys = -sizes * np.log(empty) - beyond * full
        return Observations.of(self.reach(bins.grid.at).T @ shape, keys, variance)


class Patterns:
    """A public partition of the bit patterns into few classes with their exact probabilities given y.

    Each pattern is a class of its own up to ENUMERATE columns; with more, the ones of neighbouring columns are
    counted together.
    """

    def __init__(self, alp: AlpLikelihood, enumerate_up_to: int = ENUMERATE) -> None:
        levels = alp.levels
        if levels <= enumerate_up_to:
            self.groups = [range(level, level + 1) for level in range(levels)]
        else:
            cuts = np.linspace(0, levels, (GROUPS if levels <= 40 else 3) + 1).astype(int)
            self.groups = [range(a, b) for a, b in itertools.pairwise(cuts)]
        chance = np.ones((1, levels + 1))  # (classes, y)
        for group in self.groups:
            part = _count_chances(alp, group)  # (ones, y)
            chance = (part[:, None, :] * chance[None, :, :]).reshape(-1, levels + 1)
        self.chance = chance
        self.score = (chance @ np.arange(levels + 1)) / np.maximum(chance.sum(axis=1), 1e-300)

    def code(self, words: Ints) -> Ints:
        """Return the index into ``chance`` of each of (D,) packed patterns."""
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
        """Return the class of each code, and (classes, y) probabilities; at most ``most`` classes, by the mean of y."""
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


def _count_chances(alp: AlpLikelihood, group: range) -> Floats:
    """Return (ones, y): the probability of each number of ones among the columns of a group, for each y."""
    ys = np.arange(alp.levels + 1)
    table = np.zeros((len(group) + 1, len(ys)))
    table[0] = 1.0
    for level in group:
        one = np.where(ys > level, alp.set_below, alp.set_above[level])
        up = np.zeros_like(table)
        up[1:] = table[:-1] * one
        table = table * (1.0 - one) + up
    return table


def argmax_levels(bits: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Floats:
    """Return Algorithm 2's estimates of y for (D, m) bits: the average of all maximisers of the walk."""
    walk = np.zeros((bits.shape[0], bits.shape[1] + 1), dtype=np.int32)
    np.cumsum(np.where(bits != 0, 1, -1), axis=1, out=walk[:, 1:])
    peak = walk == walk.max(axis=1, keepdims=True)
    return np.asarray((peak @ np.arange(walk.shape[1])) / peak.sum(axis=1))
