"""Report noisy max: which of k candidates has the highest score, and the c highest by peeling.

Released: the index of one candidate (or c of them in order), never a score. Guarantee: ε-DP when one user
moves each score by at most Δ. The mechanism is permute-and-flip (McKenna, Sheldon 2020), whose expected
error is never above that of the exponential mechanism: go through the candidates in random order, stop at
candidate r with probability exp(−ε(s* − s_r)/(2Δ)), s* the highest score. It has the same distribution as
report noisy max with exponential instead of Laplace noise.

* Monotone scores (a user added moves no score down, as counts do): exp(−ε(s* − s_r)/Δ) is enough. In the
  form of noisy max, candidate r wins iff its noise is at least t = max_{i≠r}(s_i + η_i) − s_r; one user
  moves t by at most Δ if all scores move the same way and by at most 2Δ otherwise, and an exponential tail
  moves by the factor e^(t/scale).
* Exactness: the coins are drawn for all candidates at once; the first success in a uniformly random
  order is a uniformly random success, so one uniform integer replaces the permutation. A coin of exp(−γg),
  g a whole number, is the product of coins exp(−γ2^j) over the binary digits j of g: no floating point,
  and one array draw per digit.
* Top c: c rounds at ε/c each, the winner taken out (basic composition of adaptive rounds).

| symbol | name |
|---|---|
| Δ | sensitivity |
| s | scores |
| γ | rate: ε/(2Δ), or ε/Δ for monotone scores |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import positive
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import exp_neg
from hushgram.noise.sampling import bernoulli, uniform_below
from hushgram.numbers import Number, boolean, integer

__all__ = ["NoisyMaxParams", "distribution", "noisy_max", "privacy_map", "top"]

# Scores are cut to ± this before the gap to the highest is taken: a gap then fits in 62 binary digits.
_MOST = 1 << 61
# Coins rarer than e^−32 are drawn as several in a row: their digits would begin with very many zeros.
_MOST_EXPONENT = 32
# Candidates of `distribution`: 2^(k−1) subsets are summed.
_MOST_ENUMERATED = 20


@dataclass(frozen=True, init=False)
class NoisyMaxParams:
    """ε for all rounds together.

    Neighbours: one user added or removed, who moves each score by at most ``sensitivity`` (for counts of
    keys: max_per_key, since only one score at a time is compared). ``monotone`` says that one user moves
    all scores in the same direction: only who knows that of the scores may declare it, as for counts under
    add/remove. Declared wrongly, the loss is up to 2ε.
    """

    epsilon: Fraction
    sensitivity: int
    count: int
    monotone: bool

    def __init__(
        self, epsilon: Number, *, sensitivity: int = 1, count: int = 1, monotone: bool = False
    ) -> None:
        owner, put = "NoisyMaxParams", object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        put(self, "sensitivity", integer(sensitivity, "sensitivity", owner, low=1, high=1 << 40))
        put(self, "count", integer(count, "count", owner, low=1, high=1 << 20))
        put(self, "monotone", boolean(monotone, "monotone", owner))

    @property
    def rate(self) -> Fraction:
        """γ of one round: (ε/c)/Δ for monotone scores, half of it otherwise."""
        whole = self.epsilon / (self.count * self.sensitivity)
        return whole if self.monotone else whole / 2


def privacy_map(params: NoisyMaxParams, distance: int) -> Fraction:
    """The ε of all rounds if one user moves each score by at most ``distance``."""
    return params.rate * (1 if params.monotone else 2) * distance * params.count


def noisy_max(scores: NDArray[np.int64], params: NoisyMaxParams, source: BitSource) -> int:
    """The index of a candidate whose score is nearly the highest; ε-DP (one round of ``params``).

    >>> from hushgram.noise.entropy import BitSource
    >>> noisy_max(np.array([3, 900, 5]), NoisyMaxParams(1), BitSource(bytes(32)))
    1
    """
    return int(_round(_checked(scores, 1), params.rate, source))


def top(scores: NDArray[np.int64], params: NoisyMaxParams, source: BitSource) -> NDArray[np.int64]:
    """Indices of ``params.count`` candidates, highest first, by peeling; ε-DP for all of them together."""
    left = _checked(scores, params.count)
    index = np.arange(len(left), dtype=np.int64)
    chosen = np.empty(params.count, dtype=np.int64)
    for place in range(params.count):
        winner = _round(left, params.rate, source)
        chosen[place] = index[winner]
        left, index = np.delete(left, winner), np.delete(index, winner)
    return chosen


def _checked(scores: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    values = np.asarray(scores)
    if values.ndim != 1 or len(values) == 0:
        raise ParameterError("noisy_max: the list of candidates is empty; name at least one")
    if values.dtype.kind not in "iu":
        raise ParameterError(f"noisy_max: scores must be whole numbers, got {values.dtype}")
    if count > len(values):
        raise ParameterError(f"noisy_max: count must be at most {len(values)}, the candidates, got {count}")
    return np.clip(values, -_MOST, _MOST).astype(np.int64)


def _round(scores: NDArray[np.int64], rate: Fraction, source: BitSource) -> int:
    """Permute-and-flip: a uniform choice among the candidates whose coin fell."""
    fell = np.flatnonzero(_coins(scores.max() - scores, rate, source))
    return int(fell[int(uniform_below(len(fell), 1, source)[0])])


def _coins(gaps: NDArray[np.int64], rate: Fraction, source: BitSource) -> NDArray[np.bool_]:
    """Independent coins, the i-th True with probability exactly exp(−rate·gaps[i]); gaps whole and ≥ 0."""
    out = np.ones(len(gaps), dtype=np.bool_)
    # From the highest digit down: it rules out most candidates, and the rest need fewer coins.
    for digit in range(int(gaps.max()).bit_length() - 1, -1, -1):
        needed = np.flatnonzero(out & ((gaps >> digit) & 1).astype(np.bool_))
        out[needed] = False
        out[_survivors(needed, rate * 2**digit, source)] = True
    return out


def _survivors(needed: NDArray[np.intp], exponent: Fraction, source: BitSource) -> NDArray[np.intp]:
    """Those of ``needed`` whose coin of exp(−exponent) fell; a large exponent is a row of moderate coins."""
    coins = -(-exponent // _MOST_EXPONENT)
    coin = exp_neg(exponent / coins)
    while len(needed) and coins:  # nearly always over after one round: nobody survives e^−32 twice
        needed = needed[bernoulli(coin, len(needed), source)]
        coins -= 1
    return needed


def distribution(scores: Sequence[int], rate: float) -> list[float]:
    """P[candidate r is chosen] in one round (McKenna, Sheldon 2020, Proposition 1), for tables and tests.

    p_r · Σ over subsets S of the others of (−1)^|S|/(|S| + 1) · Π_{i∈S} p_i, p_i = exp(−rate(s* − s_i)).
    """
    if not 1 <= len(scores) <= _MOST_ENUMERATED:
        raise ParameterError(f"distribution: 1 to {_MOST_ENUMERATED} candidates, got {len(scores)}")
    high = max(scores)
    coins = [math.exp(-rate * (high - s)) for s in scores]
    out = []
    for r, coin in enumerate(coins):
        others = coins[:r] + coins[r + 1 :]
        terms = (
            (-1) ** size / (size + 1) * math.fsum(math.prod(subset) for subset in combinations(others, size))
            for size in range(len(others) + 1)
        )
        out.append(coin * math.fsum(terms))
    return out
