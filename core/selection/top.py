"""The choice itself: one candidate, or the c highest. Released: indices, never a score. See `params`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import BitSource
from hushgram.selection import exponential, noisy_max, permute_and_flip
from hushgram.selection.params import SelectionParams
from hushgram.selection.scores import whole_scores
from hushgram.sensitivity import ExactVector, Unit

__all__ = ["choose", "top"]

_PICK: dict[str, Callable[[NDArray[np.int64], Fraction, BitSource], int]] = {
    "permute_and_flip": permute_and_flip.pick,
    "exponential": exponential.pick,
    "noisy_max": noisy_max.pick,
}


def choose(scores: Any, params: SelectionParams, source: BitSource) -> int:
    """The index of a candidate whose score is nearly the highest: one of the choices that ``params`` pay for.

    >>> from hushgram.noise.entropy import BitSource
    >>> choose(np.array([3, 900, 5]), SelectionParams(1), BitSource(bytes(32)))
    1
    """
    whole, unit = whole_scores(scores)
    return _PICK[params.mechanism](whole, params.rate / unit, source)


def top(
    scores: ExactVector, params: SelectionParams, source: BitSource, unit: Unit = "user"
) -> NDArray[np.int64]:
    """Indices of ``params.count`` candidates, highest first; (ε, δ)-DP for all of them together."""
    admitted = ExactVector.given(scores, "top").admit(params.calibrated(unit))
    left, grid = whole_scores(admitted.values, params.count)
    rate = params.rate / grid
    if params.mechanism == "noisy_max" and params.delta == 0:
        return noisy_max.largest(left, rate, source, params.count)
    pick = _PICK[params.mechanism]
    index = np.arange(len(left), dtype=np.int64)
    chosen = np.empty(params.count, dtype=np.int64)
    for place in range(params.count):
        winner = pick(left, rate, source)
        chosen[place] = index[winner]
        left, index = np.delete(left, winner), np.delete(index, winner)
    return chosen
