"""Selection: parameters of a choice of the c highest of k scores, and what it costs.

| mechanism | one choice | its loss, with γ the rate and m = 1 for monotone scores, else 2 |
|---|---|---|
| `permute_and_flip` | coins of exp(−γ(s* − s)) in random order | mγΔ (McKenna, Sheldon 2020) |
| `exponential` | with probability ∝ exp(γs) | mγΔ (McSherry, Talwar 2007, Theorem 6), of bounded range |
| `noisy_max` | the largest s + Laplace(1/γ) | mγΔ (Dwork, Roth 2014, Claim 3.9) |

c choices, each taken out before the next, compose: ε' = ε/c at δ = 0. At δ > 0, ε' is the largest of which
c adaptive pure steps are (ε, δ)-DP, by the exact composition theorem (`accounting.runs`). The exponential
mechanism has more: its privacy loss lies in an interval of length mγΔ (bounded range: Durfee, Rogers 2019,
§4.2), so that c steps have ρ = c·ε'²/8 instead of c·ε'²/2 (`accounting.zcdp`), and ε' is about twice as large.

**In one shot.** Gumbel noise on every score and the c largest have exactly the distribution of c exponential
choices (Durfee, Rogers 2019, §4.1): `exponential` is that, without the Gumbel noise, which has no exact
sampler on integers. With Laplace noise, one draw for each score and the c largest in order are ε-DP at δ = 0
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

from dataclasses import dataclass
from fractions import Fraction

from hushgram.laplace_mechanism import check_scale, per_query, positive
from hushgram.numbers import Number, boolean, choice, integer, rational_delta
from hushgram.sensitivity import ANY, Sensitivity, Unit

__all__ = ["MECHANISMS", "SelectionParams", "privacy_map"]

MECHANISMS = ("permute_and_flip", "exponential", "noisy_max")


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

    def calibrated(self, unit: Unit) -> Sensitivity:
        """What the choice is calibrated for: how far one unit moves one score, whatever the number of scores."""
        return Sensitivity(ANY, self.sensitivity, unit, monotone=self.monotone)

    @property
    def round_epsilon(self) -> Fraction:
        """ε' of one choice."""
        pure = per_query(self.epsilon, self.delta, self.count)
        if self.delta == 0 or self.mechanism != "exponential":
            return pure
        from hushgram.accounting.zcdp import bounded_range_epsilon

        return max(pure, bounded_range_epsilon(self.epsilon, self.delta, self.count))

    @property
    def rate(self) -> Fraction:
        """γ of one choice."""
        whole = self.round_epsilon / self.sensitivity
        return whole if self.monotone else whole / 2


def privacy_map(params: SelectionParams, distance: int) -> Fraction:
    """The pure ε of all choices if one user moves each score by at most ``distance``."""
    return params.rate * (1 if params.monotone else 2) * distance * params.count
