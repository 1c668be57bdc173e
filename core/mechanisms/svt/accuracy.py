"""Sparse vector: how far from the threshold an answer may be wrong.

(α, β)-accuracy (Kamath, Lecture 9): with probability at least 1 − β, every ⊤ has f_i ≥ T − α, every ⊥ has
f_i ≤ T + α (and every released value lies within α of f_i). It supposes that at most ``cutoff`` queries
reach T − α; after that many ⊤ the stream has halted.

`theorem_2` and `theorem_4` are the formulas of the lecture, times the sensitivity. `alpha` is tighter and
holds for every variant: the smallest α that a union bound over the actual discrete noise allows. All are
functions of public numbers, in floating point: they describe a release, and nothing is released by them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.mechanisms.laplace import whole_numbers
from hushgram.mechanisms.svt.params import SvtParams
from hushgram.noise.entropy import BitSource
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, rational

__all__ = [
    "alpha", "error_ratio", "measure", "refine", "theorem_2", "theorem_4", "theorem_alpha",
]  # fmt: skip


def theorem_2(queries: int, beta: Number, epsilon: Number, sensitivity: int = 1) -> float:
    """Return α = 8Δ(ln k + ln(2/β))/ε of AboveThreshold (Lecture 9, Theorem 2).

    >>> round(theorem_2(1000, "0.05", "1"), 1)
    84.8
    """
    return theorem_4(queries, beta, 1, epsilon, 0, sensitivity)


def theorem_4(
    queries: int, beta: Number, cutoff: int, epsilon: Number, delta: Number = 0, sensitivity: int = 1
) -> float:
    """Return α of Sparse (Lecture 9, Theorem 4): 8cΔ(ln k + ln(2c/β))/ε, or √(512 c ln(1/δ))Δ(...)/ε for δ > 0."""
    k, b = _sizes(queries, beta)
    logs = math.log(k) + math.log(2 * cutoff / b)
    d = float(rational(delta, "delta", "theorem_4"))
    factor = 8 * cutoff if d == 0 else math.sqrt(-512 * cutoff * math.log(d))
    return factor * sensitivity * logs / float(rational(epsilon, "epsilon", "theorem_4"))


def theorem_alpha(params: SvtParams, queries: int, beta: Number) -> int:
    """Return the α of Theorems 2 and 4 for these parameters, rounded up to an even number.

    The proof halves α, and the tail of discrete Laplace noise beyond an integer a is at most e^(−a/b): so
    α/2 must be an integer for the continuous bound to carry over. It speaks of the lecture's variant, `dwork-roth`.
    """
    share = 1 - params.value_share
    value = theorem_4(
        queries, beta, params.cutoff, params.epsilon * share, params.delta * share, params.sensitivity
    )
    return 2 * math.ceil(value / 2)


def alpha(params: SvtParams, queries: int, beta: Number) -> int:
    """Return the smallest integer α for which the actual noise is (α, β)-accurate by a union bound.

    A query can fail on one side only (it is too low for ⊤, or too high for ⊥), so with any a₁ + a₂ = α

        P[fail] ≤ r·P[|ρ| > a₁] + k·P[ν > a₂] + c·P[|Z| > α],    r thresholds, Z the fresh noise of values.

    With one-sided noise and s = shift + margin, a wrong ⊤ has ν − ρ > α + s and a wrong ⊥ has ρ > ρ − ν > α − s:

        P[fail] ≤ k·P[ν − ρ > α + s] + r·P[ρ > α − s + 1] + c·P[|Z| > α].

    A threshold that some queries were compared with is larger than a fresh one, if anything, so this holds for
    redrawn thresholds as well.
    """
    k, b = _sizes(queries, beta)
    low, high = -1, 1
    while _failure(params, k, high) > b:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _failure(params, k, middle) > b else (low, middle)
    return high


def _sizes(queries: int, beta: Number) -> tuple[int, float]:
    b = float(rational(beta, "beta", "accuracy"))
    if not 0 < b < 1:
        raise ParameterError(f"accuracy: beta must be above 0 and below 1, got {b}")
    return max(1, queries), b


def _failure(params: SvtParams, queries: int, width: int) -> float:
    """Return the union bound at α = ``width``, least over the ways to split it (convex: ternary search)."""
    noise = params.noise
    draws = params.cutoff if noise.redraw else 1
    value = 0.0 if noise.value is None else 2 * params.cutoff * _tail(noise.value, width + 1)
    if noise.one_sided:
        moved = noise.shift + params.margin
        r1, r2 = (float(1 / scale) for scale in (noise.threshold, noise.query))
        high = math.exp(-r2 * max(width + moved + 1, 0)) * math.expm1(-r1) / math.expm1(-r1 - r2)
        low = math.exp(-r1 * max(width - moved + 2, 0))
        return queries * high + draws * low + value

    def at(first: int) -> float:
        return 2 * draws * _tail(noise.threshold, first + 1) + queries * _tail(noise.query, width - first + 1)

    low, high = 0, width
    while high - low > 2:
        third = (high - low) // 3
        left, right = low + third, high - third
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return min(at(first) for first in range(low, high + 1)) + value


def _tail(scale: Fraction, at: int) -> float:
    """Return P[Z ≥ at] = q^at/(1 + q) for at ≥ 1."""
    rate = float(1 / scale)
    return math.exp(-rate * at) / (1 + math.exp(-rate))


# Estimates from gaps, and answers to the selected queries.
#
# A gap g_i = f_i + ν_i − T̂ is free (Ding, Wang, Zhang, Kifer 2019), so T + g_i estimates f_i with the known
# variance of ν − ρ. Together with a fresh measurement of f_i it gives a better one: weighted by inverse
# variances, the error falls to (1 + s)³/((1 + s)³ + 2c²) of the measurement's when both halves of ε are equal
# (s = c^(2/3) for monotone queries, a third for large c; s = (2c)^(2/3) otherwise, two thirds), with c² instead of
# 2c² where noise is two-sided. That is post-processing, and costs nothing.
#
# Programming DP ("Application: Range Queries") first selects with Sparse, then measures the
# selected: here `measure` does so, and divides its ε among the queries that were in fact selected.


def _variance(scale: Fraction, sides: int = 2) -> float:
    """Return the variance of discrete Laplace noise, 2q/(1 − q)², close to 2b²; half of that for geometric noise."""
    q = float(np.exp(-1 / float(scale)))
    return sides * q / (1 - q) ** 2


def measure(
    exact: NDArray[np.int64], *, epsilon: Number, sensitivity: int, source: BitSource
) -> tuple[NDArray[np.int64], Fraction]:
    """Answer m queries that a released selection chose, with fresh noise; return answers and noise scale mΔ/ε.

    Guarantee: ``epsilon``-DP, composed with what the selection cost. m is known from the selection, which is
    released already, so the budget is divided by m and not by the cutoff.
    """
    each = rational(epsilon, "epsilon", "measure")
    if each <= 0:
        raise ParameterError(f"measure: epsilon must be above 0, got {epsilon}")
    scale = max(1, len(exact)) * Fraction(sensitivity) / each
    values = whole_numbers(exact, "measure")
    return values + discrete_laplace(scale, len(values), source), scale


def refine(
    params: SvtParams, gaps: NDArray[np.int64], values: NDArray[np.int64], value_scale: Fraction | None = None
) -> NDArray[np.float64]:
    """Combine gap and fresh value by inverse variances (Ding et al. 2019, §5.2); post-processing."""
    weight = error_ratio(params, value_scale)
    by_gap = np.asarray(gaps, dtype=np.float64) + params.threshold - _gap_bias(params)
    return weight * np.asarray(values, dtype=np.float64) + (1 - weight) * by_gap


def error_ratio(params: SvtParams, value_scale: Fraction | None = None) -> float:
    """Return the variance of `refine` over that of the value alone, which is also the weight of the value in it."""
    noise, scale = params.noise, params.noise.value if value_scale is None else value_scale
    if scale is None:
        raise ParameterError("refine: values need a noise scale; take answers='numeric' or give value_scale")
    sides = 1 if noise.one_sided else 2
    of_gap = _variance(noise.threshold, sides) + _variance(noise.query, sides)
    return of_gap / (of_gap + _variance(scale))


def _gap_bias(params: SvtParams) -> float:
    """Return the mean of ν − ρ less the whole number that T̂ was shifted by."""
    if not params.noise.one_sided:
        return 0.0
    threshold, query = (1 / math.expm1(float(1 / b)) for b in (params.noise.threshold, params.noise.query))
    return query - threshold - params.noise.shift
