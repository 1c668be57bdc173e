"""Scores and exact coins: what the mechanisms of selection share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.errors import ParameterError
from hushgram.laplace_mechanism import MOST_ANSWER
from hushgram.noise.entropy import BitSource
from hushgram.noise.intervals import exp_neg
from hushgram.noise.sampling import bernoulli

__all__ = ["coins", "whole_scores"]

# Coins rarer than e^−32 are drawn as several in a row: their digits would begin with very many zeros.
_MOST_EXPONENT = 32


def whole_scores(scores: Any, count: int = 1) -> tuple[NDArray[np.int64], int]:
    """Scores as whole numbers of 1/d, and d; from an array of whole numbers, or a list of fractions.

    >>> whole_scores([Fraction(1, 2), 1, Fraction(2, 3)])[0].tolist()
    [3, 6, 4]
    """
    unit = 1
    values = np.asarray(scores)
    if values.ndim == 1 and values.dtype == object and all(isinstance(s, Fraction | int) for s in values):
        values, unit = _on_grid(list(values))
    if values.ndim != 1 or len(values) == 0:
        raise ParameterError("selection: the list of candidates is empty; name at least one")
    if values.dtype.kind not in "iu":
        raise ParameterError(f"selection: scores must be whole numbers or fractions, got {values.dtype}")
    if count > len(values):
        raise ParameterError(f"selection: count must be at most {len(values)}, the candidates, got {count}")
    if values.dtype.kind == "u":
        values = np.minimum(values, np.uint64(MOST_ANSWER))
    return np.clip(values.astype(np.int64), -MOST_ANSWER, MOST_ANSWER), unit


def _on_grid(scores: Sequence[Fraction | int]) -> tuple[NDArray[np.int64], int]:
    """Fractions over their common denominator."""
    unit = lcm(*(Fraction(score).denominator for score in scores))
    if unit > 1 << 30:
        raise ParameterError("selection: scores have no common denominator up to 2^30; round them to a grid")
    whole = [min(max(int(score * unit), -MOST_ANSWER), MOST_ANSWER) for score in scores]
    return np.array(whole, dtype=np.int64), unit


def coins(gaps: NDArray[np.int64], rate: Fraction, source: BitSource) -> NDArray[np.bool_]:
    """Independent coins, the i-th True with probability exactly exp(−rate·gaps[i]); gaps whole and ≥ 0.

    exp(−γg) is the product of exp(−γ2^j) over the binary digits j of g: no floating point, and one array
    draw for each digit.
    """
    out = np.ones(len(gaps), dtype=np.bool_)
    # From the highest digit down: it rules out most candidates, and the rest need fewer coins.
    for digit in range(int(gaps.max()).bit_length() - 1, -1, -1):
        needed = np.flatnonzero(out & ((gaps >> digit) & 1).astype(np.bool_))
        out[needed] = False
        out[_survivors(needed, rate * 2**digit, source)] = True
    return out


def _survivors(needed: NDArray[np.intp], exponent: Fraction, source: BitSource) -> NDArray[np.intp]:
    """Those of ``needed`` whose coin of exp(−exponent) fell; a large exponent is a row of moderate coins."""
    rows = -(-exponent // _MOST_EXPONENT)
    coin = exp_neg(exponent / rows)
    while len(needed) and rows:  # nearly always over after one round: nobody survives e^−32 twice
        needed = needed[bernoulli(coin, len(needed), source)]
        rows -= 1
    return needed
