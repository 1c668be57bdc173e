"""How far Laplace noise throws linear queries off: on each query, and on a histogram that answers them."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from hushgram.calculators.calculation import Beside, Calculation
from hushgram.calculators.composition import probability
from hushgram.laplace_mechanism import check_scale, positive
from hushgram.noise.entropy import BitSource
from hushgram.noise.sampling import discrete_laplace
from hushgram.numbers import Number, integer

__all__ = ["laplace_error", "laplace_histogram", "laplace_records"]

_SOURCE = "Wang, Lecture 3, §3.3.2"
# Draws of a simulation, under a fixed key: nothing private is drawn.
_DRAWS = 1 << 21


def laplace_error(*, queries: int, epsilon: Number, records: int, beta: Number = "0.05") -> Calculation:
    """Worst error of QUERIES linear queries as a share of RECORDS, with probability 1 − BETA.

    >>> round(laplace_error(queries=100, epsilon="0.5", records=100_000).bound, 4)
    0.0152
    """
    k, e, fail = _checked(queries, epsilon, beta)
    integer(records, "records", "laplace-error", low=1, high=1 << 60)
    return Calculation(
        "worst error, as a share of the records",
        math.ceil(k * math.log(k / float(fail)) / float(e)) / records,
        "⌈|Q| ln(|Q|/β)/ε⌉ / n",
        _SOURCE,
        Beside("exact quantile of the discrete noise", _quantile(k, e, fail) / records),
        (Beside("statistical error, for comparison: 1/√n", 1 / math.sqrt(records)),),
    )


def laplace_records(*, queries: int, epsilon: Number, alpha: Number, beta: Number = "0.05") -> Calculation:
    """Records that are needed for a worst error of ALPHA, with probability 1 − BETA: sample complexity.

    >>> laplace_records(queries=100, epsilon="0.5", alpha="0.01").bound
    152100.0
    """
    k, e, fail = _checked(queries, epsilon, beta)
    share = probability(alpha, "alpha", "laplace-records")
    return Calculation(
        "records needed",
        float(math.ceil(math.ceil(k * math.log(k / float(fail)) / float(e)) / share)),
        "⌈|Q| ln(|Q|/β)/ε⌉ / α",
        _SOURCE,
        Beside(
            "exact, from the quantile of the discrete noise", float(math.ceil(_quantile(k, e, fail) / share))
        ),
    )


def laplace_histogram(*, cells: int, epsilon: Number, records: int, beta: Number = "0.05") -> Calculation:
    """Error of one linear query on a Laplace histogram of CELLS, as a share of RECORDS, with probability 1 − BETA.

    >>> round(laplace_histogram(cells=1000, epsilon=1, records=100_000).bound, 5)
    0.00172
    """
    integer(cells, "cells", "laplace-histogram", low=1, high=1 << 24)
    integer(records, "records", "laplace-histogram", low=1, high=1 << 60)
    scale = check_scale(1 / positive(epsilon, "epsilon", "laplace-histogram"), "laplace-histogram")
    fail = float(probability(beta, "beta", "laplace-histogram"))
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
    return queries, e, probability(beta, "beta", "laplace")


def _quantile(queries: int, epsilon: Fraction, beta: Fraction) -> int:
    """The smallest t with P[all |Z_i| ≤ t] ≥ 1 − β, Z discrete Laplace of scale |Q|/ε."""
    rate = float(epsilon / queries)
    each = -math.expm1(math.log1p(-float(beta)) / queries)  # most that one may fail
    # P[|Z| > t] = 2q^(t+1)/(1 + q)
    return max(0, math.ceil(-math.log(each * (1 + math.exp(-rate)) / 2) / rate) - 1)


def _summed(cells: int, scale: Fraction, beta: float) -> float:
    """The (1 − β)-quantile of |Σ Z_i| over the cells; of a normal variable where cells are too many to draw."""
    runs = _DRAWS // cells
    if runs < 20 / beta:
        q = math.exp(-1 / float(scale))
        return math.sqrt(cells * 2 * q) / (1 - q) * NormalDist().inv_cdf(1 - beta / 2)
    noise = discrete_laplace(scale, runs * cells, BitSource(bytes(32)))
    return float(np.quantile(np.abs(noise.reshape(runs, cells).sum(axis=1)), 1 - beta))
