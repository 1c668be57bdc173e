"""Sparse vector: what gaps are good for, and answers to the queries that are worth answering.

A gap g_i = f_i + ν_i − T̂ is free (Ding, Wang, Zhang, Kifer 2019), so T + g_i estimates f_i with the known
variance of ν − ρ. Together with a fresh measurement of f_i it gives a better one: weighted by inverse
variances, the error falls to (1 + s)³/((1 + s)³ + c²) of the measurement's when both halves of ε are equal
(s = c^(2/3) for monotone queries, a half for large c; s = (2c)^(2/3) otherwise, four fifths). That is
post-processing, and costs nothing.

Programming DP ("Application: Range Queries") first selects with Sparse, then measures the
selected: here `measure` does so, and divides its ε among the queries that were in fact selected.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import whole_numbers
from hushgram.noise.entropy import BitSource
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, rational
from hushgram.svt.params import SvtParams

__all__ = ["error_ratio", "gap_estimate", "gap_variance", "laplace_variance", "measure", "refine"]


def laplace_variance(scale: Fraction) -> float:
    """Variance of discrete Laplace noise: 2q/(1 − q)², close to 2b² for large b."""
    q = float(np.exp(-1 / float(scale)))
    return 2 * q / (1 - q) ** 2


def gap_variance(params: SvtParams) -> float:
    """Variance of T + gap as an estimate of the answer, before selection."""
    return laplace_variance(params.noise.threshold) + laplace_variance(params.noise.query)


def gap_estimate(params: SvtParams, gaps: NDArray[np.int64]) -> NDArray[np.float64]:
    """T + gap: free, but high for answers near the threshold, which pass only where their noise is high."""
    return np.asarray(gaps, dtype=np.float64) + params.threshold


def measure(
    exact: NDArray[np.int64], *, epsilon: Number, sensitivity: int, source: BitSource
) -> tuple[NDArray[np.int64], Fraction]:
    """Fresh Laplace answers to m queries that a released selection chose, and their noise scale mΔ/ε.

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
    params: SvtParams,
    gaps: NDArray[np.int64],
    values: NDArray[np.int64],
    value_scale: Fraction | None = None,
) -> NDArray[np.float64]:
    """Gap and fresh value combined by inverse variances (Ding et al. 2019, §5.2); post-processing."""
    scale = params.noise.value if value_scale is None else value_scale
    if scale is None:
        raise ParameterError("refine: values need a noise scale; take answers='numeric' or give value_scale")
    of_gap, of_value = gap_variance(params), laplace_variance(scale)
    weight = of_gap / (of_gap + of_value)  # of the value
    return weight * np.asarray(values, dtype=np.float64) + (1 - weight) * gap_estimate(params, gaps)


def error_ratio(params: SvtParams, value_scale: Fraction | None = None) -> float:
    """Variance of `refine` over that of the value alone: below 1, by the closed formula."""
    scale = params.noise.value if value_scale is None else value_scale
    if scale is None:
        raise ParameterError("error_ratio: take answers='numeric' or give value_scale")
    of_gap, of_value = gap_variance(params), laplace_variance(scale)
    return of_gap / (of_gap + of_value)
