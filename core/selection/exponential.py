"""The exponential mechanism: candidate r with probability ∝ exp(γ·s_r) (McSherry, Talwar 2007, Theorem 6).

Privacy: one user moves γ·s_r by at most γΔ and the sum Σ exp(γ·s_i) by a factor of at most e^(γΔ), together
2γΔ; if all scores move the same way, both factors do too, and partly cancel: γΔ. In both cases the privacy loss
lies in an interval of that length (bounded range), which composes better than pure ε does.

Exact, without floating point: draw candidates uniformly, and keep the first whose coin of exp(−γ(s* − s_r))
falls. The kept one has probability exp(−γ(s* − s_r))/Σ_i exp(−γ(s* − s_i)). At most k tries are expected, and
tries are drawn by the array.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hushgram.noise.entropy import BitSource, os_entropy
from hushgram.noise.sampling import uniform_below
from hushgram.numbers import Number
from hushgram.selection.params import SelectionParams
from hushgram.selection.scores import coins, whole_scores

__all__ = ["choose", "distribution", "pick"]

# Tries drawn at a time: as many as there are candidates (so many are expected in the worst case), within limits.
_LEAST_TRIES, _MOST_TRIES = 64, 1 << 16


def pick(scores: NDArray[np.int64], rate: Fraction, source: BitSource) -> int:
    """One choice: uniform candidates until the coin of one falls."""
    gaps = scores.max() - scores
    tries = min(max(len(scores), _LEAST_TRIES), _MOST_TRIES)
    while True:
        candidates = uniform_below(len(scores), tries, source).astype(np.int64)
        kept = np.flatnonzero(coins(gaps[candidates], rate, source))
        if len(kept):
            return int(candidates[kept[0]])


def choose(
    scores: Any,
    *,
    epsilon: Number,
    sensitivity: int = 1,
    monotone: bool = False,
    source: BitSource | None = None,
) -> int:
    """The index of one candidate; ε-DP if one user moves each score by at most ``sensitivity``.

    Scores are whole numbers or fractions; ``monotone`` as in `SelectionParams`.

    >>> choose([Fraction(1, 2), 900, 5], epsilon="1", source=BitSource(bytes(32)))
    1
    """
    params = SelectionParams(epsilon, sensitivity=sensitivity, monotone=monotone, mechanism="exponential")
    whole, unit = whole_scores(scores)
    return pick(whole, params.rate / unit, source or os_entropy())


def distribution(scores: Sequence[float], rate: float) -> list[float]:
    """P[candidate r is chosen], for tables and tests."""
    high = max(scores)
    weights = [math.exp(-rate * (high - s)) for s in scores]
    whole = math.fsum(weights)
    return [weight / whole for weight in weights]
