"""What many private steps cost together: advanced composition, zCDP and Rényi differential privacy."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

from hushgram.accounting.runs import composed_delta
from hushgram.accounting.zcdp import zcdp_epsilon
from hushgram.calculators.calculation import Beside, Calculation
from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import positive
from hushgram.numbers import Number, integer

__all__ = ["advanced_composition", "probability", "pure_to_zcdp", "rdp_to_dp", "zcdp_to_dp"]

# Beyond this a step protects nobody.
_MOST_EPSILON = 30
_MOST_ORDER = 10**6


def probability(value: Number, name: str, owner: str) -> Fraction:
    """A number between 0 and 1."""
    out = positive(value, name, owner)
    if out >= 1:
        raise ParameterError(f"{owner}: {name} must be below 1, got {value}")
    return out


def _moderate(epsilon: Fraction, owner: str) -> float:
    if epsilon > _MOST_EPSILON:
        raise ParameterError(f"{owner}: epsilon must be at most {_MOST_EPSILON}, got {float(epsilon):g}")
    return float(epsilon)


def advanced_composition(*, epsilon: Number, steps: int, delta: Number) -> Calculation:
    """ε of STEPS adaptive steps, each EPSILON-DP, at DELTA.

    >>> round(advanced_composition(epsilon="0.1", steps=100, delta="1e-6").bound, 2)
    6.31
    """
    owner = "advanced-composition"
    each, fail = positive(epsilon, "epsilon", owner), probability(delta, "delta", owner)
    integer(steps, "steps", owner, low=1, high=20_000)
    e, d = _moderate(each, owner), float(fail)
    bound = e * math.sqrt(2 * steps * -math.log(d)) + steps * e * math.expm1(e)
    return Calculation(
        "epsilon of all steps together",
        bound,
        "ε√(2k ln(1/δ)) + kε(e^ε − 1)",
        "Dwork, Rothblum, Vadhan 2010; Dwork, Roth 2014, Theorem 3.20",
        Beside(
            "exact composition of pure steps (Kairouz, Oh, Viswanath 2015)", _exact_epsilon(each, steps, fail)
        ),
        (Beside("basic composition, at delta 0: kε", steps * e),),
    )


def _exact_epsilon(each: Fraction, steps: int, delta: Fraction) -> float:
    """The smallest ε, to a millionth of kε, at which the exact δ of the composition is at most ``delta``."""
    low, high = 0, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        enough = composed_delta(each, steps, each * steps * Fraction(middle, 1_000_000)) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return float(each * steps * Fraction(high, 1_000_000))


def zcdp_to_dp(*, rho: Number, delta: Number) -> Calculation:
    """ε at DELTA of a RHO-zCDP mechanism.

    >>> round(zcdp_to_dp(rho="0.5", delta="1e-6").bound, 2)
    5.76
    """
    r, d = float(positive(rho, "rho", "zcdp")), float(probability(delta, "delta", "zcdp"))
    return Calculation(
        "epsilon at this delta",
        r + 2 * math.sqrt(r * -math.log(d)),
        "ρ + 2√(ρ ln(1/δ))",
        "Bun, Steinke 2016, Proposition 1.3",
        Beside("exact, for the Gaussian mechanism of this rho", _gaussian_epsilon(r, d)),
        (Beside("by all orders (Canonne, Kamath, Steinke 2020, Proposition 12)", zcdp_epsilon(r, d)),),
    )


def _gaussian_epsilon(rho: float, delta: float) -> float:
    """The ε of Gaussian noise with σ = 1/√(2ρ) for a shift of 1 (Balle, Wang 2018, Theorem 8), by bisection."""
    sigma, phi = 1 / math.sqrt(2 * rho), NormalDist().cdf

    def at(epsilon: float) -> float:
        half, wide = 1 / (2 * sigma), epsilon * sigma
        return phi(half - wide) - math.exp(min(epsilon, 700.0)) * phi(-half - wide)

    low, high = 0.0, rho + 2 * math.sqrt(rho * -math.log(delta))
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if at(middle) <= delta else (middle, high)
    return high


def rdp_to_dp(*, order: Number, loss: Number, delta: Number) -> Calculation:
    """ε at DELTA of a mechanism whose Rényi divergence of ORDER is at most LOSS.

    >>> round(rdp_to_dp(order=10, loss="0.5", delta="1e-6").bound, 2)
    2.04
    """
    from hushgram.accounting.zcdp import rdp_epsilon

    alpha, tau = float(positive(order, "order", "rdp")), float(positive(loss, "loss", "rdp"))
    d = float(probability(delta, "delta", "rdp"))
    if not 1 < alpha <= _MOST_ORDER:
        raise ParameterError(f"rdp: order must be above 1 and at most {_MOST_ORDER}, got {alpha:g}")
    return Calculation(
        "epsilon at this delta",
        tau + -math.log(d) / (alpha - 1),
        "τ + ln(1/δ)/(α − 1)",
        "Mironov 2017, Proposition 3",
        Beside("the tighter conversion of dp-accounting", rdp_epsilon(alpha, tau, d)),
    )


def pure_to_zcdp(*, epsilon: Number) -> Calculation:
    """ρ of an EPSILON-DP mechanism.

    >>> round(pure_to_zcdp(epsilon=1).bound, 3)
    0.5
    """
    e = _moderate(positive(epsilon, "epsilon", "pure-to-zcdp"), "pure-to-zcdp")
    return Calculation(
        "rho",
        e * e / 2,
        "ε²/2",
        "Bun, Steinke 2016, Proposition 1.4",
        # Its Rényi divergence of order α, over α, is largest as α falls to 1: the Kullback–Leibler divergence.
        Beside("exact, for randomized response of this epsilon: ε·tanh(ε/2)", e * math.tanh(e / 2)),
        (Beside("for a mechanism of bounded range, such as the exponential: ε²/8", e * e / 8),),
    )
