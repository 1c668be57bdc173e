"""The channel of one key: the probability of every outcome, given the true count x.

An outcome is what a lookup finds: the key's m bits, and whether the threshold part lists it and with
which value. Given x the two are independent, because each mechanism draws noise of its own:

P(bits, value | x) = Σ_y P(y | x)·∏_b P(bit_b | y) · P(value | x)

* P(y | x): random rounding puts y on the two integers beside min(x, bound)/w (Aumüller, Lebeda, Pagh
  2021, Alg. 1, step 1).
* P(bit_b = 1 | y) is 1 − p where b ≤ y. Above y the position holds whatever other keys and the noise
  left there: the hash is independent of them, so the probability is the share of ones that the column
  shows.
* P(value | x): discrete Laplace, cut at the bound (Alg. 3, with integers).
"""

from __future__ import annotations

import numpy as np

from hushgram.decoding.released import Floats, Ints, Released

__all__ = ["Channel", "pack_bits"]

SATURATED = 1e-3  # a column keeps at least this share of its contrast, so that no ratio divides by zero


def pack_bits(bits: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Ints:
    """(N, m) bits → N words; bit b − 1 of the word is the bit of column b."""
    count, levels = bits.shape
    words = np.zeros(count, dtype=np.int64)
    for level in range(levels):
        words |= (bits[:, level] != 0).astype(np.int64) << level
    return words


class Channel:
    """Likelihoods of one key's outcomes under a release. Pure arithmetic on public numbers."""

    def __init__(self, released: Released) -> None:
        self.released = released
        self.levels = released.levels
        self.ratio = float(np.exp(-1.0 / released.noise))  # t of the module docstring
        flip = released.flip
        share = released.ones / np.maximum(released.sizes, 1)
        self.set_below = 1.0 - flip  # P(bit = 1 | b ≤ y)
        self.set_above = np.clip(
            share, flip, flip + (1.0 - 2.0 * flip) * (1.0 - SATURATED)
        )  # P(bit = 1 | b > y)

    # The bits -----------------------------------------------------------------------------------------

    def rounding(self, counts: Floats) -> Floats:
        """(X,) counts → (X, m + 1) probabilities of each level y."""
        top = self.levels
        scaled = np.minimum(np.minimum(counts, self.released.bound) / self.released.width, top)
        lower = np.floor(scaled).astype(np.int64)
        part = scaled - lower
        table = np.zeros((len(counts), top + 1))
        rows = np.arange(len(counts))
        table[rows, lower] = 1.0 - part
        table[rows, np.minimum(lower + 1, top)] += part
        return table

    def reach(self, counts: Floats) -> Floats:
        """(X,) counts → (X, m) probabilities P(y ≥ b | x) for b = 1 … m."""
        steps = np.arange(self.levels)
        scaled = np.minimum(counts, self.released.bound)[:, None] / self.released.width
        return np.clip(scaled - steps, 0.0, 1.0)

    def log_patterns(self, words: Ints) -> Floats:
        """(D,) packed patterns → (D, m + 1) values of ln P(pattern | y)."""
        table = np.zeros((len(words), self.levels + 1))
        below = np.log([1.0 - self.set_below, self.set_below])
        for level in range(self.levels):
            above = np.log([1.0 - self.set_above[level], self.set_above[level]])
            bit = (words >> level) & 1
            table[:, : level + 1] += above[bit][:, None]
            table[:, level + 1 :] += below[bit][:, None]
        return table

    # The threshold part ---------------------------------------------------------------------------------

    def tail(self, at: Floats) -> Floats:
        """P(Z ≥ at) for integers ``at`` (as floats)."""
        t = self.ratio
        with np.errstate(under="ignore"):
            far = np.power(t, np.where(at >= 1, at, 1.0 - at)) / (1.0 + t)
        return np.asarray(np.where(at >= 1, far, 1.0 - far))

    def hidden(self, counts: Floats) -> Floats:
        """P(not listed | x) for each count; an empty cell can be listed only where cells get noise."""
        chance = 1.0 - self.tail(np.ceil(self.released.bound - counts))
        return chance if self.released.cells is not None else np.where(counts > 0, chance, 1.0)

    def value(self, values: Floats, counts: Floats) -> Floats:
        """(V,) listed values × (X,) counts → (V, X) probabilities P(value | x)."""
        t = self.ratio
        with np.errstate(under="ignore"):
            table = (1.0 - t) / (1.0 + t) * np.power(t, np.abs(values[:, None] - counts[None, :]))
        if self.released.cells is None:
            table[:, counts <= 0] = 0.0
        return np.asarray(table)

    @property
    def variance(self) -> float:
        """Var Z = 2t/(1 − t)²."""
        return 2.0 * self.ratio / max((1.0 - self.ratio) ** 2, 1e-300)

    def radius(self, level: float) -> int:
        """The smallest c with P(|Z| ≤ c) ≥ level; P(|Z| > c) = 2t^(c+1)/(1 + t)."""
        t = self.ratio
        if t <= 0.0:
            return 0
        rest = np.log(max((1.0 - level) * (1.0 + t) / 2.0, 1e-300)) / np.log(t)
        return max(0, int(np.ceil(rest - 1.0 - 1e-12)))
