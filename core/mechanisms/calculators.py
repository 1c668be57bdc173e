"""Every theorem of the documents as a calculator: pure functions of public numbers. `hushgram calculate NAME …`.

A calculator is one function, whose keyword arguments are its options, and one line in `CALCULATORS`. It returns a
bound, the formula and theorem that the bound comes from, and what it bounds: exact, simulated, or by another theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from hushgram.accounting.composition import composed_delta, rdp_epsilon
from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import check_scale
from hushgram.mechanisms.pmw.hypothesis import MAX_TOTAL
from hushgram.mechanisms.pmw.mechanism import OnlinePMW, PmwParams, synthetic_counts
from hushgram.mechanisms.pmw.workload import GRID, Workload
from hushgram.mechanisms.svt.accuracy import alpha as union_alpha
from hushgram.mechanisms.svt.accuracy import theorem_alpha
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import BitSource, InteractiveKey
from hushgram.noise.laws import LaplaceLaw
from hushgram.noise.sampling import discrete_laplace
from hushgram.noise.zcdp import zcdp_epsilon
from hushgram.numbers import Number, integer, positive
from hushgram.sensitivity import exact

__all__ = ["CALCULATORS", "Beside", "Calculation"]

# Beyond this a step protects nobody.
_MAX_EPSILON = 30
_MAX_ORDER = 10**6
_LECTURE_3 = "Wang, Lecture 3, §3.3.2"
# Draws of a simulation, under a fixed key: nothing private is drawn.
_DRAWS = 1 << 21
# Weights of synthetic queries that a simulation of PMW may have.
_MAX_WEIGHTS = 1 << 22
# Below this, floating point cannot tell 1 − β from 1.
_MIN_BETA = 1e-12
# Scales up to this are summed number by number.
_WIDEST = 1 << 9


@dataclass(frozen=True)
class Beside:
    """A number to compare with: exact, simulated, or by another theorem."""

    what: str
    value: float


@dataclass(frozen=True)
class Calculation:
    """One bound. ``exact`` is what it bounds: never above it, up to the confidence that was asked for."""

    what: str
    bound: float
    formula: str
    theorem: str
    exact: Beside
    others: tuple[Beside, ...] = ()

    def rows(self) -> list[dict[str, object]]:
        """Return table rows: the bound first, then what stands beside it."""
        first = {"what": self.what, "value": self.bound, "from": f"{self.formula}  ({self.theorem})"}
        return [
            first,
            *({"what": one.what, "value": one.value, "from": ""} for one in (self.exact, *self.others)),
        ]


# --- composition ------------------------------------------------------------------------------------------------


def _probability(value: Number, name: str, owner: str) -> Fraction:
    """Return a number between 0 and 1."""
    out = positive(value, name, owner)
    if out >= 1:
        raise ParameterError(f"{owner}: {name} must be below 1, got {value}")
    return out


def _moderate(epsilon: Fraction, owner: str) -> float:
    if epsilon > _MAX_EPSILON:
        raise ParameterError(f"{owner}: epsilon must be at most {_MAX_EPSILON}, got {float(epsilon):g}")
    return float(epsilon)


def advanced_composition(*, epsilon: Number, steps: int, delta: Number) -> Calculation:
    """Calculate ε of STEPS adaptive steps, each EPSILON-DP, at DELTA.

    >>> round(advanced_composition(epsilon="0.1", steps=100, delta="1e-6").bound, 2)
    6.31
    """
    owner = "advanced-composition"
    each, fail = positive(epsilon, "epsilon", owner), _probability(delta, "delta", owner)
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
    """Return the smallest ε, to a millionth of kε, at which the exact δ of the composition is at most ``delta``."""
    low, high = 0, 1_000_000
    while high - low > 1:
        middle = (low + high) // 2
        enough = composed_delta(each, steps, each * steps * Fraction(middle, 1_000_000)) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return float(each * steps * Fraction(high, 1_000_000))


def zcdp_to_dp(*, rho: Number, delta: Number) -> Calculation:
    """Calculate ε at DELTA of a RHO-zCDP mechanism.

    >>> round(zcdp_to_dp(rho="0.5", delta="1e-6").bound, 2)
    5.76
    """
    exactly = positive(rho, "rho", "zcdp"), _probability(delta, "delta", "zcdp")
    r, d = map(float, exactly)
    return Calculation(
        "epsilon at this delta",
        r + 2 * math.sqrt(r * -math.log(d)),
        "ρ + 2√(ρ ln(1/δ))",
        "Bun, Steinke 2016, Proposition 1.3",
        Beside("exact, for the Gaussian mechanism of this rho", _gaussian_epsilon(r, d)),
        (
            Beside(
                "by all orders (Canonne, Kamath, Steinke 2020, Proposition 12)",
                float(zcdp_epsilon(*exactly)),
            ),
        ),
    )


def _gaussian_epsilon(rho: float, delta: float) -> float:
    """Return the ε of Gaussian noise with σ = 1/√(2ρ) for a shift of 1 (Balle, Wang 2018, Theorem 8), by bisection."""
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
    """Calculate ε at DELTA of a mechanism whose Rényi divergence of ORDER is at most LOSS.

    >>> round(rdp_to_dp(order=10, loss="0.5", delta="1e-6").bound, 2)
    2.04
    """
    alpha, tau = float(positive(order, "order", "rdp")), float(positive(loss, "loss", "rdp"))
    d = float(_probability(delta, "delta", "rdp"))
    if not 1 < alpha <= _MAX_ORDER:
        raise ParameterError(f"rdp: order must be above 1 and at most {_MAX_ORDER}, got {alpha:g}")
    return Calculation(
        "epsilon at this delta",
        tau + -math.log(d) / (alpha - 1),
        "τ + ln(1/δ)/(α − 1)",
        "Mironov 2017, Proposition 3",
        Beside("the tighter conversion of dp-accounting", rdp_epsilon(alpha, tau, d)),
    )


def pure_to_zcdp(*, epsilon: Number) -> Calculation:
    """Calculate ρ of an EPSILON-DP mechanism.

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


# --- Laplace noise on linear queries ----------------------------------------------------------------------------


def laplace_error(*, queries: int, epsilon: Number, records: int, beta: Number = "0.05") -> Calculation:
    """Calculate the worst error of QUERIES linear queries as a share of RECORDS, with probability 1 − BETA.

    >>> round(laplace_error(queries=100, epsilon="0.5", records=100_000).bound, 4)
    0.0152
    """
    k, e, fail = _checked(queries, epsilon, beta)
    integer(records, "records", "laplace-error", low=1, high=1 << 60)
    return Calculation(
        "worst error, as a share of the records",
        math.ceil(k * math.log(k / float(fail)) / float(e)) / records,
        "⌈|Q| ln(|Q|/β)/ε⌉ / n",
        _LECTURE_3,
        Beside("exact quantile of the discrete noise", _quantile(k, e, fail) / records),
        (Beside("statistical error, for comparison: 1/√n", 1 / math.sqrt(records)),),
    )


def laplace_records(*, queries: int, epsilon: Number, alpha: Number, beta: Number = "0.05") -> Calculation:
    """Calculate the records needed for a worst error of ALPHA, with probability 1 − BETA: sample complexity.

    >>> laplace_records(queries=100, epsilon="0.5", alpha="0.01").bound
    152100.0
    """
    k, e, fail = _checked(queries, epsilon, beta)
    share = _probability(alpha, "alpha", "laplace-records")
    return Calculation(
        "records needed",
        float(math.ceil(math.ceil(k * math.log(k / float(fail)) / float(e)) / share)),
        "⌈|Q| ln(|Q|/β)/ε⌉ / α",
        _LECTURE_3,
        Beside(
            "exact, from the quantile of the discrete noise", float(math.ceil(_quantile(k, e, fail) / share))
        ),
    )


def laplace_histogram(*, cells: int, epsilon: Number, records: int, beta: Number = "0.05") -> Calculation:
    """Calculate the error of one linear query on a Laplace histogram of CELLS, with probability 1 − BETA.

    >>> round(laplace_histogram(cells=1000, epsilon=1, records=100_000).bound, 5)
    0.00172
    """
    integer(cells, "cells", "laplace-histogram", low=1, high=1 << 24)
    integer(records, "records", "laplace-histogram", low=1, high=1 << 60)
    scale = check_scale(1 / positive(epsilon, "epsilon", "laplace-histogram"), "laplace-histogram")
    fail = float(_probability(beta, "beta", "laplace-histogram"))
    tail = math.log(2 / fail)
    spread = float(scale) * math.sqrt(max(cells, tail))
    return Calculation(
        "error of a query of weights 1, as a share of the records",
        math.ceil(spread * math.sqrt(8 * tail)) / records,
        "⌈√(8 max(|X|, ln(2/β)) ln(2/β))/ε⌉ / n",
        "Wang, Lecture 3, §3.5, with the constant of Chan, Shi, Song 2011, Lemma 2.8",
        Beside("simulated quantile", _summed(cells, scale, fail) / records),
    )


def _checked(queries: int, epsilon: Number, beta: Number) -> tuple[int, Fraction, Fraction]:
    integer(queries, "queries", "laplace", low=1, high=1 << 40)
    e = positive(epsilon, "epsilon", "laplace")
    check_scale(queries / e, "laplace")
    return queries, e, _probability(beta, "beta", "laplace")


def _quantile(queries: int, epsilon: Fraction, beta: Fraction) -> int:
    """Return the smallest t with P[all |Z_i| ≤ t] ≥ 1 − β, Z discrete Laplace of scale |Q|/ε."""
    rate = float(epsilon / queries)
    each = -math.expm1(math.log1p(-float(beta)) / queries)  # most that one may fail
    # P[|Z| > t] = 2q^(t+1)/(1 + q)
    return max(0, math.ceil(-math.log(each * (1 + math.exp(-rate)) / 2) / rate) - 1)


def _summed(cells: int, scale: Fraction, beta: float) -> float:
    """Return the (1 − β)-quantile of |Σ Z_i| over the cells; of a normal variable where cells are too many to draw."""
    runs = _DRAWS // cells
    if runs < 20 / beta:
        q = math.exp(-1 / float(scale))
        return math.sqrt(cells * 2 * q) / (1 - q) * NormalDist().inv_cdf(1 - beta / 2)
    noise = discrete_laplace(scale, runs * cells, BitSource(bytes(32)))
    return float(np.quantile(np.abs(noise.reshape(runs, cells).sum(axis=1)), 1 - beta))


# --- sparse vector and multiplicative weights -------------------------------------------------------------------


def above_threshold(
    *, queries: int, epsilon: Number, beta: Number = "0.05", sensitivity: int = 1
) -> Calculation:
    """Calculate α of AboveThreshold: with probability 1 − BETA no answer is wrong by more than α (Theorem 2).

    >>> above_threshold(queries=1000, epsilon=1).bound
    86.0
    """
    formula = "8Δ(ln k + ln(2/β))/ε, rounded up to an even number"
    return _accuracy("Theorem 2", formula, queries, 1, epsilon, 0, beta, sensitivity)


def sparse(
    *,
    queries: int,
    cutoff: int,
    epsilon: Number,
    delta: Number = 0,
    beta: Number = "0.05",
    sensitivity: int = 1,
) -> Calculation:
    """Calculate α of Sparse with CUTOFF yes-answers (Theorem 4).

    >>> sparse(queries=1000, cutoff=10, epsilon=1).bound
    1032.0
    """
    formula = "8cΔ(ln k + ln(2c/β))/ε" if delta in (0, "0") else "√(512c ln(1/δ))Δ(ln k + ln(2c/β))/ε"
    rounded = f"{formula}, rounded up to an even number"
    return _accuracy("Theorem 4", rounded, queries, cutoff, epsilon, delta, beta, sensitivity)


def _accuracy(
    theorem: str,
    formula: str,
    queries: int,
    cutoff: int,
    epsilon: Number,
    delta: Number,
    beta: Number,
    sensitivity: int,
) -> Calculation:
    integer(cutoff, "cutoff", "sparse", low=1, high=20_000)
    integer(queries, "queries", "sparse", low=cutoff, high=1 << 40)
    fail = _probability(beta, "beta", "sparse")
    if fail < _MIN_BETA:
        raise ParameterError(f"sparse: beta must be at least {_MIN_BETA:g}, got {beta}")

    def of(variant: str, monotone: bool = False) -> SvtParams:
        return SvtParams(
            epsilon=epsilon,
            delta=delta,
            threshold=0,
            cutoff=cutoff,
            sensitivity=sensitivity,
            variant=variant,
            monotone=monotone,
        )

    stated = of("dwork-roth")
    return Calculation(
        "alpha",
        float(theorem_alpha(stated, queries, fail)),
        formula,
        f"Kamath, Lecture 9, {theorem}",
        Beside(
            "exact: the alpha that this noise needs on the hardest stream",
            float(_hardest(stated, queries, fail)),
        ),
        (
            Beside("by a union bound over the same noise", float(union_alpha(stated, queries, fail))),
            Beside(
                "… with the optimal split (variant optimal)", float(union_alpha(of("optimal"), queries, fail))
            ),
            Beside("… for monotone queries", float(union_alpha(of("optimal", monotone=True), queries, fail))),
        ),
    )


def _hardest(params: SvtParams, queries: int, beta: Number) -> int:
    """Return the smallest α for which no mistake is made with probability 1 − β, by summing over the threshold's noise.

    The hardest stream that the theorems allow has c queries at T + α, all others at T − α, evenly between them.
    """
    noise, runs = params.noise, params.cutoff
    each = math.ceil((queries - runs) / runs)
    # Wide noise is summed on a coarser grid, which is as good: scales and α shrink together.
    unit = max(1, math.ceil(float(noise.threshold) / _WIDEST))
    bar, query = LaplaceLaw(float(noise.threshold / unit)), LaplaceLaw(float(noise.query / unit))
    reach = math.ceil(45 * bar.scale)
    at = np.arange(-reach, reach + 1.0)
    chance = bar.pmf(at)

    def succeeds(width: int) -> float:
        below = 1 - query.tail(at + width)  # ν < α + ρ
        above = query.tail(at - width)  # ν ≥ ρ − α
        one = float((chance * below**each * above).sum())
        return one**runs

    low, high = -1, 1
    while succeeds(high) < 1 - float(beta):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if succeeds(middle) < 1 - float(beta) else (low, middle)
    return high * unit


def pmw_records(
    *, cells: int, queries: int, alpha: Number, epsilon: Number, delta: Number = 0, beta: Number = "0.05"
) -> Calculation:
    """Calculate the records that online PMW needs for QUERIES over CELLS to within ALPHA (Theorem 5).

    >>> pmw_records(cells=16, queries=100, alpha="0.5", epsilon=5).exact.value < 0.5
    True
    """
    integer(cells, "cells", "pmw-records", low=1, high=1 << 20)
    share = _probability(alpha, "alpha", "pmw-records")
    common = {"epsilon": epsilon, "delta": delta, "cells": cells, "queries": queries, "beta": beta}
    params = PmwParams.from_accuracy(share, total=MAX_TOTAL, **common)  # type: ignore[arg-type]
    need = math.ceil(4 * max(params.slack(beta)) / float(share))
    if need > MAX_TOTAL:
        raise ParameterError(f"pmw-records: {need:.3g} records would be needed; raise alpha or epsilon")
    rows = max(1, min(queries, _MAX_WEIGHTS // cells))
    counts = synthetic_counts(cells, need)
    grid = np.arange(rows)[:, None] * 7919 + np.arange(cells)[None, :] * 104_729
    work = Workload(((grid % 10_007) * GRID // 10_006).astype(np.uint16))
    exactly = PmwParams.from_accuracy(share, total=need, **common)  # type: ignore[arg-type]
    told = OnlinePMW(exact(counts, max_contributions=1), exactly, InteractiveKey(bytes(32))).answer(work)
    worst = float(np.abs(told.scaled - work.exact(counts)).max()) / GRID / need
    return Calculation(
        "records needed",
        float(need),
        "n = 4·max(a, b)/α: a, b the noise of comparisons and answers at c = ⌈16 ln|X|/α²⌉ updates; "
        "Õ(log|Q| √(log|X| log(1/δ))/(α²ε))",
        "Kamath, Lecture 9, Theorem 5",
        Beside(f"simulated worst error of {rows:,} queries at that n (alpha is {float(share):g})", worst),
    )


CALCULATORS: dict[str, Callable[..., Calculation]] = {
    "advanced-composition": advanced_composition,
    "zcdp": zcdp_to_dp,
    "rdp": rdp_to_dp,
    "pure-to-zcdp": pure_to_zcdp,
    "laplace-error": laplace_error,
    "laplace-records": laplace_records,
    "laplace-histogram": laplace_histogram,
    "above-threshold": above_threshold,
    "sparse": sparse,
    "pmw-records": pmw_records,
}
