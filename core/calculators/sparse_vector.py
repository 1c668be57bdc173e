"""How far from the threshold the sparse vector technique may be wrong, and how many records PMW needs."""

from __future__ import annotations

import math

import numpy as np

from hushgram.calculators.calculation import Beside, Calculation
from hushgram.calculators.composition import probability
from hushgram.errors import ParameterError
from hushgram.noise.entropy import InteractiveKey
from hushgram.noise.laws import LaplaceLaw
from hushgram.numbers import Number, integer
from hushgram.pmw.expected import made_up_counts
from hushgram.pmw.hypothesis import MOST_TOTAL
from hushgram.pmw.mechanism import OnlinePMW, PmwParams
from hushgram.pmw.workload import GRID, Workload
from hushgram.sensitivity import exact
from hushgram.svt.accuracy import alpha as union_alpha
from hushgram.svt.accuracy import theorem_4, theorem_alpha
from hushgram.svt.params import SvtParams

__all__ = ["above_threshold", "pmw_records", "sparse"]

# Weights of made-up queries that a simulation of PMW may have.
_MOST_WEIGHTS = 1 << 22
# Below this, floating point cannot tell 1 − β from 1.
_LEAST_BETA = 1e-12
# Scales up to this are summed number by number.
_WIDEST = 1 << 9


def above_threshold(
    *, queries: int, epsilon: Number, beta: Number = "0.05", sensitivity: int = 1
) -> Calculation:
    """α of AboveThreshold: with probability 1 − BETA no answer is wrong by more than α (Theorem 2).

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
    """α of Sparse with CUTOFF yes-answers (Theorem 4).

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
    fail = probability(beta, "beta", "sparse")
    if fail < _LEAST_BETA:
        raise ParameterError(f"sparse: beta must be at least {_LEAST_BETA:g}, got {beta}")

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
    assert theorem_4(queries, fail, cutoff, epsilon, delta, sensitivity) <= theorem_alpha(
        stated, queries, fail
    )
    return Calculation(
        "alpha",
        float(theorem_alpha(stated, queries, fail)),
        formula,
        f"Kamath, Lecture 9, {theorem}",
        Beside(
            "exact: the alpha that this noise needs on the hardest stream",
            float(_exact(stated, queries, fail)),
        ),
        (
            Beside("by a union bound over the same noise", float(union_alpha(stated, queries, fail))),
            Beside(
                "… with the optimal split (variant optimal)", float(union_alpha(of("optimal"), queries, fail))
            ),
            Beside("… for monotone queries", float(union_alpha(of("optimal", monotone=True), queries, fail))),
        ),
    )


def _exact(params: SvtParams, queries: int, beta: Number) -> int:
    """The smallest α for which no mistake is made with probability 1 − β, by summing over the threshold's noise.

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
    """Records that online PMW needs to answer QUERIES over CELLS to within ALPHA of them (Theorem 5).

    >>> pmw_records(cells=16, queries=100, alpha="0.5", epsilon=5).exact.value < 0.5
    True
    """
    integer(cells, "cells", "pmw-records", low=1, high=1 << 20)
    share = probability(alpha, "alpha", "pmw-records")
    common = {"epsilon": epsilon, "delta": delta, "cells": cells, "queries": queries, "beta": beta}
    params = PmwParams.from_accuracy(share, total=MOST_TOTAL, **common)  # type: ignore[arg-type]
    need = math.ceil(4 * max(params.slack(beta)) / float(share))
    if need > MOST_TOTAL:
        raise ParameterError(f"pmw-records: {need:.3g} records would be needed; raise alpha or epsilon")
    rows = max(1, min(queries, _MOST_WEIGHTS // cells))
    counts = made_up_counts(cells, need)
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
