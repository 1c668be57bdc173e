"""A privacy filter: composition that holds where each ε is chosen after seeing all earlier outputs.

Guarantee. Let a data set release events (ε_1, δ_1), (ε_2, δ_2), … where each mechanism *and its ε_i, δ_i* may
follow from all outputs before it, and let the next event be refused where it would break, for fixed
numbers ε, ρ*, δ_c and δ_e,

    Σ δ_i ≤ δ_e   and   ( Σ ε_i ≤ ε   or   Σ ε_i²/2 ≤ ρ* ).

Then all outputs together are (ε, δ_e + δ_c)-DP, where ρ* is any number with, for some α > 1,

    exp((α − 1)(αρ* − ε)) · (1 − 1/α)^α / (α − 1) ≤ δ_c.                                               (1)

Proof. *Events with δ_i = 0.* Let P and Q be the distributions of all outputs on neighbours and L the log of
their ratio. A path is a list of outputs; it ends where the next event is refused or none is asked for.

1. On a path that ends with Σ ε_i ≤ ε, L ≤ Σ ε_i ≤ ε.
2. On every other path Σ ε_i²/2 ≤ ρ* at its end, so at each earlier step too. Let M be the same adversary under
   the second condition alone; these paths have the same probabilities under M. An ε_i-DP mechanism has Rényi
   divergence D_α ≤ α ε_i²/2 (Bun, Steinke 2016, Proposition 3.3), and ε_i is known given the outputs before
   it, so (P/Q)^α · exp(−(α − 1) α Σ ε_i²/2) is a supermartingale under Q, and with Σ ε_i²/2 ≤ ρ* on every path
   of M: E_Q[(P/Q)^α] ≤ exp((α − 1) α ρ*) (Feldman, Zrnic 2021, Theorem 3.1; Whitehouse, Ramdas, Rogers, Wu
   2023, Theorem 1). By Canonne, Kamath, Steinke 2020, Proposition 12, E_P[max(0, 1 − e^(ε − L))] over the paths
   of M is at most the left side of (1).
3. P(S) − e^ε Q(S) ≤ Σ over all paths of max(0, P − e^ε Q), which by 1 has terms from paths of the second kind
   alone, and these sum to at most δ_c by 2.

*Any δ_i.* An (ε_i, δ_i)-DP pair is with probability 1 − δ_i an ε_i-DP pair and else anything (Kairouz, Oh,
Viswanath 2015, Theorem 3.2). The probability that any "else" happens on a path is at most the mean of Σ δ_i,
which is at most δ_e, and without it the proof above applies. ∎

δ_c is a fixed share of the budget's δ: it must not depend on outputs, so what events leave of δ_e is not used.

| symbol | meaning |
|---|---|
| ε, δ | the budget |
| δ_c, δ_e | its δ for composition (`COMPOSITION_SHARE` of it), and for the δ of events: δ_c + δ_e = δ |
| ρ* | `allowance`: what Σ ε_i²/2 may be |
| α | order of the Rényi divergence, chosen to make ρ* large; any choice is valid |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from hushgram.noise.intervals import enclose, ratio_interval

__all__ = ["COMPOSITION_SHARE", "allowance", "epsilon_of"]

COMPOSITION_SHARE = Fraction(1, 10)
"""Ten times less for δ_c costs a few per cent of ρ*, and nine tenths of δ are left for events."""

_ORDERS = [1 + Fraction(round(64 * 2 ** (step / 8)), 64) for step in range(-24, 97)]
"""Orders α between 1.1 and 4,000, in steps of 9 %."""
_BITS = 192


@lru_cache(maxsize=256)
def allowance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """ρ* for a budget of ε at δ_c = `delta`, rounded down; 0 where there is none.

    >>> float(allowance(Fraction(3), Fraction(1, 10**7)))  # doctest: +ELLIPSIS
    0.157...
    """

    def rough(order: Fraction) -> float:
        return (float(epsilon) - _rough_cost(order, delta)) / float(order)

    order = max(_ORDERS, key=rough)

    def exact(iv: Any) -> Any:
        return (ratio_interval(iv, epsilon) - _cost(iv, order, delta)) / ratio_interval(iv, order)

    return max(Fraction(0), enclose(exact, _BITS)[0])


@lru_cache(maxsize=256)
def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """The ε that Σ ε_i²/2 = `rho` comes to at δ_c = `delta`, rounded up: for display.

    Never below 0: at a large δ_c the bound is negative, and (1) is a statement about ε ≥ 0.

    >>> epsilon_of(Fraction(0), Fraction(1, 100))
    Fraction(0, 1)
    """
    order = min(_ORDERS, key=lambda order: float(order * rho) + _rough_cost(order, delta))

    def exact(iv: Any) -> Any:
        return ratio_interval(iv, order * rho) + _cost(iv, order, delta)

    return max(Fraction(0), Fraction(math.ceil(enclose(exact, _BITS)[1] * 10**9), 10**9))


def _cost(iv: Any, order: Fraction, delta: Fraction) -> Any:
    """What (1) adds to αρ*: (ln((1 − 1/α)^α / (α − 1)) − ln δ_c) / (α − 1)."""
    return _formula(order, delta, iv.log, lambda value: ratio_interval(iv, value))


def _rough_cost(order: Fraction, delta: Fraction) -> float:
    return float(_formula(order, delta, math.log, float))


def _formula(
    order: Fraction, delta: Fraction, log: Callable[[Any], Any], number: Callable[[Fraction], Any]
) -> Any:
    share = number(order) * log(number(1 - 1 / order)) - log(number(order - 1)) - log(number(delta))
    return share / number(order - 1)
