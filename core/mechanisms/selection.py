"""Selection: the c highest of k scores, privately. Released: indices of candidates, never a score.

| mechanism | one choice, with s* the highest score | privacy loss, m = 1 for monotone scores, else 2 |
|---|---|---|
| `permute_and_flip` | coins of exp(−γ(s* − s)) in random order | mγΔ (McKenna, Sheldon 2020) |
| `exponential` | with probability ∝ exp(γs) | mγΔ (McSherry, Talwar 2007, Theorem 6), of bounded range |
| `noisy_max` | the largest s + Laplace(1/γ) | mγΔ (Dwork, Roth 2014, Claim 3.9) |

**One choice.** *Exponential*: one user moves γ·s_r by at most γΔ and the sum Σ exp(γ·s_i) by a factor of at most
e^(γΔ), together 2γΔ; if all scores move the same way, both factors do too and partly cancel: γΔ. *Noisy max*: fix the
noise of the others; candidate r wins iff Z_r ≥ t for a whole number t, which one user moves by at most mΔ, and the
tail P[Z ≥ t] moves by at most the factor e^γ per unit. *Permute-and-flip* has the distribution of noisy max with
exponential noise (Ding, Kifer, Steinke, et al. 2021), so the same argument holds. Its expected error is never above
that of the exponential mechanism at the same ε (McKenna, Sheldon 2020), and on average 0.61 of that of Laplace noise
(`python -m benchmarks.answers max`).

**c choices**, each taken out before the next, compose: ε' = ε/c at δ = 0. At δ > 0, ε' is the largest of which
c adaptive pure steps are (ε, δ)-DP, by the exact composition theorem (`accounting.composition`). The exponential
mechanism has more: its privacy loss lies in an interval of length mγΔ (bounded range: Durfee, Rogers 2019,
§4.2), so that c steps have ρ = c·ε'²/8 instead of c·ε'²/2 (`noise.zcdp`), and ε' is about twice as large.

**In one shot.** Gumbel noise on every score and the c largest have exactly the distribution of c exponential
choices (Durfee, Rogers 2019, §4.1): `exponential` is that, without the Gumbel noise, which has no exact
sampler on integers. With Laplace noise, one draw per score and the c largest in order are ε-DP at δ = 0
for scale mcΔ/ε: shift the noise of each of the c chosen by at most mΔ, and they stay the largest, in the same
order (for the set: Qiao, Su, Zhang 2021, Theorem 2.1). Their Theorem 2.2 for δ > 0 needs ε ≤ 0.2, δ ≤ 0.05
and scale 8Δ√(c·ln(k/δ))/ε, several times that of bounded range, so it is not offered.

| symbol | name |
|---|---|
| Δ | sensitivity |
| c | count |
| γ | rate: ε'/Δ for monotone scores, half of it otherwise |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import MAX_ANSWER, check_scale, per_query, whole_numbers
from hushgram.noise.entropy import BitSource, os_entropy
from hushgram.noise.intervals import exp_neg
from hushgram.noise.sampling import bernoulli, discrete_laplace, uniform_below
from hushgram.numbers import Number, boolean, choice, integer, positive, rational_delta, stated_call
from hushgram.sensitivity import ANY, ExactVector, PrivacyUnit, Sensitivity

__all__ = ["MECHANISMS", "SelectionParams", "choose", "privacy_map", "top"]

I64 = NDArray[np.int64]

# Candidates drawn at a time: as many as there are (so many are expected in the worst case), within limits.
_MIN_TRIES, _MAX_TRIES = 64, 1 << 16
# Coins rarer than e^−32 are drawn as several in a row: their digits would begin with very many zeros.
_MAX_EXPONENT = 32


# --- one choice -------------------------------------------------------------------------------------------------


def _permute_and_flip(scores: I64, rate: Fraction, source: BitSource) -> int:
    """Draw the coins of all candidates and return a uniform one of those whose coin fell.

    The first success in a uniformly random order is a uniformly random success: no permutation is needed.
    """
    fell = np.flatnonzero(_coins(scores.max() - scores, rate, source))
    return int(fell[int(uniform_below(len(fell), 1, source)[0])])


def _exponential(scores: I64, rate: Fraction, source: BitSource) -> int:
    """Draw uniform candidates until the coin of exp(−γ(s* − s_r)) of one falls: k tries at most are expected."""
    gaps = scores.max() - scores
    tries = min(max(len(scores), _MIN_TRIES), _MAX_TRIES)
    while True:
        candidates = uniform_below(len(scores), tries, source).astype(np.int64)
        kept = np.flatnonzero(_coins(gaps[candidates], rate, source))
        if len(kept):
            return int(candidates[kept[0]])


def _noisy_max(scores: I64, rate: Fraction, source: BitSource) -> int:
    return int(_largest(scores, rate, source, 1)[0])


def _largest(scores: I64, rate: Fraction, source: BitSource, count: int) -> I64:
    """Return the ``count`` largest of one noisy draw, in order; of equal ones the first comes first."""
    noisy = scores + discrete_laplace(1 / rate, len(scores), source)
    return np.argsort(-noisy, kind="stable")[:count].astype(np.int64)


def _coins(gaps: I64, rate: Fraction, source: BitSource) -> NDArray[np.bool_]:
    """Draw independent coins, the i-th True with probability exactly exp(−rate·gaps[i]); gaps whole and ≥ 0.

    exp(−γg) is the product of exp(−γ2^j) over the binary digits j of g: no floating point, and one array
    draw per digit.
    """
    out = np.ones(len(gaps), dtype=np.bool_)
    # From the highest digit down: it rules out most candidates, and the rest need fewer coins.
    for digit in range(int(gaps.max()).bit_length() - 1, -1, -1):
        needed = np.flatnonzero(out & ((gaps >> digit) & 1).astype(np.bool_))
        out[needed] = False
        rows = -(-rate * 2**digit // _MAX_EXPONENT)
        coin = exp_neg(rate * 2**digit / rows)
        while len(needed) and rows:  # nearly always over after one round: nobody survives e^−32 twice
            needed = needed[bernoulli(coin, len(needed), source)]
            rows -= 1
        out[needed] = True
    return out


#: Each mechanism by its name in configs: a function of scores, rate and source that returns one index.
MECHANISMS: Mapping[str, Callable[[I64, Fraction, BitSource], int]] = {
    "permute_and_flip": _permute_and_flip,
    "exponential": _exponential,
    "noisy_max": _noisy_max,
}


# --- parameters and privacy map ---------------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class SelectionParams:
    """(ε, δ) for all choices together.

    Neighbours: one user added or removed, who moves each score by at most ``sensitivity`` (for counts of
    keys: max_per_key, since only one score at a time is compared). ``monotone`` says that one user moves
    all scores in the same direction: only who knows that of the scores may declare it, as for counts under
    add/remove. Declared wrongly, the loss is up to 2ε.

    >>> SelectionParams(1, count=10, monotone=True).rate
    Fraction(1, 10)
    """

    epsilon: Fraction
    delta: Fraction
    sensitivity: int
    count: int
    monotone: bool
    mechanism: str

    def __init__(
        self,
        epsilon: Number,
        *,
        delta: Number = 0,
        sensitivity: int = 1,
        count: int = 1,
        monotone: bool = False,
        mechanism: str = "permute_and_flip",
    ) -> None:
        owner, put = "SelectionParams", object.__setattr__
        put(self, "epsilon", positive(epsilon, "epsilon", owner))
        put(self, "delta", rational_delta(delta, owner))
        put(self, "sensitivity", integer(sensitivity, "sensitivity", owner, low=1, high=1 << 40))
        put(self, "count", integer(count, "count", owner, low=1, high=1 << 20))
        put(self, "monotone", boolean(monotone, "monotone", owner))
        put(self, "mechanism", choice(mechanism, "mechanism", owner, MECHANISMS))
        check_scale(1 / self.rate, owner)

    def calibrated(self, unit: PrivacyUnit) -> Sensitivity:
        """Return what the choice is calibrated for: how far one unit moves one score, however many there are."""
        return Sensitivity(ANY, self.sensitivity, unit, monotone=self.monotone)

    @property
    def noise_text(self) -> str:
        """The text that noise is derived from; it must never change for the same parameters."""
        names = ("epsilon", "delta", "sensitivity", "count", "monotone", "mechanism")
        return stated_call("SelectionParams", self, names)

    @property
    def round_epsilon(self) -> Fraction:
        """ε' of one choice."""
        pure = per_query(self.epsilon, self.delta, self.count)
        if self.delta == 0 or self.mechanism != "exponential":
            return pure
        from hushgram.noise.zcdp import bounded_range_epsilon

        return max(pure, bounded_range_epsilon(self.epsilon, self.delta, self.count))

    @property
    def rate(self) -> Fraction:
        """γ of one choice."""
        whole = self.round_epsilon / self.sensitivity
        return whole if self.monotone else whole / 2


def privacy_map(params: SelectionParams, distance: int) -> Fraction:
    """Return the pure ε of all choices if one user moves each score by at most ``distance``."""
    return params.rate * (1 if params.monotone else 2) * distance * params.count


# --- release ----------------------------------------------------------------------------------------------------


def choose(scores: Any, params: SelectionParams, source: BitSource | None = None) -> int:
    """Return the index of a candidate whose score is nearly the highest: one of the choices of ``params``.

    Args:
        scores: whole numbers, or fractions; one user moves each by at most ``params.sensitivity``.
        params: ε, sensitivity and mechanism.
        source: where random bits come from; the operating system by default.

    >>> choose([Fraction(1, 2), 900, 5], SelectionParams(1), BitSource(bytes(32)))
    1
    """
    whole, grid = _whole_scores(scores)
    return MECHANISMS[params.mechanism](whole, params.rate / grid, source or os_entropy())


def top(scores: ExactVector, params: SelectionParams, source: BitSource, unit: PrivacyUnit = "user") -> I64:
    """Return the indices of ``params.count`` candidates, highest first; (ε, δ)-DP for all of them together.

    Args:
        scores: exact scores with their sensitivity (`hushgram.sensitivity.exact`).
        params: ε, δ, count and mechanism.
        source: where random bits come from.
        unit: the privacy unit.
    """
    left, grid = _whole_scores(ExactVector.given(scores, "top").admit(params.calibrated(unit)).values)
    rate = params.rate / grid
    if params.count > len(left):
        raise ParameterError(
            f"selection: count must be at most {len(left)}, the candidates, got {params.count}"
        )
    if params.mechanism == "noisy_max" and params.delta == 0:
        return _largest(left, rate, source, params.count)
    index = np.arange(len(left), dtype=np.int64)
    chosen = np.empty(params.count, dtype=np.int64)
    for place in range(params.count):
        winner = MECHANISMS[params.mechanism](left, rate, source)
        chosen[place] = index[winner]
        left, index = np.delete(left, winner), np.delete(index, winner)
    return chosen


def _whole_scores(scores: Any) -> tuple[I64, int]:
    """Return scores as whole numbers of 1/d, and d; from an array of whole numbers, or a list of fractions.

    >>> _whole_scores([Fraction(1, 2), 1, Fraction(2, 3)])[0].tolist()
    [3, 6, 4]
    """
    grid, values = 1, np.asarray(scores)
    if values.ndim == 1 and values.dtype == object and all(isinstance(s, Fraction | int) for s in values):
        values, grid = _on_grid(list(values))
    if values.ndim != 1 or len(values) == 0:
        raise ParameterError("selection: the list of candidates is empty; name at least one")
    if values.dtype.kind not in "iu":
        raise ParameterError(f"selection: scores must be whole numbers or fractions, got {values.dtype}")
    return whole_numbers(values, "selection"), grid


def _on_grid(scores: Sequence[Fraction | int]) -> tuple[I64, int]:
    """Return fractions over their common denominator, and that denominator."""
    grid = lcm(*(Fraction(score).denominator for score in scores))
    if grid > 1 << 30:
        raise ParameterError("selection: scores have no common denominator up to 2^30; round them to a grid")
    whole = [min(max(int(score * grid), -MAX_ANSWER), MAX_ANSWER) for score in scores]
    return np.array(whole, dtype=np.int64), grid
