"""How much each of c runs may spend, so that together they are (ε, δ)-DP.

A run of AboveThreshold is ε'-DP, and c runs one after another are adaptive composition. dp-accounting finds
the largest ε' (privacy loss distributions; the discretisation interval is ε' itself, so that losses ±ε' lie
on its grid and nothing is rounded). Its floating-point answer is then confirmed in interval arithmetic by
the exact composition theorem for pure mechanisms (Kairouz, Oh, Viswanath 2015, Theorem 3; also Murtagh,
Vadhan 2016), so that a stated δ never rests on a rounding error.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from hushgram.noise.intervals import enclose, ratio_interval

__all__ = ["calibrated_run_epsilon", "composed_delta"]

# ε' is put on a grid of ε/2^30: a billionth of ε, always rounded down.
_GRID = 1 << 30
# Relative steps back when the confirmation fails after dp-accounting's rounding.
_STEP_BACK = Fraction(1, 1 << 20)


def composed_delta(run_epsilon: Fraction, runs: int, epsilon: Fraction) -> Fraction:
    """Upper bound of the smallest δ for which ``runs`` adaptive steps of ``run_epsilon`` are (ε, δ)-DP.

    Σ_i C(c, i) · max(0, p^(c−i) q^i − e^ε p^i q^(c−i)) with p = e^ε'/(1 + e^ε'), q = 1 − p. Exact but for the
    enclosure, whose upper end is returned.

    >>> composed_delta(Fraction(1, 4), 4, Fraction(1))
    Fraction(0, 1)
    """
    terms = [i for i in range(runs + 1) if (runs - 2 * i) * run_epsilon > epsilon]

    def total(iv: Any) -> Any:
        q = 1 / (1 + iv.exp(ratio_interval(iv, run_epsilon)))
        p = 1 - q
        growth, odds = iv.exp(ratio_interval(iv, epsilon)), p / q
        likely, unlikely, out = p**runs, q**runs, iv.mpf(0)
        for i in terms:  # terms are 0, 1, 2, ...; both factors already hold the binomial coefficient
            out += likely - growth * unlikely
            step = iv.mpf(runs - i) / (i + 1)
            likely, unlikely = likely * step / odds, unlikely * step * odds
        return out

    return max(enclose(total, 256)[1], Fraction(0)) if terms else Fraction(0)


@lru_cache(maxsize=1024)
def calibrated_run_epsilon(epsilon: Fraction, delta: Fraction, runs: int) -> Fraction:
    """The largest ε' on the grid of which ``runs`` steps are (``epsilon``, ``delta``)-DP; at least ε/runs."""
    basic = epsilon / runs
    if delta == 0 or runs == 1:
        return basic if delta == 0 else max(basic, _single(epsilon, delta))
    unit = epsilon / _GRID
    found = Fraction(int(_search(epsilon, delta, runs) / unit)) * unit
    while found > basic:
        if composed_delta(found, runs, epsilon) <= delta:
            return found
        found = Fraction(int(found * (1 - _STEP_BACK) / unit)) * unit
    return basic


def _single(epsilon: Fraction, delta: Fraction) -> Fraction:
    """One run: the ε' with (e^ε' − e^ε)/(1 + e^ε') = δ, a little above ε; rounded down."""

    def solve(iv: Any) -> Any:
        d = ratio_interval(iv, delta)
        return iv.log((iv.exp(ratio_interval(iv, epsilon)) + d) / (1 - d))

    unit = epsilon / _GRID
    return Fraction(int(enclose(solve, 192)[0] / unit)) * unit


def _search(epsilon: Fraction, delta: Fraction, runs: int) -> Fraction:
    """Bisection on dp-accounting's δ(ε) between ε/runs, which always holds, and ε + a little."""
    from dp_accounting.pld import common
    from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters

    def holds(run: float) -> bool:
        parameters = common.DifferentialPrivacyParameters(run, 0)
        single = from_privacy_parameters(parameters, value_discretization_interval=run)
        composed = single.self_compose(runs, tail_mass_truncation=0)
        return bool(composed.get_delta_for_epsilon(float(epsilon)) <= float(delta) * (1 - 1e-9))

    low, high = float(epsilon / runs), float(epsilon) * 2
    for _ in range(44):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return Fraction(low)
